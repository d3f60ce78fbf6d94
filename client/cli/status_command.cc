// larderctl status and ping.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/cluster.h"
#include "client/cli/hot_list.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

uint64_t Counter(const NodeView& view, const std::string& name) {
  const auto it = view.stats.counters().find(name);
  return it == view.stats.counters().end() ? 0 : it->second;
}

uint64_t Gauge(const NodeView& view, const std::string& name) {
  const auto it = view.stats.gauges().find(name);
  return it == view.stats.gauges().end() ? 0 : static_cast<uint64_t>(it->second);
}

// A node that slots have moved to, and what has come home to it.
void PrintHomecoming(const NodeView& view) {
  const uint64_t slots = Gauge(view, "larder_moved_slots");
  if (slots == 0) return;
  const auto answers = [&](const std::string& kind) {
    return Grouped(Counter(view, "larder_home_answers_total{kind=\"" + kind + "\"}"));
  };
  std::printf("%s: %s slots moved here; %s blocks (%s) came home, %s were not there, %s failed\n",
              view.record.id.c_str(), Grouped(slots).c_str(), answers("came").c_str(),
              PrettyBytes(static_cast<double>(Counter(view, "larder_home_bytes_total"))).c_str(),
              answers("not-there").c_str(), answers("failed").c_str());
}

void PrintRepair(const NodeView& view) {
  const uint64_t under = Gauge(view, "larder_under_replicated");
  if (under == 0) return;
  std::printf("%s: %s blocks have fewer copies than they ought to; %s restored so far\n",
              view.record.id.c_str(), Grouped(under).c_str(),
              Grouped(Counter(view, "larder_restored_total")).c_str());
}

std::string State(const NodeView& view) {
  if (view.record.state == NodeState::kAway)
    return "away";  // its place is taken; whether it answers is no matter
  if (!view.data_error.empty() && !view.control_error.empty()) return "unreachable";
  if (!view.data_error.empty()) return "no data port";
  if (!view.control_error.empty()) return "no control port";
  if (view.info.draining()) return "draining";
  return view.health == "SERVING" ? "serving" : "not serving";
}

