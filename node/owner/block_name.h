// A block's full name as a key of hash maps that are small (tickets, waits); the index has a table of its
// own.
#pragma once

#include <xxhash.h>

#include "node/owner/index.h"

namespace larder::node {

struct BlockName {
  Space space;
  ChainHash hash;
  uint16_t group = 0;
  bool operator==(const BlockName&) const = default;
};

// Seeded: names come from clients.
struct BlockNameHash {
  uint64_t seed = 0;
  size_t operator()(const BlockName& name) const {
    return XXH3_64bits_withSeed(
        name.hash.bytes.data(), name.hash.bytes.size(),
        seed ^ name.space.packed() * 0x9e3779b97f4a7c15ull ^ uint64_t{name.group} << 48);
  }
};

}  // namespace larder::node
