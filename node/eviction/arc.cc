// ARC (Megiddo and Modha, FAST 2003): one list of what was used once, one of what was used again, and the
// keys that each lost lately. A miss that one of the two memories knows moves the border in that list's
// favour.
#include "node/eviction/ghost_list.h"
#include "node/eviction/linked_order.h"

namespace larder::node {
namespace {

constexpr uint64_t kAgain = 1;  // flags: which list
constexpr uint64_t kFresh = 2;  // its request's touch is still to come

class Arc final : public EvictionPolicy {
 public:
  explicit Arc(LinkedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    uint64_t flags = info.chain_length == 0 ? kFresh : 0;
    const double once = static_cast<double>(once_ghosts_.size());
    const double again = static_cast<double>(again_ghosts_.size());
    if (once_ghosts_.Erase(info.key)) {
      once_target_ = std::min(once_target_ + std::max(1.0, again / once), static_cast<double>(size()) + 1);
      flags |= kAgain;
    } else if (again_ghosts_.Erase(info.key)) {
      once_target_ = std::max(once_target_ - std::max(1.0, once / again), 0.0);
      flags |= kAgain;
    }
    ListOf(flags).PushHot(&store_, entry, Stamp::Of(info.now_us, info.depth, flags));
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    const Stamp stamp = store_[entry].stamp;
    const bool first = (stamp.flags() & kFresh) != 0 && BelongsToInsert(stamp.us(), info);
    const uint64_t flags = first ? stamp.flags() & kAgain : kAgain;
    Remove(entry);
    ListOf(flags).PushHot(&store_, entry, Stamp::Of(info.now_us, info.depth, flags));
  }
  void Expect(uint32_t, Retention) override {}
  void Defer(uint32_t entry, uint64_t now_us) override {
    const Stamp stamp = store_[entry].stamp;
    Remove(entry);
    ListOf(stamp.flags()).PushHot(&store_, entry, Stamp::Of(now_us, stamp.depth(), stamp.flags()));
  }
  void Remove(uint32_t entry) override { ListOf(store_[entry].stamp.flags()).Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t key) override {
    const uint64_t capacity = size();
    const bool again = (store_[entry].stamp.flags() & kAgain) != 0;
    Remove(entry);
    (again ? again_ghosts_ : once_ghosts_).Push(key, 0);
    // Of each kind no more than resident and remembered ones would fill one and two caches with.
    once_ghosts_.ShrinkTo(capacity - std::min(capacity, once_.size()));
    again_ghosts_.ShrinkTo(2 * capacity - std::min(2 * capacity, size() + once_ghosts_.size()));
  }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    LinkedOrder& first = Yielding();
    const uint32_t found = first.Find(store_, may_leave, &look_max);
    return found != LinkedOrder::kNone
               ? found
               : (&first == &once_ ? again_ : once_).Find(store_, may_leave, &look_max);
  }
  uint64_t ColdestUs() override { return size() == 0 ? UINT64_MAX : LastUs(Yielding().coldest()); }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override { return once_.size() + again_.size(); }
  double once_share() const override {
    return size() == 0 ? 0 : std::min(1.0, once_target_ / static_cast<double>(size()));
  }
  uint64_t metadata_bytes() const override {
    return sizeof(*this) + once_ghosts_.metadata_bytes() + again_ghosts_.metadata_bytes();
  }

 private:
  LinkedOrder& ListOf(uint64_t flags) { return (flags & kAgain) != 0 ? again_ : once_; }
  LinkedOrder& Yielding() {
    if (again_.size() == 0) return once_;
    return once_.size() > 0 && static_cast<double>(once_.size()) > once_target_ ? once_ : again_;
  }

  LinkedStore& store_;
  LinkedOrder once_, again_;
  GhostList once_ghosts_, again_ghosts_;
  double once_target_ = 0;  // entries that the first list may keep
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeArc() {
  return std::make_unique<LinkedFamily<Arc>>(PolicyKind::kArc);
}

}  // namespace larder::node
