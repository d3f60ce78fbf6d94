// What left, when and why, so that a miss can say more than "not here". A bounded table of sets of four: the
// oldest departure of a set gives way. 16 bytes an entry, one cache line a lookup. Pure.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

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
  void Prefetch(uint64_t fingerprint) const { __builtin_prefetch(&sets_[fingerprint & mask_]); }
  uint64_t bytes() const { return (mask_ + 1) * sizeof(Set); }

 private:
  struct Entry {
    uint64_t fingerprint = 0;
    uint32_t left_s = 0;
    uint32_t reason = 0;  // 0: empty
  };
  struct alignas(64) Set {
    Entry entries[4];  // the latest first
  };
  static_assert(sizeof(Set) == 64);
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  const uint64_t mask_;
  // From calloc: the kernel gives zeroed pages, and only as departures fill them.
  std::unique_ptr<void, Free> memory_;
  Set* sets_ = nullptr;
};

}  // namespace larder::node
