// Connections: connect, greet, open namespaces, notice silence, and what a broken one means.
#include <algorithm>
#include <utility>

#include "client/core/core.h"

namespace larder::client {
namespace {

// Half of what a node may be silent for. Who allows more than the usual second for a connection expects a
// node that takes its time, and gets one that is given as much for a sign of life.
uint64_t SilenceUs(const ClientOptions& options) {
  return std::max(kSilenceUs, options.connect_timeout_us / 2);
}

}  // namespace

Link* Core::FindLink(LinkId id) {
  const auto found = links_.find(id);
  return found == links_.end() ? nullptr : found->second.get();
}

Link* Core::Connect(Peer* peer, const Endpoint& endpoint, Priority lane) {
  auto owned = std::make_unique<Link>();
  Link* link = owned.get();
  link->id = ++last_id_;
  link->peer = peer;
  link->endpoint = endpoint;
  link->lane = lane;
  links_.emplace(link->id, std::move(owned));
  link->loop = LoopFor(peer, lane);
  if (peer != nullptr) peer->lanes[static_cast<size_t>(lane)].links.push_back(link);
  timers_.insert({now_us_ + options_.client.connect_timeout_us, TimerKind::kGreeting, link->id});
  effects_->Connect(link->id, endpoint, lane, static_cast<int>(link->loop),
                    options_.client.connect_timeout_us);
  return link;
}

// The I/O thread that has the fewest of the peer's links in the lane, a seed's adopted link among them: two
// links on one thread would receive with half of the machine.
uint32_t Core::LoopFor(const Peer* peer, Priority lane) {
  const uint32_t loops = static_cast<uint32_t>(std::max(options_.client.io_threads, 1));
  const uint32_t first = next_loop_++ % loops;  // among equals in turn
  if (peer == nullptr) return first;
  std::vector<uint32_t> links(loops, 0);
  for (const Link* link : peer->lanes[static_cast<size_t>(lane)].links) ++links[link->loop];
  uint32_t best = first;
  for (uint32_t i = 1; i < loops; ++i) {
    const uint32_t at = (first + i) % loops;
    if (links[at] < links[best]) best = at;
  }
  return best;
}

// One more seed, while fewer than kSeedsMax are being asked: one that hangs must not hold up the others.
// Without a table this comes again every backoff_min_us.
void Core::ConnectSeeds() {
  const std::vector<std::string>& seeds = options_.client.seeds;
  if (seeds.empty() || closing_) return;
  size_t asking = 0;
  std::set<std::string> asked;
  for (const auto& [id, link] : links_) {
    if (link->peer != nullptr) continue;
    ++asking;
    asked.insert(link->endpoint.address);
  }
  for (size_t i = 0; i < seeds.size() && asking < kSeedsMax; ++i) {
    const std::string& seed = seeds[next_seed_++ % seeds.size()];
    if (asked.count(seed) != 0) continue;
    Connect(nullptr, {"tcp", seed}, Priority::kInteractive);
    break;
  }
  if (routing_ != nullptr) return;
  for (const auto& [id, operation] : operations_) {
    if (operation->kind != Kind::kOpen) continue;
    timers_.insert(
        {now_us_ + std::max<uint64_t>(options_.client.backoff_min_us, 1000), TimerKind::kSeeds, id});
    return;
  }
}

void Core::OnOpen(LinkId id, uint64_t now_us) {
  now_us_ = now_us;
  Link* link = FindLink(id);
  if (link == nullptr || link->state != Link::State::kConnecting) return;
  link->state = Link::State::kGreeting;
  link->received = 1;
  Hello hello;
  hello.lane = link->lane;
  hello.features = kFeatureParts;
  hello.token = options_.client.token;
  hello.client_name = options_.client.client_name;
  auto call = std::make_unique<Call>();
  call->verb = Verb::kHello;
  Call* sent = Launch(link, std::move(call));
  Transmit(link, Encode(EnvelopeFor(*sent), hello), nullptr);
  // Open goes ahead with Hello for what is waiting: one round trip instead of two.
  if (link->peer != nullptr) {
    const Lane& lane = link->peer->lanes[static_cast<size_t>(link->lane)];
    for (const Share& share : lane.shares) OpenNamespace(link, share.operation->name_space);
    for (const auto& waiting : lane.waiting) OpenNamespace(link, waiting->name_space);
  }
  Settle();
}

void Core::OpenNamespace(Link* link, uint32_t name_space) {
  if (name_space >= namespaces_.size()) return;
  if (link->namespaces.size() <= name_space) link->namespaces.resize(name_space + 1);
  NamespaceOnLink& state = link->namespaces[name_space];
  if (state.state != NamespaceOnLink::State::kUnknown) return;
  state.state = NamespaceOnLink::State::kOpening;
  const ClientNamespace& known = namespaces_[name_space];
  Open open;
  open.identity = known.identity;
  open.tenant = known.tenant;
  open.salt_digest = known.salt_digest;
  auto call = std::make_unique<Call>();
  call->verb = Verb::kOpen;
  call->name_space = name_space;
  Call* sent = Launch(link, std::move(call));
  Transmit(link, Encode(EnvelopeFor(*sent), open), nullptr);
}

// Wrong token, wrong version: no use to ask again soon.
void Core::OnHelloError(Link* link, Code code, ByteView record) {
  ErrorText error;
  const Status decoded = Decode(record, &error);
  const Status why(code, decoded.ok() ? error.text : "the node refused the connection");
  if (link->peer != nullptr) MarkDown(link->peer, why.ToString(), Presence::kRefused);
  CloseLink(link, transport::Failure::kRefused);
  if (routing_ != nullptr || (code != Code::kDenied && code != Code::kUnsupported)) return;
  for (const auto& [id, operation] : operations_) {
    if (operation->kind != Kind::kOpen) continue;
    operation->status = why;
    operation->open_items = 0;
    MayComplete(operation.get());
  }
}

void Core::OnHello(Link* link, const Envelope& envelope, ByteView record) {
  HelloReply reply;
  if (envelope.code != Code::kOk) return OnHelloError(link, envelope.code, record);
  const Status decoded = Decode(record, &reply);
  if (!decoded.ok()) return Misbehaved(link, decoded.ToString());
  if (reply.version < kWireVersionMin || reply.version > kWireVersionMax || reply.requests_max == 0) {
    return Misbehaved(link, "Hello answered with version " + std::to_string(reply.version));
  }
  Result<NodeTable> table = DecodeTable(reply.table);
  if (!table.ok()) return Misbehaved(link, table.status().ToString());
  link->state = Link::State::kReady;
  link->requests_max = reply.requests_max;
  link->batch_bytes_max = reply.batch_bytes_max == 0 ? kBatchBytesMax : reply.batch_bytes_max;
  link->node_id = reply.node_id;
  for (const NodeRecord& node : table->nodes) {
    if (node.id == reply.node_id) link->introduction = node;
  }
  link->near = (reply.features & kFeatureNear) != 0;
  OfferTable(std::move(table.value()));
  Adopt(link);
}

void Core::OfferTable(NodeTable&& table) {
  const bool newer = routing_ == nullptr
                         ? routing_wanted_ == 0 || table.epoch > routing_wanted_epoch_
                         : table.epoch > std::max(routing_->table.epoch, routing_wanted_epoch_);
  if (!newer) return;
  routing_wanted_epoch_ = table.epoch;
  ++routing_wanted_;
  effects_->BuildRouting(std::move(table));
}

void Core::OnTable(Link* link, ByteView record) {
  TablePush push;
  const Status decoded = Decode(record, &push);
  if (!decoded.ok()) return Misbehaved(link, decoded.ToString());
  Result<NodeTable> table = DecodeTable(push.table);
  if (!table.ok()) return Misbehaved(link, table.status().ToString());
  OfferTable(std::move(table.value()));
}

// A link that has greeted joins its peer; a seed's becomes its node's.
void Core::Adopt(Link* link) {
  if (link->state != Link::State::kReady) return;
  if (link->peer == nullptr) {
    const auto found = peers_.find(link->node_id);
    if (found == peers_.end()) {
      if (routing_ != nullptr && routing_wanted_epoch_ <= routing_->table.epoch) {
        CloseLink(link, transport::Failure::kNone);  // a node that its own table does not know
      }
      return;
    }
    link->peer = found->second.get();
    link->endpoint.address = link->peer->record.data_address;  // the seed's text may be another name for it
    link->peer->lanes[static_cast<size_t>(link->lane)].links.push_back(link);
  }
  Peer* peer = link->peer;
  if (link->node_id != peer->record.id) {
    return Misbehaved(link, "the node at " + link->endpoint.address + " says it is " + link->node_id);
  }
  if (link->introduction) {
    if (!peer->introduced || peer->record.incarnation != link->introduction->incarnation) {
      peer->avoid_shm = peer->avoid_ucx = false;
      peer->known_us = 0;
    }
    // Its address stays the table's: that one is known to lead here.
    const std::string data_address = peer->record.data_address;
    peer->record = *link->introduction;
    if (!data_address.empty()) peer->record.data_address = data_address;
    link->introduction.reset();
  }
  peer->introduced = true;
  peer->near = link->near;
  if (peer->known_us == 0) peer->known_us = now_us_;
  if (peer->was_up && peer->down) ++stats_.reconnects;
  peer->down = false;
  peer->was_up = true;
  peer->backoff_us = 0;
  peer->hang_ups = 0;
  peer->last_error.clear();
  MarkDirty(peer);
}

void Core::OnOpenReply(Link* link, const Call& call, const Envelope& envelope, ByteView record) {
  NamespaceOnLink& state = link->namespaces[call.name_space];
  OpenReply reply;
  ErrorText error;
  Status why;
  if (envelope.code != Code::kOk) {
    const Status decoded = Decode(record, &error);
    why = Status(envelope.code, decoded.ok() ? error.text : "the node refused the namespace");
  } else {
    why = Decode(record, &reply);
    if (!why.ok()) return Misbehaved(link, why.ToString());
    if (reply.name_space != namespaces_[call.name_space].name_space) {
      why = Status(Code::kCorrupt, "the node computed another namespace: versions differ");
    }
  }
  state.state = why.ok() ? NamespaceOnLink::State::kOpen : NamespaceOnLink::State::kRefused;
  state.number = reply.number;
  if (!why.ok() && link->peer != nullptr) {
    link->peer->last_error = why.ToString();
    FailNamespace(link->peer, call.name_space, why);
  }
  if (link->peer != nullptr) MarkDirty(link->peer);
}

void Core::CloseLink(Link* link, transport::Failure why) {
  if (link->state == Link::State::kClosing) return;
  link->greeted = link->state == Link::State::kReady;
  link->state = Link::State::kClosing;
  effects_->Close(link->id, why);
}

// The peer sent what makes no sense: nothing it says is believed any more, until it has had time to change.
void Core::Misbehaved(Link* link, const std::string& what) {
  if (link->peer != nullptr) MarkDown(link->peer, what);
  CloseLink(link, transport::Failure::kProtocol);
}

// A connection that never came up says more than one that broke: the node is not there (any more).
void Core::LostWithoutGreeting(const Link& link, bool hung_up, const std::string& why) {
  Peer* peer = link.peer;
  if (peer == nullptr) return;
  Lane& lane = peer->lanes[static_cast<size_t>(link.lane)];
  if (link.endpoint.transport != "tcp" && options_.client.transport == "auto") {
    (link.endpoint.transport == "shm" ? peer->avoid_shm : peer->avoid_ucx) = true;
    peer->last_error = why;
    MarkDirty(peer);
    return;
  }
  const bool others = std::any_of(lane.links.begin(), lane.links.end(), [&](const Link* other) {
    return other->id != link.id && other->state == Link::State::kReady && other->endpoint == link.endpoint;
  });
  if (others) {
    lane.retry_us = now_us_ + std::max<uint64_t>(options_.client.backoff_min_us, 1);
    return;
  }
  // Somebody listens but hung up: once or twice may be chance, a node in the middle of a restart for example.
  if (hung_up && link.received != 0 && ++peer->hang_ups <= kHangUpsMax) {
    peer->last_error = why;
    return MarkDirty(peer);
  }
  MarkDown(peer, why);
}

void Core::OnClosed(LinkId id, const transport::Error& why, uint64_t now_us) {
  now_us_ = now_us;
  const auto found = links_.find(id);
  if (found == links_.end()) return;
  const std::unique_ptr<Link> link = std::move(found->second);
  links_.erase(found);
  const bool greeted = link->state == Link::State::kReady || link->greeted;
  std::string text =
      std::string(transport::FailureName(why.failure)) + (why.text.empty() ? "" : ": " + why.text);
  // Closed here because the node was given up: then that is the reason, not that we closed.
  if (link->state == Link::State::kClosing && link->peer != nullptr && link->peer->down) {
    text = link->peer->last_error;
  }
  if (Peer* peer = link->peer) {
    std::erase(peer->lanes[static_cast<size_t>(link->lane)].links, link.get());
    if (!greeted && !closing_)
      LostWithoutGreeting(*link, why.failure == transport::Failure::kPeerClosed, text);
    if (greeted && !peer->down) peer->last_error = text;
    peer->late = false;
    ForgetHot(peer);
    peer->known_us = IsConnected(*peer) ? now_us_ : 0;
    MarkDirty(peer);
  }
  auto calls = std::move(link->calls);
  link->calls.clear();
  for (auto& [request, call] : calls) {
    if (call->held_bytes != 0) Unhold(call->peer, std::exchange(call->held_bytes, 0));
    if (call->operation == nullptr) continue;
    std::erase(call->operation->calls, call.get());
    if (call->landing != nullptr) {
      --call->operation->landings;
      OnLanded(call.get(), false);
      MayComplete(call->operation);
      continue;
    }
    FailCall(std::move(call), Presence::kUnreachable, Status(Code::kUnavailable, text));
  }
  if (link->peer == nullptr && routing_ == nullptr) {
    last_seed_error_ = link->endpoint.address + ": " + text;
  }
  Settle();
}

uint64_t Core::Progress(const Link& link) const {
  uint64_t progress = link.received;
  for (const auto& [request, call] : link.calls) {
    if (call->landing != nullptr) progress += call->landing->steps();
  }
  return progress;
}

void Core::ArmSilence(Link* link) {
  if (link->check_armed) return;
  link->check_armed = true;
  link->ping_sent = false;
  link->progress_seen = Progress(*link);
  timers_.insert({now_us_ + SilenceUs(options_.client), TimerKind::kSilence, link->id});
}

// Answers are due and nothing has come for a while: ask for a sign of life, and give up on a node without
// one. Long waits for blocks that are being written are silent too, so silence alone means nothing.
void Core::OnSilence(Link* link) {
  link->check_armed = false;
  if (link->state == Link::State::kClosing) return;
  const bool due = std::any_of(link->calls.begin(), link->calls.end(), [&](const auto& entry) {
    // A node that was late is asked no more while another copy is: what it owes is then due all the same.
    const bool owed = entry.second->forgotten && link->peer != nullptr && link->peer->late;
    return owed || entry.second->operation != nullptr || entry.second->verb == Verb::kOpen ||
           entry.second->verb == Verb::kHello;
  });
  if (!due) return;
  const uint64_t progress = Progress(*link);
  const bool silent = progress == link->progress_seen;
  if (silent && link->ping_sent) {
    if (link->peer != nullptr)
      MarkDown(link->peer, "no sign of life for " + std::to_string(2 * SilenceUs(options_.client)) + " us");
    CloseLink(link, transport::Failure::kTimedOut);
    return;
  }
  link->check_armed = true;
  link->ping_sent = silent;
  if (silent)
    Transmit(link, Encode(Envelope{Verb::kPing, false, link->lane, Code::kOk, 0, ++last_id_}), nullptr);
  link->progress_seen = progress;
  timers_.insert({now_us_ + SilenceUs(options_.client), TimerKind::kSilence, link->id});
}

}  // namespace larder::client
