// Shared memory of one connection for payloads that lie in no region: they are copied into it and sent from
// there. Slots are reused last-in first-out, so that what is in use stays in cache and little memory is
// touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/transport.h"

namespace larder::transport {

class BounceBuffer {
 public:
  static constexpr size_t kSlotBytes = 256 * 1024;
  static constexpr size_t kSlots = 128;
  static constexpr size_t kBytes = kSlotBytes * kSlots;

  BounceBuffer() = default;
  ~BounceBuffer();
  BounceBuffer(const BounceBuffer&) = delete;
  BounceBuffer& operator=(const BounceBuffer&) = delete;

  // Makes the memfd: sealed against shrinking, and against writing by whoever gets the descriptor.
  Error Open();
  bool is_open() const { return base_ != nullptr; }
  int fd() const { return fd_; }
  std::byte* base() const { return base_; }
  // False: all slots are on their way.
  bool Take(uint32_t* slot);
  void Give(uint32_t slot) { free_.push_back(slot); }

 private:
  int fd_ = -1;
  std::byte* base_ = nullptr;
  std::vector<uint32_t> free_;
};

}  // namespace larder::transport
