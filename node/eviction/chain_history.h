// Blocks of sampled chains, resident or not: when each was used last, and what that spell is. Of bounded
// size: the one unused for longest is forgotten. Its numbers are the entry numbers of the shadow caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "node/eviction/reuse_model.h"

namespace larder::node {

class ChainHistory {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kEntriesMax = 1 << 16;

  struct Entry {
    uint64_t key = 0;
    uint64_t last_us = 0;
    uint32_t older = kNone;
    uint32_t newer = kNone;
    uint8_t spell_class = 0;
    uint8_t shadows = 0;  // a bit for each shadow that holds it
  };

  uint32_t Find(uint64_t key) const;
  void Clear();
  bool full() const { return entries_.size() == kEntriesMax; }
  uint32_t oldest() const { return oldest_; }
  // Takes the place of the oldest when full; whoever needs that one looks at oldest() first.
  uint32_t Add(uint64_t key);
  void MakeNewest(uint32_t entry);

  Entry& operator[](uint32_t entry) { return entries_[entry]; }
  const std::vector<Entry>& entries() const { return entries_; }
  uint64_t metadata_bytes() const {
    return entries_.capacity() * sizeof(Entry) + table_.capacity() * sizeof(uint32_t);
  }

 private:
  size_t HomeOf(uint64_t key) const;
  size_t CellOf(uint64_t key) const;
  void EraseCell(size_t hole);
  void Grow();
  void Unlink(uint32_t entry);
  void LinkNewest(uint32_t entry);

  std::vector<Entry> entries_;
  std::vector<uint32_t> table_;  // open addressing, at most half full
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
};

}  // namespace larder::node
