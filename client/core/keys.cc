// What is asked by key alone: match, wait, prefetch, remove, touch, and the pins that matches took.
#include <algorithm>
#include <cstring>
#include <map>

#include "client/core/core.h"

namespace larder::client {
namespace {

constexpr size_t kRemoveHashesMax = kHashesMax / 8;

const std::vector<ChainHash>& ChainOf(const Operation* operation) {
  static const std::vector<ChainHash> none;
  switch (operation->kind) {
    case Kind::kMatch:
      return *static_cast<const MatchOperation*>(operation)->chain;
    case Kind::kWait:
    case Kind::kPrefetch:
      return *static_cast<const ChainOperation*>(operation)->chain;
    case Kind::kRemove:
      return static_cast<const RemoveOperation*>(operation)->hashes;
    default:
      return none;
  }
}

size_t HashesMaxOf(const Operation* operation) {
  if (operation->kind == Kind::kRemove) return kRemoveHashesMax;
  if (operation->kind == Kind::kWait) return kHashesMax;
  if (operation->kind == Kind::kPrefetch) {
    return std::max<size_t>(kBlocksMax / static_cast<const ChainOperation*>(operation)->groups.size(), 1);
  }
  const size_t groups = static_cast<const MatchOperation*>(operation)->groups.size();
  return std::min<size_t>(kHashesMax, kMessageBytesMax / 4 * 3 / groups);  // one byte a cell in the answer
}

Verb VerbOf(Kind kind) {
  switch (kind) {
    case Kind::kMatch:
      return Verb::kMatch;
    case Kind::kWait:
      return Verb::kWait;
    case Kind::kPrefetch:
      return Verb::kPrefetch;
    default:
      return Verb::kRemove;
  }
}

uint32_t IndexOf(const KeySubset& keys, size_t position) {
  return keys.all ? static_cast<uint32_t>(position) : keys.indices[position];
}

// The subset's hashes, as the payload of its message or inside of it.
std::shared_ptr<const std::vector<ChainHash>> HashesOf(
    const std::shared_ptr<const std::vector<ChainHash>>& chain, const KeySubset& keys) {
  if (keys.all) return chain;
  auto hashes = std::make_shared<std::vector<ChainHash>>();
  hashes->reserve(keys.indices.size());
  for (const uint32_t index : keys.indices) hashes->push_back((*chain)[index]);
  return hashes;
}

// Few hashes go inside of the message, many as its payload.
template <typename Message>
std::shared_ptr<const std::vector<ChainHash>> AddHashes(std::shared_ptr<const std::vector<ChainHash>> hashes,
                                                        Message* message) {
  message->hash_count = static_cast<uint32_t>(hashes->size());
  message->hashes_in_payload = hashes->size() > kHashesInlineMax;
  if (message->hashes_in_payload) return hashes;
  message->hashes = *hashes;
  return nullptr;
}

}  // namespace

size_t Core::CountOf(const Operation* operation, const KeySubset& keys) const {
  return keys.all ? ChainOf(operation).size() : keys.indices.size();
}

// Sorts keys by the node that is their copy number keys.level; the ones whose node is not to be had go on to
// their next copy, or get `reason` when there is none.
void Core::RouteKeys(Operation* operation, const KeySubset& keys, Presence reason) {
  const std::vector<ChainHash>& chain = ChainOf(operation);
  const size_t count = CountOf(operation, keys);
  std::vector<std::pair<Peer*, KeySubset>> homes;
  const bool one_home = peer_of_node_.size() == 1;
  if (one_home && count != 0) {
    homes.emplace_back(Candidate(chain[IndexOf(keys, 0)], keys.level, false), keys);
  } else {
    for (size_t i = 0; i < count; ++i) {
      const uint32_t index = IndexOf(keys, i);
      Peer* peer = Candidate(chain[index], keys.level, false);
      auto home =
          std::find_if(homes.begin(), homes.end(), [&](const auto& entry) { return entry.first == peer; });
      if (home == homes.end()) home = homes.insert(homes.end(), {peer, KeySubset{{}, false, keys.level}});
      home->second.indices.push_back(index);
    }
  }
  for (auto& [peer, subset] : homes) {
    if (peer == nullptr) {
      // A second copy to remove where there is but one node is no failure.
      if (operation->kind != Kind::kRemove || keys.level == 0) UnreachableKeys(operation, subset, reason);
      operation->open_items -= CountOf(operation, subset);
      MayComplete(operation);
    } else if (!Usable(peer)) {
      NextHome(operation, subset, peer->down_reason);
    } else {
      QueueKeys(operation, peer, std::move(subset));
    }
  }
}

void Core::NextHome(Operation* operation, const KeySubset& keys, Presence reason) {
  if (operation->ending) return;
  if (operation->kind == Kind::kRemove) {
    if (operation->status.ok()) operation->status = Status(Code::kUnavailable, "a node did not answer");
    operation->open_items -= CountOf(operation, keys);
    return MayComplete(operation);
  }
  KeySubset next = keys;
  ++next.level;
  RouteKeys(operation, next, reason);
}

void Core::QueueKeys(Operation* operation, Peer* peer, KeySubset keys) {
  const size_t count = CountOf(operation, keys);
  const size_t most = HashesMaxOf(operation);
  for (size_t begin = 0; begin < count; begin += most) {
    auto call = std::make_unique<Call>();
    call->operation = operation;
    call->peer = peer;
    call->name_space = operation->name_space;
    call->verb = VerbOf(operation->kind);
    if (count <= most) {
      call->keys = std::move(keys);
    } else {
      call->keys.level = keys.level;
      for (size_t i = begin; i < std::min(count, begin + most); ++i)
        call->keys.indices.push_back(IndexOf(keys, i));
    }
    peer->lanes[static_cast<size_t>(operation->priority)].waiting.push_back(std::move(call));
  }
  MarkDirty(peer);
}

void Core::SendMatch(Link* link, Call* call) {
  const auto* operation = static_cast<const MatchOperation*>(call->operation);
  larder::Match match;
  match.number = link->namespaces[call->name_space].number;
  match.rectangle = operation->rectangle;
  match.groups = operation->group_numbers;
  match.pin_us = operation->pin_us;
  auto payload = AddHashes(HashesOf(operation->chain, call->keys), &match);
  Transmit(link, Encode(EnvelopeFor(*call), match), std::move(payload));
}

// A wait or a prefetch: the same question, another verb.
template <typename Message>
void Core::SendChain(Link* link, Call* call) {
  const auto* operation = static_cast<const ChainOperation*>(call->operation);
  Message message;
  message.number = link->namespaces[call->name_space].number;
  message.rectangle = operation->rectangle;
  message.groups = operation->groups;
  auto payload = AddHashes(HashesOf(operation->chain, call->keys), &message);
  Transmit(link, Encode(EnvelopeFor(*call), message), std::move(payload));
}

void Core::SendWait(Link* link, Call* call) {
  SendChain<larder::Wait>(link, call);
}

void Core::SendPrefetch(Link* link, Call* call) {
  SendChain<larder::Prefetch>(link, call);
}

void Core::SendRemove(Link* link, Call* call) {
  const auto* operation = static_cast<const RemoveOperation*>(call->operation);
  larder::Remove remove;
  remove.number = link->namespaces[call->name_space].number;
  remove.groups = operation->groups;
  for (size_t i = 0; i < CountOf(operation, call->keys); ++i) {
    remove.hashes.push_back(operation->hashes[IndexOf(call->keys, i)]);
  }
  Transmit(link, Encode(EnvelopeFor(*call), remove), nullptr);
}

void Core::OnMatchReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* match = static_cast<MatchOperation*>(call->operation);
  const size_t count = CountOf(match, call->keys);
  const size_t groups = match->groups.size();
  MatchReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok() || reply.presence.size() != count * groups) {
    Misbehaved(link, decoded.ok() ? "a Match reply with another number of keys" : decoded.ToString());
    return NextHome(match, call->keys, Presence::kRefused);
  }
  if (reply.pin_handle != 0) match->pins.push_back({link->id, reply.pin_handle});
  KeySubset missing;
  missing.level = call->keys.level;
  const bool ask_on = options_.client.replicas > 1;
  if (call->keys.all && call->keys.level == 0 && !ask_on) {
    std::memcpy(match->presence.data(), reply.presence.data(), reply.presence.size());
  } else {
    for (size_t i = 0; i < count; ++i) {
      bool all_hit = true;
      Presence* cells = match->presence.data() + IndexOf(call->keys, i) * groups;
      for (size_t group = 0; group < groups; ++group) {
        const auto presence = static_cast<Presence>(reply.presence[i * groups + group]);
        const bool answered = cells[group] != Presence::kTimedOut && cells[group] != Presence::kUnreachable;
        if (IsHit(presence) || !answered) cells[group] = presence;
        all_hit &= IsHit(cells[group]);
      }
      if (!all_hit) missing.indices.push_back(IndexOf(call->keys, i));
    }
  }
  size_t key = 0;
  for (const MatchReply::Estimate& run : reply.estimates) {
    for (uint32_t i = 0; i < run.count && key < count; ++i, ++key) {
      match->estimate_us[IndexOf(call->keys, key)] = run.us;
    }
  }
  if (ask_on && !missing.indices.empty() && !match->ending) {
    match->open_items -= count - missing.indices.size();
    NextHome(match, missing, Presence::kUnreachable);
  } else {
    match->open_items -= count;
  }
  MayComplete(match);
}

