#include "client/core/core.h"

#include <algorithm>

namespace larder::client {

Core::Core(const CoreOptions& options, Effects* effects)
    : options_(options), effects_(effects), hot_(options.seed) {}
Core::~Core() = default;

uint32_t Core::AddNamespace(const ClientNamespace& name_space) {
  for (size_t i = 0; i < namespaces_.size(); ++i) {
    if (namespaces_[i].name_space == name_space.name_space) return static_cast<uint32_t>(i);
  }
  namespaces_.push_back(name_space);
  return static_cast<uint32_t>(namespaces_.size() - 1);
}

Result<OperationId> Core::Submit(std::unique_ptr<Operation> operation, uint64_t now_us) {
  now_us_ = now_us;
  if (off_)
    return Status(Code::kInternal, "the client has turned itself off after a contradiction: make a new one");
  if (closing_) return Status(Code::kCancelled, "the client is being closed");
  if (operations_.size() >= options_.client.operations_max) {
    return Status(Code::kBusy, "operations_max (" + std::to_string(options_.client.operations_max) +
                                   ") operations are under way: wait for completions");
  }
  if (operation->kind != Kind::kOpen && routing_ == nullptr) {
    return Status(Code::kUnavailable, "no node table yet");
  }
  Operation* started = operation.get();
  started->id = ++last_id_;
  operations_.emplace(started->id, std::move(operation));
  timers_.insert({started->deadline_us, TimerKind::kDeadline, started->id});
  Start(started);
  MayComplete(started);
  const OperationId id = started->id;
  Settle();
  return id;
}

void Core::Start(Operation* operation) {
  switch (operation->kind) {
    case Kind::kOpen:
      operation->open_items = 1;
      ConnectSeeds();
      break;
    case Kind::kMatch: {
      auto* match = static_cast<MatchOperation*>(operation);
      ++stats_.matches;
      match->open_items = match->chain->size();
      RouteKeys(match, {{}, true, 0}, Presence::kUnreachable);
      break;
    }
    case Kind::kGet: {
      auto* get = static_cast<GetOperation*>(operation);
      stats_.gets += get->targets.size();
      get->open_items = get->targets.size();
      get->begin_us = now_us_;
      // A little early: a payload that stands still then and a moment later is late.
      ArmLate(get, now_us_ + (get->deadline_us - now_us_) / 16 * 3);
      std::vector<uint32_t> items(get->targets.size());
      for (size_t i = 0; i < items.size(); ++i) items[i] = static_cast<uint32_t>(i);
      RouteTargets(get, std::move(items));
      break;
    }
    case Kind::kPut:
      RouteSources(static_cast<PutOperation*>(operation));
      break;
    case Kind::kWait: {
      auto* wait = static_cast<WaitOperation*>(operation);
      ++stats_.waits;
      wait->open_items = wait->chain->size();
      RouteKeys(wait, {{}, true, 0}, Presence::kUnreachable);
      break;
    }
    case Kind::kPrefetch: {
      auto* prefetch = static_cast<PrefetchOperation*>(operation);
      ++stats_.prefetches;
      prefetch->open_items = prefetch->chain->size();
      RouteKeys(prefetch, {{}, true, 0}, Presence::kUnreachable);
      break;
    }
    case Kind::kRemove: {
      auto* remove = static_cast<RemoveOperation*>(operation);
      uint32_t places = std::max<uint32_t>(options_.client.replicas, 1);
      // Behind a node that drains stand, in a block's order, those who take its puts already.
      if (routing_ != nullptr) {
        const auto draining =
            std::ranges::count(routing_->table.nodes, NodeState::kDraining, &NodeRecord::state);
        places += static_cast<uint32_t>(std::min<int64_t>(draining, routing_->placement.order_length()));
      }
      remove->open_items = places * remove->hashes.size();
      for (uint32_t place = 0; place < places; ++place)
        RouteKeys(remove, {{}, true, place}, Presence::kUnreachable);
      break;
    }
    case Kind::kClear:
      StartClear(static_cast<ClearOperation*>(operation));
      break;
    case Kind::kPing:
      StartPing(static_cast<PingOperation*>(operation));
      break;
  }
}

void Core::Cancel(OperationId id, uint64_t now_us) {
  now_us_ = now_us;
  const auto found = operations_.find(id);
  if (found == operations_.end()) return;
  End(found->second.get(), Code::kCancelled);
  Settle();
}

void Core::CancelWaiting(OperationId id, uint64_t now_us) {
  now_us_ = now_us;
  Operation* operation = FindOperation(id);
  if (operation == nullptr || operation->ending || operation->kind == Kind::kOpen) return;
  size_t dropped = 0;
  operation->halted = true;
  for (const auto& [name, peer] : peers_) {
    for (Lane& lane : peer->lanes) dropped += DropFromLane(operation, &lane);
  }
  if (dropped != 0 && operation->status.ok()) {
    operation->status = Status(Code::kCancelled, std::string(CodeName(Code::kCancelled)));
  }
  MayComplete(operation);
  Settle();
}

// Answers what of the operation waits in this lane; returns how much it was.
size_t Core::DropFromLane(Operation* operation, Lane* lane) {
  size_t dropped = 0;
  std::deque<Share> shares;
  for (Share& share : lane->shares) {
    if (share.operation != operation) {
      shares.push_back(std::move(share));
      continue;
    }
    dropped += share.items.size() - share.next;
    for (size_t at = share.next; at < share.items.size(); ++at) {
      if (operation->kind == Kind::kGet) {
        SettleTarget(static_cast<GetOperation*>(operation), share.items[at], Outcome::kMiss,
                     Presence::kUnreachable);
      } else {
        SettleCopy(static_cast<PutOperation*>(operation), share.items[at], PutState::kExpired,
                   Status(Code::kCancelled, "cancelled before it was sent"));
      }
    }
  }
  lane->shares = std::move(shares);
  for (const auto& call : lane->waiting) {
    if (call->operation != operation) continue;
    const size_t keys = CountOf(operation, call->keys);
    UnreachableKeys(operation, call->keys, Presence::kUnreachable);
    operation->open_items -= keys;
    dropped += keys;
  }
  std::erase_if(lane->waiting, [&](const auto& call) { return call->operation == operation; });
  return dropped;
}

Operation* Core::FindOperation(OperationId id) {
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : found->second.get();
}

// Nothing new is begun for the operation, what can be stopped is stopped, and every item that nothing can
// reach any more gets its outcome. Landings under way decide at OnDiverted, sources are waited for.
void Core::End(Operation* operation, Code why) {
  if (operation->ending) return;
  operation->ending = true;
  timers_.erase({operation->deadline_us, TimerKind::kDeadline, operation->id});
  if (why != Code::kTimedOut) operation->status = Status(why, std::string(CodeName(why)));
  const Presence reason = why == Code::kTimedOut ? Presence::kTimedOut : Presence::kUnreachable;
  DropWaiting(operation, reason);
  const std::vector<Call*> calls = operation->calls;  // Forget changes it
  for (Call* call : calls) {
    Link* link = call->link;
    if (call->landing != nullptr) {
      effects_->Divert(link->id, call->landing_id);
      continue;
    }
    if (call->stop != nullptr) {
      call->stop->store(true, std::memory_order_relaxed);
      for (const uint64_t token : call->tokens) effects_->CancelSend(link->id, token);
    }
    if (why == Code::kCancelled) CancelAtNode(*call);
    UnreachableKeys(operation, call->keys, reason);
    Forget(call);
  }
  SettleRest(operation, why);
  MayComplete(operation);
  if (operation->sends + operation->landings != 0) {
    timers_.insert({now_us_ + kGraceUs, TimerKind::kGrace, operation->id});
  }
}

// So that the node does no work for an answer that nobody wants. After a deadline it knows by itself.
void Core::CancelAtNode(const Call& call) {
  larder::Cancel cancel;
  cancel.request_id = call.request_id;
  const Envelope envelope{Verb::kCancel, false, call.link->lane, Code::kOk, 0, ++last_id_};
  Transmit(call.link, Encode(envelope, cancel), nullptr);
}

// Takes the operation's work out of every queue.
void Core::DropWaiting(Operation* operation, Presence reason) {
  for (const auto& [id, peer] : peers_) {
    for (Lane& lane : peer->lanes) {
      std::erase_if(lane.shares, [&](const Share& share) { return share.operation == operation; });
      for (const auto& call : lane.waiting) {
        if (call->operation == operation) UnreachableKeys(operation, call->keys, reason);
      }
      std::erase_if(lane.waiting, [&](const auto& call) { return call->operation == operation; });
    }
  }
}

void Core::SettleRest(Operation* operation, Code why) {
  const Status status(why, why == Code::kTimedOut ? "the deadline passed" : std::string(CodeName(why)));
  if (operation->kind == Kind::kGet) {
    auto* get = static_cast<GetOperation*>(operation);
    std::vector<bool> landing(get->targets.size(), false);
    for (const Call* call : get->calls) {
      for (const uint32_t item : call->items) landing[item] = true;
    }
    for (uint32_t i = 0; i < get->targets.size(); ++i) {
      if (landing[i]) continue;
      SettleTarget(get, i, why == Code::kTimedOut ? Outcome::kTimedOut : Outcome::kMiss,
                   why == Code::kTimedOut ? Presence::kTimedOut : Presence::kUnreachable);
    }
    return;
  }
  if (operation->kind == Kind::kPut) {
    auto* put = static_cast<PutOperation*>(operation);
    for (uint32_t i = 0; i < put->sources.size(); ++i) {
      while (put->sources[i].open_copies != 0) SettleCopy(put, i, PutState::kExpired, status);
    }
    return;
  }
  const bool partial = operation->kind == Kind::kMatch || operation->kind == Kind::kWait ||
                       operation->kind == Kind::kPrefetch;  // what is known by now is an answer
  if (!partial && operation->open_items != 0 && operation->status.ok()) {
    operation->status = status;
    if (operation->kind == Kind::kOpen) {
      operation->status =
          Status(why, "no seed handed out a node table" +
                          (last_seed_error_.empty() ? "" : "; the last one: " + last_seed_error_));
    }
  }
  operation->open_items = 0;
}

void Core::MayComplete(Operation* operation) {
  if (operation->open_items == 0 && operation->sends == 0 && operation->landings == 0) {
    done_.push_back(operation->id);
  }
}

void Core::Finish(Operation* operation) {
  timers_.erase({operation->deadline_us, TimerKind::kDeadline, operation->id});
  const std::vector<Call*> calls = operation->calls;
  for (Call* call : calls) {
    CancelAtNode(*call);
    Forget(call);
  }
  if (operation->kind == Kind::kWait)
    DropWaiting(operation, Presence::kUnreachable);  // it may be known early
  Completion completion;
  completion.id = operation->id;
  completion.user_data = operation->user_data;
  completion.status = operation->status;
  switch (operation->kind) {
    case Kind::kMatch:
      completion.kind = CompletionKind::kMatch;
      FinishMatch(static_cast<MatchOperation*>(operation), &completion.match);
      break;
    case Kind::kGet:
      completion.kind = CompletionKind::kGet;
      timers_.erase({static_cast<GetOperation*>(operation)->late_us, TimerKind::kLate, operation->id});
      completion.blocks = std::move(static_cast<GetOperation*>(operation)->results);
      break;
    case Kind::kPut:
      completion.kind = CompletionKind::kPut;
      NoteRetention(*static_cast<PutOperation*>(operation));
      completion.puts = std::move(static_cast<PutOperation*>(operation)->results);
      break;
    case Kind::kWait:
      completion.kind = CompletionKind::kWait;
      completion.leading = static_cast<WaitOperation*>(operation)->leading;
      break;
    case Kind::kPrefetch:
      completion.kind = CompletionKind::kPrefetch;
      completion.count = static_cast<PrefetchOperation*>(operation)->blocks;
      break;
    case Kind::kRemove:
      completion.count = static_cast<RemoveOperation*>(operation)->removed;
      break;
    case Kind::kClear:
      FinishClear(static_cast<ClearOperation*>(operation), &completion);
      break;
    case Kind::kPing:
      completion.count = static_cast<PingOperation*>(operation)->round_trip_us;
      break;
    case Kind::kOpen:
      break;
  }
  effects_->Complete(std::move(operation->sink), std::move(completion));
  operations_.erase(operation->id);
}

void Core::Settle() {
  while (!dirty_.empty() || !done_.empty()) {
    while (!dirty_.empty()) {
      Peer* peer = dirty_.back();
      dirty_.pop_back();
      peer->dirty = false;
      Pump(peer);
    }
    const std::vector<OperationId> done = std::move(done_);
    done_.clear();
    for (const OperationId id : done) {
      Operation* operation = FindOperation(id);
      if (operation == nullptr) continue;
      if (operation->open_items == 0 && operation->sends == 0 && operation->landings == 0) Finish(operation);
    }
  }
}

// A transport still holds memory of an operation that should be over: breaking the connection frees it.
void Core::OnGrace(Operation* operation) {
  std::set<LinkId> holders;
  for (const Call* call : operation->calls) {
    if (call->landing != nullptr) holders.insert(call->link->id);
  }
  for (const auto& [token, record] : sends_) {
    if (record.operation == operation->id) holders.insert(record.link);
  }
  for (const LinkId id : holders) {
    if (Link* link = FindLink(id)) CloseLink(link, transport::Failure::kTimedOut);
  }
}

void Core::OnTimer(uint64_t now_us) {
  now_us_ = now_us;
  while (!timers_.empty() && timers_.begin()->at_us <= now_us) {
    const Timer timer = *timers_.begin();
    timers_.erase(timers_.begin());
    Operation* operation = FindOperation(timer.id);
    Link* link = FindLink(timer.id);  // ids are never shared
    switch (timer.kind) {
      case TimerKind::kDeadline:
        if (operation != nullptr) End(operation, Code::kTimedOut);
        break;
      case TimerKind::kGrace:
        if (operation != nullptr) OnGrace(operation);
        break;
      case TimerKind::kGreeting:
        if (link != nullptr && link->state < Link::State::kReady)
          CloseLink(link, transport::Failure::kTimedOut);
        break;
      case TimerKind::kSilence:
        if (link != nullptr) OnSilence(link);
        break;
      case TimerKind::kLate:
        if (operation != nullptr) OnLate(static_cast<GetOperation*>(operation));
        break;
      case TimerKind::kSeeds:
        if (operation != nullptr) ConnectSeeds();
        break;
    }
  }
  Settle();
}

uint64_t Core::NextTimerUs() const {
  return timers_.empty() ? UINT64_MAX : timers_.begin()->at_us;
}

void Core::Shutdown(uint64_t now_us) {
  now_us_ = now_us;
  closing_ = true;
  std::vector<Operation*> operations;
  for (const auto& [id, operation] : operations_) operations.push_back(operation.get());
  for (Operation* operation : operations) End(operation, Code::kCancelled);
  Settle();
}

// The client must not take its host process down: it stops serving instead.
void Core::TurnOff(const std::string& why) {
  if (off_) return;
  off_ = true;
  std::vector<Operation*> operations;
  for (const auto& [id, operation] : operations_) operations.push_back(operation.get());
  for (Operation* operation : operations) {
    End(operation, Code::kInternal);
    operation->status = Status(Code::kInternal, why);
  }
}

ClientStats Core::stats() const {
  ClientStats stats = stats_;
  stats.bytes_in_flight = bytes_in_flight_;
  stats.operations = operations_.size();
  return stats;
}

std::string Core::CheckInvariants() const {
  uint64_t held = 0;
  for (const auto& [id, link] : links_) {
    for (const auto& [request, call] : link->calls) held += call->held_bytes;
  }
  for (const auto& [token, record] : sends_) held += record.held_bytes;
  if (held != bytes_in_flight_) {
    return "bytes in flight " + std::to_string(bytes_in_flight_) + ", calls hold " + std::to_string(held);
  }
  uint64_t peers = 0;
  for (const auto& [id, peer] : peers_) peers += peer->bytes_in_flight;
  if (peers != bytes_in_flight_) return "peers' bytes in flight do not add up";
  if (operations_.size() > options_.client.operations_max) return "more operations than operations_max";
  if (bytes_in_flight_ > options_.client.bytes_in_flight_max) return "more bytes in flight than their bound";
  for (const auto& [id, operation] : operations_) {
    uint32_t sends = 0;
    for (const auto& [token, record] : sends_) sends += record.operation == id;
    if (sends != operation->sends) return "an operation's sends do not add up";
  }
  return off_ ? "turned off" : "";
}

}  // namespace larder::client
