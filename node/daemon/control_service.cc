#include "node/daemon/control_service.h"

#include <grpcpp/ext/health_check_service_server_builder_option.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

#include "node/cluster/cluster_match.h"
#include "node/daemon/config.h"
#include "node/daemon/metrics.h"
#include "node/events/event_streams.h"
#include "proto/control.grpc.pb.h"

namespace larder::node {
namespace {

namespace api = larder::control::v1;

constexpr int kThreadsMax = 32;  // calls at a time; each is short
constexpr size_t kQuotaBytes = 64 << 20;
constexpr int kRequestBytesMax = 640 * 1024;  // a match of 16,384 hashes
constexpr int kHandshakeMs = 5'000;           // for a stranger to begin HTTP/2
constexpr int kIdleMs = 300'000;              // without a call; clients connect again by themselves

grpc::Status FromStatus(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return grpc::Status::OK;
    case Code::kInvalid:
      return {grpc::StatusCode::INVALID_ARGUMENT, status.text()};
    case Code::kNotFound:
      return {grpc::StatusCode::NOT_FOUND, status.text()};
    case Code::kUnavailable:
      return {grpc::StatusCode::UNAVAILABLE, status.text()};
    case Code::kBusy:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, status.text()};
    default:
      return {grpc::StatusCode::INTERNAL, status.ToString()};
  }
}

uint64_t UnixMs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

void Fill(const NodeRecord& record, api::Node* out) {
  out->set_id(record.id);
  out->set_incarnation(record.incarnation);
  out->set_data_address(record.data_address);
  out->set_control_address(record.control_address);
  out->set_http_address(record.http_address);
  out->set_host_id(record.host_id);
  out->set_shm_path(record.shm_path);
  out->set_ucx_address(record.ucx_address);
  out->set_weight(record.weight);
  out->set_zone(record.zone);
  out->set_state(static_cast<api::Node::State>(record.state));
  out->set_wire_version_min(record.wire_min);
  out->set_wire_version_max(record.wire_max);
  out->set_build(record.build);
}

void Fill(const TenantInfo& tenant, api::TenantInfo* out) {
  out->set_name(tenant.limits.name);
  out->set_namespaces(tenant.namespaces);
  out->set_used_bytes(tenant.used_bytes);
  if (tenant.limits.quota_bytes != TenantLimits::kNoQuota) out->set_quota_bytes(tenant.limits.quota_bytes);
  out->set_pinned_bytes(tenant.pinned_bytes);
  out->set_pinned_max_bytes(tenant.pinned_bytes_max);
  out->set_ttl_ms(tenant.limits.ttl_us / 1000);
  out->set_ssd_bytes(tenant.ssd_bytes);
  if (tenant.limits.ssd_quota_bytes != TenantLimits::kNoQuota) {
    out->set_ssd_quota_bytes(tenant.limits.ssd_quota_bytes);
  }
}

void Fill(const BlockStory& story, api::ExplainResponse::Block* out) {
  out->set_presence(std::string(PresenceName(story.presence)));
  out->set_left_unix_ms(uint64_t{story.left_s} * 1000);
  for (const PieceStory& each : story.pieces) {
    api::ExplainResponse::Piece* piece = out->add_pieces();
    piece->set_tier(std::string(PresenceName(each.tier)));
    piece->set_layer_begin(each.rectangle.layer_begin);
    piece->set_layer_end(each.rectangle.layer_end);
    piece->set_head_begin(each.rectangle.head_begin);
    piece->set_head_end(each.rectangle.head_end);
    piece->set_payload_bytes(each.payload_bytes);
    piece->set_created_unix_ms(each.created_ms);
    if (each.tier == Presence::kRam) piece->set_writer(ToHex(each.writer));
    piece->set_pinned(each.pinned);
  }
}

void Fill(const QuarantineView& view, api::QuarantineState* out) {
  for (const QuarantineView::Rule& each : view.rules) {
    api::QuarantineState::Rule* rule = out->add_rules();
    rule->set_writer(ToHex(each.rule.writer));
    rule->set_since_unix_ms(each.rule.since_ms);
    rule->set_set_unix_ms(each.rule.set_ms);
    rule->set_because(ToHex(each.rule.because));
    for (const auto& [credential, note] : each.readers) {
      api::QuarantineState::Reader* reader = rule->add_readers();
      reader->set_credential(ToHex(credential));
      reader->set_first_unix_ms(note.first_ms);
      reader->set_blocks(note.blocks);
    }
  }
  out->set_bypass(view.bypass);
  out->set_dropped_pieces(view.dropped);
  out->set_readers_forgotten(view.readers_forgotten);
  out->set_kept(view.kept);
}

