// Which node answers for a key, which connections it has, and whose turn it is on them.
#include <algorithm>

#include "client/core/core.h"

namespace larder::client {

// The position-th node to ask for a key; null when there is none. Draining nodes are read but not written,
// and do not count as one of the copies.
Peer* Core::Candidate(const ChainHash& hash, uint32_t position, bool for_put) {
  if (routing_ == nullptr) return nullptr;
  uint32_t copies = 0;
  for (const uint16_t node : routing_->placement.Order(hash)) {
    if (copies == std::max<uint32_t>(options_.client.replicas, 1)) break;
    const bool draining = routing_->table.nodes[node].state == NodeState::kDraining;
    if (!draining) ++copies;
    if (draining && for_put) continue;
    if (position-- == 0) return peer_of_node_[node];
  }
  return nullptr;
}

void Core::OnRouting(std::shared_ptr<const Routing> routing, uint64_t now_us) {
  now_us_ = now_us;
  if (routing_ != nullptr && routing->table.epoch <= routing_->table.epoch) return;
  routing_ = std::move(routing);
  for (const auto& [id, peer] : peers_) peer->retired = true;
  peer_of_node_.clear();
  for (const NodeRecord& node : routing_->table.nodes) {
    std::unique_ptr<Peer>& peer = peers_[node.id];
    if (peer == nullptr) peer = std::make_unique<Peer>();
    peer->retired = false;
    // What a node says of itself is richer than what a static list says, as long as it is the same node.
    const bool moved = peer->record.data_address != node.data_address;
    const bool restarted = node.incarnation != 0 && node.incarnation != peer->record.incarnation;
    if (!peer->introduced || moved || restarted) {
      peer->record = node;
      peer->introduced = false;
      peer->avoid_shm = peer->avoid_ucx = false;
      if (moved) peer->down = false;
    } else {
      peer->record.state = node.state;
      peer->record.weight = node.weight;
    }
    peer_of_node_.push_back(peer.get());
    MarkDirty(peer.get());
  }
  RetirePeers();
  std::vector<Link*> links;
  for (const auto& [id, link] : links_) links.push_back(link.get());
  for (Link* link : links) {
    if (link->peer == nullptr || link->introduction) Adopt(link);
  }
  for (const auto& [id, operation] : operations_) {
    if (operation->kind != Kind::kOpen) continue;
    operation->open_items = 0;
    MayComplete(operation.get());
  }
  Settle();
}

// Nodes that left the table are forgotten once nothing is under way with them.
void Core::RetirePeers() {
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer* peer = at->second.get();
    size_t links = 0;
    for (const Lane& lane : peer->lanes) links += lane.links.size();
    const bool idle = links == 0 && peer->bytes_in_flight == 0 && !peer->dirty && !peer->hungry;
    if (peer->retired && links != 0) MarkDirty(peer);
    at = peer->retired && idle ? peers_.erase(at) : std::next(at);
  }
}

// False: a miss at once. A node that is left alone is probed in the background once its time is up.
bool Core::Usable(Peer* peer) {
  if (!peer->down) return true;
  if (now_us_ >= peer->retry_us) Probe(peer);
  return false;
}

void Core::Probe(Peer* peer) {
  const Lane& lane = peer->lanes[static_cast<size_t>(Priority::kInteractive)];
  const bool probing = std::any_of(lane.links.begin(), lane.links.end(), [](const Link* link) {
    return link->state == Link::State::kConnecting || link->state == Link::State::kGreeting;
  });
  if (probing || closing_) return;
  const Endpoint endpoint =
      NeedsIntroduction(*peer) ? Endpoint{"tcp", peer->record.data_address} : EndpointOf(*peer);
  if (!endpoint.address.empty()) Connect(peer, endpoint, Priority::kInteractive);
  // The table may be stale when nobody in it answers.
  const bool alone = std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    return entry.second->down || entry.second->retired;
  });
  if (alone) ConnectSeeds();
}

// Static lists know addresses only: the node itself says over tcp what else it has.
bool Core::NeedsIntroduction(const Peer& peer) const {
  return options_.client.transport != "tcp" && !peer.introduced && peer.record.host_id.empty();
}

