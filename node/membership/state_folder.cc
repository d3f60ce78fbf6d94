#include "node/membership/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "proto/checksum.h"

namespace larder::node {

namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Status Replace(const std::string& path, const std::string& bytes) {
  const std::string draft = path + ".new";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool good = fd >= 0;
  for (size_t at = 0; good && at < bytes.size();) {
    const ssize_t written = write(fd, bytes.data() + at, bytes.size() - at);
    good = written > 0;
    if (good) at += static_cast<size_t>(written);
  }
  good = good && fsync(fd) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (good && std::rename(draft.c_str(), path.c_str()) != 0) {
    good = false;
    error = errno;
  }
  if (good) return Status::Ok();
  unlink(draft.c_str());
  return {Code::kUnavailable, "state_dir: cannot write " + path + ": " + std::strerror(error)};
}

}  // namespace

Result<StateFolder> StateFolder::Open(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  const std::string lock = path + "/lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return Invalid("state_dir: cannot use " + path + ": " + std::strerror(errno) +
                   "; choose a folder that this user may write");
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return Invalid("state_dir: another process uses " + path + "; give each node a folder of its own");
  }
  return StateFolder(path, fd);
}

StateFolder::StateFolder(StateFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

StateFolder::~StateFolder() {
  if (lock_fd_ >= 0) close(lock_fd_);
}

Result<std::string> StateFolder::NodeId(const std::string& wanted) {
  const std::string path = path_ + "/node_id";
  std::string kept = ReadAll(path);
  while (!kept.empty() && kept.back() == '\n') kept.pop_back();
  if (!kept.empty()) {
    if (!wanted.empty() && wanted != kept) {
      return Invalid("node_id: " + path_ + " belongs to the node " + kept + ", not to " + wanted +
                     "; give it its own id or another state_dir");
    }
    return kept;
  }
  std::string id = wanted;
  if (id.empty()) {
    unsigned char random[8];
    if (getrandom(random, sizeof random, 0) != sizeof random)
      return Status(Code::kInternal, "no random numbers");
    constexpr char kHex[] = "0123456789abcdef";
    id = "node-";
    for (const unsigned char byte : random) id += {kHex[byte >> 4], kHex[byte & 15]};
  }
  LARDER_RETURN_IF_ERROR(Replace(path, id + "\n"));
  return id;
}

std::optional<NodeTable> StateFolder::Table() const {
  const std::string bytes = ReadAll(path_ + "/table");
  uint32_t crc = 0;
  if (bytes.size() <= sizeof crc) return std::nullopt;
  std::memcpy(&crc, bytes.data(), sizeof crc);
  const ByteView body{reinterpret_cast<const std::byte*>(bytes.data()) + sizeof crc,
                      bytes.size() - sizeof crc};
  if (Crc32c(0, body) != crc) return std::nullopt;
  Result<NodeTable> table = DecodeTable(body);
  if (!table.ok()) return std::nullopt;
  return std::move(table).value();
}

Status StateFolder::Keep(const NodeTable& table) {
  Bytes body;
  EncodeTable(table, &body);
  const uint32_t crc = Crc32c(0, body);
  std::string bytes(sizeof crc, '\0');
  std::memcpy(bytes.data(), &crc, sizeof crc);
  bytes.append(reinterpret_cast<const char*>(body.data()), body.size());
  return Replace(path_ + "/table", bytes);
}

}  // namespace larder::node