void Core::OnWaitReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* wait = static_cast<WaitOperation*>(call->operation);
  const size_t count = CountOf(wait, call->keys);
  WaitReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok() || reply.leading > count) {
    Misbehaved(link, decoded.ok() ? "a Wait reply with more blocks than were asked for" : decoded.ToString());
    return NextHome(wait, call->keys, Presence::kRefused);
  }
  if (reply.leading < count) wait->leading = std::min(wait->leading, IndexOf(call->keys, reply.leading));
  wait->open_items -= count;
  if (wait->leading == 0) wait->open_items = 0;  // nothing that still comes can change the answer
  MayComplete(wait);
}

void Core::OnPrefetchReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* prefetch = static_cast<PrefetchOperation*>(call->operation);
  const size_t count = CountOf(prefetch, call->keys);
  PrefetchReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok() || reply.blocks > count * prefetch->groups.size()) {
    Misbehaved(link,
               decoded.ok() ? "a Prefetch reply with more blocks than were asked for" : decoded.ToString());
    return NextHome(prefetch, call->keys, Presence::kRefused);
  }
  prefetch->blocks += reply.blocks;
  prefetch->open_items -= count;
  MayComplete(prefetch);
}

void Core::OnRemoveReply(std::unique_ptr<Call> call, Link* link, ByteView record) {
  auto* remove = static_cast<RemoveOperation*>(call->operation);
  RemoveReply reply;
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok()) Misbehaved(link, decoded.ToString());
  if (!decoded.ok() && remove->status.ok()) remove->status = decoded;
  remove->removed += reply.removed;
  remove->open_items -= CountOf(remove, call->keys);
  MayComplete(remove);
}

