// What score policies share: 24 bytes an entry, and a heap of entries with the coldest on top.
#pragma once

#include <algorithm>
#include <memory>
#include <queue>
#include <vector>

#include "node/eviction/linked_order.h"

namespace larder::node {

struct RankedNode {
  uint64_t rank;  // the smaller leaves first; equal ones by stamp
  Stamp stamp;
  uint32_t position;  // in the heap of its class
  uint32_t uses;
};
static_assert(sizeof(RankedNode) == 24);

class RankedStore {
 public:
  void Reserve(uint32_t entries) {
    nodes_.Reserve(entries);
    used_ = std::max(used_, entries);
  }
  RankedNode& operator[](uint32_t entry) { return nodes_[entry]; }
  const RankedNode& operator[](uint32_t entry) const { return nodes_[entry]; }
  uint64_t bytes() const { return uint64_t{used_} * sizeof(RankedNode); }
  bool Colder(uint32_t a, uint32_t b) const {
    const RankedNode &x = nodes_[a], &y = nodes_[b];
    return x.rank != y.rank ? x.rank < y.rank : x.stamp.order() < y.stamp.order();
  }

 private:
  Chunked<RankedNode> nodes_;
  uint32_t used_ = 0;
};

class RankedHeap {
 public:
  void Push(RankedStore* store, uint32_t entry) {
    heap_.push_back(entry);
    Up(store, heap_.size() - 1);
  }
  // The entry's rank or stamp has changed.
  void Moved(RankedStore* store, uint32_t entry) {
    Up(store, (*store)[entry].position);
    Down(store, (*store)[entry].position);
  }
  void Remove(RankedStore* store, uint32_t entry) {
    const size_t at = (*store)[entry].position;
    LARDER_CHECK(at < heap_.size() && heap_[at] == entry);
    const uint32_t last = heap_.back();
    heap_.pop_back();
    if (last == entry) return;
    Set(store, at, last);
    Moved(store, last);
  }
  // Coldest first, without taking anything out.
  template <typename MayLeave>
  uint32_t Find(const RankedStore& store, const MayLeave& may_leave, uint32_t look_max) const {
    const auto hotter = [&](uint32_t a, uint32_t b) { return store.Colder(heap_[b], heap_[a]); };
    std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(hotter)> next(hotter);
    if (!heap_.empty()) next.push(0);
    for (uint32_t looks = 0; looks < look_max && !next.empty(); ++looks) {
      const uint32_t at = next.top();
      next.pop();
      if (may_leave(heap_[at])) return heap_[at];
      for (const uint32_t child : {2 * at + 1, 2 * at + 2}) {
        if (child < heap_.size()) next.push(child);
      }
    }
    return LinkedOrder::kNone;
  }
  uint32_t top() const { return heap_.empty() ? LinkedOrder::kNone : heap_[0]; }
  uint64_t size() const { return heap_.size(); }
  uint64_t metadata_bytes() const { return heap_.capacity() * sizeof(uint32_t); }

 private:
  void Set(RankedStore* store, size_t at, uint32_t entry) {
    heap_[at] = entry;
    (*store)[entry].position = static_cast<uint32_t>(at);
  }
  void Up(RankedStore* store, size_t at) {
    const uint32_t entry = heap_[at];
    for (; at > 0 && store->Colder(entry, heap_[(at - 1) / 2]); at = (at - 1) / 2) {
      Set(store, at, heap_[(at - 1) / 2]);
    }
    Set(store, at, entry);
  }
  void Down(RankedStore* store, size_t at) {
    const uint32_t entry = heap_[at];
    for (size_t child = 0; (child = 2 * at + 1) < heap_.size(); at = child) {
      if (child + 1 < heap_.size() && store->Colder(heap_[child + 1], heap_[child])) ++child;
      if (!store->Colder(heap_[child], entry)) break;
      Set(store, at, heap_[child]);
    }
    Set(store, at, entry);
  }

  std::vector<uint32_t> heap_;
};

// A family of a policy whose classes share nothing but entry storage.
template <typename Policy>
class RankedFamily final : public PolicyFamily {
 public:
  explicit RankedFamily(PolicyKind kind) : kind_(kind) {}
  std::unique_ptr<EvictionPolicy> Make() override { return std::make_unique<Policy>(&store_); }
  uint64_t metadata_bytes() const override { return store_.bytes(); }
  std::string_view following() const override { return PolicyName(kind_); }

 private:
  const PolicyKind kind_;
  RankedStore store_;
};

}  // namespace larder::node
