#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "node/durable_file.h"
#include "node/node_impl.h"
#include "node/node_record.h"
#include "node/ssd/file_disk.h"
#include "node/ssd/head_reader.h"

namespace larder::node {

namespace {

constexpr auto kDrainPoll = std::chrono::milliseconds(2);
constexpr size_t kHashesOfStep = 1024;  // that one call on the owner's thread looks at
constexpr auto kDurablePoll = std::chrono::microseconds(200);
constexpr auto kDurablePollMax = std::chrono::microseconds(10'000);
constexpr auto kDurableMax = std::chrono::seconds(60);
// Table pushes and pings beside the answers to requests.
constexpr uint32_t kOtherMessagesMax = 64;

Status FromTransport(const std::string& what, const transport::Error& error) {
  const Code code = error.failure == transport::Failure::kUnsupported ? Code::kUnsupported : Code::kInvalid;
  return {code, what + ": " + error.text};
}

transport::TransportOptions TransportOptionsOf(const NodeOptions& options) {
  transport::TransportOptions out = options.transport;
  out.threads = options.movers;
  out.limits.header_bytes_max = std::max(out.limits.header_bytes_max, kMessageBytesMax);
  // Every request that may be unanswered can be answered at once.
  const uint32_t answers = options.requests_per_connection_max + options.owner.waits_per_session_max;
  out.limits.queued_messages_max = std::max(out.limits.queued_messages_max, answers + kOtherMessagesMax);
  return out;
}

}  // namespace

// Listening comes last: whoever connects finds everything there. But the record holds the bound addresses, so
// sessions wait for `ready`: until then they are refused, and a client tries again.
Status Node::Impl::Start() {
  started_us = transport::NowUs();
  const transport::TransportOptions transport_options = TransportOptionsOf(options);
  std::vector<transport::Transport*> raw;
  const auto make = [&](const char* name, bool wanted) {
    if (!wanted) return Status::Ok();
    transport::Error error;
    auto made = transport::MakeTransport(name, transport_options, &error);
    if (made == nullptr) return FromTransport(std::string(name) + " transport", error);
    raw.push_back(made.get());
    transports.push_back(std::move(made));
    return Status::Ok();
  };
  LARDER_RETURN_IF_ERROR(make("tcp", true));
  LARDER_RETURN_IF_ERROR(make("shm", !options.shm_path.empty()));
  LARDER_RETURN_IF_ERROR(make("ucx", !options.ucx_listen.empty()));

  background = std::make_unique<Background>();
  slabs = std::make_unique<SlabMemory>(SlabMemoryOptions{options.huge_pages, options.prefault}, raw,
                                       background.get(), [this](std::byte* base) { SlabGone(base); });
  OwnerThreadOptions owner_options{options.owner, options.mailbox_max, options.owner_spin_us,
                                   options.hello_timeout_us};
  Result<Quarantine> rules = LoadQuarantine(options.quarantine_path);
  if (!rules.ok()) return rules.status();
  Result<std::unique_ptr<ssd::SsdTier>> tier = OpenSsd();
  if (!tier.ok()) return tier.status();
  owner =
      std::make_unique<OwnerThread>(owner_options, slabs.get(), background.get(), std::move(tier).value());
  owner->Call([&](Owner& state) { state.SetQuarantine(std::move(rules).value()); });
  RestorePlaces();
  RestoreClears();
  disk_listener = owner.get();
  // Once now, and waited for: a namespace that opens must find what a clear before the restart said.
  owner->Call([](Owner& state) { state.OnDisk(transport::NowUs(), UnixMs()); });

  BoundAddresses bound;
  LARDER_RETURN_IF_ERROR(AddTransport("tcp", options.data_listen, &bound.data));
  if (!options.shm_path.empty())
    LARDER_RETURN_IF_ERROR(AddTransport("shm", options.shm_path, &bound.shm_path));
  if (!options.ucx_listen.empty())
    LARDER_RETURN_IF_ERROR(AddTransport("ucx", options.ucx_listen, &bound.ucx));
  Result<NodeRecord> made = MakeRecord(options, bound);
  if (!made.ok()) return made.status();
  record = std::move(made).value();
  NodeTable given;
  given.epoch = options.table_epoch;
  given.nodes = options.peers;
  {
    const std::lock_guard lock(table_mutex);
    table = TableWith(given, record);
  }
  shared->owner = this;
  shared->node_id = record.id;
  shared->incarnation = record.incarnation;
  if (options.owner.near_share_percent != 0) shared->features |= kFeatureNear;
  shared->credentials = options.credentials;
  shared->requests_max = options.requests_per_connection_max;
  shared->waits_max = options.owner.waits_per_session_max;
  shared->batch_bytes_max = std::min(transport_options.limits.payload_bytes_max, kBatchBytesMax);
  ready = !options.held;
  return Status::Ok();
}

// nullptr: no SSD tier. Each directory is a disk of its own.
Result<std::unique_ptr<ssd::SsdTier>> Node::Impl::OpenSsd() {
  const SsdOptions& given = options.ssd;
  if (given.directories.empty()) return std::unique_ptr<ssd::SsdTier>();
  if (options.node_id.empty()) options.node_id = ssd::NodeIdOf(given.directories[0]);
  if (options.node_id.empty()) options.node_id = NewNodeId(options);
  std::vector<std::unique_ptr<ssd::Disk>> disks;
  for (const std::string& directory : given.directories) {
    ssd::FileDiskOptions disk;
    disk.directory = {directory, options.node_id, given.cluster, given.segment_bytes, given.start_empty};
    disk.capacity_bytes = given.bytes;
    disk.sync = given.sync;
    disk.io_uring = given.io_uring;
    disk.notify = [this] {
      if (OwnerThread* listener = disk_listener) listener->OnDisk();
    };
    Result<std::unique_ptr<ssd::Disk>> opened = ssd::OpenFileDisk(disk, &remarks);
    if (!opened.ok()) return opened.status();
    disks.push_back(std::move(opened).value());
  }
  ssd::TierOptions tier = given.tier;
  tier.seed = options.owner.seed;
  return std::make_unique<ssd::SsdTier>(tier, std::move(disks));
}

Status Node::Impl::AddTransport(const char* name, const std::string& address, std::string* bound) {
  for (const auto& transport : transports) {
    if (transport->name() != name) continue;
    const transport::Error error = transport->Listen(address, this, bound);
    return error.ok() ? Status::Ok() : FromTransport("cannot listen at " + address, error);
  }
  return {Code::kInternal, "no such transport"};
}

std::shared_ptr<transport::Handler> Node::Impl::OnAccept(
    const std::shared_ptr<transport::Connection>& connection) {
  if (!ready || stopped) return nullptr;
  if (owner->session_count() >= options.connections_max) {
    ++connections_refused;
    return nullptr;
  }
  auto session = std::make_shared<ClientSession>(next_session++, connection, shared);
  owner->Register(session, connection);
  return session;
}

void Node::Impl::Stop() {
  const std::lock_guard lock(stop_mutex);
  ready = false;
  if (stopped.exchange(true)) return;
  // No handler runs after this; every session has posted its Closed.
  for (const auto& transport : transports) transport->Shutdown();
  if (owner != nullptr) owner->Stop();
  if (background != nullptr) background->Stop();
}

Result<std::unique_ptr<Node>> Node::Start(const NodeOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  LARDER_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Node>(new Node(std::move(impl)));
}

Node::Node(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Node::~Node() {
  Stop();
}

uint64_t Node::table_epoch() const {
  const std::lock_guard lock(impl_->table_mutex);
  return impl_->table.epoch;
}

NodeInfo Node::info() const {
  NodeInfo out;
  out.record = impl_->record;
  {
    const std::lock_guard lock(impl_->table_mutex);
    out.table = impl_->table;
  }
  out.uptime_us = transport::NowUs() - impl_->started_us;
  out.draining = impl_->draining;
  out.ready = impl_->ready && !impl_->draining;
  for (const auto& transport : impl_->transports) out.transports.emplace_back(transport->name());
  out.huge_pages = impl_->slabs->huge_pages();
  out.prefaulted_bytes = impl_->slabs->prefaulted_bytes();
  out.remarks = impl_->remarks;
  out.connections_refused = impl_->connections_refused;
  out.hello_timeouts = impl_->shared->hello_timeouts;
  out.event_streams = impl_->event_streams.load();
  {
    const std::lock_guard lock(impl_->told_mutex);
    out.hand_over = impl_->hand_over;
    out.repair = impl_->repair;
    out.kv_events = impl_->kv_events;
  }
  return out;
}

Result<OwnerStats> Node::stats() const {
  OwnerStats out;
  if (!impl_->owner->Call([&](Owner& owner) { out = owner.stats(); })) return kStopped;
  return out;
}

Result<std::vector<ssd::DiskInfo>> Node::Disks() const {
  std::vector<ssd::DiskInfo> out;
  if (!impl_->owner->Call([&](Owner& owner) { out = owner.Disks(); })) return kStopped;
  return out;
}

std::vector<MoverStats> Node::mover_stats() const {
  std::vector<MoverStats> out;
  for (const auto& transport : impl_->transports) {
    out.push_back({std::string(transport->name()), transport->stats()});
  }
  return out;
}

Result<std::vector<NamespaceInfo>> Node::Namespaces() const {
  std::vector<NamespaceInfo> out;
  if (!impl_->owner->Call([&](Owner& owner) { out = owner.Namespaces(); })) return kStopped;
  return out;
}

Result<std::vector<TenantInfo>> Node::Tenants() const {
  std::vector<TenantInfo> out;
  if (!impl_->owner->Call([&](Owner& owner) { out = owner.Tenants(); })) return kStopped;
  return out;
}

Result<uint64_t> Node::Clear(const Namespace& name_space, uint64_t stamp_ms,
                             const std::function<bool()>& gone) {
  Result<uint64_t> out = kStopped;
  uint64_t durable = 0;
  stamp_ms = Clears::Bounded(stamp_ms != 0 ? stamp_ms : UnixMs(), UnixMs());
  impl_->owner->Call([&](Owner& owner) { out = owner.ClearNamespace(name_space, stamp_ms, &durable); });
  const auto end = std::chrono::steady_clock::now() + kDurableMax;
  auto pause = kDurablePoll;
  bool done = durable == 0;
  while (!done && impl_->owner->Call([&](Owner& owner) { done = owner.IsDurable(durable); }) && !done) {
    if ((gone && gone()) || std::chrono::steady_clock::now() > end) {
      return Status(
          Code::kTimedOut,
          "cleared here, but the disk or a node that got blocks of it has not confirmed yet: clear again");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kDurablePollMax);
  }
  return out;
}

Result<Clears> Node::clears() const {
  Result<Clears> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.clears(); });
  return out;
}

Result<size_t> Node::HearClears(const Clears& heard) {
  Result<size_t> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.HearClears(heard); });
  return out;
}

