#include <chrono>
#include <queue>
#include <tuple>

#include "tests/bench/sim/cluster.h"

namespace larder::sim {

PlayResult PlayMin(const SimTrace& trace, uint64_t blocks) {
  const auto begin = std::chrono::steady_clock::now();
  constexpr uint32_t kNever = UINT32_MAX;
  // The request that uses a reference's block next.
  std::vector<uint32_t> next_use(trace.blocks.size(), kNever), last(trace.distinct, kNever);
  for (size_t r = trace.requests.size(); r-- > 0;) {
    const SimRequest& request = trace.requests[r];
    for (uint64_t i = request.begin; i < request.end; ++i) next_use[i] = last[trace.blocks[i]];
    for (uint64_t i = request.begin; i < request.end; ++i) last[trace.blocks[i]] = static_cast<uint32_t>(r);
  }
  // What leaves first is on top: the latest next use, and of one request the deepest. Old entries of a block
  // that has been used since are passed over.
  std::priority_queue<std::tuple<uint32_t, uint32_t, uint32_t>> order;
  std::vector<uint32_t> resident_until(trace.distinct, kNever);  // next use of a resident block
  uint64_t resident = 0;
  PlayResult result;
  result.distinct = trace.distinct;
  for (const SimRequest& request : trace.requests) {
    uint64_t at = request.begin;
    while (at < request.end && resident_until[trace.blocks[at]] != kNever) ++at;
    result.hits += at - request.begin;
    result.references += request.end - request.begin;
    for (uint64_t i = request.begin; i < request.end; ++i) {
      uint32_t& until = resident_until[trace.blocks[i]];
      resident += next_use[i] != kNever ? 1 : 0;
      resident -= until != kNever ? 1 : 0;
      until = next_use[i];
      if (until != kNever) order.emplace(until, static_cast<uint32_t>(i - request.begin), trace.blocks[i]);
    }
    while (resident > blocks) {
      const auto [until, depth, block] = order.top();
      order.pop();
      if (resident_until[block] != until) continue;
      resident_until[block] = kNever;
      --resident;
    }
  }
  result.ram_hits = result.hits;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace larder::sim
