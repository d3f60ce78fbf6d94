// Least recently used; of one request's blocks the deepest is the colder one, so that what stays of a chain
// is a prefix. One list for each expectation from the coldest to the hottest entry, ordered by (time of the
// last touch, -depth); the coldest of the four that counts as the oldest leaves.
#include <array>

#include "node/eviction/effective_age.h"
#include "node/eviction/linked_order.h"

namespace larder::node {
namespace {

constexpr uint64_t kFresh = kRetentions;  // flag beside a Retention: its request's touch is still to come

class LeafFirstLru final : public EvictionPolicy {
 public:
  explicit LeafFirstLru(LinkedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    const uint64_t fresh = info.chain_length == 0 ? kFresh : 0;
    Push(entry, Stamp::Of(info.now_us, info.depth, static_cast<uint64_t>(info.retention) | fresh));
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    const Stamp stamp = store_[entry].stamp;
    const bool first = (stamp.flags() & kFresh) != 0 && BelongsToInsert(stamp.us(), info);
    // What its put said of it holds: this is the same request.
    const bool told = first && info.retention == Retention::kNone;
    Remove(entry);
    Push(entry, Stamp::Of(info.now_us, info.depth,
                          told ? OrderNumber(stamp) : static_cast<uint64_t>(info.retention)));
  }
  void Expect(uint32_t entry, Retention retention) override {
    Stamp stamp = store_[entry].stamp;
    if (OrderNumber(stamp) == static_cast<uint64_t>(retention)) return;
    Remove(entry);
    stamp.set_flags((stamp.flags() & kFresh) | static_cast<uint64_t>(retention));
    Push(entry, stamp);
  }
  void Defer(uint32_t entry, uint64_t now_us) override {
    const Stamp stamp = store_[entry].stamp;
    Remove(entry);
    Push(entry, Stamp::Of(now_us, stamp.depth(), stamp.flags()));
  }
  void Remove(uint32_t entry) override { OrderOf(store_[entry].stamp).Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t) override { Remove(entry); }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    std::array<bool, kRetentions> tried{};
    for (unsigned i = 0; i < kRetentions && look_max > 0; ++i) {
      const unsigned oldest = OldestBut(tried);
      if (oldest == kRetentions) break;
      tried[oldest] = true;
      const uint32_t found = orders_[oldest].Find(store_, may_leave, &look_max);
      if (found != LinkedOrder::kNone) return found;
    }
    return LinkedOrder::kNone;
  }
  uint64_t ColdestUs() override {
    const unsigned oldest = OldestBut({});
    return oldest == kRetentions ? UINT64_MAX : LastUs(orders_[oldest].coldest());
  }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override {
    uint64_t sum = 0;
    for (const LinkedOrder& order : orders_) sum += order.size();
    return sum;
  }
  uint64_t metadata_bytes() const override { return sizeof(*this); }

 private:
  static uint64_t OrderNumber(Stamp stamp) { return stamp.flags() & (kFresh - 1); }
  LinkedOrder& OrderOf(Stamp stamp) { return orders_[OrderNumber(stamp)]; }
  void Push(uint32_t entry, Stamp stamp) {
    now_us_ = std::max(now_us_, stamp.us());
    OrderOf(stamp).PushHot(&store_, entry, stamp);
  }
  uint64_t AgeOfColdest(unsigned order) const {
    return EffectiveAge(static_cast<Retention>(order), now_us_ - LastUs(orders_[order].coldest()));
  }
  // The list whose coldest entry leaves next, of those not tried; kRetentions: none.
  unsigned OldestBut(const std::array<bool, kRetentions>& tried) const {
    unsigned oldest = kRetentions;
    for (unsigned o = 0; o < kRetentions; ++o) {
      if (tried[o] || orders_[o].coldest() == LinkedOrder::kNone) continue;
      if (oldest == kRetentions || AgeOfColdest(o) > AgeOfColdest(oldest)) oldest = o;
    }
    return oldest;
  }

  LinkedStore& store_;
  std::array<LinkedOrder, kRetentions> orders_;
  uint64_t now_us_ = 0;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeLeafFirstLru() {
  return std::make_unique<LinkedFamily<LeafFirstLru>>(PolicyKind::kLru);
}

}  // namespace larder::node
