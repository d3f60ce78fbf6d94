// A folder for what is measured on SSD, gone afterwards. In the working directory, since /tmp may be memory.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace larder::bench {

class SsdFolder {
 public:
  SsdFolder() {
    std::string name = (std::filesystem::current_path() / "larder-bench-ssd-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~SsdFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  SsdFolder(const SsdFolder&) = delete;
  SsdFolder& operator=(const SsdFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace larder::bench
