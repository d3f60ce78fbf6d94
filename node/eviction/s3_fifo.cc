// S3-FIFO (Yang and others, SOSP 2023): a small queue of a tenth takes what is new; what was used in it twice
// goes to the main queue, the rest leaves and is remembered by key; what comes back from that memory goes to
// the main queue at once. In the main queue each use (three count) is worth another round.
#include "node/eviction/ghost_list.h"
#include "node/eviction/linked_order.h"

namespace larder::node {
namespace {

constexpr uint64_t kUses = 3;   // flags: how often it was used, up to three
constexpr uint64_t kMain = 4;   // which queue
constexpr uint64_t kFresh = 8;  // its request's touch is still to come
constexpr uint64_t kSmallShare = 10;
constexpr uint64_t kUsesToStay = 2;
constexpr uint32_t kMovesMax = 1024;  // second chances given in one search

class S3Fifo final : public EvictionPolicy {
 public:
  explicit S3Fifo(LinkedStore* store) : store_(*store) {}

  void Reserve(uint32_t entries) override { store_.Reserve(entries); }
  void Insert(uint32_t entry, const TouchInfo& info) override {
    const uint64_t queue = ghosts_.Erase(info.key) ? kMain : 0;
    const uint64_t fresh = info.chain_length == 0 ? kFresh : 0;
    (queue == kMain ? main_ : small_)
        .PushHot(&store_, entry, Stamp::Of(info.now_us, info.depth, queue | fresh));
  }
  void Touch(uint32_t entry, const TouchInfo& info) override {
    Stamp& stamp = store_[entry].stamp;
    uint64_t flags = stamp.flags();
    const bool first = (flags & kFresh) != 0 && BelongsToInsert(stamp.us(), info);
    flags &= ~kFresh;
    if (!first && (flags & kUses) < kUses) ++flags;
    stamp = Stamp::Of(info.now_us, info.depth, flags);
  }
  void Expect(uint32_t, Retention) override {}
  void Defer(uint32_t entry, uint64_t now_us) override {
    const Stamp stamp = store_[entry].stamp;
    LinkedOrder& queue = QueueOf(entry);
    queue.Remove(&store_, entry);
    queue.PushLast(&store_, entry, Stamp::Of(now_us, stamp.depth(), stamp.flags()));
  }
  void Remove(uint32_t entry) override { QueueOf(entry).Remove(&store_, entry); }
  void Evict(uint32_t entry, uint64_t key) override {
    const bool remembered = &QueueOf(entry) == &small_;
    Remove(entry);
    if (remembered) ghosts_.Push(key, 0);
    ghosts_.ShrinkTo(std::max<uint64_t>(size() * 9 / 10, 1));
  }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    GiveSecondChances();
    LinkedOrder& first = SmallIsFull() ? small_ : main_;
    const uint32_t found = first.Find(store_, may_leave, &look_max);
    return found != LinkedOrder::kNone
               ? found
               : (&first == &small_ ? main_ : small_).Find(store_, may_leave, &look_max);
  }
  uint64_t ColdestUs() override {
    if (size() == 0) return UINT64_MAX;
    GiveSecondChances();
    return LastUs((SmallIsFull() ? small_ : main_).coldest());
  }
  uint64_t LastUs(uint32_t entry) const override { return store_[entry].stamp.us(); }
  uint32_t DepthOf(uint32_t entry) const override { return store_[entry].stamp.depth(); }
  uint64_t size() const override { return small_.size() + main_.size(); }
  double once_share() const override { return 1.0 / kSmallShare; }
  uint64_t metadata_bytes() const override { return sizeof(*this) + ghosts_.metadata_bytes(); }

 private:
  LinkedOrder& QueueOf(uint32_t entry) { return (store_[entry].stamp.flags() & kMain) != 0 ? main_ : small_; }
  bool SmallIsFull() const {
    return main_.size() == 0 || small_.size() >= std::max<uint64_t>(1, size() / kSmallShare);
  }
  // Until the coldest of the queue that has to give way has earned no further round.
  void GiveSecondChances() {
    for (uint32_t moves = 0; moves < kMovesMax && size() > 0; ++moves) {
      const bool from_small = SmallIsFull();
      const uint32_t entry = (from_small ? small_ : main_).coldest();
      Stamp stamp = store_[entry].stamp;
      const uint64_t uses = stamp.flags() & kUses;
      if (uses < (from_small ? kUsesToStay : 1)) return;
      (from_small ? small_ : main_).Remove(&store_, entry);
      stamp.set_flags(kMain | (stamp.flags() & kFresh) | (from_small ? 0 : uses - 1));
      main_.PushLast(&store_, entry, stamp);
    }
  }

  LinkedStore& store_;
  LinkedOrder small_, main_;
  GhostList ghosts_;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeS3Fifo() {
  return std::make_unique<LinkedFamily<S3Fifo>>(PolicyKind::kS3Fifo);
}

}  // namespace larder::node
