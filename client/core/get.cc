// Gets: shares by home, chunks on links, verified landings, the next copy.
#include <algorithm>
#include <utility>

#include "client/core/core.h"

namespace larder::client {
namespace {

Outcome OutcomeOf(Presence reason) {
  switch (reason) {
    case Presence::kBusy:
    case Presence::kRefused:
      return Outcome::kRefused;
    case Presence::kTimedOut:
      return Outcome::kTimedOut;
    default:
      return Outcome::kMiss;
  }
}

}  // namespace

// Gives each item to the copy that is its turn, or its outcome when no copy is left.
void Core::RouteTargets(GetOperation* get, std::vector<uint32_t> items) {
  std::vector<std::pair<Peer*, Share>> shares;
  const uint64_t most_bytes = ItemBytesMax(get->priority);
  Peer* const near = NearPeer();
  for (const uint32_t item : items) {
    GetTarget& target = get->targets[item];
    if (target.bytes > most_bytes) {
      SettleTarget(get, item, Outcome::kRefused, Presence::kBusy);
      continue;
    }
    Peer* peer = NearPlace(near, &target);
    if (peer == nullptr) peer = HotPlace(*get, &target);
    if (peer == nullptr) peer = Candidate(target.ref.hash, target.copy, false);
    while (peer != nullptr && (!Usable(peer) || (peer->late && NeedNotWait(target)))) {
      if (!target.answered) get->results[item].reason = peer->late ? Presence::kTimedOut : peer->down_reason;
      target.repeats = 0;
      peer = Candidate(target.ref.hash, ++target.copy, false);
    }
    if (peer == nullptr) {
      const Presence reason = get->results[item].reason;
      SettleTarget(get, item, target.corrupt ? Outcome::kCorrupt : OutcomeOf(reason),
                   target.corrupt ? Presence::kCorrupt : reason);
      continue;
    }
    auto share = std::find_if(shares.begin(), shares.end(), [&](const auto& entry) {
      return entry.first == peer && entry.second.near == target.near;
    });
    if (share == shares.end()) {
      share = shares.insert(shares.end(), {peer, Share{}});
      share->second.near = target.near;
    }
    share->second.items.push_back(item);
    share->second.chunk_bytes += target.bytes;
  }
  for (auto& [peer, share] : shares) QueueShare(get, peer, std::move(share));
}

// The node on this host that keeps near copies; nullptr: there is none that answers.
Peer* Core::NearPeer() {
  for (Peer* peer : peer_of_node_) {
    if (peer->near && OverShm(*peer) && !peer->late && Usable(peer)) return peer;
  }
  return nullptr;
}

// It is asked first for what is not read on this host anyway, once no copy is left of a life of the home that
// has ended unseen: the home would not have told that one of a remove.
Peer* Core::NearPlace(Peer* near, GetTarget* target) {
  target->away = target->near = false;
  if (near == nullptr || target->no_near || target->copy != 0 || target->repeats != 0) return nullptr;
  const Peer* home = Candidate(target->ref.hash, 0, false);
  if (home == nullptr || OverShm(*home) || home->known_us == 0 || now_us_ < home->known_us + kHotLeaseUs)
    return nullptr;
  target->away = target->near = target->no_near = true;
  return near;
}

// Whose turn it is of the nodes that have the block because it is read much; nullptr: its home's, or there
// are none.
Peer* Core::HotPlace(const GetOperation& get, GetTarget* target) {
  if (hot_.empty() || target->at_home || target->copy != 0 || target->repeats != 0) return nullptr;
  const HotHints::Key key{get.name_space, target->ref.group, target->ref.hash};
  const Peer* home = Candidate(target->ref.hash, 0, false);
  for (const uint16_t node : hot_.Turn(key, routing_->table.epoch)) {
    Peer* peer = peer_of_node_[node];
    if (peer == home) return nullptr;
    if (!Usable(peer) || peer->late) continue;
    target->away = true;
    return peer;
  }
  return nullptr;
}

void Core::ForgetHot(const Peer* home) {
  if (hot_.empty()) return;
  for (size_t i = 0; i < peer_of_node_.size(); ++i) {
    if (peer_of_node_[i] == home) hot_.ForgetHome(static_cast<uint16_t>(i));
  }
}

// What a home says of where its blocks are; silence says that they are nowhere else.
void Core::NoteHot(const GetOperation& get, const Call& call) {
  const std::vector<GetReply::Places>& places = call.landing->places();
  if (places.empty() && hot_.empty()) return;
  for (size_t i = 0; i < call.items.size(); ++i) {
    const GetTarget& target = get.targets[call.items[i]];
    if (target.away || target.copy != 0 || !IsHit(call.landing->reply(i).presence)) continue;
    const auto told =
        std::find_if(places.begin(), places.end(), [&](const auto& each) { return each.block == i; });
    hot_.Note({get.name_space, target.ref.group, target.ref.hash}, told == places.end() ? 0 : told->mask,
              routing_->table);
  }
}

// chunk_bytes comes in as the bytes of the share: two chunks in flight on each connection.
void Core::QueueShare(Operation* operation, Peer* peer, Share&& share) {
  const uint64_t ways = uint64_t{2} * std::clamp<uint32_t>(options_.client.connections_per_peer, 1, 8);
  share.operation = operation;
  share.chunk_bytes = std::clamp((share.chunk_bytes + ways - 1) / ways, kChunkBytesMin, kChunkBytesMax);
  peer->lanes[static_cast<size_t>(operation->priority)].shares.push_back(std::move(share));
  MarkDirty(peer);
}

bool Core::SendGetChunk(Peer* peer, Link* link, Share* share) {
  auto* get = static_cast<GetOperation*>(share->operation);
  auto call = std::make_unique<Call>();
  larder::Get message;
  uint64_t bytes = 0;
  uint32_t parts = 0;
  size_t at = share->next;
  const bool alone = get->targets[share->items[at]].alone;
  for (; at < share->items.size() && message.blocks.size() < kBlocksMax; ++at) {
    const GetTarget& target = get->targets[share->items[at]];
    const bool full = bytes + target.bytes / 2 > share->chunk_bytes ||
                      bytes + target.bytes > link->batch_bytes_max ||
                      parts + target.ref.rectangle.parts() > kChunkPartsMax || alone;
    if (!message.blocks.empty() && full) break;
    if (!MayHold(peer, static_cast<size_t>(link->lane), bytes + target.bytes)) break;
    bytes += target.bytes;
    parts += target.ref.rectangle.parts();
    message.blocks.push_back(target.ref);
    call->items.push_back(share->items[at]);
  }
  if (message.blocks.empty()) return false;
  share->next = at;
  call->verb = Verb::kGet;
  call->operation = get;
  call->name_space = get->name_space;
  call->window_bytes = bytes;
  call->held_bytes = bytes;
  Hold(peer, bytes);
  message.number = link->namespaces[get->name_space].number;
  message.asks_near = share->near;
  if (peer->near && !OverShm(*peer)) {
    if (const Peer* near = NearPeer()) message.near = near->record.id;
  }
  Call* sent = Launch(link, std::move(call));
  Transmit(link, Encode(EnvelopeFor(*sent), message), nullptr);
  return true;
}

// Whether other replies to the get follow this one.
bool Core::Owes(const Call& call, ByteView record) const {
  if (call.landing != nullptr) return call.landing->owes();
  GetReply reply;
  return Decode(record, &reply).ok() && reply.owes();
}

// The last reply.
void Core::OnGetReply(std::unique_ptr<Call> call, Link* link, ByteView record, bool landed) {
  auto* get = static_cast<GetOperation*>(call->operation);
  if (call->landing != nullptr) {
    --get->landings;
    OnLanded(call.get(), false);
    return MayComplete(get);
  }
  if (landed && call->refused.empty() && TakeMisses(call.get(), record)) return;
  RefuseReply(call.get(), link);
}

// One of several replies: the call goes on with what is still owed. One that nobody waits for stays known
// until the last of them.
void Core::OnGetPart(Call* call, Link* link, ByteView record, bool landed) {
  link->worked_us = now_us_;
  if (link->peer != nullptr) link->peer->late = false;
  if (call->operation == nullptr) return;
  auto* get = static_cast<GetOperation*>(call->operation);
  if (call->landing != nullptr) {
    --get->landings;
    OnLanded(call, true);
    link->received += call->landing->steps();
    call->landing = nullptr;
    call->steps_seen = UINT64_MAX;
    call->given_up = false;
  } else if (!landed || !call->refused.empty() || !TakeMisses(call, record)) {
    CancelAtNode(*call);
    RefuseReply(call, link);
    return Forget(call);
  }
  if (get->ending) {  // its deadline came while this part landed
    std::vector<uint32_t> again;
    for (const uint32_t item : call->items) {
      NextCopy(get, item, Presence::kTimedOut, false, false, &again);
    }
    Forget(call);
  }
  MayComplete(get);
}

// Without a payload there are only misses; a hit here is nonsense, and so is a reply that answers nothing.
bool Core::TakeMisses(Call* call, ByteView record) {
  auto* get = static_cast<GetOperation*>(call->operation);
  GetReply reply;
  Status status = Decode(record, &reply);
  transport::LandSegments none;
  std::vector<LandingTarget> targets;
  for (const uint32_t item : call->items) targets.push_back({get->targets[item].ref.rectangle, {}});
  if (status.ok()) status = PlanLanding(reply, targets, {}, &none);
  std::vector<uint32_t> again, owed;
  for (size_t i = 0; status.ok() && i < call->items.size(); ++i) {
    if (reply.blocks[i].presence == Presence::kLater) owed.push_back(call->items[i]);
  }
  if (status.ok() && owed.size() == call->items.size()) status = Status(Code::kCorrupt, "an empty answer");
  if (!status.ok()) {
    call->refused = status.ToString();
    call->nonsense = true;
    return false;
  }
  for (size_t i = 0; i < call->items.size(); ++i) {
    if (reply.blocks[i].presence == Presence::kLater) continue;
    NextCopy(get, call->items[i], reply.blocks[i].presence, true, false, &again);
  }
  Shrink(call, std::move(owed));
  RouteTargets(get, std::move(again));
  return true;
}

// `call->refused` says why. What the call is still owed is asked for elsewhere, or in another way.
void Core::RefuseReply(Call* call, Link* link) {
  auto* get = static_cast<GetOperation*>(call->operation);
  std::vector<uint32_t> again;
  for (const uint32_t item : call->items) {
    GetTarget& target = get->targets[item];
    // One block of another size than the caller's memory must not cost its neighbours: each is asked alone.
    const bool single = call->items.size() == 1;
    if (!call->nonsense && !single && !target.alone) {
      target.alone = true;
      target.at_home |= target.away && !target.near;
      again.push_back(item);
      continue;
    }
    target.corrupt |= call->nonsense;
    NextCopy(get, item, call->nonsense ? Presence::kCorrupt : Presence::kRefused, true, false, &again);
  }
  if (call->nonsense) Misbehaved(link, call->refused);
  RouteTargets(get, std::move(again));
}

// Only these items are still owed: the bytes of the others are not in flight any more.
void Core::Shrink(Call* call, std::vector<uint32_t>&& items) {
  const auto* get = static_cast<const GetOperation*>(call->operation);
  uint64_t bytes = 0;
  for (const uint32_t item : items) bytes += get->targets[item].bytes;
  call->items = std::move(items);
  if (call->held_bytes == 0) return;  // the call is off its link's sums
  Unhold(call->peer, call->held_bytes - bytes);
  call->link->window_bytes -= call->window_bytes - bytes;
  call->held_bytes = call->window_bytes = bytes;
}

// The payload is over: landed, diverted or broken off. What is whole and verified is a hit in any case.
// `more`: other replies follow.
void Core::OnLanded(Call* call, bool more) {
  auto* get = static_cast<GetOperation*>(call->operation);
  const Landing& landing = *call->landing;
  std::vector<uint32_t> again, owed;
  NoteHot(*get, *call);
  for (size_t i = 0; i < call->items.size(); ++i) {
    const uint32_t item = call->items[i];
    const GetReply::Block& block = landing.reply(i);
    if (block.presence == Presence::kLater && more) {
      owed.push_back(item);
    } else if (block.presence == Presence::kLater) {
      NextCopy(get, item, Presence::kUnreachable, false, true, &again);
    } else if (!IsHit(block.presence)) {
      NextCopy(get, item, block.presence, true, false, &again);
    } else if (landing.good(i)) {
      BlockResult& result = get->results[item];
      result.bytes = get->targets[item].bytes;
      result.writer = block.sources[0].writer;
      result.created_ms = block.sources[0].created_ms;
      for (const GetReply::Source& source : block.sources) {
        result.created_ms = std::min(result.created_ms, source.created_ms);
      }
      stats_.local_hits += call->link_transport_shm ? 1 : 0;
      SettleTarget(get, item, Outcome::kHit, block.presence);
    } else if (landing.whole(i)) {
      // Over shm the descriptor may have expired under a slow copy: the same copy gets a second chance.
      const bool may_repeat = call->link_transport_shm && get->targets[item].repeats == 0;
      if (!may_repeat) {
        get->targets[item].corrupt = true;
        ReportCorrupt(call->peer, get->name_space, get->targets[item].ref);
      }
      NextCopy(get, item, Presence::kCorrupt, true, may_repeat, &again);
    } else {
      NextCopy(get, item, Presence::kUnreachable, false, true, &again);
    }
  }
  if (more) Shrink(call, std::move(owed));
  RouteTargets(get, std::move(again));
}

// Moves the item on to the copy after this one (or to this one again); RouteTargets takes it from there.
void Core::NextCopy(GetOperation* get, uint32_t item, Presence reason, bool answered, bool may_repeat,
                    std::vector<uint32_t>* again) {
  GetTarget& target = get->targets[item];
  if (target.settled) return;
  // Who has it for a while only says nothing about the block by having it no longer.
  const bool away = std::exchange(target.away, false);
  const bool near = std::exchange(target.near, false);
  target.at_home |= away && !near;
  if (away && !near && answered) hot_.Forget({get->name_space, target.ref.group, target.ref.hash});
  if (!away && (answered || !target.answered)) get->results[item].reason = reason;
  target.answered |= answered && !away;
  if (get->ending) {
    const bool cancelled = get->status.code() == Code::kCancelled;
    return SettleTarget(get, item,
                        target.corrupt ? Outcome::kCorrupt
                        : cancelled    ? Outcome::kMiss
                                       : Outcome::kTimedOut,
                        target.corrupt ? Presence::kCorrupt : Presence::kTimedOut);
  }
  if (get->halted) {
    return SettleTarget(get, item, target.corrupt ? Outcome::kCorrupt : OutcomeOf(reason),
                        target.corrupt ? Presence::kCorrupt : reason);
  }
  if (away) return again->push_back(item);
  // A node that hung up did so on all its connections: each may have to be found out.
  const bool repeat = may_repeat && target.repeats <= options_.client.connections_per_peer;
  if (!repeat) ++target.copy;
  target.repeats = repeat ? static_cast<uint8_t>(target.repeats + 1) : 0;
  again->push_back(item);
}

void Core::SettleTarget(GetOperation* get, uint32_t item, Outcome outcome, Presence reason) {
  GetTarget& target = get->targets[item];
  if (target.settled) return;
  target.settled = true;
  BlockResult& result = get->results[item];
  result.outcome = outcome;
  result.reason = reason;
  switch (outcome) {
    case Outcome::kHit:
      ++stats_.hits;
      stats_.bytes_pulled += result.bytes;
      break;
    case Outcome::kMiss:
      ++stats_.misses;
      ++stats_.miss_by_reason[static_cast<uint8_t>(reason)];
      break;
    case Outcome::kCorrupt:
      ++stats_.corrupt;
      break;
    case Outcome::kRefused:
      ++stats_.refused;
      break;
    case Outcome::kTimedOut:
      ++stats_.timed_out;
      break;
  }
  --get->open_items;
  MayComplete(get);
}

void Core::ReportCorrupt(Peer* peer, uint32_t name_space, const BlockRef& block) {
  ++stats_.reports;
  Notice notice;
  notice.verb = Verb::kReport;
  notice.name_space = name_space;
  notice.blocks = {block};
  AddNotice(peer, std::move(notice));
}

}  // namespace larder::client
