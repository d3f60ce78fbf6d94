// One list a spell class; which list gives way is a rule that can change at any moment, since all rules
// work on the same lists. So a cache can follow another policy at once, without sorting anything anew.
#pragma once

#include <array>

#include "node/eviction/linked_order.h"
#include "node/eviction/reuse_model.h"
#include "node/eviction/seen_memory.h"

namespace larder::node {

// Which block leaves next.
struct VictimRule {
  enum class Kind : uint8_t {
    kOldest,   // of all: leaf-first LRU
    kWorth,    // the least worth by the model
    kOnceMax,  // the oldest of those used once, if they are more than `once_share`; else of the others
  };
  Kind kind = Kind::kWorth;
  double once_share = 0;
};

// What the classes of a family share.
struct GroupedShared {
  LinkedStore store;
  const ReuseModel* model = nullptr;
  SeenMemory* seen = nullptr;  // nullptr: nobody is known from before
  VictimRule rule;
  uint64_t now_us = 0;
  uint64_t size = 0;          // entries of all classes
  uint64_t full_at_size = 0;  // entries when one was evicted last; 0: none was yet
};

std::unique_ptr<EvictionPolicy> MakeGroupedOrder(GroupedShared* shared);

}  // namespace larder::node
