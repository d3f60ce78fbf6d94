// Follows the best of several policies. Each member runs in a shadow: a cache without bytes, that holds
// blocks of the sampled chains in the same share as the real one holds blocks. What its hits are worth is
// counted request by request, as the length of the prefix that it would have had of this node's blocks; the
// real cache's rule is that of the leader.
#include <vector>

#include "node/eviction/learned_family.h"

namespace larder::node {
namespace {

constexpr uint32_t kNone = LinkedOrder::kNone;
// References of played chains after which old hits count a fifth less.
constexpr uint64_t kScoreWindow = 1024;
constexpr double kScoreDecay = 0.8;
// The hazard leads unless another is better by so much: a lead within the noise isn't worth following.
constexpr double kLead = 1.20;
// By more where chains are divided over nodes: what tears them apart must pay for it.
constexpr double kLeadOfShares = 2;
constexpr double kLeadHits = 32;

struct MemberRule {
  PolicyKind kind;
  VictimRule rule;
};
constexpr MemberRule kMembers[] = {
    {PolicyKind::kHazard, {VictimRule::Kind::kWorth, 0}},
    {PolicyKind::kLru, {VictimRule::Kind::kOldest, 0}},
    {PolicyKind::kS3Fifo, {VictimRule::Kind::kOnceMax, 0.1}},
    {PolicyKind::kArc, {VictimRule::Kind::kOnceMax, 0}},  // its share moves
    {PolicyKind::kLru2, {VictimRule::Kind::kOnceMax, 0}},
};

class Tournament final : public LearnedFamily {
 public:
  Tournament() {
    members_.resize(std::size(kMembers));
    for (size_t m = 0; m < members_.size(); ++m) {
      members_[m].shared.model = &model_;
      members_[m].shared.rule = kMembers[m].rule;
    }
    Tournament::Restart();
  }
  std::string_view following() const override { return PolicyName(kMembers[leader_].kind); }
  uint64_t metadata_bytes() const override {
    uint64_t bytes = LearnedFamily::metadata_bytes() + sizeof(*this) + arc_family_->metadata_bytes() +
                     arc_->metadata_bytes();
    for (const Member& member : members_)
      bytes += member.order->metadata_bytes() + member.shared.store.bytes();
    return bytes;
  }

 protected:
  void Play(const ChainTouch& touch, const std::vector<Use>& uses) override {
    if (!sampler_.Plays(touch)) return;
    const uint32_t counted = Counted(touch);
    const uint64_t capacity = shared_.full_at_size == 0 ? UINT64_MAX : sampler_.Played(shared_.full_at_size);
    PlayMember(kArc, touch, uses, capacity);
    for (size_t m = 0; m < members_.size(); ++m) {
      if (kMembers[m].kind == PolicyKind::kArc) members_[m].shared.rule.once_share = arc_->once_share();
      uint32_t hits = 0;
      while (hits < counted && (history_[uses[hits].entry].shadows >> m & 1) != 0) ++hits;
      members_[m].score += hits;
      PlayMember(m, touch, uses, capacity);
    }
    played_ += touch.keys.size();
    ChooseLeader();
  }
  void PlayEnd(uint32_t entry, Retention retention) override {
    for (size_t m = 0; m <= kArc; ++m) {
      if ((history_[entry].shadows >> m & 1) != 0) PolicyOf(m).Expect(entry, retention);
    }
  }
  void Forget(uint32_t entry) override {
    uint8_t& shadows = history_[entry].shadows;
    for (size_t m = 0; shadows != 0; ++m) {
      if ((shadows >> m & 1) != 0) PolicyOf(m).Remove(entry);
      shadows = static_cast<uint8_t>(shadows & ~(1u << m));
    }
  }
  void Restart() override {
    for (Member& member : members_) {
      member.order.reset();
      member.shared.size = member.shared.full_at_size = 0;
      member.order = MakeGroupedOrder(&member.shared);
    }
    arc_ = arc_family_->Make();
  }

 private:
  // What the real cache would do if it followed this one: the same lists under the same rule.
  struct Member {
    GroupedShared shared;
    std::unique_ptr<EvictionPolicy> order;
    double score = 0;
  };
  static constexpr size_t kArc = std::size(kMembers);  // ARC itself, whose border its follower takes

  EvictionPolicy& PolicyOf(size_t m) { return m == kArc ? *arc_ : *members_[m].order; }

  // How many of this node's leading blocks count when a shadow has them: where another node's hole ended the
  // real prefix, no hit behind it would have been of use.
  static uint32_t Counted(const ChainTouch& touch) {
    const auto blocks = static_cast<uint32_t>(touch.keys.size());
    if (touch.usable_length == 0) return blocks;
    const auto hole = std::lower_bound(touch.depths.begin(), touch.depths.end(), touch.usable_length);
    const bool ours = hole != touch.depths.end() && *hole == touch.usable_length;
    return ours ? blocks : static_cast<uint32_t>(hole - touch.depths.begin());
  }

  void PlayMember(size_t m, const ChainTouch& touch, const std::vector<Use>& uses, uint64_t capacity) {
    EvictionPolicy& policy = PolicyOf(m);
    policy.Reserve(static_cast<uint32_t>(history_.entries().size()));
    TouchInfo info{touch.now_us, touch.root, 0, touch.usable_length, touch.chain_length, 0, touch.retention};
    if (info.chain_length == 0) info.chain_length = UINT32_MAX;  // a shadow's insert is the whole request
    for (size_t i = uses.size(); i-- > 0;) {
      info.depth = touch.depths[i];
      info.key = touch.keys[i];
      ChainHistory::Entry& e = history_[uses[i].entry];
      const bool resident = (e.shadows >> m & 1) != 0;
      if (!resident) policy.Insert(uses[i].entry, info);
      e.shadows = static_cast<uint8_t>(e.shadows | 1u << m);
      // A shadow knows from the history what a real cache knows from its memory of what left.
      const uint32_t known = m == kArc ? 0 : uses[i].before;
      for (uint32_t use = resident ? 1 : known; use > 0; --use) policy.Touch(uses[i].entry, info);
    }
    while (policy.size() > capacity) {
      const uint32_t victim = policy.Victim([](uint32_t) { return true; }, 1);
      LARDER_CHECK(victim != kNone);
      policy.Evict(victim, history_[victim].key);
      ChainHistory::Entry& e = history_[victim];
      e.shadows = static_cast<uint8_t>(e.shadows & ~(1u << m));
    }
  }

  void ChooseLeader() {
    if (played_ < kScoreWindow) return;
    played_ = 0;
    leader_ = 0;
    double to_beat = members_[0].score * (sees_shares() ? kLeadOfShares : kLead) + kLeadHits;
    for (size_t m = 1; m < members_.size(); ++m) {
      if (members_[m].score <= to_beat) continue;
      leader_ = m;
      to_beat = members_[m].score;
    }
    for (Member& member : members_) member.score *= kScoreDecay;
    shared_.rule = members_[leader_].shared.rule;
  }

  std::unique_ptr<PolicyFamily> arc_family_ = MakeArc();
  std::unique_ptr<EvictionPolicy> arc_;
  std::vector<Member> members_;
  size_t leader_ = 0;
  uint64_t played_ = 0;
};

}  // namespace

std::unique_ptr<PolicyFamily> MakeTournament() {
  return std::make_unique<Tournament>();
}

}  // namespace larder::node