bool Core::IsConnected(const Peer& peer) const {
  return std::ranges::any_of(peer.lanes, [](const Lane& lane) {
    return std::ranges::any_of(lane.links,
                               [](const Link* link) { return link->state == Link::State::kReady; });
  });
}

// On this host, beside nodes that are not.
bool Core::OverShm(const Peer& peer) const {
  const bool same_host = !options_.host_id.empty() && peer.record.host_id == options_.host_id;
  return options_.client.transport == "auto" && same_host && !peer.record.shm_path.empty() && !peer.avoid_shm;
}

// An empty address: the transport that was asked for does not lead there.
Endpoint Core::EndpointOf(const Peer& peer) const {
  const std::string& wanted = options_.client.transport;
  if (wanted == "shm") return {"shm", peer.record.shm_path};
  if (wanted == "ucx") return {"ucx", peer.record.ucx_address};
  if (wanted == "auto") {
    if (OverShm(peer)) return {"shm", peer.record.shm_path};
    if (options_.ucx && !peer.record.ucx_address.empty() && !peer.avoid_ucx)
      return {"ucx", peer.record.ucx_address};
  }
  return {"tcp", peer.record.data_address};
}

void Core::EnsureLinks(Peer* peer, size_t lane_index) {
  Lane& lane = peer->lanes[lane_index];
  const bool scouting = NeedsIntroduction(*peer);
  const Endpoint endpoint = scouting ? Endpoint{"tcp", peer->record.data_address} : EndpointOf(*peer);
  if (endpoint.address.empty()) {
    return MarkDown(peer, "the node offers no " + options_.client.transport);
  }
  uint64_t chunks = lane.waiting.empty() && lane.notices.empty() ? 0 : 1;
  uint32_t have = 0;
  for (const Share& share : lane.shares) chunks += 1 + (share.items.size() - share.next > 1);
  for (const Link* link : lane.links) {
    if (link->state == Link::State::kClosing || link->endpoint != endpoint) continue;
    ++have;
    chunks += link->bulk_calls;
  }
  uint64_t want = std::clamp<uint64_t>(options_.client.connections_per_peer, 1, 8);
  want = scouting ? std::min<uint64_t>(chunks, 1) : std::min(chunks, want);
  if (scouting && lane_index != 0) want = have;  // one scout is enough
  if (scouting && lane_index != 0 && have == 0) Probe(peer);
  if (have != 0 && now_us_ < lane.retry_us) return;
  for (; have < want; ++have) Connect(peer, endpoint, static_cast<Priority>(lane_index));
}

// The node is left alone for a while, doubling; all that waits for it is answered now.
void Core::MarkDown(Peer* peer, const std::string& why, Presence reason) {
  if (closing_) return;
  const uint64_t least_us = std::max<uint64_t>(options_.client.backoff_min_us, 1);
  const uint64_t most_us = std::max(options_.client.backoff_max_us, least_us);
  peer->backoff_us = peer->backoff_us == 0 ? least_us : std::min(peer->backoff_us * 2, most_us);
  peer->retry_us = now_us_ + peer->backoff_us;
  peer->last_error = why;
  if (!peer->down) ++stats_.peers_down;
  peer->down = true;
  peer->late = false;
  peer->down_reason = reason;
  for (Lane& lane : peer->lanes) {
    const std::vector<Link*> links = lane.links;
    for (Link* link : links) CloseLink(link, transport::Failure::kUnreachable);
  }
  FailWork(peer, reason, Status(Code::kUnavailable, peer->record.id + ": " + why));
}

void Core::FailWork(Peer* peer, Presence reason, const Status& why) {
  for (Lane& lane : peer->lanes) {
    lane.notices.clear();
    auto shares = std::move(lane.shares);
    auto waiting = std::move(lane.waiting);
    lane.shares.clear();
    lane.waiting.clear();
    for (Share& share : shares) FailShare(share, reason, why);
    for (auto& call : waiting) FailCall(std::move(call), reason, why);
  }
}

