#include "tests/bench/sim/cluster.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "proto/placement.h"

namespace larder::sim {
namespace {

// Which blocks are hot is looked at anew after so many requests; older reads count half.
constexpr uint32_t kHotEvery = 1024;
constexpr uint64_t kLoadShare = 8;  // hot: at least an eighth of what a node is read on average

class Player {
 public:
  Player(const SimTrace& trace, const ClusterOptions& options)
      : trace_(trace), options_(options), homes_(HomesOf(trace, options.nodes)) {
    const uint32_t n = options.nodes;
    for (uint32_t i = 0; i < n; ++i) {
      CacheOptions cache = options.cache;
      cache.ram_blocks = cache.ram_blocks / n + (i < cache.ram_blocks % n ? 1 : 0);
      cache.ssd_blocks = cache.ssd_blocks / n + (i < cache.ssd_blocks % n ? 1 : 0);
      caches_.push_back(std::make_unique<Cache>(cache, trace));
    }
    shares_.resize(n);
    loads_.resize(n);
    if (options.hot_copies > 0) {
      reads_.resize(trace.distinct);
      hot_.resize(trace.distinct);
    }
  }

  PlayResult Run() {
    const auto begin = std::chrono::steady_clock::now();
    result_.distinct = trace_.distinct;
    for (const SimRequest& request : trace_.requests) {
      Serve(request);
      if (options_.hot_copies > 0 && ++served_ % kHotEvery == 0) ChooseHot();
    }
    for (const auto& cache : caches_) result_.ssd_writes += cache->ssd_writes();
    const uint64_t reads = std::accumulate(loads_.begin(), loads_.end(), uint64_t{0});
    if (reads > 0) {
      result_.load_max_over_mean = static_cast<double>(*std::max_element(loads_.begin(), loads_.end())) *
                                   static_cast<double>(loads_.size()) / static_cast<double>(reads);
    }
    result_.following = caches_[0]->following();
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return std::move(result_);
  }

 private:
  void Serve(const SimRequest& request) {
    const auto blocks = trace_.BlocksOf(request);
    if (blocks.empty()) return;
    uint32_t hits = 0;
    for (; hits < blocks.size() && caches_[homes_[blocks[hits]]]->Has(blocks[hits]); ++hits) {
      result_.ram_hits += caches_[homes_[blocks[hits]]]->InRam(blocks[hits]) ? 1 : 0;
      // Readers of a block that has copies everywhere spread over the nodes.
      const bool copied = !hot_.empty() && hot_[blocks[hits]] != 0;
      ++loads_[copied ? next_copy_++ % loads_.size() : homes_[blocks[hits]]];
    }
    result_.references += blocks.size();
    result_.hits += hits;
    for (uint32_t i = 0; i < blocks.size(); ++i) {
      NodeShare& share = shares_[homes_[blocks[i]]];
      share.blocks.push_back(blocks[i]);
      share.depths.push_back(i);
      if (!reads_.empty()) ++reads_[blocks[i]];
    }
    for (size_t n = 0; n < shares_.size(); ++n) {
      NodeShare& share = shares_[n];
      if (share.blocks.empty()) continue;
      share.now_us = request.now_us + 1;
      share.root = KeyOfBlock(blocks[0]);
      share.usable_length = hits;
      share.chain_length = static_cast<uint32_t>(blocks.size());
      caches_[n]->Play(share);
      share.blocks.clear();
      share.depths.clear();
    }
  }

  void ChooseHot() {
    std::vector<uint32_t> order(trace_.distinct);
    std::iota(order.begin(), order.end(), 0u);
    const size_t count = std::min<size_t>(options_.hot_copies, order.size());
    const auto hotter = [&](uint32_t a, uint32_t b) {
      return reads_[a] != reads_[b] ? reads_[a] > reads_[b] : a < b;
    };
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count) - 1, order.end(),
                     hotter);
    std::fill(hot_.begin(), hot_.end(), uint8_t{0});
    std::vector<uint64_t> own(caches_.size());
    const uint64_t all = std::accumulate(reads_.begin(), reads_.end(), uint64_t{0});
    uint64_t copied = 0;
    for (size_t i = 0; i < count; ++i) {
      // A copy takes room on every node: it has to be a good part of a node's load.
      if (uint64_t{reads_[order[i]]} * caches_.size() * kLoadShare < all) continue;
      hot_[order[i]] = 1;
      ++own[homes_[order[i]]];
      ++copied;
    }
    for (size_t n = 0; n < caches_.size(); ++n) caches_[n]->SetCopies(copied - own[n]);
    for (uint32_t& reads : reads_) reads /= 2;
  }

  const SimTrace& trace_;
  const ClusterOptions& options_;
  const std::vector<uint16_t> homes_;
  std::vector<std::unique_ptr<Cache>> caches_;
  std::vector<NodeShare> shares_;
  std::vector<uint64_t> loads_;  // reads of each node
  std::vector<uint32_t> reads_;  // of each block, halved now and then
  std::vector<uint8_t> hot_;
  uint64_t next_copy_ = 0;
  uint64_t served_ = 0;
  PlayResult result_;
};

}  // namespace

std::vector<uint16_t> HomesOf(const SimTrace& trace, uint32_t nodes) {
  std::vector<uint16_t> homes(trace.distinct, 0);
  if (nodes == 1) return homes;
  NodeTable table;
  for (uint32_t i = 0; i < nodes; ++i) {
    NodeRecord record;
    record.id = "node-" + std::to_string(i);
    table.nodes.push_back(record);
  }
  table.Normalize();
  const Placement placement(table, 1);
  for (uint32_t block = 0; block < trace.distinct; ++block)
    homes[block] = placement.Order(HashOfBlock(block))[0];
  return homes;
}

PlayResult Play(const SimTrace& trace, const ClusterOptions& options) {
  return Player(trace, options).Run();
}

}  // namespace larder::sim
