#include "tests/bench/sim/cache.h"

#include <algorithm>

namespace larder::sim {

namespace {
const std::function<bool(uint32_t)> kAny = [](uint32_t) { return true; };
}

Cache::Cache(const CacheOptions& options, const SimTrace& trace)
    : options_(options),
      trace_(trace),
      family_(node::MakePolicyFamily(options.policy)),
      ram_(family_->Make()) {
  state_.resize(trace.distinct);
  ram_->Reserve(trace.distinct);
  if (options.ssd_blocks == 0) return;
  // Segments are reclaimed coldest first, whatever decides about RAM.
  ssd_family_ = node::MakePolicyFamily(node::PolicyKind::kLru);
  ssd_ = ssd_family_->Make();
  ssd_->Reserve(trace.distinct);
  depth_.resize(trace.distinct);
}

void Cache::Play(const NodeShare& share) {
  if (family_->observes()) {
    keys_.clear();
    for (const uint32_t block : share.blocks) keys_.push_back(KeyOfBlock(block));
    family_->Observe(
        {share.now_us, share.root, share.usable_length, share.chain_length, keys_, share.depths});
  }
  node::TouchInfo info{share.now_us, share.root, 0, share.usable_length, share.chain_length, 0};
  for (size_t i = share.blocks.size(); i-- > 0;) {
    const uint32_t block = share.blocks[i];
    uint8_t& state = state_[block];
    info.depth = share.depths[i];
    info.key = KeyOfBlock(block);
    if ((state & kSeen) != 0) state |= kSeenTwice;
    state |= kSeen;
    if (ssd_ != nullptr) depth_[block] = info.depth;
    if ((state & kSsd) != 0) ssd_->Touch(block, info);
    if ((state & kRam) != 0) {
      ram_->Touch(block, info);
    } else if ((state & kSsd) != 0 && info.depth < share.usable_length) {
      PlaySsdHit(block, info);
    } else if ((state & kSsd) == 0) {
      state |= kRam;
      ram_->Insert(block, info);
    }
    EvictRam();
    EvictSsd();
  }
}

void Cache::PlaySsdHit(uint32_t block, const node::TouchInfo& info) {
  uint8_t& state = state_[block];
  if (options_.promote_on > 1 && (state & kSsdHit) == 0) {
    state |= kSsdHit;
    return;
  }
  state = static_cast<uint8_t>((state & ~kSsdHit) | kRam);
  ram_->Insert(block, info);
}

void Cache::EvictRam() {
  const uint64_t room = options_.ram_blocks - std::min(options_.ram_blocks, copies_);
  while (ram_->size() > room) {
    const uint32_t victim = ram_->Victim(kAny, 1);
    LARDER_CHECK(victim != UINT32_MAX);
    if (ssd_ != nullptr) Demote(victim);
    ram_->Evict(victim, KeyOfBlock(victim));
    state_[victim] = static_cast<uint8_t>(state_[victim] & ~kRam);
  }
}

void Cache::Demote(uint32_t block) {
  uint8_t& state = state_[block];
  if ((state & kSsd) != 0) return;  // its copy stayed there
  if (trace_.partial[block] != 0 && !options_.demote_partial) return;
  if (options_.admission == Admission::kTwice && (state & kSeenTwice) == 0) return;
  state |= kSsd;
  ++ssd_writes_;
  // As cold as it was: an order of last use holds over both tiers.
  ssd_->Insert(block, {.now_us = ram_->LastUs(block), .depth = depth_[block], .chain_length = UINT32_MAX});
}

void Cache::EvictSsd() {
  while (ssd_ != nullptr && ssd_->size() > options_.ssd_blocks) {
    const uint32_t victim = ssd_->Victim(kAny, 1);
    ssd_->Evict(victim, KeyOfBlock(victim));
    state_[victim] = static_cast<uint8_t>(state_[victim] & ~(kSsd | kSsdHit));
  }
}

}  // namespace larder::sim