void Core::FailShare(const Share& share, Presence reason, const Status& why) {
  const std::vector<uint32_t> items(share.items.begin() + static_cast<ptrdiff_t>(share.next),
                                    share.items.end());
  if (share.operation->kind == Kind::kGet) {
    auto* get = static_cast<GetOperation*>(share.operation);
    std::vector<uint32_t> again;
    const bool answered = reason != Presence::kUnreachable;
    for (const uint32_t item : items) NextCopy(get, item, reason, answered, false, &again);
    return RouteTargets(get, std::move(again));
  }
  auto* put = static_cast<PutOperation*>(share.operation);
  const PutState state = reason == Presence::kRefused ? PutState::kInvalid : PutState::kBusy;
  for (const uint32_t item : items) SettleCopy(put, item, state, why);
}

// The node does not let us into the namespace: what waits for it there is refused.
void Core::FailNamespace(Peer* peer, uint32_t name_space, const Status& why) {
  for (Lane& lane : peer->lanes) {
    std::vector<Share> shares;
    std::vector<std::unique_ptr<Call>> calls;
    for (auto at = lane.shares.begin(); at != lane.shares.end();) {
      if (at->operation->name_space != name_space) {
        ++at;
        continue;
      }
      shares.push_back(std::move(*at));
      at = lane.shares.erase(at);
    }
    for (auto at = lane.waiting.begin(); at != lane.waiting.end();) {
      if ((*at)->name_space != name_space) {
        ++at;
        continue;
      }
      calls.push_back(std::move(*at));
      at = lane.waiting.erase(at);
    }
    std::erase_if(lane.notices, [&](const Notice& notice) { return notice.name_space == name_space; });
    for (const Share& share : shares) FailShare(share, Presence::kRefused, why);
    for (auto& call : calls) FailCall(std::move(call), Presence::kRefused, why);
  }
}

void Core::MarkDirty(Peer* peer) {
  if (peer->dirty) return;
  peer->dirty = true;
  dirty_.push_back(peer);
}

void Core::Pump(Peer* peer) {
  for (size_t lane = 0; lane < kLanes; ++lane) PumpLane(peer, lane);  // interactive first
  if (!peer->retired) return;
  for (const Lane& lane : peer->lanes) {
    const std::vector<Link*> links = lane.links;
    for (Link* link : links) {
      if (link->calls.empty() && lane.shares.empty() && lane.waiting.empty())
        CloseLink(link, transport::Failure::kNone);
    }
  }
}

void Core::PumpLane(Peer* peer, size_t lane_index) {
  Lane& lane = peer->lanes[lane_index];
  if (closing_ || (lane.waiting.empty() && lane.shares.empty() && lane.notices.empty())) return;
  if (peer->down) {
    return FailWork(peer, peer->down_reason,
                    Status(Code::kUnavailable, peer->record.id + ": " + peer->last_error));
  }
  EnsureLinks(peer, lane_index);
  for (size_t left = lane.waiting.size(); left != 0 && !lane.waiting.empty(); --left) {
    std::unique_ptr<Call> call = std::move(lane.waiting.front());
    lane.waiting.pop_front();
    const Picked picked = Pick(peer, lane_index, call->name_space);
    if (picked.link != nullptr) {
      SendWaiting(picked.link, std::move(call));
    } else if (picked.refused) {
      FailCall(std::move(call), Presence::kRefused, Status(Code::kDenied, peer->last_error));
    } else {
      lane.waiting.push_back(std::move(call));
    }
  }
  PumpNotices(peer, lane_index);
  // A chunk a turn: operations share the peer fairly.
  for (size_t stuck = 0; stuck < lane.shares.size();) {
    Share share = std::move(lane.shares.front());
    lane.shares.pop_front();
    const Picked picked = Pick(peer, lane_index, share.operation->name_space);
    if (picked.refused) {
      FailShare(share, Presence::kRefused, Status(Code::kDenied, peer->last_error));
      continue;
    }
    const bool room = picked.link != nullptr && HasRoom(*picked.link, share.chunk_bytes);
    const bool sent = room && (share.operation->kind == Kind::kGet ? SendGetChunk(peer, picked.link, &share)
                                                                   : SendPutChunk(peer, picked.link, &share));
    stuck = sent ? 0 : stuck + 1;
    if (share.next < share.items.size()) lane.shares.push_back(std::move(share));
  }
}