// No answer for these keys: what an earlier copy said of them stays.
void Core::UnreachableKeys(Operation* operation, const KeySubset& keys, Presence reason) {
  const size_t count = CountOf(operation, keys);
  if (operation->kind == Kind::kMatch) {
    auto* match = static_cast<MatchOperation*>(operation);
    const size_t groups = match->groups.size();
    for (size_t i = 0; i < count; ++i) {
      for (size_t group = 0; group < groups; ++group) {
        Presence& cell = match->presence[IndexOf(keys, i) * groups + group];
        if (cell == Presence::kTimedOut) cell = reason;
      }
    }
  } else if (operation->kind == Kind::kWait && count != 0) {
    auto* wait = static_cast<WaitOperation*>(operation);
    wait->leading = std::min(wait->leading, IndexOf(keys, 0));
  } else if (operation->kind == Kind::kRemove && operation->status.ok()) {
    operation->status = Status(Code::kUnavailable, "a node did not answer");
  }
}

void Core::FinishMatch(MatchOperation* match, MatchResult* result) {
  result->status = match->status;
  result->usable_length = UsableLength(match->presence, match->chain->size(), match->groups);
  result->presence = std::move(match->presence);
  result->estimate_us = std::move(match->estimate_us);
  if (match->pins.empty()) return;
  if (pins_.size() >= kPinsMax) {
    std::erase_if(pins_, [&](const auto& entry) { return entry.second.end_us <= now_us_; });
  }
  if (!match->status.ok() || pins_.size() >= kPinsMax) return ReleasePins(match->name_space, match->pins);
  result->pin = ++last_id_;
  pins_.emplace(result->pin, Pin{now_us_ + match->pin_us, match->name_space, std::move(match->pins)});
}

