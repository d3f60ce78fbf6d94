#include "tests/simulation/sim_copies.h"

#include <cstring>
#include <span>
#include <utility>

namespace larder::simulation {

namespace {

template <typename Body>
Body ReplyOf(const std::vector<node::Action>& actions) {
  Body body;
  for (const node::Action& action : actions) {
    const auto* reply = std::get_if<node::Reply>(&action);
    if (reply == nullptr) continue;
    Envelope envelope;
    ByteView record;
    LARDER_CHECK(DecodeEnvelope(reply->header, &envelope, &record).ok());
    if (envelope.code == Code::kOk) LARDER_CHECK(Decode(record, &body).ok());
  }
  return body;
}

// A courier at its place: one session, one namespace.
class Visit {
 public:
  Visit(SimNode* to, const Digest& writer, const Open& open) : to_(to) {
    (void)to_->HandleLocal(node::Opened{writer, "", false});
    number_ = Ask<OpenReply>(Verb::kOpen, open).number;
  }
  ~Visit() { (void)to_->HandleLocal(node::Closed{}); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  uint32_t number() const { return number_; }
  template <typename Answer, typename Body>
  Answer Ask(Verb verb, Body body) {
    node::Request request;
    request.envelope.verb = verb;
    request.envelope.request_id = ++last_;
    request.body = std::move(body);
    std::vector<node::Action> actions = to_->HandleLocal(std::move(request));
    Answer answer = ReplyOf<Answer>(actions);
    for (node::Action& action : actions) {
      if (auto* grant = std::get_if<node::Grant>(&action)) grants_.push_back(std::move(*grant));
    }
    return answer;
  }
  PutState Put(const node::OutgoingPiece& piece, uint64_t since_us, uint64_t lease_us) {
    const BlockHeader& header = piece.header;
    Reserve::Block block;
    block.ref = {header.hash, header.group, header.rectangle};
    block.codec = header.codec;
    block.depth = piece.piece.depth();
    for (const PartRecord& part : header.parts) block.parts.push_back({1, part.bytes});
    const auto reserved = Ask<ReserveReply>(Verb::kReserve, Reserve{number_, {block}, since_us, lease_us});
    if (reserved.blocks.empty()) return PutState::kBusy;
    if (reserved.blocks[0].state != PutState::kTicket) return reserved.blocks[0].state;
    std::memcpy(grants_.back().slot.data, piece.payload.data, piece.payload.bytes);
    node::Committed committed;
    committed.envelope.verb = Verb::kCommit;
    committed.envelope.request_id = ++last_;
    std::vector<uint32_t> crc32c;
    for (const PartRecord& part : header.parts) crc32c.push_back(part.crc32c);
    committed.blocks.push_back({reserved.blocks[0].ticket, true, true, std::move(crc32c)});
    const auto stored = ReplyOf<CommitReply>(to_->HandleLocal(std::move(committed)));
    return stored.states.empty() ? PutState::kBusy : stored.states[0];
  }

 private:
  SimNode* const to_;
  uint32_t number_ = 0;
  uint64_t last_ = 0;
  std::vector<node::Grant> grants_;
};

}  // namespace

// The node and the courier, as a round wants them.
class SimCopies::Side {
 public:
  Side(SimCopies* copies, SimNode* home) : copies_(*copies), home_(home) {}

  std::vector<node::HotBlock> PlanHot() { return home_->owner().PlanHot(NowUs()); }
  void DropHot(const node::BlockName& name) { home_->owner().DropHot(name); }
  node::OutgoingPage TakeOut(std::span<const node::WarmPiece> list) {
    return home_->owner().TakeOut(list, {}, true);
  }
  void LetGo(std::span<const uint32_t> entries) { (void)home_->owner().LetGo(entries); }
  bool BeginCopy(const node::BlockName& name, const node::HotHolder& holder) {
    return home_->owner().BeginCopy(name, holder);
  }
  void EndCopy(const node::BlockName& name, const node::HotHolder& holder, uint32_t reads,
               uint64_t put_bytes) {
    home_->owner().EndCopy(name, holder, reads, put_bytes);
  }

  uint64_t NowUs() const { return copies_.network_->now_us(); }
  bool Goes() const { return true; }
  bool Carries(const Digest&) const { return true; }
  node::CopyAnswer Copy(const NodeRecord& place, const Digest& writer, const Namespace& name_space,
                        const std::vector<const node::OutgoingPiece*>& pieces, uint64_t lease_us,
                        bool own_counts) {
    SimNode* const to = copies_.reach_(home_->name(), place.id);
    const Result<Open> open = home_->owner().OpeningOf(name_space);
    if (to == nullptr || !open.ok()) return {};
    Visit visit(to, writer, open.value());
    Lease lease{visit.number(), 0, lease_us, {}};
    lease.since_us = visit.Ask<LeaseReply>(Verb::kLease, lease).now_us;
    for (const node::OutgoingPiece* piece : pieces) {
      lease.blocks.push_back({piece->header.hash, piece->header.group, piece->header.rectangle});
    }
    const auto renewed = visit.Ask<LeaseReply>(Verb::kLease, lease);
    node::CopyAnswer answer{renewed.blocks.size() == pieces.size(), NowUs() + lease_us, 0, 0};
    for (size_t i = 0; answer.made && i < pieces.size(); ++i) {
      answer.reads += renewed.blocks[i].reads;
      if (renewed.blocks[i].state == LeaseState::kOwn) answer.made = own_counts;
      if (renewed.blocks[i].state != LeaseState::kGone) continue;
      answer.made = !own_counts && visit.Put(*pieces[i], lease.since_us, lease_us) == PutState::kStored;
      if (answer.made) answer.put_bytes += pieces[i]->payload.bytes;
    }
    return answer;
  }

 private:
  SimCopies& copies_;
  SimNode* const home_;
};

void SimCopies::Round(SimNode* home) {
  Tell(home);
  Side side(this, home);
  node::HotRound(&side, &side, &table_, home->name()).Run();
}

void SimCopies::Tell(SimNode* home) {
  for (const node::HotRevoke& revoke : home->owner().Revokes()) {
    for (const node::HotHolder& holder : revoke.holders) {
      SimNode* const to = reach_(home->name(), holder.node);
      const Result<Open> open = home->owner().OpeningOf(revoke.name_space);
      if (to == nullptr || !open.ok()) continue;
      Visit visit(to, holder.writer, open.value());
      (void)visit.Ask<RemoveReply>(Verb::kRemove, Remove{visit.number(), revoke.groups, revoke.hashes});
      home->owner().Revoked(revoke.token, holder.node);
    }
  }
}

}  // namespace larder::simulation
