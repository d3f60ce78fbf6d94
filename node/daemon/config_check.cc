// What the knobs say together.
#include <arpa/inet.h>

#include <algorithm>

#include "node/daemon/config.h"
#include "node/events/kv_event_format.h"
#include "proto/placement.h"
#include "proto/units.h"

namespace larder::node {
namespace {

bool IsWildcard(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

Status CheckAddresses(const Config& config) {
  struct Listener {
    const char* name;
    const std::string& text;
    bool advertised = true;
  };
  const Listener listeners[] = {{"data_listen", config.data_listen},
                                {"control_listen", config.control_listen},
                                {"http_listen", config.http_listen},
                                {"ucx_listen", config.ucx_listen},
                                {"kv_events_listen", config.kv_events_listen, false},
                                {"kv_events_replay_listen", config.kv_events_replay_listen, false}};
  for (const Listener& one : listeners) {
    if (one.text.empty()) continue;
    const HostPort address = ParseHostPort(one.text).value();
    if (IsWildcard(address.host) && config.advertise.empty() && one.advertised) {
      return Invalid(
          std::string(one.name) + " is " + one.text +
          ", which nobody can connect to by that name; add --advertise HOST, the name or address of "
          "this machine");
    }
    for (const Listener& other : listeners) {
      if (&other == &one) break;
      if (other.text.empty() || address.port == 0) continue;
      const HostPort before = ParseHostPort(other.text).value();
      const bool meets = before.host == address.host || IsWildcard(before.host) || IsWildcard(address.host);
      if (before.port == address.port && meets) {
        return Invalid(std::string(one.name) + " and " + other.name + " both want port " +
                       std::to_string(address.port) + "; give each its own, or port 0 for any free one");
      }
    }
  }
  if (!config.advertise.empty()) {
    in6_addr six{};
    const bool good = config.advertise.find(':') == std::string::npos
                          ? ParseHostPort(JoinHostPort(config.advertise, 1)).ok()
                          : inet_pton(AF_INET6, config.advertise.c_str(), &six) == 1;
    if (!good)
      return Invalid("advertise: \"" + config.advertise + "\" is no host; leave out port and brackets");
  }
  return Status::Ok();
}

Status CheckEtcd(const Config& config) {
  if (config.membership != "etcd") {
    const bool all_unset = config.etcd_endpoints.empty() && config.etcd_user.empty() &&
                           config.etcd_password_file.empty() && config.etcd_ca.empty() &&
                           config.etcd_certificate.empty() && config.etcd_key.empty();
    if (all_unset) return Status::Ok();
    return Invalid("settings for etcd are there but membership is " + config.membership +
                   "; set membership to etcd, or leave them out");
  }
  if (config.etcd_endpoints.empty()) {
    return Invalid(
        "etcd_endpoints is empty; name the host:port of each etcd server, or choose another membership");
  }
  for (const std::string& endpoint : config.etcd_endpoints) {
    if (ParseHostPort(endpoint).ok()) continue;
    return Invalid("etcd_endpoints: \"" + endpoint + "\" is no host:port; leave out http:// and paths");
  }
  if (!config.peers.empty()) {
    return Invalid("peers and membership = etcd are both set; etcd knows the nodes, leave peers out");
  }
  if (config.cluster.find('/') != std::string::npos) {
    return Invalid("cluster: \"" + config.cluster + "\" may not have a /");
  }
  if (config.etcd_user.empty() != config.etcd_password_file.empty()) {
    return Invalid("etcd_user and etcd_password_file belong together; set both or none");
  }
  if (config.etcd_certificate.empty() != config.etcd_key.empty()) {
    return Invalid("etcd_certificate and etcd_key belong together; set both or none");
  }
  if (!config.etcd_certificate.empty() && config.etcd_ca.empty()) {
    return Invalid("etcd_certificate needs etcd_ca: without it there is no TLS");
  }
  return Status::Ok();
}

Status CheckDns(const Config& config) {
  if (config.membership != "dns") {
    if (config.dns_name.empty() && config.dns_servers.empty()) return Status::Ok();
    return Invalid("settings for dns are there but membership is " + config.membership +
                   "; set membership to dns, or leave them out");
  }
  if (config.dns_name.empty()) {
    return Invalid("dns_name is empty; name the headless Service of the nodes, or choose another membership");
  }
  const bool service = config.dns_name.starts_with("_");
  const bool good = service
                        ? config.dns_name.find(':') == std::string::npos
                        : ParseHostPort(config.dns_name).ok() && ParseHostPort(config.dns_name)->port != 0;
  if (!good) {
    return Invalid(
        "dns_name: \"" + config.dns_name +
        "\" leads nowhere; write NAME:PORT with the nodes' control port, or the name of SRV records, "
        "_control._tcp.NAME, without a port");
  }
  if (!config.peers.empty()) {
    return Invalid("peers and membership = dns are both set; the nodes know each other, leave peers out");
  }
  for (const std::string& server : config.dns_servers) {
    const Result<HostPort> address = ParseHostPort(server);
    in_addr four{};
    in6_addr six{};
    if (address.ok() && (inet_pton(AF_INET, address->host.c_str(), &four) == 1 ||
                         inet_pton(AF_INET6, address->host.c_str(), &six) == 1)) {
      continue;
    }
    return Invalid("dns_servers: \"" + server + "\" is no IP:port; write for example 10.96.0.10:53");
  }
  return Status::Ok();
}

Status CheckMembership(const Config& config) {
  if (!config.node_id.empty() &&
      config.node_id.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@/-") != std::string::npos) {
    return Invalid("node_id: \"" + config.node_id + "\" may only have letters, digits and . _ : @ / -");
  }
  if (config.peers.size() > kNodesMax) {
    return Invalid("peers: " + std::to_string(config.peers.size()) + " nodes are listed; " +
                   std::to_string(kNodesMax) + " are the limit");
  }
  LARDER_RETURN_IF_ERROR(CheckEtcd(config));
  LARDER_RETURN_IF_ERROR(CheckDns(config));
  std::vector<std::string> ids;
  for (const std::string& entry : config.peers) {
    const Result<NodeRecord> record = ParseNodeEntry(entry);
    if (!record.ok()) return Invalid("peers: " + record.status().text());
    if (std::find(ids.begin(), ids.end(), record->id) != ids.end()) {
      return Invalid("peers: \"" + record->id + "\" is listed twice; every node has an id of its own");
    }
    ids.push_back(record->id);
  }
  return Status::Ok();
}

Status CheckKvEvents(const Config& config) {
  for (const std::string& address : config.kv_events_connect) {
    if (ParseHostPort(address).ok()) continue;
    return Invalid("kv_events_connect: \"" + address + "\" is no host:port; leave out tcp:// and paths");
  }
  const Status topic = CheckTopic(config.kv_events_topic);
  if (!topic.ok()) return Invalid("kv_events_topic: " + topic.text());
  if (config.kv_events_listen.empty() && config.kv_events_connect.empty()) {
    if (config.kv_events_replay_listen.empty()) return Status::Ok();
    return Invalid(
        "kv_events_replay_listen needs kv_events_listen or kv_events_connect: without, there is nothing to "
        "miss");
  }
  if (config.events_max == 0) {
    return Invalid(
        "events_max is 0, so that there are no KV events either; raise it, or leave kv_events_listen and "
        "kv_events_connect out");
  }
  return Status::Ok();
}

}  // namespace

Status TakeOwnEntry(LoadedConfig* loaded) {
  Config& config = loaded->config;
  for (const std::string& entry : config.peers) {
    const Result<NodeRecord> record = ParseNodeEntry(entry);
    if (!record.ok() || record->id != config.node_id) continue;  // CheckConfig refuses bad entries
    if (loaded->sources.count("weight") == 0) {
      config.weight = record->weight;
      loaded->sources["weight"] = "peers";
    } else if (config.weight != record->weight) {
      return Invalid("weight is " + std::to_string(config.weight) + " (" + loaded->sources["weight"] +
                     "), but peers says " + std::to_string(record->weight) + " for " + config.node_id +
                     "; say it only in peers, alike on every node");
    }
    const Result<HostPort> address = ParseHostPort(record->data_address);
    if (loaded->sources.count("advertise") == 0 && address.ok()) {
      config.advertise = address->host;
      loaded->sources["advertise"] = "peers";
    }
  }
  return Status::Ok();
}

Status CheckConfig(const Config& config) {
  LARDER_RETURN_IF_ERROR(CheckAddresses(config));
  LARDER_RETURN_IF_ERROR(CheckMembership(config));
  LARDER_RETURN_IF_ERROR(CheckKvEvents(config));
  if (config.slab_bytes != 0 && (config.slab_bytes < (1u << 20) || config.slab_bytes % 4096 != 0)) {
    return Invalid("slab_bytes: " + ExactBytes(config.slab_bytes) +
                   " is no slab size; write 0, or a multiple of 4KiB of at least 1MiB");
  }
  std::vector<std::string> disks = config.ssd;
  std::sort(disks.begin(), disks.end());
  if (std::adjacent_find(disks.begin(), disks.end()) != disks.end()) {
    return Invalid("ssd: a directory is listed twice; each is a disk of its own");
  }
  if (disks.size() > 64) return Invalid("ssd: at most 64 directories");
  if (config.slab_bytes > config.memory_bytes) {
    return Invalid("slab_bytes (" + ExactBytes(config.slab_bytes) + ") is larger than memory (" +
                   ExactBytes(config.memory_bytes) + "); lower the first or raise the second");
  }
  if (config.pinned_per_tenant > config.memory_bytes) {
    return Invalid("pinned_per_tenant (" + ExactBytes(config.pinned_per_tenant) +
                   ") is larger than memory (" + ExactBytes(config.memory_bytes) +
                   "); lower it, or write 0 for half of the memory");
  }
  if (config.tickets_per_connection_max > config.tickets_max) {
    return Invalid("tickets_per_connection_max (" + std::to_string(config.tickets_per_connection_max) +
                   ") is above tickets_max (" + std::to_string(config.tickets_max) + "); raise tickets_max");
  }
  if (config.shm_path.size() > 0 && config.shm_path[0] != '/') {
    return Invalid("shm_path: \"" + config.shm_path + "\" must begin with /");
  }
  return Status::Ok();
}

}  // namespace larder::node