// Two requests deep, so that the next is there when one ends; more only while they are small.
bool Core::HasRoom(const Link& link, uint64_t chunk_bytes) const {
  return link.bulk_calls < 2 || link.window_bytes + chunk_bytes <= kLinkWindowBytes;
}

// The least loaded connection that is up and has the namespace open; opens it where it is not.
Core::Picked Core::Pick(Peer* peer, size_t lane_index, uint32_t name_space) {
  Picked picked;
  size_t up = 0, refused = 0;
  const Endpoint endpoint = EndpointOf(*peer);
  for (Link* link : peer->lanes[lane_index].links) {
    if (link->state != Link::State::kReady || link->endpoint != endpoint) continue;
    ++up;
    if (name_space != kNoNamespace) {
      OpenNamespace(link, name_space);
      const NamespaceOnLink::State state = link->namespaces[name_space].state;
      if (state == NamespaceOnLink::State::kRefused) ++refused;
      if (state != NamespaceOnLink::State::kOpen) continue;
    }
    if (link->calls.size() >= link->requests_max || link->forgotten >= kForgottenMax) continue;
    const bool better =
        picked.link == nullptr || link->window_bytes < picked.link->window_bytes ||
        (link->window_bytes == picked.link->window_bytes && link->calls.size() < picked.link->calls.size());
    if (better) picked.link = link;
  }
  picked.refused = up != 0 && refused == up;
  return picked;
}

void Core::PumpNotices(Peer* peer, size_t lane_index) {
  Lane& lane = peer->lanes[lane_index];
  for (size_t left = lane.notices.size(); left != 0; --left) {
    Notice notice = std::move(lane.notices.front());
    lane.notices.pop_front();
    const Picked picked = Pick(peer, lane_index, notice.name_space);
    if (picked.refused) continue;
    Link* link = notice.only_link == 0 ? picked.link : FindLink(notice.only_link);
    if (link == nullptr) {
      if (notice.only_link == 0) lane.notices.push_back(std::move(notice));
      continue;
    }
    if (link->state != Link::State::kReady) continue;
    const uint32_t number = link->namespaces[notice.name_space].number;
    const Envelope envelope{notice.verb, false, link->lane, Code::kOk, 0, ++last_id_};
    if (notice.verb == Verb::kReport) {
      larder::Report report;
      report.number = number;
      report.blocks = std::move(notice.blocks);
      Transmit(link, Encode(envelope, report), nullptr);
      continue;
    }
    notice.touch.number = number;
    std::shared_ptr<std::vector<ChainHash>> payload;
    if (notice.touch.hashes.size() > kHashesInlineMax) {
      payload = std::make_shared<std::vector<ChainHash>>(std::move(notice.touch.hashes));
      notice.touch.hashes.clear();
      notice.touch.hashes_in_payload = true;
      notice.touch.hash_count = static_cast<uint32_t>(payload->size());
    }
    Transmit(link, Encode(envelope, notice.touch), payload);
  }
}

void Core::AddNotice(Peer* peer, Notice&& notice) {
  Lane& lane = peer->lanes[static_cast<size_t>(Priority::kInteractive)];
  if (lane.notices.size() >= kNoticesMax) lane.notices.pop_front();  // hints: the newest are worth most
  lane.notices.push_back(std::move(notice));
  MarkDirty(peer);
}

std::vector<PeerInfo> Core::Peers(uint64_t now_us) const {
  std::vector<PeerInfo> infos;
  for (const auto& [id, peer] : peers_) {
    if (peer->retired) continue;
    PeerInfo info;
    info.record = peer->record;
    info.last_error = peer->last_error;
    info.transport = EndpointOf(*peer).transport;
    info.connected = IsConnected(*peer);
    if (peer->down && peer->retry_us > now_us) info.retry_in_us = peer->retry_us - now_us;
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace larder::client
