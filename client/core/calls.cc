// Requests on the wire: accounting, messages in, replies to their verbs.
#include <algorithm>
#include <utility>

#include "client/core/core.h"

namespace larder::client {

Call* Core::Launch(Link* link, std::unique_ptr<Call> owned) {
  Call* call = owned.get();
  call->request_id = ++last_id_;
  call->link = link;
  call->peer = link->peer;
  call->sent_us = now_us_;
  call->link_transport_shm = link->endpoint.transport == "shm";
  if (call->operation != nullptr) call->operation->calls.push_back(call);
  if (call->window_bytes != 0) {
    ++link->bulk_calls;
    link->window_bytes += call->window_bytes;
  }
  link->calls.emplace(call->request_id, std::move(owned));
  ArmSilence(link);
  return call;
}

// Off the link's table and out of its sums.
std::unique_ptr<Call> Core::Take(Call* call) {
  Link* link = call->link;
  const auto found = link->calls.find(call->request_id);
  std::unique_ptr<Call> owned = std::move(found->second);
  link->calls.erase(found);
  if (call->held_bytes != 0) Unhold(call->peer, std::exchange(call->held_bytes, 0));
  if (call->landing != nullptr) link->received += call->landing->steps();
  if (call->operation != nullptr) {
    std::erase(call->operation->calls, call);
    if (call->window_bytes != 0) {
      --link->bulk_calls;
      link->window_bytes -= call->window_bytes;
    }
  } else if (call->forgotten) {
    --link->forgotten;
  }
  if (link->peer != nullptr) MarkDirty(link->peer);
  return owned;
}

// Nobody waits for the answer any more; the entry stays until it comes, so that it is known for what it is.
void Core::Forget(Call* call) {
  if (call->operation == nullptr) return;
  Link* link = call->link;
  std::erase(call->operation->calls, call);
  call->operation = nullptr;
  call->forgotten = true;
  ++link->forgotten;
  if (call->window_bytes != 0) {
    --link->bulk_calls;
    link->window_bytes -= call->window_bytes;
  }
  if (call->held_bytes != 0) Unhold(call->peer, std::exchange(call->held_bytes, 0));
  if (call->landing != nullptr) link->received += call->landing->steps();
  call->landing = nullptr;
  if (link->peer != nullptr) MarkDirty(link->peer);
}

// `hashes` travel as the payload and live until they are sent.
void Core::Transmit(Link* link, Bytes header, std::shared_ptr<const std::vector<ChainHash>> hashes) {
  transport::OutMessage message;
  message.header = std::move(header);
  if (hashes != nullptr && !hashes->empty()) {
    message.segments.Add(
        {reinterpret_cast<const std::byte*>(hashes->data()), hashes->size() * sizeof(ChainHash)});
    message.token = ++last_id_;
    sends_.emplace(message.token, SendRecord{0, link->id, nullptr, 0, hashes});
  }
  effects_->Send(link->id, std::move(message));
}

Envelope Core::EnvelopeFor(const Call& call) const {
  Envelope envelope;
  envelope.verb = call.verb;
  envelope.priority = call.link->lane;
  envelope.request_id = call.request_id;
  if (call.operation != nullptr) {
    const uint64_t left_us =
        call.operation->deadline_us > now_us_ ? call.operation->deadline_us - now_us_ : 1;
    // A wait's answer at the deadline has to be here by then.
    const bool at_deadline = call.verb == Verb::kWait || call.verb == Verb::kPrefetch;
    const uint64_t margin_us = at_deadline ? std::min<uint64_t>(left_us / 4, 100'000) : 0;
    envelope.deadline_us = static_cast<uint32_t>(std::min<uint64_t>(left_us - margin_us, UINT32_MAX));
  }
  return envelope;
}

bool Core::MayHold(Peer* peer, size_t lane, uint64_t bytes) {
  const uint64_t quarters = lane == static_cast<size_t>(Priority::kBatch) ? 3 : 4;
  if (peer->bytes_in_flight + bytes > options_.client.peer_bytes_in_flight_max / 4 * quarters) return false;
  if (bytes_in_flight_ + bytes > options_.client.bytes_in_flight_max / 4 * quarters) {
    if (!peer->hungry) hungry_.push_back(peer);
    peer->hungry = true;
    return false;
  }
  return true;
}

uint64_t Core::ItemBytesMax(Priority priority) const {
  const uint64_t quarters = priority == Priority::kBatch ? 3 : 4;
  return std::min(options_.client.peer_bytes_in_flight_max, options_.client.bytes_in_flight_max) / 4 *
         quarters;
}

void Core::Hold(Peer* peer, uint64_t bytes) {
  peer->bytes_in_flight += bytes;
  bytes_in_flight_ += bytes;
  stats_.bytes_in_flight_peak = std::max(stats_.bytes_in_flight_peak, bytes_in_flight_);
}

void Core::Unhold(Peer* peer, uint64_t bytes) {
  peer->bytes_in_flight -= bytes;
  bytes_in_flight_ -= bytes;
  MarkDirty(peer);
  for (Peer* hungry : hungry_) {
    hungry->hungry = false;
    MarkDirty(hungry);
  }
  hungry_.clear();
}

void Core::SendWaiting(Link* link, std::unique_ptr<Call> owned) {
  Call* call = Launch(link, std::move(owned));
  switch (call->verb) {
    case Verb::kMatch:
      return SendMatch(link, call);
    case Verb::kWait:
      return SendWait(link, call);
    case Verb::kPrefetch:
      return SendPrefetch(link, call);
    case Verb::kRemove:
      return SendRemove(link, call);
    case Verb::kClear: {
      larder::Clear clear;
      clear.number = link->namespaces[call->name_space].number;
      clear.stamp_ms = static_cast<const ClearOperation*>(call->operation)->stamp_ms;
      return Transmit(link, Encode(EnvelopeFor(*call), clear), nullptr);
    }
    default:
      return Transmit(link, Encode(EnvelopeFor(*call)), nullptr);  // ping
  }
}

bool Core::Place(LinkId id, ByteView header, std::span<const uint64_t> segment_bytes,
                 transport::Landing* place, std::shared_ptr<Landing>* landing, uint64_t now_us) {
  now_us_ = now_us;
  Link* link = FindLink(id);
  Envelope envelope;
  ByteView record;
  if (link == nullptr || link->state != Link::State::kReady) return false;
  if (!DecodeEnvelope(header, &envelope, &record).ok()) return false;
  if (envelope.verb != Verb::kGet || !envelope.reply || envelope.code != Code::kOk) return false;
  const auto found = link->calls.find(envelope.request_id);
  if (found == link->calls.end()) return false;
  Call* call = found->second.get();
  if (call->operation == nullptr || call->verb != Verb::kGet || call->landing != nullptr) return false;
  auto* get = static_cast<GetOperation*>(call->operation);
  GetReply reply;
  const Status decoded = Decode(record, &reply);
  Status status = decoded;
  if (status.ok()) {
    std::vector<LandingTarget> targets;
    targets.reserve(call->items.size());
    for (const uint32_t item : call->items) {
      const GetTarget& target = get->targets[item];
      targets.push_back(
          {target.ref.rectangle, std::span(get->extents).subspan(target.first_extent, target.extent_count)});
    }
    status = PlanLanding(reply, targets, segment_bytes, &place->segments);
  }
  if (!status.ok()) {
    place->segments.clear();
    call->refused = status.ToString();  // OnMessage follows, without the payload
    call->nonsense = !decoded.ok() || status.code() != Code::kInvalid;
    return false;
  }
  call->landing_id = ++last_id_;
  call->landing = std::make_shared<Landing>(std::move(reply), options_.client.verify);
  ++get->landings;
  place->id = call->landing_id;
  *landing = call->landing;
  return true;
}

void Core::OnMessage(LinkId id, ByteView header, uint64_t landing_id, bool landed, uint64_t now_us) {
  (void)landing_id;
  now_us_ = now_us;
  Link* link = FindLink(id);
  if (link == nullptr || link->state == Link::State::kClosing) return;
  ++link->received;
  Envelope envelope;
  ByteView record;
  const Status decoded = DecodeEnvelope(header, &envelope, &record);
  if (!decoded.ok()) {
    Misbehaved(link, decoded.ToString());
  } else if (envelope.verb == Verb::kTable) {
    if (link->state == Link::State::kReady) OnTable(link, record);
  } else if (envelope.reply) {  // requests are not for a client: a newer node's, ignored
    const auto found = link->calls.find(envelope.request_id);
    if (found != link->calls.end()) OnReply(link, found->second.get(), envelope, record, landed);
  }
  Settle();
}

void Core::OnReply(Link* link, Call* call, const Envelope& envelope, ByteView record, bool landed) {
  if (envelope.verb != call->verb) {
    // A Reserve may be refused under its own name only; a put's call is then its Commit.
    return Misbehaved(link, "an answer of another verb than its request");
  }
  if (call->verb == Verb::kReserve && call->operation != nullptr && envelope.code == Code::kOk) {
    return OnReserveReply(link, call, record);
  }
  if (call->verb == Verb::kGet && envelope.code == Code::kOk && Owes(*call, record)) {
    return OnGetPart(call, link, record, landed);
  }
  std::unique_ptr<Call> owned = Take(call);
  link->worked_us = now_us_;
  if (link->peer != nullptr) link->peer->late = false;
  if (call->verb == Verb::kHello) return OnHello(link, envelope, record);
  if (call->verb == Verb::kOpen) return OnOpenReply(link, *call, envelope, record);
  if (call->operation == nullptr) return;
  if (envelope.code != Code::kOk) {
    ErrorText error;
    const Status decoded = Decode(record, &error);
    const Presence reason = envelope.code == Code::kTimedOut ? Presence::kTimedOut
                            : envelope.code == Code::kBusy   ? Presence::kBusy
                                                             : Presence::kRefused;
    return FailCall(std::move(owned), reason, Status(envelope.code, decoded.ok() ? error.text : ""));
  }
  switch (call->verb) {
    case Verb::kGet:
      return OnGetReply(std::move(owned), link, record, landed);
    case Verb::kCommit:
      return OnCommitReply(std::move(owned), link, record);
    case Verb::kMatch:
      return OnMatchReply(std::move(owned), link, record);
    case Verb::kWait:
      return OnWaitReply(std::move(owned), link, record);
    case Verb::kPrefetch:
      return OnPrefetchReply(std::move(owned), link, record);
    case Verb::kRemove:
      return OnRemoveReply(std::move(owned), link, record);
    case Verb::kClear:
      return OnClearReply(std::move(owned), link, record);
    case Verb::kPing: {
      auto* ping = static_cast<PingOperation*>(call->operation);
      ping->round_trip_us = now_us_ - call->sent_us;
      ping->open_items = 0;
      return MayComplete(ping);
    }
    default:
      return;
  }
}

// The request came to nothing: its items go to the next copy or get their outcome.
void Core::FailCall(std::unique_ptr<Call> call, Presence reason, const Status& why) {
  Operation* operation = call->operation;
  if (operation == nullptr) return;
  const bool lost = reason == Presence::kUnreachable;
  switch (call->verb) {
    case Verb::kGet: {
      auto* get = static_cast<GetOperation*>(operation);
      std::vector<uint32_t> again;
      for (const uint32_t item : call->items) NextCopy(get, item, reason, !lost, lost, &again);
      return RouteTargets(get, std::move(again));
    }
    case Verb::kReserve:
    case Verb::kCommit: {
      auto* put = static_cast<PutOperation*>(operation);
      if (call->stop != nullptr) call->stop->store(true, std::memory_order_relaxed);
      const PutState state = reason == Presence::kTimedOut  ? PutState::kExpired
                             : reason == Presence::kRefused ? PutState::kInvalid
                                                            : PutState::kBusy;
      for (const uint32_t item : call->verb == Verb::kReserve ? call->items : call->ticketed) {
        SettleCopy(put, item, state, why);
      }
      return;
    }
    case Verb::kMatch:
    case Verb::kWait:
    case Verb::kPrefetch:
      return NextHome(operation, call->keys, reason);
    case Verb::kRemove:
      if (operation->status.ok()) operation->status = why;
      operation->open_items -= CountOf(operation, call->keys);
      return MayComplete(operation);
    case Verb::kClear: {
      auto* clear = static_cast<ClearOperation*>(operation);
      clear->failed_nodes.push_back(call->peer->record.id + ": " + why.ToString());
      --clear->open_items;
      return MayComplete(clear);
    }
    default:
      operation->status = why;
      operation->open_items = 0;
      return MayComplete(operation);
  }
}

void Core::OnSent(uint64_t token, transport::Failure failure, uint64_t now_us) {
  now_us_ = now_us;
  const auto found = sends_.find(token);
  if (found == sends_.end()) {
    TurnOff("a transport let go of a payload that it did not have");
  } else {
    const SendRecord record = std::move(found->second);
    sends_.erase(found);
    if (record.held_bytes != 0) Unhold(record.peer, record.held_bytes);
    if (Link* link = FindLink(record.link); link != nullptr && failure == transport::Failure::kNone)
      ++link->received;
    if (Operation* operation = FindOperation(record.operation)) {
      --operation->sends;
      MayComplete(operation);
    }
  }
  Settle();
}

void Core::OnDiverted(LinkId id, uint64_t landing_id, uint64_t now_us) {
  now_us_ = now_us;
  Link* link = FindLink(id);
  if (link == nullptr) return;
  for (const auto& [request, call] : link->calls) {
    if (call->landing == nullptr || call->landing_id != landing_id) continue;
    Operation* operation = call->operation;
    --operation->landings;
    if (call->landing->owes()) CancelAtNode(*call);
    OnLanded(call.get(), false);
    Forget(call.get());
    MayComplete(operation);
    break;
  }
  Settle();
}

}  // namespace larder::client