void Fill(const HandOverProgress& progress, api::HandOver* out) {
  out->set_blocks(progress.blocks);
  out->set_bytes(progress.bytes);
  out->set_handed_blocks(progress.handed_blocks);
  out->set_handed_bytes(progress.handed_bytes);
  out->set_gone_blocks(progress.gone_blocks);
  out->set_stays_blocks(progress.stays_blocks);
  out->set_left_blocks(progress.left_blocks());
  out->set_ended(progress.ended);
  out->set_reason(progress.reason);
}

// Takes as long for a wrong token as for a right one.
bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); i++) {
    differs |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return differs == 0;
}

class Service final : public api::Control::Service {
 public:
  explicit Service(const std::vector<Credential>& credentials) : credentials_(credentials) {}

  void SetNode(Node* node) { node_.store(node); }
  bool end_told() const { return end_told_; }
  void SetDrain(std::function<void()> drain, uint64_t budget_us) {
    drain_ = std::move(drain);
    drain_budget_us_ = budget_us;
  }

  void SetExchange(ControlService::Exchange exchange) {
    const std::lock_guard lock(exchange_mutex_);
    exchange_ = std::move(exchange);
  }

  grpc::Status Exchange(grpc::ServerContext* context, const api::ExchangeRequest* in,
                        api::ExchangeResponse* out) override {
    if (const grpc::Status status = OperatorOnly(*context); !status.ok()) return status;
    ControlService::Exchange exchange;
    {
      const std::lock_guard lock(exchange_mutex_);
      exchange = exchange_;
    }
    if (!exchange) return Starting();
    const Status status = exchange(*in, out);
    if (status.code() == Code::kUnsupported) {
      return {grpc::StatusCode::FAILED_PRECONDITION, status.text()};
    }
    return FromStatus(status);
  }

  grpc::Status GetInfo(grpc::ServerContext*, const api::GetInfoRequest*, api::GetInfoResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const NodeInfo info = node->info();
    Fill(info.record, out->mutable_self());
    out->set_uptime_ms(info.uptime_us / 1000);
    out->set_started_unix_ms(UnixMs() - info.uptime_us / 1000);
    api::Table* table = out->mutable_table();
    table->set_epoch(info.table.epoch);
    table->set_digest(ToHex(info.table.digest()));
    table->set_algorithm(info.table.algorithm);
    for (const NodeRecord& record : info.table.nodes) Fill(record, table->add_nodes());
    out->set_draining(info.draining);
    for (const std::string& name : info.transports) out->add_transports(name);
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    out->set_host_name(host);
    out->set_process_id(static_cast<uint32_t>(getpid()));
    if (info.hand_over.begun) Fill(info.hand_over, out->mutable_hand_over());
    if (info.hand_over.ended) end_told_.store(true);
    return grpc::Status::OK;
  }