// A clear is no secret and no rule: what can't be read is heard anew from the others.
void Node::Impl::RestoreClears() {
  if (options.clears_path.empty()) return;
  std::ifstream in(options.clears_path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  Result<Clears> known = Clears::Parse(text);
  if (!known.ok()) known = Clears();
  owner->Call([&](Owner& state) { state.RestoreClears(std::move(known).value()); });
  owner->SetOnClears([this] { background->Post([this] { KeepClears(); }); });
}

// On the background's thread. A file that can't be written holds up no clear: it holds here, and the others
// know of it.
void Node::Impl::KeepClears() {
  std::optional<ClearsToKeep> keep;
  if (!owner->Call([&](Owner& state) { keep = state.TakeClears(); }) || !keep) return;
  const Status kept = ReplaceFile(options.clears_path, keep->clears.Text());
  {
    const std::lock_guard lock(told_mutex);
    clears_kept = kept;
  }
  owner->CallLater([token = keep->token](Owner& state) { state.ClearsKept(token); });
}

Result<std::vector<BlockStory>> Node::Explain(const Namespace& name_space,
                                              const std::vector<BlockAsked>& blocks) {
  Result<std::vector<BlockStory>> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.Explain(name_space, blocks); });
  return out;
}

Result<std::vector<uint8_t>> Node::Presences(const Namespace& name_space, std::span<const ChainHash> hashes,
                                             std::span<const uint16_t> groups) {
  std::vector<uint8_t> out;
  while (!hashes.empty()) {
    const auto some = hashes.first(std::min<size_t>(hashes.size(), kHashesOfStep));
    const bool ran = impl_->owner->Call([&](Owner& owner) {
      const std::vector<uint8_t> presence = owner.Presences(name_space, some, groups);
      out.insert(out.end(), presence.begin(), presence.end());
    });
    if (!ran) return kStopped;
    hashes = hashes.subspan(some.size());
  }
  return out;
}

