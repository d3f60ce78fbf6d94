// LRU-2 (O'Neil and others, SIGMOD 1993): the block whose last use but one is the longest ago leaves first;
// what was used once goes before that, the longest unused first. The last use of a block that left is kept
// for a while, so that a block which comes back is not a stranger.
#include "node/eviction/ghost_list.h"
#include "node/eviction/ranked_heap.h"

namespace larder::node {
namespace {

constexpr uint64_t kFresh = 1;  // flags: its request's touch is still to come
constexpr uint64_t kGhostsPerEntry = 4;

class Lru2 final : public EvictionPolicy {
 public:
  explicit Lru2(RankedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    uint64_t before = 0;  // used once: colder than whatever was used twice
    ghosts_.Find(info.key, &before);
    ghosts_.Erase(info.key);
    store_[entry].rank = before;
    store_[entry].stamp = Stamp::Of(info.now_us, info.depth, info.chain_length == 0 ? kFresh : 0);
    heap_.Push(&store_, entry);
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    RankedNode& node = store_[entry];
    const bool first = node.stamp.flags() == kFresh && BelongsToInsert(node.stamp.us(), info);
    if (!first) node.rank = node.stamp.us() + 1;
    node.stamp = Stamp::Of(info.now_us, info.depth, 0);
    heap_.Moved(&store_, entry);
  }
  void Expect(uint32_t, Retention) override {}
  void Defer(uint32_t entry, uint64_t now_us) override {
    RankedNode& node = store_[entry];
    node.rank = now_us;
    node.stamp = Stamp::Of(now_us, node.stamp.depth(), node.stamp.flags());
    heap_.Moved(&store_, entry);
  }
  void Remove(uint32_t entry) override { heap_.Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t key) override {
    ghosts_.Push(key, store_[entry].stamp.us() + 1);
    Remove(entry);
    ghosts_.ShrinkTo(kGhostsPerEntry * std::max<uint64_t>(size(), 1));
  }
  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    return heap_.Find(store_, may_leave, look_max);
  }
  uint64_t ColdestUs() override { return size() == 0 ? UINT64_MAX : LastUs(heap_.top()); }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override { return heap_.size(); }
  uint64_t metadata_bytes() const override {
    return sizeof(*this) + heap_.metadata_bytes() + ghosts_.metadata_bytes();
  }

 private:
  RankedStore& store_;
  RankedHeap heap_;
  GhostList ghosts_;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeLru2() {
  return std::make_unique<RankedFamily<Lru2>>(PolicyKind::kLru2);
}

}  // namespace larder::node
