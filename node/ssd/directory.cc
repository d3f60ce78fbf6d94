#include "node/ssd/directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "node/durable_file.h"
#include "proto/checksum.h"
#include "proto/units.h"

namespace larder::node::ssd {
namespace {

namespace fs = std::filesystem;

constexpr int kDirectoryVersion = 1;
constexpr const char* kMark = "/LARDER";
constexpr size_t kClearBytes = 40;

Status Mend(const Status& status) {
  if (status.ok()) return status;
  return Invalid("ssd: " + status.text() + "; mend that, or choose another directory with --ssd");
}

bool IsOurs(const std::string& name) {
  return name == "LARDER" || name == "LARDER.new" || name == "index" || name == "clears" ||
         (name.size() == 10 && name.compare(6, 4, ".seg") == 0);
}

}  // namespace

std::string NodeIdOf(const std::string& directory) {
  std::ifstream in(directory + kMark);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("node ", 0) == 0) return line.substr(5);
  }
  return {};
}

Directory::Directory(Directory&& other) noexcept
    : path_(std::move(other.path_)),
      node_id_(std::move(other.node_id_)),
      cluster_(std::move(other.cluster_)),
      segment_bytes_(other.segment_bytes_),
      lock_(std::exchange(other.lock_, -1)) {}

Directory::~Directory() {
  if (lock_ >= 0) close(lock_);
}

std::string SegmentPath(const std::string& directory, uint32_t segment) {
  char name[32];
  std::snprintf(name, sizeof name, "/%06u.seg", segment);
  return directory + name;
}

std::vector<uint32_t> Directory::Segments() const {
  std::vector<uint32_t> out;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(path_, error)) {
    const std::string name = file.path().filename();
    uint32_t number = 0;
    if (name.size() != 10 || name.compare(6, 4, ".seg") != 0) continue;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + 6, number);
    if (bad == std::errc{} && end == name.data() + 6) out.push_back(number);
  }
  return out;
}

Result<Directory> Directory::Open(const DirectoryOptions& options, std::vector<std::string>* remarks) {
  Directory out;
  out.path_ = options.directory;
  out.node_id_ = options.node_id;
  out.cluster_ = options.cluster;
  out.segment_bytes_ = options.segment_bytes;
  std::error_code error;
  fs::create_directories(out.path_, error);
  if (error) return Invalid("ssd: cannot make " + out.path_ + ": " + error.message());
  Result<int> lock = LockFolder(out.path_);
  if (lock.status().code() == Code::kBusy) {
    return Invalid("ssd: another node uses " + out.path_ +
                   "; stop it, or choose another directory with --ssd");
  }
  if (!lock.ok()) return Mend(lock.status());
  out.lock_ = lock.value();
  if (options.start_empty) {
    LARDER_RETURN_IF_ERROR(out.Empty());
    remarks->push_back("starts with nothing in " + out.path_ + ", as --start-empty says");
    return out;
  }
  LARDER_RETURN_IF_ERROR(out.ReadOrMake(options, remarks));
  return out;
}

Status Directory::ReadOrMake(const DirectoryOptions& options, std::vector<std::string>* remarks) {
  std::ifstream in(path_ + kMark);
  if (!in) {
    for (const auto& file : fs::directory_iterator(path_)) {
      if (!IsOurs(file.path().filename())) continue;
      return Invalid("ssd: " + path_ +
                     " has segments or an index but no file LARDER, so nobody knows whose " +
                     "they are; empty the directory, or choose another with --ssd");
    }
    return WriteMark();
  }
  std::string word, version, node, cluster, line;
  uint64_t segment_bytes = 0;
  in >> word >> version;
  std::getline(in, line);
  int number = -1;
  std::from_chars(version.data(), version.data() + version.size(), number);
  if (word != "larder-ssd" || number < 0) {
    return Invalid("ssd: " + path_ + kMark + " is damaged; --start-empty begins anew there");
  }
  if (number > kDirectoryVersion) {
    return Invalid("ssd: " + path_ + " is of version " + version + ", this node reads up to " +
                   std::to_string(kDirectoryVersion) +
                   "; update the node, or --start-empty to give up what is there");
  }
  if (number < kDirectoryVersion) return PutAside(version, remarks);
  while (std::getline(in, line)) {
    const size_t space = line.find(' ');
    const std::string key = line.substr(0, space),
                      value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "node") node = value;
    if (key == "cluster") cluster = value;
    if (key == "segment_bytes") std::from_chars(value.data(), value.data() + value.size(), segment_bytes);
  }
  if (node != options.node_id || cluster != options.cluster) {
    const bool other_node = node != options.node_id;
    return Invalid("ssd: " + path_ + " belongs to " + (other_node ? "node '" + node : "cluster '" + cluster) +
                   "', this is '" + (other_node ? options.node_id : options.cluster) +
                   "'; choose another directory with --ssd, or --start-empty to give up what is there");
  }
  if (segment_bytes < kPageBytes || segment_bytes % kPageBytes != 0) {
    return Invalid("ssd: " + path_ + kMark + " is damaged; --start-empty begins anew there");
  }
  segment_bytes_ = segment_bytes;
  return Status::Ok();
}

