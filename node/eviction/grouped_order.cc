#include "node/eviction/grouped_order.h"

namespace larder::node {
namespace {

constexpr uint64_t kFresh = 8;  // flag beside the spell class: its request's touch is still to come
constexpr uint64_t kClassMask = kFresh - 1;
constexpr uint32_t kNone = LinkedOrder::kNone;

class GroupedOrder final : public EvictionPolicy {
 public:
  explicit GroupedOrder(GroupedShared* shared) : shared_(*shared), store_(shared->store) {}
  ~GroupedOrder() override { shared_.size -= size(); }

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    uint64_t flags = shared_.seen == nullptr ? 0 : shared_.seen->UsesOf(info.key) * SpellClass::kUse;
    flags |= info.chain_length == 0 ? kFresh : EndOf(info);
    Push(entry, Stamp::Of(info.now_us, info.depth, flags));
    ++shared_.size;
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    const Stamp stamp = store_[entry].stamp;
    const bool first = (stamp.flags() & kFresh) != 0 && BelongsToInsert(stamp.us(), info);
    const uint64_t uses = first ? stamp.flags() & SpellClass::kUses : SpellClass::NextUse(stamp.flags());
    Pull(entry);
    Push(entry, Stamp::Of(info.now_us, info.depth, uses | EndOf(info)));
  }
  void Defer(uint32_t entry, uint64_t now_us) override {
    const Stamp stamp = store_[entry].stamp;
    Pull(entry);
    Push(entry, Stamp::Of(now_us, stamp.depth(), stamp.flags()));
  }
  void Remove(uint32_t entry) override {
    Pull(entry);
    --shared_.size;
  }
  void Evict(uint32_t entry, uint64_t key) override {
    shared_.full_at_size = shared_.size;
    if (shared_.seen != nullptr) {
      const Stamp stamp = store_[entry].stamp;
      shared_.seen->Remember(key, (stamp.flags() & SpellClass::kUses) != 0, stamp.us());
      shared_.seen->GrowFor(shared_.size);
    }
    Remove(entry);
  }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    std::array<bool, SpellClass::kCount> tried{};
    for (uint32_t i = 0; i < SpellClass::kCount && look_max > 0; ++i) {
      const uint32_t group = YieldingBut(tried);
      if (group == SpellClass::kCount) break;
      tried[group] = true;
      const uint32_t found = groups_[group].Find(store_, may_leave, &look_max);
      if (found != kNone) return found;
    }
    return kNone;
  }
  uint64_t ColdestUs() override {
    const uint32_t group = YieldingBut({});
    return group == SpellClass::kCount ? UINT64_MAX : LastUs(groups_[group].coldest());
  }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint64_t size() const override {
    uint64_t sum = 0;
    for (const LinkedOrder& group : groups_) sum += group.size();
    return sum;
  }
  uint64_t metadata_bytes() const override { return sizeof(*this); }

 private:
  static uint64_t EndOf(const TouchInfo& info) {
    return info.depth + 1 == info.chain_length ? SpellClass::kEnd : 0;
  }
  LinkedOrder& GroupOf(Stamp stamp) { return groups_[stamp.flags() & kClassMask]; }
  void Push(uint32_t entry, Stamp stamp) {
    shared_.now_us = std::max(shared_.now_us, stamp.us());
    GroupOf(stamp).PushHot(&store_, entry, stamp);
  }
  void Pull(uint32_t entry) { GroupOf(store_[entry].stamp).Remove(&store_, entry); }

  // The group whose coldest entry leaves next, of those not tried; kCount: all are empty or tried.
  uint32_t YieldingBut(const std::array<bool, SpellClass::kCount>& tried) const {
    uint32_t best = SpellClass::kCount;
    for (uint32_t g = 0; g < SpellClass::kCount; ++g) {
      if (tried[g] || groups_[g].coldest() == kNone) continue;
      if (best == SpellClass::kCount || Before(g, best)) best = g;
    }
    return best;
  }
  bool Before(uint32_t a, uint32_t b) const {
    const Stamp x = store_[groups_[a].coldest()].stamp, y = store_[groups_[b].coldest()].stamp;
    if (shared_.rule.kind == VictimRule::Kind::kWorth) {
      const double worth_x = shared_.model->Worth(a, shared_.now_us - x.us());
      const double worth_y = shared_.model->Worth(b, shared_.now_us - y.us());
      if (worth_x != worth_y) return worth_x < worth_y;
    }
    if (shared_.rule.kind == VictimRule::Kind::kOnceMax && (a < SpellClass::kUse) != (b < SpellClass::kUse)) {
      const uint64_t once = groups_[0].size() + groups_[SpellClass::kEnd].size();
      const bool once_yields =
          static_cast<double>(once) > shared_.rule.once_share * static_cast<double>(size());
      return (a < SpellClass::kUse) == once_yields;
    }
    return x.order() < y.order();
  }

  GroupedShared& shared_;
  LinkedStore& store_;
  std::array<LinkedOrder, SpellClass::kCount> groups_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeGroupedOrder(GroupedShared* shared) {
  return std::make_unique<GroupedOrder>(shared);
}

}  // namespace larder::node
