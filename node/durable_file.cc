#include "node/durable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace larder::node {

namespace {

Status Failed(const std::string& path, int error) {
  return {Code::kUnavailable, path + ": " + std::strerror(error)};
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

Status ReplaceFile(const std::string& path, std::string_view bytes) {
  const std::string draft = path + ".new";
  const int fd = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool good = fd >= 0 && WriteAll(fd, bytes) && fsync(fd) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (good && std::rename(draft.c_str(), path.c_str()) == 0)
    return SyncFolder(path.substr(0, path.rfind('/')));
  if (good) error = errno;
  if (fd >= 0) unlink(draft.c_str());
  return Failed(path, error);
}

Status SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = fd >= 0 && fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  return good ? Status::Ok() : Failed(path, error);
}

Result<int> LockFolder(const std::string& path) {
  const int fd = open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return Failed(path, errno);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return Status(Code::kBusy, "another process uses " + path);
}

}  // namespace larder::node
