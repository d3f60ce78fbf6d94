#include "node/events/kv_event_publisher.h"

#include <zmq.h>

#include <charconv>
#include <chrono>
#include <map>
#include <tuple>

#include "transport/transport.h"

namespace larder::node {
namespace {

constexpr long kPauseMs = 20;  // while nothing happens
constexpr uint64_t kQuietUs = 2'000'000;
constexpr int kLingerMs = 500;  // for the last messages, when the node ends
constexpr int64_t kSubscriptionBytesMax = 1024;
constexpr int kHeartbeatMs = 5'000;
constexpr int64_t kReplayRequestBytesMax = 1024;
constexpr size_t kReplaysMax = 8;                // at a time; other clients wait
constexpr int kMessagesPerStep = 64;             // of a replay
constexpr int kMessagesOfClient = 128;           // that wait for it
constexpr uint64_t kClientStuckUs = 10'000'000;  // a client that takes nothing for so long has gone
constexpr size_t kTopicsMax = 4096;              // without a block; beyond, they are forgotten

uint64_t UnixUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

Status Failed(const std::string& what) {
  return Invalid(what + ": " + zmq_strerror(zmq_errno()));
}

template <typename Value>  // as ZeroMQ has it for the option
Status Set(void* socket, int option, Value value) {
  return zmq_setsockopt(socket, option, &value, sizeof value) == 0 ? Status::Ok() : Failed("zmq option");
}

Status Bind(void* socket, const char* knob, const std::string& address, std::string* bound) {
  if (zmq_bind(socket, ("tcp://" + address).c_str()) != 0) {
    return Invalid(std::string(knob) + ": cannot listen at " + address + ": " + zmq_strerror(zmq_errno()) +
                   "; give an address of this machine (no name) and a free port");
  }
  char last[256];
  size_t size = sizeof last;
  if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, last, &size) != 0) return Failed(knob);
  *bound = std::string(last + 6);  // without tcp://
  return Status::Ok();
}

std::string BigEndian(uint64_t number) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(number >> (56 - 8 * i));
  return out;
}

bool SendFrame(void* socket, const std::string& frame, bool more) {
  return zmq_send(socket, frame.data(), frame.size(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

// All frames of a message; of more than `most` only as many. False: there is none.
bool Receive(void* socket, size_t most, std::vector<std::string>* frames) {
  frames->clear();
  for (bool more = true; more;) {
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    const bool there = zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT) >= 0;
    if (there && frames->size() < most) {
      frames->emplace_back(static_cast<const char*>(zmq_msg_data(&frame)), zmq_msg_size(&frame));
    }
    more = there && zmq_msg_more(&frame) != 0;
    zmq_msg_close(&frame);
    if (!there) return false;
  }
  return true;
}

// What an engine's blocks are; none: not an engine's.
std::optional<KvEventView::Space> SpaceOf(const Identity& identity, std::string topic) {
  const std::string_view text = identity.Get("block_tokens");
  KvEventView::Space space{.topic = std::move(topic)};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), space.block_tokens);
  const Result<Grid> grid = GridOf(identity);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (identity.Get("kind") != "kv" || !whole || space.block_tokens == 0 || !grid.ok()) return std::nullopt;
  space.grid = grid.value();
  return space;
}

}  // namespace

void KvEventPublisher::Close::operator()(void* socket) const {
  zmq_close(socket);
}

void KvEventPublisher::Terminate::operator()(void* context) const {
  zmq_ctx_term(context);
}

KvEventPublisher::KvEventPublisher(const KvEventOptions& options, Node* node)
    : options_(options),
      node_(node),
      view_([this](const std::string& topic, KvEvent&& event) { OnEvent(topic, std::move(event)); }),
      outbox_(options.kept, options.form,
              [this](const std::string& topic, uint64_t sequence, const std::string& payload) {
                Publish(topic, sequence, payload);
              }) {}

Result<std::unique_ptr<KvEventPublisher>> KvEventPublisher::Start(const KvEventOptions& options, Node* node) {
  std::unique_ptr<KvEventPublisher> publisher(new KvEventPublisher(options, node));
  if (Status status = publisher->Open(); !status.ok()) return status;
  publisher->thread_ = std::thread([raw = publisher.get()] { raw->Run(); });
  return publisher;
}

KvEventPublisher::~KvEventPublisher() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

