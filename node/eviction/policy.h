// A policy decides which piece leaves next. It is a pure class: it knows entry numbers and touches, no
// bytes, no clock, no threads, so that the trace simulator runs the very code that the node runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "proto/retention.h"

namespace larder::node {

// What a touch or insert says about an entry. A node sees only its share of a chain; depth and lengths tell
// which blocks are leaves, and which hits no prefix could use.
struct TouchInfo {
  uint64_t now_us = 0;
  uint64_t root = 0;           // names the chain; 0: unknown
  uint32_t depth = 0;          // position in the chain
  uint32_t usable_length = 0;  // blocks of the chain that the request could use; 0: none, or unknown
  uint32_t chain_length = 0;   // blocks of the whole chain, other nodes' included; 0: unknown
  uint64_t key = 0;            // names the block, also after it left
  Retention retention = Retention::kNone;  // until the next touch
};

// One order over the entries of one class. Entries are small numbers that the index reuses.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Tells the bound of entry numbers before one is used.
  virtual void Reserve(uint32_t entries) = 0;
  // A put inserts a block before its request touches the chain: the first touch within kSameRequestUs after
  // an insert without chain length belongs to the insert and is no second use.
  virtual void Insert(uint32_t entry, const TouchInfo& info) = 0;
  virtual void Touch(uint32_t entry, const TouchInfo& info) = 0;
  // What is now known of an entry's future, without counting as a use. Textbook policies that have no place
  // for it take no notice; LRU and the learned ones do.
  virtual void Expect(uint32_t entry, Retention retention) = 0;
  // To the hot end without counting as a use: a pinned entry at the cold end must hide nobody.
  virtual void Defer(uint32_t entry, uint64_t now_us) = 0;
  // The entry is gone for good: removed, cleared, corrupt.
  virtual void Remove(uint32_t entry) = 0;
  // The entry leaves for lack of memory; policies with a memory of what left remember its key.
  virtual void Evict(uint32_t entry, uint64_t key) = 0;
  // The coldest entry that `may_leave` allows, looking at no more than `look_max` entries; UINT32_MAX: none.
  // Does not remove it, but may change its mind about others (second chances).
  virtual uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) = 0;
  // Time of the last touch of the entry that would leave next, to compare classes; UINT64_MAX when empty.
  virtual uint64_t ColdestUs() = 0;
  // Time of an inserted entry's last touch, to compare slabs.
  virtual uint64_t LastUs(uint32_t entry) const = 0;
  // Its position in its chain as it was told last, 65,535 at most; also of an entry that just left.
  virtual uint32_t DepthOf(uint32_t entry) const = 0;
  virtual uint64_t size() const = 0;
  // The share of its room that it would leave to entries used only once, for one who follows it from afar.
  virtual double once_share() const { return 0; }
  // Of this class alone; what classes share is the family's.
  virtual uint64_t metadata_bytes() const = 0;
};

inline constexpr uint64_t kSameRequestUs = 10'000'000;

// What one request used of one chain on this node, root first. Keys are named whether they are resident or
// not.
struct ChainTouch {
  uint64_t now_us = 0;
  uint64_t root = 0;
  uint32_t usable_length = 0;
  uint32_t chain_length = 0;
  std::span<const uint64_t> keys;
  std::span<const uint32_t> depths;  // one a key, ascending
  Retention retention = Retention::kNone;
};

// What the classes of a node share: entry storage (an entry is in one class at a time), and what is learned.
class PolicyFamily {
 public:
  virtual ~PolicyFamily() = default;
  // A policy of one class. The family outlives it.
  virtual std::unique_ptr<EvictionPolicy> Make() = 0;
  // Once a request and before its touches, when `observes`.
  virtual bool observes() const { return false; }
  virtual void Observe(const ChainTouch&) {}
  // The end of a request that was observed.
  virtual void ObserveEnd(const ChainTouch&) {}
  // Hints before a batch of touches: an entry's links, and once those came, its neighbours'.
  virtual void Prefetch(uint32_t) const {}
  virtual void PrefetchNeighbours(uint32_t) const {}
  virtual uint64_t metadata_bytes() const = 0;
  // The member that a tournament follows now; others: their own name.
  virtual std::string_view following() const = 0;
};

enum class PolicyKind : uint8_t { kTournament, kHazard, kLru, kS3Fifo, kArc, kLru2, kLfu };
inline constexpr PolicyKind kPolicyKinds[] = {PolicyKind::kTournament, PolicyKind::kHazard, PolicyKind::kLru,
                                              PolicyKind::kS3Fifo,     PolicyKind::kArc,    PolicyKind::kLru2,
                                              PolicyKind::kLfu};
inline constexpr PolicyKind kPolicyDefault = PolicyKind::kTournament;
// "tournament", "hazard", "lru", "s3-fifo", "arc", "lru-2", "lfu"
std::string_view PolicyName(PolicyKind kind);
std::optional<PolicyKind> PolicyOfName(std::string_view name);
std::unique_ptr<PolicyFamily> MakePolicyFamily(PolicyKind kind);

// The families one by one; what they are is told in their files.
std::unique_ptr<PolicyFamily> MakeLeafFirstLru();
std::unique_ptr<PolicyFamily> MakeS3Fifo();
std::unique_ptr<PolicyFamily> MakeArc();
std::unique_ptr<PolicyFamily> MakeLru2();
std::unique_ptr<PolicyFamily> MakeLfuAging();
std::unique_ptr<PolicyFamily> MakeReuseHazard();
std::unique_ptr<PolicyFamily> MakeTournament();

}  // namespace larder::node
