// What left, when and why, so that a miss can say more than "not here". A bounded table of sets of four: the
// oldest departure of a set gives way. 16 bytes an entry, one cache line a lookup. Pure.
#pragma once

#include <cstdint>

#include "node/owner/key_sets.h"
#include "proto/message.h"

namespace larder::node {

struct Departure {
  Presence reason = Presence::kNeverStored;  // that, when nothing is remembered
  uint32_t left_s = 0;                       // Unix
};

class MissMemory {
 public:
  // Rounded up to a power of two, and to one set.
  explicit MissMemory(uint32_t entries);
  void Remember(uint64_t fingerprint, Presence reason, uint64_t unix_ms);
  Departure Recall(uint64_t fingerprint) const;
  void Prefetch(uint64_t fingerprint) const { __builtin_prefetch(sets_.SetOf(fingerprint)); }
  uint64_t bytes() const { return sets_.bytes(); }

 private:
  struct Entry {  // the latest of a set first
    uint64_t fingerprint;
    uint32_t left_s;
    uint32_t reason;  // 0: empty
  };
  KeySets<Entry> sets_;
};

}  // namespace larder::node
