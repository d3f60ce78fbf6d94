#include "node/cluster/hot_copies.h"

#include <algorithm>
#include <utility>

namespace larder::node {

namespace {
constexpr uint64_t kRoundUs = 1'000'000;
constexpr uint64_t kTellAgainUs = 200'000;  // a holder that could not be told
constexpr uint64_t kTellUs = 2'000'000;     // for one of them
}  // namespace

// The node and the courier, as a round wants them.
class HotCopies::Side {
 public:
  explicit Side(HotCopies* copies) : copies_(*copies) {}

  std::vector<HotBlock> PlanHot() { return copies_.node_->PlanHot(); }
  void DropHot(const BlockName& name) { copies_.node_->DropHot(name); }
  OutgoingPage TakeOut(std::span<const WarmPiece> list) {
    Result<OutgoingPage> page = copies_.node_->TakeOut(list, {}, true);
    return page.ok() ? std::move(page).value() : OutgoingPage{};
  }
  void LetGo(std::span<const uint32_t> entries) { (void)copies_.node_->LetGo(entries); }
  bool BeginCopy(const BlockName& name, const HotHolder& holder) {
    return copies_.node_->BeginCopy(name, holder);
  }
  void EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads, uint64_t put_bytes) {
    copies_.node_->EndCopy(name, holder, reads, put_bytes);
  }

  uint64_t NowUs() const { return transport::NowUs(); }
  bool Carries(const Digest& writer) const { return copies_.courier_.Carries(writer); }
  // What has to go goes before more comes, and the pace is kept here, between two copies: nobody is told of a
  // removal between the parts of one, or the rest of it would be put after that.
  bool Goes() {
    copies_.TellRevokes();
    return copies_.Pause(next_us_) && !copies_.node_->info().draining;
  }
  CopyAnswer Copy(const NodeRecord& place, const Digest& writer, const Namespace& name_space,
                  const std::vector<const OutgoingPiece*>& pieces, uint64_t lease_us, bool own_counts) {
    copies_.pace_.Begin();
    const CopyAnswer answer = copies_.courier_.Copy({&place, writer, name_space}, pieces, lease_us,
                                                    own_counts, transport::NowUs() + kHotAttemptUs);
    const uint64_t next_us = copies_.pace_.After(answer.put_bytes);
    if (answer.put_bytes != 0) next_us_ = std::max(next_us_, next_us);
    return answer;
  }

 private:
  HotCopies& copies_;
  uint64_t next_us_ = 0;  // not before then more is put
};

HotCopies::HotCopies(Node* node, const HotCopiesOptions& options)
    : node_(node),
      self_(node->info().record.id),
      pace_(options.bytes_per_second),
      courier_(node, options.credentials, "copies: " + self_),
      thread_([this] { Run(); }) {
  node_->SetOnRevokes([this] { wait_.Wake(); });
}

HotCopies::~HotCopies() {
  node_->SetOnRevokes({});
  wait_.Stop();
  thread_.join();
}

// Tells of revokes meanwhile. False: it is to stop.
bool HotCopies::Pause(uint64_t until_us) {
  for (;;) {
    const uint64_t now_us = transport::NowUs();
    if (now_us >= until_us) return !wait_.stopping();
    if (!wait_.For(std::min(until_us - now_us, kTellAgainUs))) return false;
    TellRevokes();
  }
}

void HotCopies::Run() {
  Status started = courier_.Start();
  uint64_t epoch = node_->table_epoch();
  NodeTable table = node_->info().table;
  Side side(this);
  for (uint64_t round_us = transport::NowUs() + kRoundUs; Pause(round_us); round_us += kRoundUs) {
    if (!started.ok()) started = courier_.Start();
    if (!started.ok() || node_->info().draining) continue;
    if (node_->table_epoch() != epoch) {
      table = node_->info().table;
      epoch = table.epoch;
      node_->DistrustCopies();
    }
    HotRound(&side, &side, &table, self_).Run();
    round_us = std::max(round_us, transport::NowUs() - kRoundUs);
  }
}

// Who cannot be told is told again in the next pause, until its lease is over.
void HotCopies::TellRevokes() {
  for (const HotRevoke& revoke : node_->Revokes()) {
    for (const HotHolder& holder : revoke.holders) {
      if (wait_.stopping()) return;
      if (TellHolder(revoke, holder)) node_->Revoked(revoke.token, holder.node);
    }
  }
}

// One remove names so many groups, and no more.
bool HotCopies::TellHolder(const HotRevoke& revoke, const HotHolder& holder) {
  const uint64_t end_us = transport::NowUs() + kTellUs;
  for (size_t at = 0; at < revoke.groups.size(); at += kGroupsMax) {
    const auto begin = revoke.groups.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end =
        begin + static_cast<std::ptrdiff_t>(std::min<size_t>(kGroupsMax, revoke.groups.size() - at));
    const Forward remove{0, revoke.name_space, false, std::vector(begin, end), revoke.hashes};
    if (!courier_.Tell(holder.node, holder.writer, remove, end_us).ok()) return false;
  }
  return true;
}

}  // namespace larder::node