Status KvEventPublisher::Open() {
  context_.reset(zmq_ctx_new());
  if (context_ == nullptr) return Failed("kv_events");
  publisher_.reset(zmq_socket(context_.get(), ZMQ_PUB));
  if (publisher_ == nullptr) return Failed("kv_events");
  LARDER_RETURN_IF_ERROR(Set(publisher_.get(), ZMQ_SNDHWM, options_.hwm));
  LARDER_RETURN_IF_ERROR(Set(publisher_.get(), ZMQ_LINGER, kLingerMs));
  LARDER_RETURN_IF_ERROR(Set(publisher_.get(), ZMQ_IPV6, 1));
  LARDER_RETURN_IF_ERROR(Set(publisher_.get(), ZMQ_TCP_KEEPALIVE, 1));
  // All that subscribers send is the beginning of a topic's name.
  LARDER_RETURN_IF_ERROR(Set(publisher_.get(), ZMQ_MAXMSGSIZE, kSubscriptionBytesMax));
  if (!options_.listen.empty()) {
    LARDER_RETURN_IF_ERROR(Bind(publisher_.get(), "kv_events_listen", options_.listen, &address_));
  }
  for (const std::string& address : options_.connect) {
    if (zmq_connect(publisher_.get(), ("tcp://" + address).c_str()) != 0)
      return Failed("kv_events_connect: " + address);
  }
  if (options_.replay_listen.empty()) return Status::Ok();
  router_.reset(zmq_socket(context_.get(), ZMQ_ROUTER));
  if (router_ == nullptr) return Failed("kv_events_replay_listen");
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_SNDHWM, kMessagesOfClient));
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_LINGER, 0));
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_IPV6, 1));
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_TCP_KEEPALIVE, 1));
  LARDER_RETURN_IF_ERROR(
      Set(router_.get(), ZMQ_HEARTBEAT_IVL, kHeartbeatMs));  // what waits for the dead goes
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_HEARTBEAT_TIMEOUT, 3 * kHeartbeatMs));
  // A client that is full or gone is told so, instead of losing what it asked for.
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_ROUTER_MANDATORY, 1));
  LARDER_RETURN_IF_ERROR(Set(router_.get(), ZMQ_MAXMSGSIZE, kReplayRequestBytesMax));
  return Bind(router_.get(), "kv_events_replay_listen", options_.replay_listen, &replay_address_);
}

void KvEventPublisher::Run() {
  // Who follows a topic of one name hears of an empty node too.
  if (options_.topic.find('{') == std::string::npos) {
    outbox_.Add(options_.topic, {.kind = KvEvent::Kind::kCleared}, UnixUs());
  }
  EventCursor cursor;
  while (!stopping_) {
    const Result<EventPage> page = node_->ReadEvents(&cursor, "");
    if (!page.ok()) break;  // the node has stopped
    Take(page.value());
    outbox_.Flush(UnixUs());
    outbox_.Repeat(UnixUs(), kQuietUs);
    TakeRequests();
    StepReplays();
    TellStats();
    if (page->more) continue;
    zmq_pollitem_t item{router_.get(), 0, ZMQ_POLLIN, 0};
    const bool accepts = router_ != nullptr && jobs_.empty();
    zmq_poll(&item, accepts ? 1 : 0, jobs_.empty() ? kPauseMs : 1);
  }
}

// --- following the node ---

void KvEventPublisher::Take(const EventPage& page) {
  view_.ForgetEmptySpaces();
  if (page.reset) view_.BeginSnapshot();
  for (const EventName& name : page.names) Learn(name);
  TakeEvents(page, page.events);
  TakeEvents(page, page.present);
  if (page.complete) view_.EndSnapshot();
  if (jobs_.empty() && outbox_.topics() > kTopicsMax) {
    outbox_.Forget([this](const std::string& topic) { return view_.blocks_of(topic) != 0; });
  }
}

// A block that is on SSD and was never seen in memory (the node has restarted) tells its hashes from there.
void KvEventPublisher::TakeEvents(const EventPage& page, const std::vector<BlockEvent>& events) {
  const auto space = [&](const BlockEvent& event) -> const Namespace& {
    return page.names[event.name].name_space;
  };
  const auto unknown = [&](const BlockEvent& event) {
    const bool comes = event.kind == BlockEventKind::kStored || event.kind == BlockEventKind::kMoved;
    return comes && event.tier == Presence::kSsd && view_.Knows(space(event)) &&
           !view_.IsLeftOut(space(event)) && !view_.Has(space(event), event.hash, event.group);
  };
  std::map<uint32_t, std::vector<BlockAsked>> asked;  // by name
  for (const BlockEvent& event : events) {
    if (unknown(event)) asked[event.name].push_back({event.hash, event.group});
  }
  std::map<std::tuple<uint32_t, uint16_t, ChainHash>, std::vector<ChainHash>> found;
  for (const auto& [name, blocks] : asked) {
    const auto hashes = node_->ReadConstituents(page.names[name].name_space, blocks);
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (hashes[i]) found[{name, blocks[i].group, blocks[i].hash}] = *hashes[i];
    }
  }
  for (const BlockEvent& event : events) {
    if (!unknown(event)) {
      view_.Apply(space(event), event);
    } else if (const auto its = found.find({event.name, event.group, event.hash}); its != found.end()) {
      BlockEvent with_hashes = event;
      with_hashes.constituents = its->second;
      view_.Apply(space(event), with_hashes);
    } else {
      ++stats_.unread;
    }
  }
}