Result<EventPage> Node::ReadEvents(EventCursor* cursor, std::string_view tenant) {
  Result<EventPage> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.ReadEvents(cursor, tenant); });
  return out;
}

Result<std::string> Node::IdentityOf(const Namespace& name_space) const {
  Result<std::string> out = kStopped;
  impl_->owner->Call([&](Owner& owner) { out = owner.IdentityOf(name_space); });
  return out;
}

std::vector<std::optional<std::vector<ChainHash>>> Node::ReadConstituents(
    const Namespace& name_space, std::span<const BlockAsked> blocks) const {
  std::vector<std::optional<ColdPlace>> places;
  impl_->owner->Call([&](Owner& owner) { places = owner.ColdPlaces(name_space, blocks); });
  std::vector<std::optional<std::vector<ChainHash>>> out(blocks.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) continue;
    auto header = ssd::ReadHead(impl_->options.ssd.directories[places[i]->disk], places[i]->record);
    if (header) out[i] = std::move(header->constituents);
  }
  return out;
}

void Node::SetKvEvents(const KvEventStats& stats) {
  const std::lock_guard lock(impl_->told_mutex);
  impl_->kv_events = stats;
}

void Node::SetEventStreams(uint32_t count) {
  impl_->event_streams.store(count);
}

Status Node::Impl::ChangeRules(const std::function<Result<Quarantine>(const Owner&)>& change) {
  const std::lock_guard lock(rules_mutex);
  Status status = kStopped;
  std::string text;
  owner->Call([&](Owner& state) {
    Result<Quarantine> changed = change(state);
    status = changed.status();
    if (!changed.ok()) return;
    text = changed.value().Text();
    state.SetQuarantine(std::move(changed).value());
  });
  if (!status.ok() || options.quarantine_path.empty()) return status;
  const Status kept = ReplaceFile(options.quarantine_path, text);
  if (kept.ok()) return kept;
  return {kept.code(), "in force now, but a restart will not know it: " + kept.text()};
}