ordered_json ToJson(const NodeView& view) {
  ordered_json out = {{"id", view.record.id},
                      {"state", State(view)},
                      {"data_address", view.record.data_address},
                      {"control_address", view.record.control_address},
                      {"http_address", view.record.http_address},
                      {"weight", view.record.weight},
                      {"zone", view.record.zone},
                      {"build", view.record.build}};
  if (view.data_error.empty()) {
    out["ping_us"] = view.ping_us;
    out["table_epoch"] = view.table.epoch;
    out["table_digest"] = ToHex(view.table.digest());
    out["table_nodes"] = view.table.nodes.size();
  } else {
    out["data_error"] = view.data_error;
  }
  if (!view.control_error.empty()) {
    out["control_error"] = view.control_error;
    return out;
  }
  const auto& memory = view.stats.memory();
  out["health"] = view.health;
  out["uptime_ms"] = view.info.uptime_ms();
  out["transports"] = std::vector<std::string>(view.info.transports().begin(), view.info.transports().end());
  out["memory"] = {{"capacity_bytes", memory.capacity_bytes()}, {"slab_bytes", memory.slab_bytes()},
                   {"slot_bytes", memory.slot_bytes()},         {"payload_bytes", memory.payload_bytes()},
                   {"pinned_bytes", memory.pinned_bytes()},     {"metadata_bytes", memory.metadata_bytes()}};
  if (view.stats.has_ssd()) {
    const auto& ssd = view.stats.ssd();
    ordered_json disks = ordered_json::array();
    for (const auto& disk : ssd.disks()) {
      disks.push_back({{"directory", disk.directory()},
                       {"engine", disk.engine()},
                       {"direct", disk.direct()},
                       {"error", disk.error()}});
    }
    out["ssd"] = {
        {"capacity_bytes", ssd.capacity_bytes()}, {"live_bytes", ssd.live_bytes()}, {"pieces", ssd.pieces()},
        {"disks_lost", ssd.disks_lost()},         {"loaded", ssd.loaded()},         {"disks", disks}};
  }
  out["pieces"] = view.stats.pieces();
  out["writing"] = view.stats.writing();
  out["namespaces"] = view.stats.namespaces();
  out["connections"] = view.stats.connections();
  out["waits"] = view.stats.waits();
  out["hot"] = HotJson(view);
  out["counters"] =
      std::map<std::string, uint64_t>(view.stats.counters().begin(), view.stats.counters().end());
  return out;
}

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  char text[16];
  std::snprintf(text, sizeof text, "%.1f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

int ShowStatus(const Globals& globals) {
  const std::vector<NodeView> views = LookAtCluster(globals);
  const bool well =
      std::all_of(views.begin(), views.end(), [](const NodeView& view) { return State(view) == "serving"; });
  if (globals.json()) {
    ordered_json nodes = ordered_json::array();
    for (const NodeView& view : views) nodes.push_back(ToJson(view));
    std::printf("%s\n", ordered_json{{"well", well}, {"nodes", nodes}}.dump().c_str());
    return well ? kExitOk : kExitFailed;
  }
  TextTable table;
  table.Row({"NODE", "STATE", "DATA", "PING", "UP", "MEMORY", "PAYLOAD", "BLOCKS", "SSD", "ON SSD",
             "GETS HIT", "OF SSD", "CONNECTIONS", "VIA", "BUILD"});
  const auto bytes = [](uint64_t value) { return PrettyBytes(static_cast<double>(value)); };
  for (const NodeView& view : views) {
    std::vector<std::string> row = {view.record.id, State(view), view.record.data_address,
                                    view.data_error.empty() ? PrettyUs(view.ping_us) : "-"};
    if (view.control_error.empty()) {
      const auto& memory = view.stats.memory();
      std::string via;
      for (const std::string& name : view.info.transports()) via += (via.empty() ? "" : ",") + name;
      row.insert(row.end(),
                 {PrettyAge(view.info.uptime_ms()), bytes(memory.capacity_bytes()),
                  bytes(memory.payload_bytes()), Grouped(view.stats.pieces()),
                  view.stats.has_ssd() ? bytes(view.stats.ssd().capacity_bytes()) : "-",
                  view.stats.has_ssd() ? Grouped(view.stats.ssd().pieces()) : "-",
                  Percent(Counter(view, "larder_get_hits_total"), Counter(view, "larder_get_blocks_total")),
                  Percent(Counter(view, "larder_ssd_hits_total"), Counter(view, "larder_get_blocks_total")),
                  std::to_string(view.stats.connections()), via, view.record.build});
    }
    table.Row(std::move(row));
  }
  std::fputs(table.Text().c_str(), stdout);
  for (const NodeView& view : views) {
    PrintHomecoming(view);
    PrintRepair(view);
    std::fputs(HotText(view).c_str(), stdout);
    if (!view.data_error.empty())
      std::printf("%s, data: %s\n", view.record.id.c_str(), view.data_error.c_str());
    for (const auto& disk : view.stats.ssd().disks()) {
      if (!disk.error().empty()) {
        std::printf("%s, ssd: %s\n", view.record.id.c_str(), disk.error().c_str());
      }
    }
    if (!view.control_error.empty())
      std::printf("%s, control: %s\n", view.record.id.c_str(), view.control_error.c_str());
  }
  if (!well) std::printf("larderctl doctor says more\n");
  return well ? kExitOk : kExitFailed;
}

int Ping(const Globals& globals, uint32_t count) {
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  bool well = true;
  ordered_json nodes = ordered_json::array();
  TextTable table;
  table.Row({"NODE", "DATA", "ANSWERED", "MIN", "MEDIAN", "MAX"});
  for (const NodeRecord& record : client.value()->table().nodes) {
    std::vector<uint64_t> times;
    std::string error;
    for (uint32_t i = 0; i < count; i++) {
      const Result<uint64_t> time = client.value()->Ping(record.id, {globals.timeout_us});
      if (time.ok())
        times.push_back(time.value());
      else
        error = time.status().text();
    }
    std::sort(times.begin(), times.end());
    well = well && times.size() == count;
    ordered_json node = {{"id", record.id},
                         {"data_address", record.data_address},
                         {"sent", count},
                         {"answered", times.size()}};
    if (!times.empty())
      node.update(
          {{"min_us", times.front()}, {"median_us", times[times.size() / 2]}, {"max_us", times.back()}});
    if (!error.empty()) node["error"] = error;
    nodes.push_back(node);
    table.Row({record.id, record.data_address, std::to_string(times.size()) + "/" + std::to_string(count),
               times.empty() ? "-" : PrettyUs(times.front()),
               times.empty() ? "-" : PrettyUs(times[times.size() / 2]),
               times.empty() ? error : PrettyUs(times.back())});
  }
  if (globals.json())
    std::printf("%s\n", ordered_json{{"well", well}, {"nodes", nodes}}.dump().c_str());
  else
    std::fputs(table.Text().c_str(), stdout);
  return well ? kExitOk : kExitFailed;
}

}  // namespace

void AddStatus(CLI::App* app, Run* run) {
  app->add_subcommand("status", "every node: state, memory, hits")->callback([run] { *run = ShowStatus; });
  CLI::App* ping = app->add_subcommand("ping", "round trips to every node over the data plane");
  auto count = std::make_shared<uint32_t>(5);
  ping->add_option("-c,--count", *count, "round trips to each")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  ping->callback([run, count] { *run = [count](const Globals& globals) { return Ping(globals, *count); }; });
}

}  // namespace larder::cli
