#include "node/eviction/grouped_order.h"

#include <bit>

#include "node/eviction/effective_age.h"

namespace larder::node {
namespace {

constexpr uint64_t kFresh = 32;  // flag beside the spell class: its request's touch is still to come
static_assert(kFresh > SpellClass::kEvery && kFresh <= Stamp::kFlags);
constexpr uint32_t kNone = LinkedOrder::kNone;

class GroupedOrder final : public EvictionPolicy {
 public:
  explicit GroupedOrder(GroupedShared* shared) : shared_(*shared), store_(shared->store) {}
  ~GroupedOrder() override { shared_.size -= size(); }

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    uint64_t flags = shared_.seen == nullptr ? 0 : shared_.seen->UsesOf(info.key) * SpellClass::kUse;
    flags |= info.chain_length == 0 ? kFresh : EndOf(info);
    flags |= static_cast<uint64_t>(info.retention) * SpellClass::kRetention;
    Push(entry, Stamp::Of(info.now_us, info.depth, flags));
    ++shared_.size;
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    const Stamp stamp = store_[entry].stamp;
    const bool first = (stamp.flags() & kFresh) != 0 && BelongsToInsert(stamp.us(), info);
    // What its put said of it holds: this is the same request.
    const Retention told =
        first && info.retention == Retention::kNone ? SpellClass::RetentionOf(stamp.flags()) : info.retention;
    const uint64_t uses = first ? stamp.flags() & SpellClass::kUses : SpellClass::NextUse(stamp.flags());
    Pull(entry);
    Push(entry, Stamp::Of(info.now_us, info.depth, SpellClass::With(uses | EndOf(info), told)));
  }
  void Expect(uint32_t entry, Retention retention) override {
    Stamp stamp = store_[entry].stamp;
    if (SpellClass::RetentionOf(stamp.flags()) == retention) return;
    Pull(entry);
    stamp.set_flags((stamp.flags() & kFresh) | SpellClass::With(stamp.flags(), retention));
    Push(entry, stamp);
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
    for (uint32_t untried = filled_; untried != 0 && look_max > 0;) {
      const uint32_t group = YieldingOf(untried);
      untried &= ~(1u << group);
      const uint32_t found = groups_[group].Find(store_, may_leave, &look_max);
      if (found != kNone) return found;
    }
    return kNone;
  }
  uint64_t ColdestUs() override {
    return filled_ == 0 ? UINT64_MAX : LastUs(groups_[YieldingOf(filled_)].coldest());
  }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override { return size_; }
  uint64_t metadata_bytes() const override { return sizeof(*this); }

 private:
  static uint64_t EndOf(const TouchInfo& info) {
    return info.depth + 1 == info.chain_length ? SpellClass::kEnd : 0;
  }
  static uint32_t GroupOf(Stamp stamp) { return stamp.flags() & SpellClass::kEvery; }
  void Push(uint32_t entry, Stamp stamp) {
    shared_.now_us = std::max(shared_.now_us, stamp.us());
    const uint32_t group = GroupOf(stamp);
    groups_[group].PushHot(&store_, entry, stamp);
    filled_ |= 1u << group;
    ++size_;
    once_ += UsedOnce(group);
  }
  void Pull(uint32_t entry) {
    const uint32_t group = GroupOf(store_[entry].stamp);
    groups_[group].Remove(&store_, entry);
    if (groups_[group].size() == 0) filled_ &= ~(1u << group);
    --size_;
    once_ -= UsedOnce(group);
  }

  // The group whose coldest entry leaves next, of those in the set, which has one and only filled ones.
  uint32_t YieldingOf(uint32_t set) const {
    auto best = static_cast<uint32_t>(std::countr_zero(set));
    for (set &= set - 1; set != 0; set &= set - 1) {
      const auto group = static_cast<uint32_t>(std::countr_zero(set));
      if (Before(group, best)) best = group;
    }
    return best;
  }
  bool Before(uint32_t a, uint32_t b) const {
    const Stamp x = store_[groups_[a].coldest()].stamp, y = store_[groups_[b].coldest()].stamp;
    const Retention expected_x = SpellClass::RetentionOf(a), expected_y = SpellClass::RetentionOf(b);
    if ((expected_x == Retention::kNever) != (expected_y == Retention::kNever)) {
      return expected_x == Retention::kNever;
    }
    if (shared_.rule.kind == VictimRule::Kind::kWorth) {
      const double worth_x = shared_.model->Worth(a, shared_.now_us - x.us());
      const double worth_y = shared_.model->Worth(b, shared_.now_us - y.us());
      if (worth_x != worth_y) return worth_x < worth_y;
    }
    if (shared_.rule.kind == VictimRule::Kind::kOnceMax && UsedOnce(a) != UsedOnce(b)) {
      const bool once_yields =
          static_cast<double>(once_) > shared_.rule.once_share * static_cast<double>(size());
      return UsedOnce(a) == once_yields;
    }
    const uint64_t age_x = EffectiveAge(expected_x, shared_.now_us - x.us());
    const uint64_t age_y = EffectiveAge(expected_y, shared_.now_us - y.us());
    return age_x != age_y ? age_x > age_y : x.order() < y.order();
  }
  static bool UsedOnce(uint64_t group) { return (group & SpellClass::kUses) == 0; }

  GroupedShared& shared_;
  LinkedStore& store_;
  std::array<LinkedOrder, SpellClass::kCount> groups_;
  uint32_t filled_ = 0;  // a bit for each group that is not empty
  uint64_t size_ = 0;
  uint64_t once_ = 0;  // entries used once
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeGroupedOrder(GroupedShared* shared) {
  return std::make_unique<GroupedOrder>(shared);
}

}  // namespace larder::node