Status Node::AddQuarantine(const Digest& writer, uint64_t since_ms, bool transitive) {
  const QuarantineRule rule{writer, since_ms, UnixMs(), writer};
  return impl_->ChangeRules([&](const Owner& owner) { return owner.WithRule(rule, transitive); });
}

Status Node::LiftQuarantine(const Digest& writer) {
  return impl_->ChangeRules([&](const Owner& owner) -> Result<Quarantine> {
    Quarantine rules = owner.quarantine();
    if (!rules.Lift(writer)) return Status(Code::kNotFound, "no rule for the writer " + ToHex(writer));
    return rules;
  });
}

Status Node::SetBypass(bool on) {
  return impl_->ChangeRules([&](const Owner& owner) -> Result<Quarantine> {
    Quarantine rules = owner.quarantine();
    rules.bypass = on;
    return rules;
  });
}

Result<QuarantineView> Node::ViewQuarantine() const {
  QuarantineView view;
  const bool ran = impl_->owner->Call([&](Owner& owner) {
    const std::vector<QuarantineRule>& rules = owner.quarantine().rules();
    std::vector<Readers> readers = owner.ReadersOf(rules);
    for (size_t i = 0; i < rules.size(); ++i) view.rules.push_back({rules[i], std::move(readers[i])});
    view.bypass = owner.quarantine().bypass;
    const OwnerStats stats = owner.stats();
    view.dropped = stats.quarantined;
    view.readers_forgotten = stats.readers_forgotten;
  });
  if (!ran) return kStopped;
  view.kept = !impl_->options.quarantine_path.empty();
  return view;
}

