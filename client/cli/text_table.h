// Columns for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace larder::cli {

// Left-aligned columns as wide as their widest cell, two spaces between; no trailing spaces.
class TextTable {
 public:
  void Row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string Text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Grouped(uint64_t number);    // "1,234,567"
std::string PrettyUs(uint64_t us);       // "85 us", "1.2 ms", "3.4 s"
std::string PrettyAge(uint64_t ms);      // "12s", "3m", "5h", "2d"
std::string TimeText(uint64_t unix_ms);  // "2026-11-30T04:00:00Z"

}  // namespace larder::cli
