// N nodes, each with its own cache and policy; a block's home comes from proto's placement, as in production.
#pragma once

#include <vector>

#include "tests/bench/sim/cache.h"

namespace larder::sim {

struct ClusterOptions {
  CacheOptions cache;  // sizes of the whole cluster, divided evenly
  uint32_t nodes = 1;
  uint32_t hot_copies = 0;  // at most so many blocks, the most read ones of late, are copied to every node
};

struct PlayResult {
  uint64_t references = 0;
  uint64_t hits = 0;      // blocks of the longest prefix that was there
  uint64_t ram_hits = 0;  // of those, in RAM
  uint64_t ssd_writes = 0;
  uint32_t distinct = 0;
  double load_max_over_mean = 1;  // reads of the busiest node
  double seconds = 0;
  std::string following;  // of the first node, at the end

  double hit_percent() const { return Percent(hits); }
  double ram_hit_percent() const { return Percent(ram_hits); }
  double ssd_writes_per_block() const {
    return distinct == 0 ? 0 : static_cast<double>(ssd_writes) / static_cast<double>(distinct);
  }

 private:
  double Percent(uint64_t count) const {
    return references == 0 ? 0 : 100.0 * static_cast<double>(count) / static_cast<double>(references);
  }
};

// The home of each block.
std::vector<uint16_t> HomesOf(const SimTrace& trace, uint32_t nodes);

PlayResult Play(const SimTrace& trace, const ClusterOptions& options);

// The offline optimum of one cache: of what is resident and of the request's own blocks it keeps those whose
// next use comes soonest. Exact on chains, since a child never comes without its parent. O(n log n).
PlayResult PlayMin(const SimTrace& trace, uint64_t blocks);

}  // namespace larder::sim
