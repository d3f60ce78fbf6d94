#include "node/daemon/daemon_options.h"

namespace larder::node {

NodeOptions NodeOptionsOf(const LoadedConfig& loaded, const std::string& shm_path, uint64_t seed) {
  const Config& config = loaded.config;
  const auto count = [](uint64_t value) { return static_cast<uint32_t>(value); };  // ranges fit: config.h
  NodeOptions out;
  out.owner.memory_bytes = config.memory_bytes;
  out.owner.slab_bytes_target = config.slab_bytes;
  out.owner.eviction_policy = *PolicyOfName(config.eviction_policy);  // its choices are the names
  out.owner.tickets_max = count(config.tickets_max);
  out.owner.tickets_per_session_max = count(config.tickets_per_connection_max);
  out.owner.ticket_stall_us = config.ticket_stall;
  out.owner.waits_per_session_max = count(config.waits_per_connection_max);
  out.owner.waited_keys_max = count(config.waited_keys_max);
  out.owner.pinned_bytes_per_tenant_max = config.pinned_per_tenant;
  out.owner.pin_us_max = config.pin_max;
  out.owner.namespaces_max = count(config.namespaces_max);
  out.owner.miss_memory_entries = count(config.miss_memory_entries);
  out.owner.seed = seed;
  out.owner.allow_weak_hash = config.allow_weak_hash;
  out.owner.tenants = loaded.tenants;
  out.owner.admit_twice = config.ssd_admission == "twice";
  out.owner.promote_after = count(config.ssd_promote_after);
  out.owner.scrub_bytes_per_s = config.scrub_rate;
  out.owner.hot_copies_max = count(config.hot_copies);
  out.owner.hot_share_percent = count(config.hot_share);
  out.owner.near_share_percent = count(config.near_share);
  out.owner.spill_below_percent = count(config.spill_below);
  out.owner.spill_until_percent = count(config.spill_below) + 2;
  out.ssd.directories = config.ssd;
  out.ssd.bytes = config.ssd_bytes;
  out.ssd.segment_bytes = config.ssd_segment_bytes / 4096 * 4096;
  out.ssd.sync = config.ssd_sync;
  out.ssd.io_uring = config.ssd_io == "auto";
  out.ssd.start_empty = config.start_empty;
  out.ssd.cluster = config.cluster;
  out.ssd.tier.bytes_per_hour_max = config.ssd_write_per_hour;
  const std::string kept_in = !config.state_dir.empty() ? config.state_dir
                              : !config.ssd.empty()     ? config.ssd[0]
                                                        : std::string();
  if (!kept_in.empty()) out.quarantine_path = kept_in + "/quarantine";
  if (!kept_in.empty()) out.clears_path = kept_in + "/clears-heard";
  // Memory is empty after a restart.
  if (!config.ssd.empty() && config.membership != "static") out.places_path = config.ssd[0] + "/places";
  out.owner.events_max = count(config.events_max);
  out.owner.reader_memory_entries = count(config.reader_memory_entries);
  out.node_id = config.node_id;
  out.data_listen = config.data_listen;
  out.ucx_listen = config.ucx_listen;
  out.shm_path = shm_path;
  out.advertise = config.advertise;
  out.weight = count(config.weight);
  out.zone = config.zone;
  out.movers = static_cast<int>(config.movers);
  out.connections_max = count(config.connections_max);
  out.hello_timeout_us = config.hello_timeout;
  out.requests_per_connection_max = count(config.requests_per_connection_max);
  out.mailbox_max = count(config.mailbox_max);
  out.owner_spin_us = count(config.owner_spin);
  out.huge_pages = config.huge_pages;
  out.prefault = config.prefault;
  out.credentials = loaded.credentials;
  for (const std::string& entry : config.peers) out.peers.push_back(ParseNodeEntry(entry).value());
  out.table_epoch = config.table_epoch;
  out.transport.stall_us = config.transfer_stall;
  out.transport.user_timeout_ms = count(config.user_timeout / 1000);
  out.transport.socket_bytes = count(config.socket_bytes);
  out.transport.spin_us = count(config.spin);
  out.transport.device = config.ucx_device;
  out.transport.ucx_tls = config.ucx_tls;
  return out;
}

std::optional<KvEventOptions> KvEventOptionsOf(const Config& config, const std::string& node_id) {
  if (config.kv_events_listen.empty() && config.kv_events_connect.empty()) return std::nullopt;
  KvEventOptions out;
  out.listen = config.kv_events_listen;
  out.connect = config.kv_events_connect;
  out.replay_listen = config.kv_events_replay_listen;
  out.node_id = node_id;
  out.topic = config.kv_events_topic;
  out.form = config.kv_events_form == "array" ? KvEventForm::kArray : KvEventForm::kMap;
  out.kept.messages_max = config.kv_events_kept;
  out.hwm = static_cast<int>(config.kv_events_hwm);
  return out;
}

std::string AdvertisedAddress(const Config& config, const std::string& bound) {
  const HostPort address = ParseHostPort(bound).value();
  return JoinHostPort(config.advertise.empty() ? address.host : config.advertise, address.port);
}

bool OpenToStrangers(const LoadedConfig& loaded) {
  const std::string host = ParseHostPort(loaded.config.data_listen).value().host;
  const bool loopback = host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
  return loaded.credentials.empty() && !loopback;
}

}  // namespace larder::node
