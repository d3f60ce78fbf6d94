// Block bytes: landing them in granted slots, checksums while they are in cache, commit, revocation.
#include <algorithm>
#include <utility>

#include "node/session.h"

namespace larder::node {

namespace {
constexpr uint64_t kProgressUs = 1'000'000;
// A ticket whose bytes are still queued behind others of its connection counts as making progress with them,
// but not for ever: a writer that never sends it must not hold it by sending others.
constexpr uint64_t kQueuedUs = 30'000'000;
constexpr uint64_t kDeadTicket = 0;  // the owner counts from one
constexpr size_t kWasteBytes = 64 * 1024;

// A segment that nobody keeps: its bytes land one over the other, so that its neighbours can land too.
void AddWaste(std::byte* waste, uint64_t bytes, transport::LandSegments* segments) {
  std::vector<transport::Extent> extents;
  for (; bytes > kWasteBytes; bytes -= kWasteBytes) extents.push_back({waste, kWasteBytes});
  extents.push_back({waste, bytes});
  segments->Add(extents);
}
}  // namespace

bool ClientSession::PlaceData(ByteView record, std::span<const uint64_t> segment_bytes,
                              transport::Landing* landing) {
  Incoming incoming;
  Data data;
  if (!Decode(record, &data).ok() || data.tickets.size() != segment_bytes.size()) return false;
  // Tickets become `kLanding` at once, so that a double in one message is seen too.
  bool any = false;
  for (size_t i = 0; i < data.tickets.size(); ++i) {
    const auto found = tickets_.find(data.tickets[i]);
    const bool alive = found != tickets_.end() && found->second.state == TicketState::kGranted &&
                       !found->second.revoked && found->second.slot.bytes == segment_bytes[i];
    any |= alive;
    if (alive) {
      found->second.state = TicketState::kLanding;
      landing->segments.Add(found->second.slot);
    } else {
      data.tickets[i] = kDeadTicket;
      if (incoming.waste == nullptr) incoming.waste.reset(new std::byte[kWasteBytes]);
      AddWaste(incoming.waste.get(), segment_bytes[i], &landing->segments);
    }
  }
  if (!any) {
    landing->segments.clear();
    return false;
  }
  incoming.id = landing->id = next_landing_id_++;
  incoming.tickets = std::move(data.tickets);
  incoming_.push_back(std::move(incoming));
  return true;
}

void ClientSession::OnBytes(transport::Connection&, uint64_t landing_id, uint32_t segment, uint64_t,
                            transport::ByteView bytes) {
  const auto incoming = FindIncoming(landing_id);
  if (incoming == incoming_.end() || segment >= incoming->tickets.size()) return;  // hashes need no checksum
  const auto ticket = tickets_.find(incoming->tickets[segment]);
  if (ticket == tickets_.end()) return;
  ticket->second.checksums.Add(bytes);
  ReportProgress();
}

void ClientSession::ReportProgress() {
  const uint64_t now_us = shared_->owner->NowUs();
  if (now_us - progress_us_ < kProgressUs) return;
  progress_us_ = now_us;
  for (const auto& [number, ticket] : tickets_) {
    if (ticket.state == TicketState::kLanding || now_us - ticket.granted_us < kQueuedUs) {
      shared_->owner->Post(id_, Progress{number});
    }
  }
}

// Data is not answered: the Commit will say of each block whether its bytes came.
void ClientSession::OnData(uint64_t landing_id, bool landed) {
  const auto found = FindIncoming(landing_id);
  if (found == incoming_.end()) return;
  const std::vector<uint64_t> tickets = std::move(found->tickets);
  incoming_.erase(found);
  StopLanding(tickets, landed);
}

void ClientSession::OnDiverted(transport::Connection&, uint64_t landing_id) {
  OnData(landing_id, false);
}

// No byte will land for it any more.
void ClientSession::StopLanding(const std::vector<uint64_t>& tickets, bool landed) {
  for (const uint64_t number : tickets) {
    const auto found = tickets_.find(number);
    if (found == tickets_.end()) continue;
    Ticket& ticket = found->second;
    if (ticket.revoked) {
      tickets_.erase(found);
      shared_->owner->Post(id_, Stopped{number});
    } else if (landed) {
      ticket.state = TicketState::kLanded;
    } else {
      ticket.state = TicketState::kGranted;  // it may be sent again
      ticket.checksums.Restart();
    }
  }
}

void ClientSession::OnRevoke(uint64_t number) {
  const auto found = tickets_.find(number);
  if (found != tickets_.end() && found->second.state == TicketState::kLanding) {
    found->second.revoked = true;
    for (const Incoming& incoming : incoming_) {
      if (std::find(incoming.tickets.begin(), incoming.tickets.end(), number) == incoming.tickets.end())
        continue;
      connection_->Divert(incoming.id);  // may answer at once and change incoming_
      break;
    }
    return;
  }
  if (found != tickets_.end()) tickets_.erase(found);
  shared_->owner->Post(id_, Stopped{number});
}

void ClientSession::OnCommit(const Envelope& envelope, ByteView record) {
  Commit commit;
  const Status decoded = Decode(record, &commit);
  const Status status = decoded.ok() ? Admit(envelope) : decoded;
  if (!status.ok()) return SendError(envelope, status.code(), status.text());
  Committed committed;
  committed.envelope = envelope;
  bool any = false;
  for (const Commit::Block& block : commit.blocks) {
    Committed::Block& out = committed.blocks.emplace_back();
    out.ticket = block.ticket;
    const auto found = tickets_.find(block.ticket);
    if (found == tickets_.end()) continue;  // it expired, or was never granted
    Ticket& ticket = found->second;
    // Messages come in order: a Data that is still under way behind its Commit is a broken transport or peer,
    // and the slot can't be given back while bytes land in it.
    if (ticket.state == TicketState::kLanding) return Close(transport::Failure::kProtocol);
    any = true;
    out.landed = ticket.state == TicketState::kLanded && ticket.checksums.done();
    if (out.landed) out.crc32c = ticket.checksums.crc32c();
    out.verified = out.landed && out.crc32c == block.crc32c;
    tickets_.erase(found);
  }
  if (!any) {
    // Nothing that the owner would know. Answered here, so that what waits for the owner is bounded by
    // tickets.
    Forget(envelope.request_id);
    CommitReply reply;
    reply.states.assign(commit.blocks.size(), PutState::kExpired);
    return SendHeader(Encode(ReplyTo(envelope), reply));
  }
  shared_->owner->Post(id_, std::move(committed));
}

}  // namespace larder::node
