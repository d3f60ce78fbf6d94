// What left and why, so that a miss can say more than "not here". A bounded table, direct mapped: a newer
// departure overwrites an older one in its place. 8 bytes an entry: 56 bits of fingerprint, 8 of reason.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/message.h"

namespace larder::node {

class MissMemory {
 public:
  // Rounded up to a power of two.
  explicit MissMemory(uint32_t entries);
  void Remember(uint64_t fingerprint, Presence reason);
  // kNeverStored when nothing is remembered.
  Presence Recall(uint64_t fingerprint) const;
  void Prefetch(uint64_t fingerprint) const {
    __builtin_prefetch(&cells_[fingerprint & (cells_.size() - 1)]);
  }
  uint64_t bytes() const { return cells_.size() * sizeof(uint64_t); }

 private:
  std::vector<uint64_t> cells_;
};

}  // namespace larder::node
