#include "node/daemon/endpoints.h"

#include <nlohmann/json.hpp>

#include "node/daemon/metrics.h"
#include "node/version.h"

namespace larder::node {
namespace {

bool Ready(const NodeInfo& info, bool stopping) {
  return info.ready && !info.draining && !stopping;
}

}  // namespace

void Endpoints::SetNode(const Node* node) {
  const std::lock_guard lock(mutex_);
  state_.node = node;
}

void Endpoints::SetCluster(const ClusterLink* cluster) {
  const std::lock_guard lock(mutex_);
  state_.cluster = cluster;
}

void Endpoints::SetStopping() {
  const std::lock_guard lock(mutex_);
  state_.stopping = true;
}

Endpoints::State Endpoints::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

HttpResponse Endpoints::Handle(std::string_view path) const {
  const State now = state();
  HttpResponse out;
  if (path == "/metrics") return Metrics(now);
  if (path == "/healthz") return Health(now);
  if (path == "/livez") {
    // While it stops the owner may be gone already; that is no reason to kill the process.
    const bool alive = now.node == nullptr || now.stopping || now.node->stats().ok();
    out.status = alive ? 200 : 503;
    out.body = alive ? "alive\n" : "the owner's thread has stopped\n";
  } else if (path == "/readyz") {
    const bool ready = now.node != nullptr && Ready(now.node->info(), now.stopping);
    out.status = ready ? 200 : 503;
    out.body = ready ? "ready\n" : now.node == nullptr ? "starting\n" : "stopping\n";
  } else if (path == "/") {
    out.body = VersionText() +
               "\n/metrics  for Prometheus\n/livez  /readyz  for probes\n/healthz  what holds, as JSON\n";
  } else {
    out.status = 404;
    out.body = "there are /metrics, /livez, /readyz and /healthz\n";
  }
  return out;
}

HttpResponse Endpoints::Health(const State& now) const {
  nlohmann::ordered_json body;
  bool well = false;
  if (now.node == nullptr) {
    body = {{"status", "starting"}, {"version", LARDER_VERSION}};
  } else {
    const NodeInfo info = now.node->info();
    const Result<OwnerStats> stats = now.node->stats();
    well = Ready(info, now.stopping) && stats.ok();
    const char* status = !stats.ok() ? "owner stopped" : well ? "ok" : "stopping";
    body = {{"status", status},
            {"version", LARDER_VERSION},
            {"node", info.record.id},
            {"uptime_seconds", info.uptime_us / 1'000'000},
            {"transports", info.transports},
            {"huge_pages", info.huge_pages},
            {"table_epoch", info.table.epoch},
            {"table_nodes", info.table.nodes.size()}};
    if (const auto cluster = now.cluster == nullptr ? std::nullopt : now.cluster->status()) {
      body["membership"] = {{"kind", cluster->kind},
                            {"connected", cluster->connected},
                            {"error", cluster->error},
                            {"epoch", cluster->epoch},
                            {"members", cluster->members},
                            {"live", cluster->live},
                            {"keep_error", now.cluster->keep_error()}};
    }
    if (stats.ok()) {
      body["memory_bytes"] = stats->memory_bytes;
      body["payload_bytes"] = stats->payload_bytes;
      body["sessions"] = stats->sessions;
      body["tickets"] = stats->tickets;
      body["waits_open"] = stats->waits_open;
    }
  }
  return {well ? 200 : 503, "application/json", body.dump() + "\n"};
}

HttpResponse Endpoints::Metrics(const State& now) const {
  MetricsInput input;
  input.process = ReadProcessUsage();
  if (now.node != nullptr) {
    input.info = now.node->info();
    input.movers = now.node->mover_stats();
    if (now.cluster != nullptr) input.membership = now.cluster->status();
    const Result<OwnerStats> stats = now.node->stats();
    if (stats.ok()) input.owner = stats.value();
    input.info.draining |= now.stopping;
  }
  return {200, std::string(kMetricsContentType), MetricsText(input)};
}

}  // namespace larder::node
