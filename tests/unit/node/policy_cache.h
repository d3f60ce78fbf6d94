// A cache without bytes, in the node's own order of calls: puts insert without a chain, then the request
// touches the whole chain.
#pragma once

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "node/eviction/policy.h"

namespace larder::node {

inline constexpr uint32_t kNone = UINT32_MAX;

inline uint32_t AnyVictim(EvictionPolicy* policy) {
  return policy->Victim([](uint32_t) { return true; }, 64);
}
inline uint64_t KeyOf(uint32_t block) {
  return (block + 1) * 0x9e3779b97f4a7c15ull;
}

// A cache that plays whole requests; entries are slots, reused at once, as in the index.
class TestCache {
 public:
  TestCache(PolicyKind kind, size_t capacity)
      : family_(MakePolicyFamily(kind)), policy_(family_->Make()), capacity_(capacity) {}

  // Blocks of the chain's front that were there.
  uint32_t Play(const std::vector<uint32_t>& chain, uint64_t now_us) {
    uint32_t usable = 0;
    while (usable < chain.size() && Has(chain[usable])) ++usable;
    for (uint32_t depth = usable; depth < chain.size(); ++depth) {
      if (!Has(chain[depth])) Put(chain[depth], depth, now_us);
    }
    std::vector<uint64_t> keys;
    std::vector<uint32_t> depths;
    for (uint32_t depth = 0; depth < chain.size(); ++depth) {
      keys.push_back(KeyOf(chain[depth]));
      depths.push_back(depth);
    }
    const auto length = static_cast<uint32_t>(chain.size());
    if (family_->observes()) family_->Observe({now_us, keys[0], usable, length, keys, depths});
    for (uint32_t depth = length; depth-- > 0;) {
      if (!Has(chain[depth])) continue;
      policy_->Touch(slot_of_[chain[depth]], {now_us, keys[0], depth, usable, length, keys[depth]});
    }
    return usable;
  }
  // The request's end, as an engine tells of it.
  void Finish(const std::vector<uint32_t>& chain, uint64_t now_us, Retention retention) {
    if (chain.empty()) return;
    std::vector<uint64_t> keys;
    std::vector<uint32_t> depths(chain.size());
    std::iota(depths.begin(), depths.end(), 0u);
    for (const uint32_t block : chain) keys.push_back(KeyOf(block));
    const auto length = static_cast<uint32_t>(chain.size());
    if (family_->observes()) family_->ObserveEnd({now_us, keys[0], 0, length, keys, depths, retention});
    for (uint32_t depth = length; depth-- > 0;) {
      if (Has(chain[depth])) policy_->Expect(slot_of_[chain[depth]], retention);
    }
  }
  void Put(uint32_t block, uint32_t depth, uint64_t now_us) {
    if (slot_of_.size() >= capacity_) Evict();
    uint32_t slot = static_cast<uint32_t>(block_of_.size());
    if (free_.empty()) {
      block_of_.push_back(block);
    } else {
      slot = free_.back();
      free_.pop_back();
      block_of_[slot] = block;
    }
    slot_of_[block] = slot;
    policy_->Reserve(static_cast<uint32_t>(block_of_.size()));
    policy_->Insert(slot, {.now_us = now_us, .depth = depth, .key = KeyOf(block)});
  }
  uint32_t Evict() {
    const uint32_t slot = policy_->Victim([&](uint32_t s) { return !pinned.contains(block_of_[s]); }, 4096);
    if (slot == kNone) return kNone;
    const uint32_t block = block_of_[slot];
    policy_->Evict(slot, KeyOf(block));
    Forget(block);
    return block;
  }
  void Remove(uint32_t block) {
    policy_->Remove(slot_of_.at(block));
    Forget(block);
  }
  bool Has(uint32_t block) const { return slot_of_.contains(block); }
  size_t size() const { return slot_of_.size(); }
  const std::map<uint32_t, uint32_t>& blocks() const { return slot_of_; }
  uint32_t SlotOf(uint32_t block) const { return slot_of_.at(block); }
  uint64_t metadata_bytes() const { return family_->metadata_bytes() + policy_->metadata_bytes(); }
  EvictionPolicy& policy() { return *policy_; }
  PolicyFamily& family() { return *family_; }

  std::set<uint32_t> pinned;

 private:
  void Forget(uint32_t block) {
    free_.push_back(slot_of_.at(block));
    slot_of_.erase(block);
  }
  std::unique_ptr<PolicyFamily> family_;
  std::unique_ptr<EvictionPolicy> policy_;
  size_t capacity_;
  std::map<uint32_t, uint32_t> slot_of_;
  std::vector<uint32_t> block_of_, free_;
};

}  // namespace larder::node
