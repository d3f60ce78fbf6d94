// larderctl namespaces and clear.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "client/cli/cluster.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

struct Sum {
  std::string tenant, identity;
  uint64_t blocks = 0, bytes = 0;
  uint32_t clear_epoch = 0;
  std::vector<std::string> nodes;  // control addresses
};

// Of a tenant over all nodes; a quota is each node's.
struct TenantSum {
  uint64_t used_bytes = 0, quota_bytes = 0, pinned_bytes = 0, pinned_max_bytes = 0, ttl_ms = 0;
  uint64_t ssd_bytes = 0, ssd_quota_bytes = 0;
  bool limited = false, ssd_limited = false;  // has a quota on some node
  size_t nodes = 0;
};

struct Listed {
  std::map<std::string, Sum> spaces;         // by hex
  std::map<std::string, TenantSum> tenants;  // by name
};

void Add(const control::v1::TenantInfo& info, TenantSum* sum) {
  sum->used_bytes += info.used_bytes();
  sum->quota_bytes += info.quota_bytes();
  sum->limited = sum->limited || info.has_quota_bytes();
  sum->pinned_bytes += info.pinned_bytes();
  sum->pinned_max_bytes += info.pinned_max_bytes();
  sum->ttl_ms = std::max(sum->ttl_ms, info.ttl_ms());
  sum->ssd_bytes += info.ssd_bytes();
  sum->ssd_quota_bytes += info.ssd_quota_bytes();
  sum->ssd_limited = sum->ssd_limited || info.has_ssd_quota_bytes();
  ++sum->nodes;
}

// Of all nodes. `failed`: what did not answer, one text each.
Listed Collect(const Globals& globals, std::vector<std::string>* failed) {
  Listed out;
  for (const NodeView& view : LookAtCluster(globals)) {
    control::v1::NamespacesResponse list;
    Status status(Code::kUnavailable, view.control_error);
    if (view.control_error.empty()) status = AskNamespaces(view.record.control_address, globals, &list);
    if (!status.ok()) {
      failed->push_back(view.record.id + ": " + status.text());
      continue;
    }
    for (const auto& each : list.namespaces()) {
      Sum& sum = out.spaces[each.hex()];
      sum.tenant = each.tenant();
      sum.identity = each.identity();
      sum.blocks += each.blocks();
      sum.bytes += each.payload_bytes();
      sum.clear_epoch = std::max(sum.clear_epoch, each.clear_epoch());
      sum.nodes.push_back(view.record.control_address);
    }
    for (const auto& each : list.tenants()) Add(each, &out.tenants[each.name()]);
  }
  return out;
}

std::string OneLine(std::string identity) {
  for (char& c : identity) {
    if (c == '\n') c = ' ';
  }
  return identity;
}

int Report(const std::vector<std::string>& failed) {
  for (const std::string& each : failed) std::fprintf(stderr, "larderctl: no answer from %s\n", each.c_str());
  return failed.empty() ? kExitOk : kExitFailed;
}

ordered_json ToJson(const std::map<std::string, TenantSum>& tenants) {
  ordered_json list = ordered_json::array();
  for (const auto& [name, sum] : tenants) {
    ordered_json& tenant = list.emplace_back();
    tenant = {{"tenant", name}, {"used_bytes", sum.used_bytes}};
    if (sum.limited) tenant["quota_bytes"] = sum.quota_bytes;
    tenant["pinned_bytes"] = sum.pinned_bytes;
    tenant["pinned_max_bytes"] = sum.pinned_max_bytes;
    if (sum.ttl_ms != 0) tenant["ttl_ms"] = sum.ttl_ms;
    tenant["ssd_bytes"] = sum.ssd_bytes;
    if (sum.ssd_limited) tenant["ssd_quota_bytes"] = sum.ssd_quota_bytes;
    tenant["nodes"] = sum.nodes;
  }
  return list;
}