void Core::Release(uint64_t pin, uint64_t now_us) {
  now_us_ = now_us;
  const auto found = pins_.find(pin);
  if (found == pins_.end()) return;
  ReleasePins(found->second.name_space, found->second.nodes);
  pins_.erase(found);
  Settle();
}

// A node's pin ends with the connection that took it: it is released on that one or is gone already.
void Core::ReleasePins(uint32_t name_space, const std::vector<MatchOperation::NodePin>& pins) {
  for (const MatchOperation::NodePin& pin : pins) {
    Link* link = FindLink(pin.link);
    if (link == nullptr || link->peer == nullptr) continue;
    Notice notice;
    notice.verb = Verb::kRelease;
    notice.name_space = name_space;
    notice.only_link = pin.link;
    notice.touch.pin_handle = pin.handle;
    AddNotice(link->peer, std::move(notice));
  }
}

void Core::SendReport(uint32_t name_space, const std::vector<BlockRef>& blocks, uint64_t now_us) {
  now_us_ = now_us;
  if (off_ || closing_ || routing_ == nullptr) return;
  std::vector<std::pair<Peer*, Notice>> notices;
  for (const BlockRef& block : blocks) {
    Peer* peer = nullptr;
    for (uint32_t copy = 0; (peer = Candidate(block.hash, copy, false)) != nullptr; ++copy) {
      if (peer->down) continue;
      auto notice = std::find_if(notices.begin(), notices.end(),
                                 [&](const auto& entry) { return entry.first == peer; });
      if (notice == notices.end()) notice = notices.insert(notices.end(), {peer, Notice{}});
      notice->second.blocks.push_back(block);
    }
  }
  stats_.reports += blocks.size();
  for (auto& [peer, notice] : notices) {
    notice.verb = Verb::kReport;
    notice.name_space = name_space;
    AddNotice(peer, std::move(notice));
  }
  Settle();
}

void Core::SendTouch(uint32_t name_space, const TouchRequest& request, uint64_t now_us) {
  now_us_ = now_us;
  NoteTouch(name_space, request);
  Settle();
}

void Core::NoteTouch(uint32_t name_space, const TouchRequest& request) {
  if (off_ || closing_ || routing_ == nullptr || request.chain.empty() || request.chain.size() > kHashesMax)
    return;
  std::vector<std::pair<Peer*, Touch>> touches;
  for (uint32_t copy = 0; copy < std::max<uint32_t>(options_.client.replicas, 1); ++copy) {
    for (size_t i = 0; i < request.chain.size(); ++i) {
      Peer* peer = Candidate(request.chain[i], copy, false);
      if (peer == nullptr || peer->down) continue;
      auto touch = std::find_if(touches.begin(), touches.end(),
                                [&](const auto& entry) { return entry.first == peer; });
      // A node that is home to some keys and a copy of others hears of each group by itself: depths ascend.
      if (touch == touches.end()) touch = touches.insert(touches.end(), {peer, Touch{}});
      touch->second.depths.push_back(static_cast<uint32_t>(i));
      touch->second.hashes.push_back(request.chain[i]);
    }
    for (auto& [peer, touch] : touches) {
      std::memcpy(&touch.root, request.chain[0].bytes.data(), sizeof touch.root);
      touch.usable_length = request.usable_length;
      touch.chain_length = static_cast<uint32_t>(request.chain.size());
      touch.groups = request.groups;
      touch.retention = request.retention;
      touch.finishes = request.finishes;
      touch.hash_count = static_cast<uint32_t>(touch.hashes.size());
      Notice notice;
      notice.verb = Verb::kTouch;
      notice.name_space = name_space;
      notice.touch = std::move(touch);
      AddNotice(peer, std::move(notice));
    }
    touches.clear();
  }
}

// What a put's blocks are expected to be: nodes hear of it when they have them.
void Core::NoteRetention(const PutOperation& put) {
  std::map<std::pair<Retention, uint16_t>, std::vector<ChainHash>> told;
  for (size_t i = 0; i < put.sources.size(); ++i) {
    const PutSource& source = put.sources[i];
    if (source.retention == Retention::kNone || !put.results[i].there()) continue;
    told[{source.retention, source.ref.group}].push_back(source.ref.hash);
  }
  for (const auto& [what, hashes] : told) {
    TouchRequest touch;
    touch.chain = hashes;
    touch.groups = {what.second};
    touch.retention = what.first;
    touch.finishes = true;
    NoteTouch(put.name_space, touch);
  }
}

}  // namespace larder::client
