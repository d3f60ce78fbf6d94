// What list policies share: entry storage of 16 bytes, and lists from the coldest to the hottest entry.
#pragma once

#include <algorithm>
#include <memory>

#include "node/chunked.h"
#include "node/eviction/policy.h"
#include "proto/status.h"

namespace larder::node {

// 42 bits of time in units of 64 us (nine years), 16 bits of depth, 6 bits that a policy may use. Without
// those the greater stamp is the hotter entry: of one request's blocks the root.
struct Stamp {
  static constexpr uint64_t kFlags = 0x3f;
  static constexpr uint64_t kDepthMax = 0xffff;
  uint64_t bits = 0;

  static Stamp Of(uint64_t now_us, uint32_t depth, uint64_t flags) {
    const uint64_t time = std::min(now_us >> 6, (uint64_t{1} << 42) - 1);
    return {time << 22 | (kDepthMax - std::min<uint64_t>(depth, kDepthMax)) << 6 | flags};
  }
  uint64_t order() const { return bits >> 6; }
  uint64_t flags() const { return bits & kFlags; }
  uint64_t us() const { return bits >> 22 << 6; }
  uint32_t depth() const { return static_cast<uint32_t>(kDepthMax - (bits >> 6 & kDepthMax)); }
  // The same time and flags as another touch gives them, whatever the depth.
  void set_flags(uint64_t flags) { bits = (bits & ~kFlags) | flags; }
};

struct LinkedNode {
  uint32_t colder;
  uint32_t hotter;
  Stamp stamp;
};
static_assert(sizeof(LinkedNode) == 16);

// Nodes of all entries of a family.
class LinkedStore {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  void Reserve(uint32_t entries) {
    nodes_.Reserve(entries);
    used_ = std::max(used_, entries);
  }
  LinkedNode& operator[](uint32_t entry) { return nodes_[entry]; }
  const LinkedNode& operator[](uint32_t entry) const { return nodes_[entry]; }
  uint64_t bytes() const { return uint64_t{used_} * sizeof(LinkedNode); }
  void Prefetch(uint32_t entry) const { __builtin_prefetch(&nodes_[entry]); }
  void PrefetchNeighbours(uint32_t entry) const {
    const LinkedNode& node = nodes_[entry];
    if (node.colder != kNone) __builtin_prefetch(&nodes_[node.colder]);
    if (node.hotter != kNone) __builtin_prefetch(&nodes_[node.hotter]);
  }

 private:
  Chunked<LinkedNode> nodes_;
  uint32_t used_ = 0;
};

// One list. Callers touch a chain deepest first: then PushHot finds its place at once; another order of equal
// times walks at most kWalkMax entries.
class LinkedOrder {
 public:
  static constexpr uint32_t kNone = LinkedStore::kNone;
  static constexpr uint32_t kWalkMax = 1024;

  void PushHot(LinkedStore* store, uint32_t entry, Stamp stamp) {
    const auto order = [store](uint32_t of) { return (*store)[of].stamp.order(); };
    uint32_t below = hottest_, looks = 0;
    if (below != kNone && order(below) > stamp.order()) {
      // Not the newest: then where the last one went, most likely, which was its chain's.
      if (last_ != kNone) below = last_;
      for (uint32_t up; order(below) <= stamp.order() && looks < kWalkMax; below = up, ++looks) {
        up = (*store)[below].hotter;
        if (up == kNone || order(up) > stamp.order()) break;
      }
      for (; below != kNone && order(below) > stamp.order() && looks < kWalkMax; ++looks) {
        below = (*store)[below].colder;
      }
    }
    Link(store, entry, stamp, below);
    last_ = entry;
  }
  // The same without looking at stamps: FIFO queues.
  void PushLast(LinkedStore* store, uint32_t entry, Stamp stamp) { Link(store, entry, stamp, hottest_); }
  void Remove(LinkedStore* store, uint32_t entry) {
    LARDER_CHECK(size_ > 0);
    const LinkedNode n = (*store)[entry];
    if (last_ == entry) last_ = n.colder != kNone ? n.colder : n.hotter;
    (n.colder == kNone ? coldest_ : (*store)[n.colder].hotter) = n.hotter;
    (n.hotter == kNone ? hottest_ : (*store)[n.hotter].colder) = n.colder;
    --size_;
  }
  // The coldest that may leave; `looks` counts down.
  template <typename MayLeave>
  uint32_t Find(const LinkedStore& store, const MayLeave& may_leave, uint32_t* looks) const {
    for (uint32_t entry = coldest_; entry != kNone && *looks > 0; entry = store[entry].hotter) {
      --*looks;
      if (may_leave(entry)) return entry;
    }
    return kNone;
  }
  uint32_t coldest() const { return coldest_; }
  uint64_t size() const { return size_; }

 private:
  void Link(LinkedStore* store, uint32_t entry, Stamp stamp, uint32_t below) {
    LinkedNode& n = (*store)[entry];
    n.stamp = stamp;
    n.colder = below;
    n.hotter = below == kNone ? coldest_ : (*store)[below].hotter;
    (n.colder == kNone ? coldest_ : (*store)[n.colder].hotter) = entry;
    (n.hotter == kNone ? hottest_ : (*store)[n.hotter].colder) = entry;
    ++size_;
  }

  uint32_t coldest_ = kNone;
  uint32_t hottest_ = kNone;
  uint32_t last_ = kNone;  // where PushHot put one last, or beside
  uint64_t size_ = 0;
};

// A family of a policy whose classes share nothing but entry storage.
template <typename Policy>
class LinkedFamily final : public PolicyFamily {
 public:
  explicit LinkedFamily(PolicyKind kind) : kind_(kind) {}
  std::unique_ptr<EvictionPolicy> Make() override { return std::make_unique<Policy>(&store_); }
  void Prefetch(uint32_t entry) const override { store_.Prefetch(entry); }
  void PrefetchNeighbours(uint32_t entry) const override { store_.PrefetchNeighbours(entry); }
  uint64_t metadata_bytes() const override { return store_.bytes(); }
  std::string_view following() const override { return PolicyName(kind_); }

 private:
  const PolicyKind kind_;
  LinkedStore store_;
};

// True when a touch belongs to the insert before it: same request, not a second use.
inline bool BelongsToInsert(uint64_t inserted_us, const TouchInfo& info) {
  return info.now_us <= inserted_us + kSameRequestUs;
}

}  // namespace larder::node