// A version that can't be read any more. It is kept beside, once, for whoever wants it.
Status Directory::PutAside(const std::string& version, std::vector<std::string>* remarks) {
  const std::string aside = path_ + "/aside-version-" + version;
  std::error_code error;
  fs::remove_all(aside, error);
  fs::create_directories(aside, error);
  for (const auto& file : fs::directory_iterator(path_, error)) {
    const std::string name = file.path().filename();
    if (IsOurs(name)) fs::rename(file.path(), aside + "/" + name, error);
    if (error) return Invalid("ssd: cannot put " + name + " aside: " + error.message());
  }
  remarks->push_back(path_ + " is of version " + version + ", which this node does not read: put aside in " +
                     aside + ", starts empty; delete it when nobody goes back");
  return WriteMark();
}

Status Directory::WriteMark() {
  std::ostringstream text;
  text << "larder-ssd " << kDirectoryVersion << "\nnode " << node_id_ << "\ncluster " << cluster_
       << "\nsegment_bytes " << segment_bytes_ << "\n";
  return Mend(ReplaceFile(path_ + kMark, text.str()));
}

Status Directory::Empty() {
  std::error_code error;
  for (const auto& file : fs::directory_iterator(path_, error)) {
    if (IsOurs(file.path().filename())) fs::remove_all(file.path(), error);
    if (error) return Invalid("ssd: cannot empty " + path_ + ": " + error.message());
  }
  return WriteMark();
}

Result<std::vector<SpaceRecord>> Directory::LoadClears() const {
  std::vector<SpaceRecord> out;
  std::ifstream in(path_ + "/clears", std::ios::binary);
  if (!in) return out;
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // A crash may have cut the last one, which then was not answered to anybody.
  for (size_t at = 0; at + kClearBytes <= text.size(); at += kClearBytes) {
    const ByteView bytes = AsBytes(std::string_view(text).substr(at, kClearBytes));
    Reader reader(bytes);
    SpaceRecord record;
    reader.Raw(record.name_space.bytes.data(), record.name_space.bytes.size());
    record.clear_epoch = reader.U32();
    if (reader.U32() == Crc32c(0, bytes.first(kClearBytes - 4))) {
      out.push_back(std::move(record));
    } else if (at + 2 * kClearBytes <= text.size()) {
      return Status(Code::kCorrupt, "the list of clears is damaged");
    }
  }
  return out;
}

Status Directory::SaveClear(const SpaceRecord& record) {
  const std::string path = path_ + "/clears";
  const bool added = !fs::exists(path);
  Bytes bytes;
  Writer writer(&bytes);
  writer.View(record.name_space.bytes);
  writer.U32(record.clear_epoch);
  const uint32_t crc = Crc32c(0, bytes);
  writer.U32(crc);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  struct stat info {};
  bool good = fd >= 0 && fstat(fd, &info) == 0;
  // Behind a cut one, so that what follows stays readable.
  if (good && info.st_size % static_cast<off_t>(kClearBytes) != 0) {
    good =
        ftruncate(fd, info.st_size / static_cast<off_t>(kClearBytes) * static_cast<off_t>(kClearBytes)) == 0;
  }
  good =
      good && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && fsync(fd) == 0;
  const int error_number = errno;
  if (fd >= 0) close(fd);
  if (!good) return Mend({Code::kUnavailable, path + ": " + std::strerror(error_number)});
  return added ? Mend(SyncFolder(path_)) : Status::Ok();
}

}  // namespace larder::node::ssd