std::string TableOf(const std::map<std::string, TenantSum>& tenants) {
  const auto bytes = [](uint64_t value) { return PrettyBytes(static_cast<double>(value)); };
  TextTable table;
  table.Row({"TENANT", "IN MEMORY", "QUOTA", "PINNED", "OF AT MOST", "ON SSD", "QUOTA", "TTL", "NODES"});
  for (const auto& [name, sum] : tenants) {
    table.Row({name.empty() ? "-" : name, bytes(sum.used_bytes), sum.limited ? bytes(sum.quota_bytes) : "-",
               bytes(sum.pinned_bytes), bytes(sum.pinned_max_bytes), bytes(sum.ssd_bytes),
               sum.ssd_limited ? bytes(sum.ssd_quota_bytes) : "-",
               sum.ttl_ms == 0 ? "-" : ExactDuration(sum.ttl_ms * 1000), std::to_string(sum.nodes)});
  }
  return table.Text();
}

int Namespaces(const Globals& globals) {
  std::vector<std::string> failed;
  const auto [all, tenants] = Collect(globals, &failed);
  if (globals.json()) {
    ordered_json list = ordered_json::array();
    for (const auto& [hex, sum] : all) {
      list.push_back({{"hex", hex},
                      {"tenant", sum.tenant},
                      {"identity", sum.identity},
                      {"blocks", sum.blocks},
                      {"payload_bytes", sum.bytes},
                      {"clear_epoch", sum.clear_epoch},
                      {"nodes", sum.nodes.size()}});
    }
    std::printf("%s\n",
                ordered_json{{"namespaces", list}, {"tenants", ToJson(tenants)}, {"unanswered", failed}}
                    .dump()
                    .c_str());
    return failed.empty() ? kExitOk : kExitFailed;
  }
  TextTable table;
  table.Row({"NAMESPACE", "TENANT", "BLOCKS", "PAYLOAD", "NODES", "IDENTITY"});
  for (const auto& [hex, sum] : all) {
    table.Row({hex.substr(0, 16), sum.tenant.empty() ? "-" : sum.tenant, Grouped(sum.blocks),
               PrettyBytes(static_cast<double>(sum.bytes)), std::to_string(sum.nodes.size()),
               OneLine(sum.identity)});
  }
  std::fputs(table.Text().c_str(), stdout);
  if (!tenants.empty()) std::printf("\n%s", TableOf(tenants).c_str());
  return Report(failed);
}

int Clear(const Globals& globals, const std::string& prefix) {
  if (prefix.size() < 8 || prefix.size() > 64 ||
      prefix.find_first_not_of("0123456789abcdef") != prefix.npos) {
    return Fail(Invalid("a namespace is named by 8 to 64 hex digits; larderctl namespaces shows them"),
                kExitUsage);
  }
  std::vector<std::string> failed;
  std::vector<std::pair<std::string, Sum>> found;
  for (const auto& each : Collect(globals, &failed).spaces) {
    if (each.first.rfind(prefix, 0) == 0) found.push_back(each);
  }
  if (found.size() > 1)
    return Fail(Invalid("\"" + prefix + "\" begins several namespaces; give more digits"), kExitUsage);
  if (found.empty()) {
    Report(failed);
    return Fail(Status(Code::kNotFound, "no node knows a namespace " + prefix));
  }
  const auto& [hex, sum] = found.front();
  uint64_t removed = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto stamp_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  for (const std::string& address : sum.nodes) {
    control::v1::ClearResponse response;
    const Status status = AskClear(address, globals, hex, stamp_ms, &response);
    if (status.ok())
      removed += response.removed_blocks();
    else
      failed.push_back(status.text());
  }
  if (globals.json()) {
    std::printf(
        "%s\n",
        ordered_json{{"hex", hex}, {"removed_blocks", removed}, {"unanswered", failed}}.dump().c_str());
    return failed.empty() ? kExitOk : kExitFailed;
  }
  std::printf("cleared %s on %zu nodes: %s blocks\n", hex.c_str(), sum.nodes.size(),
              Grouped(removed).c_str());
  return Report(failed);
}

}  // namespace

void AddNamespaces(CLI::App* app, Run* run) {
  app->add_subcommand("namespaces",
                      "what is stored, by model and tenant, and what tenants use of their quotas")
      ->callback([run] { *run = Namespaces; });
  CLI::App* clear = app->add_subcommand("clear", "forget all blocks of a namespace, on every node");
  auto prefix = std::make_shared<std::string>();
  clear->add_option("namespace", *prefix, "its hex, or the first digits of it")->required();
  clear->callback(
      [run, prefix] { *run = [prefix](const Globals& globals) { return Clear(globals, *prefix); }; });
}

}  // namespace larder::cli
