// Keys that left, in the order in which they left, with a value each: found, erased and forgotten in constant
// time. 28 to 36 bytes a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace larder::node {

class GhostList {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The newest. A key that is there already moves to the newest end with its new value.
  void Push(uint64_t key, uint64_t value);
  bool Find(uint64_t key, uint64_t* value) const;
  bool Erase(uint64_t key);  // false: it was not there
  void PopOldest();
  // Forgets the oldest until at most so many are left.
  void ShrinkTo(uint64_t count) {
    while (size_ > count) PopOldest();
  }
  uint64_t size() const { return size_; }
  uint64_t metadata_bytes() const {
    return slots_.capacity() * sizeof(Slot) + table_.capacity() * sizeof(uint32_t);
  }

 private:
  struct Slot {
    uint64_t key = 0;
    uint64_t value = 0;
    uint32_t older = kNone;
    uint32_t newer = kNone;  // of a free slot: the next free one
  };
  size_t CellOf(uint64_t key) const;  // of the key, or the empty one where it would be
  size_t HomeOf(uint64_t key) const;
  void Grow();
  void EraseCell(size_t cell);

  std::vector<Slot> slots_;
  std::vector<uint32_t> table_;  // open addressing, at most half full
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  uint32_t free_ = kNone;
  uint64_t size_ = 0;
};

}  // namespace larder::node
