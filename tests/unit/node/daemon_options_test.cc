// From configuration to NodeOptions: no knob is parsed and then forgotten.
#include "node/daemon/daemon_options.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace larder::node {
namespace {

// All that a configuration decides about a node, as text.
std::string TextOf(const NodeOptions& o) {
  std::ostringstream out;
  const auto put = [&](const auto&... values) { ((out << values << '|'), ...); };
  put(o.owner.memory_bytes, o.owner.slab_bytes_target, o.owner.tickets_max, o.owner.tickets_per_session_max,
      o.owner.ticket_stall_us, o.owner.waits_per_session_max, o.owner.waited_keys_max,
      o.owner.pinned_bytes_per_tenant_max, o.owner.pin_us_max, o.owner.namespaces_max,
      o.owner.miss_memory_entries, o.owner.reader_memory_entries, o.owner.seed, o.owner.allow_weak_hash,
      PolicyName(o.owner.eviction_policy));
  put(o.node_id, o.data_listen, o.ucx_listen, o.shm_path, o.advertise, o.weight, o.zone, o.movers,
      o.connections_max, o.hello_timeout_us, o.requests_per_connection_max, o.mailbox_max, o.owner_spin_us,
      o.huge_pages, o.prefault, o.table_epoch);
  put(o.owner.admit_twice, o.owner.promote_after, o.owner.scrub_bytes_per_s, o.owner.events_max,
      o.owner.spill_below_percent, o.owner.spill_until_percent, o.ssd.bytes, o.ssd.segment_bytes, o.ssd.sync,
      o.ssd.io_uring, o.ssd.start_empty, o.ssd.cluster, o.ssd.tier.bytes_per_hour_max, o.owner.hot_copies_max,
      o.owner.hot_share_percent, o.owner.near_share_percent);
  for (const std::string& each : o.ssd.directories) put(each);
  for (const Credential& each : o.credentials) put(each.name, each.token, each.tenant);
  for (const TenantLimits& each : o.owner.tenants) put(each.name, each.ttl_us);
  for (const NodeRecord& each : o.peers) put(each.id, each.data_address, each.weight);
  put(o.transport.stall_us, o.transport.user_timeout_ms, o.transport.socket_bytes, o.transport.spin_us,
      o.transport.device, o.transport.ucx_tls);
  return out.str();
}

// Another value than the default, within the range.
std::string OtherValue(const Knob& knob) {
  switch (knob.kind) {
    case KnobKind::Switch:
      return knob.default_text == "true" ? "false" : "true";
    case KnobKind::Count:
      return knob.default_text == knob.max ? std::string(knob.min) : std::string(knob.max);
    case KnobKind::Bytes:
      return "32MiB";
    case KnobKind::Duration:
      return "9ms";
    case KnobKind::Address:
      return "127.0.0.1:17";
    case KnobKind::List:
      return "a@127.0.0.1:1*2";
    case KnobKind::Choice:
      return std::string(knob.min.substr(knob.min.rfind('|') + 1));
    default:
      return "/some";
  }
}

std::string TextOf(const KvEventOptions& o) {
  std::ostringstream out;
  out << o.listen << ';' << o.replay_listen << ';' << o.node_id << ';' << o.topic << ';'
      << static_cast<int>(o.form) << ';' << o.kept.messages_max << ';' << o.hwm << ';';
  for (const std::string& each : o.connect) out << each << ',';
  return out.str();
}

TEST(DaemonOptions, EveryKnobOfKvEventsReachesThePublisher) {
  EXPECT_FALSE(KvEventOptionsOf(DefaultConfig(), "n"));
  Config config = DefaultConfig();
  config.kv_events_listen = "127.0.0.1:1";
  const std::string before = TextOf(*KvEventOptionsOf(config, "n"));
  for (const Knob& knob : Knobs()) {
    if (!knob.name.starts_with("kv_events_")) continue;
    Config changed = config;
    ASSERT_TRUE(SetKnob(knob, OtherValue(knob), &changed).ok()) << knob.name;
    EXPECT_NE(TextOf(*KvEventOptionsOf(changed, "n")), before) << knob.name;
  }
  EXPECT_NE(TextOf(*KvEventOptionsOf(config, "m")), before);
}

TEST(DaemonOptions, EveryKnobReachesTheNodeOrTheDaemon) {
  // What main.cc itself uses.
  const std::set<std::string_view> of_the_daemon = {
      "control_listen", "http_listen", "credentials", "tenants", "shm", "shm_path", "drain_budget",
      "hand_over_budget", "hand_over_rate", "hand_over_on_stop", "repair_rate", "hot_rate", "log_level",
      "log_format", "report",
      // cluster_link.cc
      "membership", "etcd_endpoints", "etcd_user", "etcd_password_file", "etcd_ca", "etcd_certificate",
      "etcd_key", "lease", "away_grace", "state_dir", "dns_name", "dns_servers", "dns_period", "dns_probe",
      "dns_addresses_max"};
  const std::string before = TextOf(NodeOptionsOf(LoadedConfig{}, "", 1));
  for (const Knob& knob : Knobs()) {
    if (knob.name.starts_with("kv_events_")) continue;  // below
    LoadedConfig loaded;
    std::string text = OtherValue(knob);
    if (knob.kind == KnobKind::Duration && knob.min == "100ms") text = "900ms";
    if (knob.kind == KnobKind::Duration && knob.min == "1s") text = "9s";
    ASSERT_TRUE(SetKnob(knob, text, &loaded.config).ok()) << knob.name;
    const bool changed = TextOf(NodeOptionsOf(loaded, "", 1)) != before;
    EXPECT_EQ(changed, of_the_daemon.count(knob.name) == 0) << knob.name;
  }
  LoadedConfig loaded;
  loaded.credentials = {{"name", "token", "tenant"}};
  EXPECT_NE(TextOf(NodeOptionsOf(loaded, "", 1)), before);
  LoadedConfig limited;
  limited.tenants = {{.name = "name"}};
  EXPECT_NE(TextOf(NodeOptionsOf(limited, "", 1)), before);
  EXPECT_NE(TextOf(NodeOptionsOf(LoadedConfig{}, "/shm", 1)), before);
  EXPECT_NE(TextOf(NodeOptionsOf(LoadedConfig{}, "", 2)), before);
}

TEST(DaemonOptions, TheAdvertisedHostReplacesTheBoundOne) {
  Config config = DefaultConfig();
  EXPECT_EQ(AdvertisedAddress(config, "127.0.0.1:17"), "127.0.0.1:17");
  config.advertise = "node-1";
  EXPECT_EQ(AdvertisedAddress(config, "0.0.0.0:17"), "node-1:17");
  config.advertise = "fd00::1";
  EXPECT_EQ(AdvertisedAddress(config, "[::]:17"), "[fd00::1]:17");
}

TEST(DaemonOptions, OnlyLoopbackIsSafeWithoutCredentials) {
  LoadedConfig loaded;
  EXPECT_FALSE(OpenToStrangers(loaded));
  loaded.config.data_listen = "10.0.0.1:7400";
  EXPECT_TRUE(OpenToStrangers(loaded));
  loaded.credentials = {{"name", "token", ""}};
  EXPECT_FALSE(OpenToStrangers(loaded));
}

TEST(DaemonOptions, ItsOwnEntryInPeersSaysHostAndWeight) {
  LoadedConfig loaded;
  loaded.config.node_id = "b";
  loaded.config.peers = {"a@10.0.0.1:7400*2", "b@10.0.0.2:7400*3"};
  LoadedConfig taken = loaded;
  ASSERT_TRUE(TakeOwnEntry(&taken).ok());
  EXPECT_EQ(taken.config.weight, 3u);
  EXPECT_EQ(taken.config.advertise, "10.0.0.2");
  taken.config.data_listen = "0.0.0.0:7400";
  EXPECT_TRUE(CheckConfig(taken.config).ok());

  taken = loaded;
  taken.sources["weight"] = "--weight";
  taken.config.weight = 5;
  EXPECT_NE(TakeOwnEntry(&taken).text().find("peers says 3 for b"), std::string::npos);
  taken.config.weight = 3;
  taken.sources["advertise"] = "--advertise";
  taken.config.advertise = "elsewhere";
  ASSERT_TRUE(TakeOwnEntry(&taken).ok());
  EXPECT_EQ(taken.config.advertise, "elsewhere");

  taken = loaded;
  taken.config.node_id = "c";
  ASSERT_TRUE(TakeOwnEntry(&taken).ok());
  EXPECT_EQ(taken.config.weight, 1u);
}

}  // namespace
}  // namespace larder::node
