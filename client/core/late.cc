// A get whose node shows no sign of work for a quarter of its deadline asks the next copy.
#include <algorithm>
#include <utility>

#include "client/core/core.h"

namespace larder::client {

// There is something better to do for the block than to wait for a late node: another one further down the
// order, up and in time, may have it; or one has said already that it has not, and a miss now is worth more
// than a hit at the deadline.
bool Core::NeedNotWait(const GetTarget& target) {
  if (target.answered) return true;
  if (target.away) {
    const Peer* home = Candidate(target.ref.hash, 0, false);
    return home != nullptr && !home->down && !home->late;
  }
  uint32_t copy = target.copy;
  while (const Peer* peer = Candidate(target.ref.hash, ++copy, false)) {
    if (!peer->down && !peer->late) return true;
  }
  return false;
}

void Core::ArmLate(GetOperation* get, uint64_t at_us) {
  const bool copies = options_.client.replicas > 1 || !hot_.empty() || NearPeer() != nullptr;
  if (!copies || at_us >= get->deadline_us) return;
  get->late_us = at_us;
  timers_.insert({at_us, TimerKind::kLate, get->id});
}

void Core::OnLate(GetOperation* get) {
  if (get->ending || get->halted) return;
  const uint64_t patience_us = std::max<uint64_t>((get->deadline_us - get->begin_us) / 4, 1);
  uint64_t next_us = now_us_ + patience_us;
  std::vector<uint32_t> again;
  const std::vector<Call*> calls = get->calls;  // Forget changes it
  for (Call* call : calls) {
    if (call->landing != nullptr) {
      TakeLateLanding(get, call, patience_us, &next_us);
      continue;
    }
    const uint64_t due_us = std::max(call->sent_us, call->link->worked_us) + patience_us;
    if (due_us > now_us_) {
      next_us = std::min(next_us, due_us);
      continue;
    }
    call->peer->late = true;
    const bool moves = std::any_of(call->items.begin(), call->items.end(),
                                   [&](uint32_t item) { return NeedNotWait(get->targets[item]); });
    if (!moves) continue;
    CancelAtNode(*call);
    MoveOn(get, call->items, &again);
    Forget(call);
  }
  for (const auto& [id, peer] : peers_) {
    for (Lane& lane : peer->lanes) TakeLateShares(get, peer.get(), &lane, patience_us, &next_us, &again);
  }
  RouteTargets(get, std::move(again));
  ArmLate(get, next_us);
}

// A payload that has begun and stands still. The memory has one writer at a time: the landing is ended first,
// and OnDiverted asks the next copy for what it has not brought.
void Core::TakeLateLanding(GetOperation* get, Call* call, uint64_t patience_us, uint64_t* next_us) {
  const uint64_t steps = call->landing->steps();
  const uint64_t look_us = std::max<uint64_t>(patience_us / 4, 1);
  const bool stands = std::exchange(call->steps_seen, steps) == steps;
  if (!stands || call->sent_us + patience_us > now_us_) {
    *next_us = std::min(*next_us, now_us_ + look_us);
    return;
  }
  call->peer->late = true;
  const bool moves = std::any_of(call->items.begin(), call->items.end(),
                                 [&](uint32_t item) { return NeedNotWait(get->targets[item]); });
  if (moves && !std::exchange(call->given_up, true)) effects_->Divert(call->link->id, call->landing_id);
}

// What waits for a connection with room, and none has done anything.
void Core::TakeLateShares(GetOperation* get, Peer* peer, Lane* lane, uint64_t patience_us, uint64_t* next_us,
                          std::vector<uint32_t>* again) {
  uint64_t worked_us = get->begin_us;
  for (const Link* link : lane->links) worked_us = std::max(worked_us, link->worked_us);
  std::deque<Share> shares;
  for (Share& share : lane->shares) {
    if (share.operation != get) {
      shares.push_back(std::move(share));
      continue;
    }
    const std::vector<uint32_t> items(share.items.begin() + static_cast<ptrdiff_t>(share.next),
                                      share.items.end());
    const bool moves = std::any_of(items.begin(), items.end(),
                                   [&](uint32_t item) { return NeedNotWait(get->targets[item]); });
    if (worked_us + patience_us > now_us_ || !moves) {
      if (worked_us + patience_us > now_us_) *next_us = std::min(*next_us, worked_us + patience_us);
      shares.push_back(std::move(share));
      continue;
    }
    peer->late = true;
    MoveOn(get, items, again);
  }
  lane->shares = std::move(shares);
}

// Items that have nobody else are asked of the same node again.
void Core::MoveOn(GetOperation* get, const std::vector<uint32_t>& items, std::vector<uint32_t>* again) {
  for (const uint32_t item : items) {
    if (NeedNotWait(get->targets[item])) {
      NextCopy(get, item, Presence::kTimedOut, false, false, again);
    } else {
      again->push_back(item);
    }
  }
}

}  // namespace larder::client