void Node::Accept() {
  if (!impl_->stopped) impl_->ready = true;
}

// Comes before the clients hear of the table.
void Node::Impl::FollowMoves(const NodeTable& before, const NodeTable& after) {
  if (!brings_home) return;
  // What was removed is only remembered for so long.
  const uint64_t now_us = transport::NowUs();
  if (now_us - moved_us > Homecoming::kRememberUs) moved = {};
  moved_us = now_us;
  moved = MovedSlots(moved, before, after, record.id);
  owner->Call([this](Owner& state) { state.SetMoved(moved, moved_us); });
}

// Nobody hears of a table before what it gives back is cleaned.
void Node::SetTable(const NodeTable& table) {
  const std::lock_guard follow(impl_->follow_mutex);
  const NodeTable after = TableWith(table, impl_->record);
  if (table.epoch <= table_epoch()) return;
  SlotSets held = PlaceTimes::Under(after, impl_->record.id);
  std::optional<PlaceTimes> places;
  impl_->owner->Call(
      [&](Owner& owner) { places = owner.FollowPlaces(std::move(held), transport::NowUs(), UnixMs()); });
  if (places) impl_->KeepPlaces(*places);
  NodeTable before;
  {
    const std::lock_guard lock(impl_->table_mutex);
    before = std::exchange(impl_->table, after);
  }
  const bool was_without = std::exchange(impl_->was_without, false);
  impl_->FollowMoves(was_without ? TableWithout(after, impl_->record.id) : before, after);
  impl_->owner->ForEachSession([](ClientSession& session) { session.PushTable(); });
}

void Node::LosePlaces() {
  const std::lock_guard follow(impl_->follow_mutex);
  impl_->was_without = true;
  std::optional<PlaceTimes> places;
  impl_->owner->Call([&](Owner& owner) { places = owner.LosePlaces(transport::NowUs(), UnixMs()); });
  if (places) impl_->KeepPlaces(*places);
}

Status Node::kept() const {
  const std::lock_guard lock(impl_->told_mutex);
  return impl_->places_kept.ok() ? impl_->clears_kept : impl_->places_kept;
}

void Node::Impl::KeepPlaces(const PlaceTimes& places) {
  if (options.places_path.empty()) return;
  const Status kept = ReplaceFile(options.places_path, places.Text());
  const std::lock_guard lock(told_mutex);
  places_kept = kept;
}

// What can't be read says that nothing is to be trusted.
void Node::Impl::RestorePlaces() {
  if (options.places_path.empty()) return;
  errno = 0;
  std::ifstream in(options.places_path, std::ios::binary);
  if (!in && errno == ENOENT) return;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::optional<PlaceTimes> places = PlaceTimes::Parse(text);
  owner->Call([&](Owner& state) {
    if (places) return state.RestorePlaces(std::move(*places), transport::NowUs(), UnixMs());
    (void)state.LosePlaces(transport::NowUs(), UnixMs());
  });
}

void Node::BeginDrain(bool save) {
  impl_->draining = true;
  impl_->owner->Call([save](Owner& owner) { owner.Drain(save); });
}

void Node::Drain(uint64_t budget_us) {
  BeginDrain();
  const uint64_t end_us = transport::NowUs() + budget_us;
  bool idle = false;
  while (impl_->owner->Call([&](Owner& owner) { idle = owner.Idle(); }) && !idle &&
         transport::NowUs() < end_us) {
    std::this_thread::sleep_for(kDrainPoll);
  }
}

void Node::Stop() {
  impl_->Stop();
}

}  // namespace larder::node
