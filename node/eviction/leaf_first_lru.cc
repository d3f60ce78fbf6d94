// Least recently used; of one request's blocks the deepest is the colder one, so that what stays of a chain
// is a prefix. One list from the coldest to the hottest entry, ordered by (time of the last touch, -depth).
#include "node/eviction/linked_order.h"

namespace larder::node {
namespace {

class LeafFirstLru final : public EvictionPolicy {
 public:
  explicit LeafFirstLru(LinkedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    order_.PushHot(&store_, entry, Stamp::Of(info.now_us, info.depth, 0));
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    order_.Remove(&store_, entry);
    Insert(entry, info);
  }
  void Defer(uint32_t entry, uint64_t now_us) override {
    Touch(entry, {.now_us = now_us, .depth = store_[entry].stamp.depth()});
  }
  void Remove(uint32_t entry) override { order_.Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t) override { Remove(entry); }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    return order_.Find(store_, may_leave, &look_max);
  }
  uint64_t ColdestUs() override {
    return order_.coldest() == LinkedOrder::kNone ? UINT64_MAX : LastUs(order_.coldest());
  }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint64_t size() const override { return order_.size(); }
  uint64_t metadata_bytes() const override { return sizeof(*this); }

 private:
  LinkedStore& store_;
  LinkedOrder order_;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeLeafFirstLru() {
  return std::make_unique<LinkedFamily<LeafFirstLru>>(PolicyKind::kLru);
}

}  // namespace larder::node
