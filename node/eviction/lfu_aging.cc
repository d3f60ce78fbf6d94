// LFU with dynamic aging (Arlitt and others, 1999): an entry's rank is its uses plus the age of the cache
// when it was last used; that age is the rank of what left last. So what was popular once gives way in the
// end.
#include "node/eviction/ranked_heap.h"

namespace larder::node {
namespace {

constexpr uint64_t kFresh = 1;  // flags: its request's touch is still to come

class LfuAging final : public EvictionPolicy {
 public:
  explicit LfuAging(RankedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    RankedNode& node = store_[entry];
    node.uses = 1;
    node.rank = age_ + 1;
    node.stamp = Stamp::Of(info.now_us, info.depth, info.chain_length == 0 ? kFresh : 0);
    heap_.Push(&store_, entry);
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    RankedNode& node = store_[entry];
    const bool first = node.stamp.flags() == kFresh && BelongsToInsert(node.stamp.us(), info);
    if (!first && node.uses < UINT32_MAX) ++node.uses;
    node.rank = age_ + node.uses;
    node.stamp = Stamp::Of(info.now_us, info.depth, 0);
    heap_.Moved(&store_, entry);
  }
  void Expect(uint32_t, Retention) override {}
  void Defer(uint32_t entry, uint64_t now_us) override {
    // Above the entry's own rank; the next touch gives it back what it has earned.
    RankedNode& node = store_[entry];
    node.rank = std::max(node.rank, age_ + node.uses) + 1;
    node.stamp = Stamp::Of(now_us, node.stamp.depth(), node.stamp.flags());
    heap_.Moved(&store_, entry);
  }
  void Remove(uint32_t entry) override { heap_.Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t) override {
    age_ = std::max(age_, store_[entry].rank);
    Remove(entry);
  }
  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    return heap_.Find(store_, may_leave, look_max);
  }
  uint64_t ColdestUs() override { return size() == 0 ? UINT64_MAX : LastUs(heap_.top()); }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override { return heap_.size(); }
  uint64_t metadata_bytes() const override { return sizeof(*this) + heap_.metadata_bytes(); }

 private:
  RankedStore& store_;
  RankedHeap heap_;
  uint64_t age_ = 0;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeLfuAging() {
  return std::make_unique<RankedFamily<LfuAging>>(PolicyKind::kLfu);
}

}  // namespace larder::node
