#include "transport/shm/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "transport/socket/socket.h"

namespace larder::transport {

Mapping::~Mapping() {
  munmap(const_cast<std::byte*>(base_), bytes_);
}

Error MappingCache::Map(pid_t peer, int fd, uint64_t bytes, std::shared_ptr<const Mapping>* mapping) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return {Failure::kNotSealed, "the peer's shared memory is not sealed against shrinking"};
  }
  struct stat file {};
  if (fstat(fd, &file) != 0 || bytes == 0 || static_cast<uint64_t>(file.st_size) < bytes) {
    return {Failure::kNotSealed, "the peer's shared memory is smaller than it says"};
  }
  std::lock_guard<std::mutex> lock(mutex_);
  const Key key{peer, file.st_dev, file.st_ino};
  if (peer != 0) {
    const auto it = known_.find(key);
    if (it != known_.end()) {
      *mapping = it->second.lock();
      if (*mapping && (*mapping)->bytes() >= bytes) return {};
    }
  }
  void* base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    return {Failure::kSystem, "cannot map the peer's shared memory: " + ErrnoText(errno)};
  }
  *mapping = std::make_shared<const Mapping>(static_cast<const std::byte*>(base), bytes);
  if (peer != 0) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    known_[key] = *mapping;
  }
  return {};
}

}  // namespace larder::transport
