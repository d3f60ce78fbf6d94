// One node's cache in the simulator: what the node keeps, in RAM and perhaps on SSD, under the very policy
// classes that the node runs. Blocks are all of one size; entry numbers are the trace's block numbers.
#pragma once

#include <memory>
#include <vector>

#include "node/eviction/policy.h"
#include "tests/bench/sim/sim_trace.h"

namespace larder::sim {

enum class Admission : uint8_t { kAlways, kTwice };

struct CacheOptions {
  node::PolicyKind policy = node::PolicyKind::kTournament;
  uint64_t ram_blocks = 0;
  uint64_t ssd_blocks = 0;  // 0: one tier
  Admission admission = Admission::kAlways;
  uint32_t promote_on = 2;      // the SSD hit that brings a block back to RAM
  bool demote_partial = false;  // partly filled blocks go to SSD too
};

// A request's share of one node.
struct NodeShare {
  uint64_t now_us = 0;
  uint64_t root = 0;
  uint32_t usable_length = 0;
  uint32_t chain_length = 0;
  std::vector<uint32_t> blocks;  // root first
  std::vector<uint32_t> depths;
};

class Cache {
 public:
  // The trace outlives the cache.
  Cache(const CacheOptions& options, const SimTrace& trace);

  bool InRam(uint32_t block) const { return (state_[block] & kRam) != 0; }
  bool Has(uint32_t block) const { return (state_[block] & (kRam | kSsd)) != 0; }
  // Every block of the request is touched or inserted, the deepest first, then what is too much leaves.
  void Play(const NodeShare& share);
  // Copies of other nodes' hot blocks take so much of the RAM.
  void SetCopies(uint64_t blocks) { copies_ = blocks; }

  uint64_t ssd_writes() const { return ssd_writes_; }
  uint64_t ram_size() const { return ram_->size(); }
  std::string_view following() const { return family_->following(); }
  uint64_t metadata_bytes() const { return family_->metadata_bytes() + ram_->metadata_bytes(); }

 private:
  static constexpr uint8_t kRam = 1, kSsd = 2, kSeenTwice = 4, kSeen = 8, kSsdHit = 16;

  void PlaySsdHit(uint32_t block, const node::TouchInfo& info);
  void Demote(uint32_t block);
  void EvictRam();
  void EvictSsd();

  const CacheOptions options_;
  const SimTrace& trace_;
  std::unique_ptr<node::PolicyFamily> family_, ssd_family_;
  std::unique_ptr<node::EvictionPolicy> ram_, ssd_;
  std::vector<uint8_t> state_;
  std::vector<uint32_t> depth_;  // of blocks that were seen, for the order on SSD
  std::vector<uint64_t> keys_;   // of the share at hand
  uint64_t copies_ = 0;
  uint64_t ssd_writes_ = 0;
};

}  // namespace larder::sim
