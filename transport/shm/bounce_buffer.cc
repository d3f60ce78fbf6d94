#include "transport/shm/bounce_buffer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "transport/socket/socket.h"

namespace larder::transport {

BounceBuffer::~BounceBuffer() {
  if (base_ != nullptr) munmap(base_, kBytes);
  if (fd_ >= 0) close(fd_);
}

Error BounceBuffer::Open() {
  fd_ = memfd_create("larder-bounce", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0 || ftruncate(fd_, kBytes) != 0) {
    return {Failure::kSystem, "cannot make shared memory: " + ErrnoText(errno)};
  }
  void* base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (base == MAP_FAILED) return {Failure::kSystem, "cannot map shared memory: " + ErrnoText(errno)};
  base_ = static_cast<std::byte*>(base);
  // Our own map, made before the seal, stays writable.
  if (fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0) {
    return {Failure::kSystem, "cannot seal shared memory: " + ErrnoText(errno)};
  }
  for (uint32_t slot = kSlots; slot > 0; slot--) free_.push_back(slot - 1);
  return {};
}

bool BounceBuffer::Take(uint32_t* slot) {
  if (free_.empty()) return false;
  *slot = free_.back();
  free_.pop_back();
  return true;
}

}  // namespace larder::transport