void KvEventPublisher::Learn(const EventName& name) {
  if (view_.Knows(name.name_space)) return;
  const Result<std::string> text = node_->IdentityOf(name.name_space);
  if (!text.ok()) return;  // it has left the node, with all of its blocks
  const Result<Identity> identity = Identity::Parse(text.value());
  std::optional<KvEventView::Space> space;
  if (identity.ok()) {
    const TopicNames names{options_.node_id, name.tenant, name.name_space};
    space = SpaceOf(identity.value(), TopicOf(options_.topic, names, identity.value()));
  }
  if (space) {
    view_.Know(name.name_space, std::move(*space));
  } else {
    view_.LeaveOut(name.name_space);
  }
}

void KvEventPublisher::OnEvent(const std::string& topic, KvEvent&& event) {
  switch (event.kind) {
    case KvEvent::Kind::kStored:
      stats_.stored += event.hashes.size();
      break;
    case KvEvent::Kind::kRemoved:
      stats_.removed += event.hashes.size();
      break;
    case KvEvent::Kind::kCleared:
      ++stats_.cleared;
      break;
  }
  outbox_.Add(topic, std::move(event), UnixUs());
}

void KvEventPublisher::Publish(const std::string& topic, uint64_t sequence, const std::string& payload) {
  // A PUB socket never refuses: what a subscriber has no room for is lost to it.
  SendFrame(publisher_.get(), topic, true);
  SendFrame(publisher_.get(), BigEndian(sequence), true);
  SendFrame(publisher_.get(), payload, false);
  ++stats_.messages;
  stats_.bytes += payload.size();
}

// --- replays ---

void KvEventPublisher::TakeRequests() {
  std::vector<std::string> frames;
  while (router_ != nullptr && jobs_.size() < kReplaysMax && Receive(router_.get(), 4, &frames)) {
    if (frames.size() != 3 || !frames[1].empty() || frames[2].size() != 8) {
      ++stats_.bad_requests;
      continue;
    }
    uint64_t from = 0;
    for (const char byte : frames[2]) from = from << 8 | static_cast<unsigned char>(byte);
    jobs_.remove_if([&](const Job& job) { return job.client == frames[0]; });  // it asks anew
    jobs_.push_back({frames[0], KvEventReplay(outbox_, view_, from), std::nullopt, transport::NowUs()});
    ++stats_.replays;
  }
}

void KvEventPublisher::StepReplays() {
  jobs_.remove_if([this](Job& job) {
    const bool ends = Step(&job);
    if (ends) stats_.replay_snapshots += job.replay.snapshots();
    return ends;
  });
}

bool KvEventPublisher::Step(Job* job) {
  const uint64_t now_us = transport::NowUs();
  for (int i = 0; i < kMessagesPerStep; ++i) {
    if (!job->waiting) job->waiting = job->replay.Next(UnixUs());
    const bool last = !job->waiting;
    const Taken taken =
        last ? Reply(job->client, "", UINT64_MAX, "")
             : Reply(job->client, *job->waiting->topic, job->waiting->sequence, job->waiting->payload);
    if (taken == Taken::kLater && now_us - job->taken_us < kClientStuckUs) return false;
    if (taken != Taken::kYes) {
      ++stats_.replays_dropped;
      return true;
    }
    if (last) return true;
    job->waiting.reset();
    job->taken_us = now_us;
  }
  return false;
}

// Once the first frame is taken, ZeroMQ takes the others.
KvEventPublisher::Taken KvEventPublisher::Reply(const std::string& client, const std::string& topic,
                                                uint64_t sequence, const std::string& payload) {
  if (!SendFrame(router_.get(), client, true)) {
    return zmq_errno() == EAGAIN ? Taken::kLater : Taken::kGone;
  }
  SendFrame(router_.get(), "", true);
  SendFrame(router_.get(), topic, true);
  SendFrame(router_.get(), BigEndian(sequence), true);
  SendFrame(router_.get(), payload, false);
  return Taken::kYes;
}

void KvEventPublisher::TellStats() {
  stats_.blocks = view_.blocks();
  stats_.kept_messages = outbox_.kept_messages();
  stats_.kept_bytes = outbox_.kept_bytes();
  node_->SetKvEvents(stats_);
}

}  // namespace larder::node