  grpc::Status Stats(grpc::ServerContext* context, const api::StatsRequest*,
                     api::StatsResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const Result<OwnerStats> stats = node->stats();
    if (!stats.ok()) return FromStatus(stats.status());
    MetricsInput input{stats.value(), node->mover_stats(), node->info(), ReadProcessUsage()};
    api::Memory* memory = out->mutable_memory();
    memory->set_capacity_bytes(stats->memory_bytes);
    memory->set_ready_bytes(input.info.prefaulted_bytes);
    memory->set_slab_bytes(stats->slab_bytes);
    memory->set_slot_bytes(stats->slot_bytes);
    memory->set_payload_bytes(stats->payload_bytes);
    memory->set_pinned_bytes(stats->soft_pinned_bytes);
    memory->set_metadata_bytes(stats->metadata_bytes);
    if (stats->has_ssd) FillSsd(node, stats->ssd, out->mutable_ssd());
    out->set_pieces(stats->pieces);
    out->set_writing(stats->tickets);
    out->set_namespaces(stats->namespaces);
    out->set_connections(stats->sessions);
    out->set_waits(stats->waits_open);
    const Access access = AccessOf(*context);
    if (access.allowed && access.tenant.empty()) FillHot(node->HotList(), out);
    for (const auto& family : Collect(input)) {
      for (const auto& metric : family.metric) {
        const std::string name = FlatName(family, metric);
        if (family.type == prometheus::MetricType::Counter) {
          (*out->mutable_counters())[name] = static_cast<uint64_t>(metric.counter.value);
        } else {
          (*out->mutable_gauges())[name] = static_cast<int64_t>(metric.gauge.value);
        }
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status Namespaces(grpc::ServerContext* context, const api::NamespacesRequest*,
                          api::NamespacesResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const Access access = AccessOf(*context);
    if (!access.allowed) return Denied();
    Result<std::vector<NamespaceInfo>> list = node->Namespaces();
    if (!list.ok()) return FromStatus(list.status());
    std::vector<NamespaceInfo> sorted = std::move(list).value();
    std::sort(sorted.begin(), sorted.end(),
              [](const NamespaceInfo& a, const NamespaceInfo& b) { return a.name_space < b.name_space; });
    for (const NamespaceInfo& each : sorted) {
      if (!access.MaySee(each.tenant)) continue;
      api::NamespaceInfo* info = out->add_namespaces();
      info->set_hex(ToHex(each.name_space.bytes));
      info->set_tenant(each.tenant);
      info->set_identity(each.identity);
      info->set_blocks(each.blocks);
      info->set_payload_bytes(each.bytes);
      info->set_clear_epoch(each.clear_epoch);
    }
    Result<std::vector<TenantInfo>> tenants = node->Tenants();
    if (!tenants.ok()) return FromStatus(tenants.status());
    for (const TenantInfo& each : tenants.value()) {
      if (access.MaySee(each.limits.name)) Fill(each, out->add_tenants());
    }
    return grpc::Status::OK;
  }

  grpc::Status Clear(grpc::ServerContext* context, const api::ClearRequest* in,
                     api::ClearResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    Namespace name_space;
    if (Status status = FromHex(in->hex(), &name_space.bytes); !status.ok()) return FromStatus(status);
    const Access access = AccessOf(*context);
    if (!access.allowed) return Denied();
    // A tenant hears of another's namespace what it hears of one that is not there.
    if (!access.tenant.empty()) {
      const Result<NamespaceInfo> info = Find(node, name_space);
      if (!info.ok()) return FromStatus(info.status());
      if (!access.MaySee(info->tenant)) return FromStatus(NotThere());
    }
    const Result<uint64_t> removed =
        node->Clear(name_space, in->stamp_unix_ms(), [context] { return context->IsCancelled(); });
    if (!removed.ok()) return FromStatus(removed.status());
    out->set_removed_blocks(removed.value());
    const Result<NamespaceInfo> info = Find(node, name_space);
    if (info.ok()) out->set_clear_epoch(info->clear_epoch);
    return grpc::Status::OK;
  }

  grpc::Status Explain(grpc::ServerContext* context, const api::ExplainRequest* in,
                       api::ExplainResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const Access access = AccessOf(*context);
    if (!access.allowed) return Denied();
    Namespace name_space;
    if (Status status = FromHex(in->hex(), &name_space.bytes); !status.ok()) return FromStatus(status);
    if (in->blocks_size() > static_cast<int>(kBlocksMax)) {
      return FromStatus(Invalid("at most " + std::to_string(kBlocksMax) + " blocks a question"));
    }
    if (!access.tenant.empty()) {
      const Result<NamespaceInfo> info = Find(node, name_space);
      if (!info.ok() || !access.MaySee(info->tenant)) return FromStatus(NotThere());
    }
    std::vector<BlockAsked> asked;
    for (const auto& each : in->blocks()) {
      BlockAsked& block = asked.emplace_back();
      if (each.hash().size() != block.hash.bytes.size() || each.group() > UINT16_MAX) {
        return FromStatus(Invalid("a hash has 32 bytes, a group two"));
      }
      std::memcpy(block.hash.bytes.data(), each.hash().data(), block.hash.bytes.size());
      block.group = static_cast<uint16_t>(each.group());
    }
    const Result<std::vector<BlockStory>> stories = node->Explain(name_space, asked);
    if (!stories.ok()) return FromStatus(stories.status());
    for (const BlockStory& story : stories.value()) Fill(story, out->add_blocks());
    out->set_remembers_since_unix_ms(UnixMs() - node->info().uptime_us / 1000);
    return grpc::Status::OK;
  }

  grpc::Status Match(grpc::ServerContext* context, const api::MatchRequest* in,
                     api::MatchResponse* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const Access access = AccessOf(*context);
    if (!access.allowed) return Denied();
    const Result<RouterMatch> match = RouterMatch::Of(*in);
    if (!match.ok()) return FromStatus(match.status());
    if (!access.tenant.empty()) {
      // One that is not here may be elsewhere; each home looks for itself.
      const Result<NamespaceInfo> info = Find(node, match->name_space);
      if (info.ok() && !access.MaySee(info->tenant)) return FromStatus(NotThere());
    }
    if (in->local()) return FromStatus(ClusterMatch::AnswerLocally(node, match.value(), out));
    const auto end = std::chrono::system_clock::now() + std::chrono::microseconds(match->timeout_us);
    return FromStatus(
        cluster_match_.Answer(node, match.value(), access.token, std::min(end, context->deadline()), out));
  }

  grpc::Status Events(grpc::ServerContext* context, const api::EventsRequest* in,
                      grpc::ServerWriter<api::EventsResponse>* out) override {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    const Access access = AccessOf(*context);
    return access.allowed ? event_streams_.Serve(node, access.tenant, context, *in, out) : Denied();
  }

  grpc::Status GetQuarantine(grpc::ServerContext* context, const api::GetQuarantineRequest* in,
                             api::QuarantineState* out) override {
    return Operate(*context, out, [&](Node& node) {
      if (!in->with_clears()) return Status::Ok();
      const Result<Clears> clears = node.clears();
      if (!clears.ok()) return clears.status();
      for (const auto& [name_space, stamp_ms] : clears->stamps()) {
        api::QuarantineState::Cleared* cleared = out->add_cleared();
        cleared->set_name_space(name_space.bytes.data(), name_space.bytes.size());
        cleared->set_stamp_unix_ms(stamp_ms);
      }
      out->set_clears_forgotten_unix_ms(clears->forgotten_ms());
      return Status::Ok();
    });
  }

  grpc::Status AddQuarantine(grpc::ServerContext* context, const api::AddQuarantineRequest* in,
                             api::QuarantineState* out) override {
    return Operate(*context, out, [&](Node& node) {
      Digest writer;
      LARDER_RETURN_IF_ERROR(FromHex(in->writer(), &writer));
      return node.AddQuarantine(writer, in->since_unix_ms(), in->transitive());
    });
  }

  grpc::Status LiftQuarantine(grpc::ServerContext* context, const api::LiftQuarantineRequest* in,
                              api::QuarantineState* out) override {
    return Operate(*context, out, [&](Node& node) {
      Digest writer;
      LARDER_RETURN_IF_ERROR(FromHex(in->writer(), &writer));
      return node.LiftQuarantine(writer);
    });
  }

  grpc::Status SetBypass(grpc::ServerContext* context, const api::SetBypassRequest* in,
                         api::QuarantineState* out) override {
    return Operate(*context, out, [&](Node& node) { return node.SetBypass(in->on()); });
  }

  grpc::Status Drain(grpc::ServerContext* context, const api::DrainRequest*,
                     api::DrainResponse* out) override {
    if (node_.load() == nullptr) return Starting();
    if (const grpc::Status status = OperatorOnly(*context); !status.ok()) return status;
    if (!drain_) return {grpc::StatusCode::UNIMPLEMENTED, "this process does not drain on demand"};
    drain_();
    out->set_budget_ms(drain_budget_us_ / 1000);
    return grpc::Status::OK;
  }

 private:
  grpc::Status OperatorOnly(const grpc::ServerContext& context) {
    const Access access = AccessOf(context);
    if (!access.allowed) return Denied();
    if (access.tenant.empty()) return grpc::Status::OK;
    return {grpc::StatusCode::PERMISSION_DENIED, "a tenant's credential may not do this; use an operator's"};
  }

  // What only operators may do to the rules; the state afterwards is the answer.
  template <typename Work>
  grpc::Status Operate(const grpc::ServerContext& context, api::QuarantineState* out, const Work& work) {
    Node* node = node_.load();
    if (node == nullptr) return Starting();
    if (const grpc::Status status = OperatorOnly(context); !status.ok()) return status;
    if (const Status status = work(*node); !status.ok()) return FromStatus(status);
    const Result<QuarantineView> view = node->ViewQuarantine();
    if (!view.ok()) return FromStatus(view.status());
    Fill(view.value(), out);
    return grpc::Status::OK;
  }

  static void FillHot(const std::vector<HotInfo>& list, api::StatsResponse* out) {
    for (const HotInfo& each : list) {
      api::HotBlock* block = out->add_hot();
      block->set_hex(ToHex(each.name_space.bytes));
      block->set_hash(each.hash.bytes.data(), each.hash.bytes.size());
      block->set_group(each.group);
      block->set_reads(each.reads);
      block->set_copies(each.copies);
    }
  }

  static void FillSsd(Node* node, const ssd::TierStats& stats, api::Ssd* out) {
    out->set_capacity_bytes(stats.capacity_bytes);
    out->set_live_bytes(stats.live_bytes);
    out->set_pieces(stats.pieces);
    out->set_disks_lost(stats.disks_lost);
    out->set_loaded(stats.loaded);
    const Result<std::vector<ssd::DiskInfo>> disks = node->Disks();
    if (!disks.ok()) return;
    for (const ssd::DiskInfo& info : disks.value()) {
      api::Disk* disk = out->add_disks();
      disk->set_directory(info.directory);
      disk->set_engine(info.engine);
      disk->set_direct(info.direct);
      disk->set_error(info.error);
    }
  }

  struct Access {
    bool allowed = true;
    std::string tenant;  // the only one; empty: all
    std::string token;   // it came with
    bool MaySee(const std::string& name) const { return tenant.empty() || tenant == name; }
  };

  Access AccessOf(const grpc::ServerContext& context) const {
    if (credentials_.empty()) return {};
    const auto given = context.client_metadata().find("authorization");
    constexpr std::string_view kScheme = "Bearer ";
    if (given != context.client_metadata().end()) {
      const std::string_view text(given->second.data(), given->second.size());
      for (const Credential& each : credentials_) {
        if (text.starts_with(kScheme) && SameSecret(text.substr(kScheme.size()), each.token))
          return {true, each.tenant, each.token};
      }
    }
    return {false, "", ""};
  }

  static Status NotThere() { return {Code::kNotFound, "no such namespace"}; }
  static Result<NamespaceInfo> Find(const Node* node, const Namespace& name_space) {
    const Result<std::vector<NamespaceInfo>> list = node->Namespaces();
    if (!list.ok()) return list.status();
    for (const NamespaceInfo& each : list.value()) {
      if (each.name_space == name_space) return each;
    }
    return NotThere();
  }

  static grpc::Status Denied() {
    return {grpc::StatusCode::UNAUTHENTICATED, "it wants a credential: --token"};
  }
  static grpc::Status Starting() { return {grpc::StatusCode::UNAVAILABLE, "the node is starting"}; }
  const std::vector<Credential> credentials_;
  ClusterMatch cluster_match_;
  EventStreams event_streams_;
  std::mutex exchange_mutex_;
  ControlService::Exchange exchange_;
  std::function<void()> drain_;  // set before node_, never after
  uint64_t drain_budget_us_ = 0;
  std::atomic<bool> end_told_{false};  // of a hand-over
  std::atomic<Node*> node_{nullptr};
};

}  // namespace

struct ControlService::Impl {
  explicit Impl(const std::vector<Credential>& credentials) : service(credentials) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
};

Result<std::unique_ptr<ControlService>> ControlService::Start(const std::string& listen,
                                                              const std::vector<Credential>& credentials) {
  const Result<HostPort> address = ParseHostPort(listen);
  if (!address.ok()) return address.status();
  auto impl = std::make_unique<Impl>(credentials);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ResourceQuota quota("larder-control");
  quota.Resize(kQuotaBytes).SetMaxThreads(kThreadsMax + 2);  // pollers beside the handlers
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second node on a port must fail, not share it
  // Each connection is a descriptor of the process that serves blocks: silent ones don't stay.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  builder.RegisterService(&impl->service);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || port == 0) return Invalid("cannot listen at " + listen);
  if (auto* health = impl->server->GetHealthCheckService()) health->SetServingStatus(false);
  std::string bound = JoinHostPort(address->host, static_cast<uint16_t>(port));
  return std::unique_ptr<ControlService>(new ControlService(std::move(impl), std::move(bound)));
}

ControlService::ControlService(std::unique_ptr<Impl> impl, std::string address)
    : impl_(std::move(impl)), address_(std::move(address)) {}

ControlService::~ControlService() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
}

void ControlService::SetNode(Node* node) {
  impl_->service.SetNode(node);
}

bool ControlService::hand_over_end_told() const {
  return impl_->service.end_told();
}

void ControlService::SetExchange(Exchange exchange) {
  impl_->service.SetExchange(std::move(exchange));
}

void ControlService::SetDrain(std::function<void()> drain, uint64_t budget_us) {
  impl_->service.SetDrain(std::move(drain), budget_us);
}

void ControlService::SetServing(bool serving) {
  auto* health = impl_->server->GetHealthCheckService();
  if (health == nullptr) return;
  health->SetServingStatus(serving);
  health->SetServingStatus(api::Control::service_full_name(), serving);
}

}  // namespace larder::node
