// Every knob of larder-node, once: the table below makes the struct, the flags, the LARDER_* variables, the
// keys of the config file, --help, --print-config, the checks and node/CONFIG.md. A knob that is not in it
// can't be set; one that is in it can't be ignored.
//
// For a knob `ticket_stall`: flag --ticket-stall, variable LARDER_TICKET_STALL, file key ticket_stall.
// A flag wins over a variable, a variable over the file, the file over the default.
//
// The parser uses libraries that throw; nothing here lets an exception out.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "node/node.h"
#include "proto/status.h"

namespace larder::node {

// Kinds and the fields they make. Bytes: "64MiB", "2GB", ... Duration: "5s", "250ms", ... in microseconds.
// Address: "host:port". List: repeat the flag, or separate by commas. Switch: true or false.
#define LARDER_FIELD_Text std::string
#define LARDER_FIELD_Address std::string
#define LARDER_FIELD_Path std::string
#define LARDER_FIELD_Choice std::string
#define LARDER_FIELD_Bytes uint64_t
#define LARDER_FIELD_Duration uint64_t
#define LARDER_FIELD_Count uint64_t
#define LARDER_FIELD_Switch bool
#define LARDER_FIELD_List std::vector<std::string>

// X(kind, field, name, default, min, max, help). For Text and Path min and max count characters; for Choice
// `min` lists what may be chosen. A Bytes or Count of 0 is allowed where the range begins at 0 and means what
// its help says.
// clang-format off
#define LARDER_KNOBS(X) \
  X(Address,  data_listen,    "data_listen",    "127.0.0.1:7400", "", "", \
    "where clients connect over TCP; port 0 takes any free one") \
  X(Address,  control_listen, "control_listen", "127.0.0.1:7401", "", "", \
    "gRPC: health, info, stats, namespaces, clear; port 0 takes any free one") \
  X(Address,  http_listen,    "http_listen",    "127.0.0.1:7402", "", "", \
    "HTTP: /metrics, /livez, /readyz, /healthz; port 0 takes any free one") \
  X(Text,     advertise,      "advertise",      "",    "0", "253", \
    "host that others reach this node by; empty: its host in peers, else the host of data_listen") \
  X(Text,     node_id,        "node_id",        "",    "0", "128", \
    "stable name of this node, kept over restarts; empty: the advertised data address") \
  X(Count,    weight,         "weight",         "1",   "1", "65536", \
    "share of the blocks that this node is home to, beside the others' weights; left alone: as peers says") \
  X(Text,     zone,           "zone",           "",    "0", "128", \
    "failure zone, for people and for replicas") \
  X(List,     peers,          "peers",          "",    "", "", \
    "static membership: id@host:port*weight of every node (data addresses; id and weight may be left out)") \
  X(Count,    table_epoch,    "table_epoch",    "1",   "1", "1000000000000", \
    "version of that list: raise it on every node when the list changes") \
  X(Choice,   membership,     "membership",     "static", "static|dns|etcd", "", \
    "how nodes know each other: the list in peers, a name in DNS, or etcd") \
  X(Text,     cluster,        "cluster",        "larder", "1", "64", \
    "name of this cluster, among nodes, in etcd and in SSD directories: nodes of one name belong together") \
  X(Text,     dns_name,       "dns_name",       "",    "0", "253", \
    "NAME:PORT that leads to the nodes: a headless Service and their control port; or an SRV name, as _control._tcp.NAME, whose records bring the port") \
  X(List,     dns_servers,    "dns_servers",    "",    "", "", \
    "IP:port of each DNS server; empty: those of /etc/resolv.conf") \
  X(Duration, dns_period,     "dns_period",     "5s",  "100ms", "1m", \
    "DNS, and each node known, are asked so often, a quarter more or less") \
  X(Duration, dns_probe,      "dns_probe",      "1s",  "100ms", "30s", \
    "a node that has not answered after so long is not heard of in that round") \
  X(Count,    dns_addresses_max, "dns_addresses_max", "256", "1", "4096", \
    "addresses behind the name that are asked; more are left out, which /healthz shows") \
  X(List,     etcd_endpoints, "etcd_endpoints", "",    "", "", \
    "host:port of each etcd server") \
  X(Text,     etcd_user,      "etcd_user",      "",    "0", "128", \
    "user of etcd; empty: none") \
  X(Path,     etcd_password_file, "etcd_password_file", "", "0", "4096", \
    "file whose first line is that user's password") \
  X(Path,     etcd_ca,        "etcd_ca",        "",    "0", "4096", \
    "PEM file of who signed etcd's certificate; empty: no TLS") \
  X(Path,     etcd_certificate, "etcd_certificate", "", "0", "4096", \
    "PEM file of this node's own certificate for etcd; empty: none") \
  X(Path,     etcd_key,       "etcd_key",       "",    "0", "4096", \
    "PEM file of the key to that certificate") \
  X(Duration, lease,          "lease",          "3s",  "1s", "1m", \
    "a node that etcd has not heard of for so long is not alive; its place stays") \
  X(Duration, away_grace,     "away_grace",     "300s", "1s", "24h", \
    "a node that was not alive for so long loses its place; others become home to its blocks") \
  X(Path,     state_dir,      "state_dir",      "",    "0", "4096", \
    "folder for this node's id and the last node table, so that it serves also when it restarts while etcd or DNS is away; empty: not kept") \
  X(Path,     credentials,    "credentials",    "",    "0", "4096", \
    "TOML file of [[credentials]] (name, token, tenant); empty: those of the config file; none at all: everybody may come") \
  X(Path,     tenants,        "tenants",        "",    "0", "4096", \
    "TOML file of [[tenants]] (name, quota, ssd_quota, ttl, pinned, pin_max, replicas); empty: those of the config file; none at all: no limits") \
  X(Bytes,    memory_bytes,   "memory",         "1GiB", "4MiB", "1024PiB", \
    "memory for blocks, their headers included") \
  X(Bytes,    slab_bytes,     "slab_bytes",     "0",   "0", "64GiB", \
    "size of a slab, the unit that moves between block sizes; 0: memory / 64, at least 4 MiB") \
  X(Choice,   eviction_policy, "eviction_policy", "tournament", "tournament|hazard|lru|s3-fifo|arc|lru-2|lfu", "", \
    "what decides who leaves: tournament follows the best of the others, hazard learns when blocks are used again, lru is leaf-first") \
  X(Switch,   huge_pages,     "huge_pages",     "true", "", "", \
    "use huge pages where the machine has them") \
  X(Switch,   prefault,       "prefault",       "true", "", "", \
    "touch memory in the background at start, so that no put waits for the kernel") \
  X(Count,    movers,         "movers",         "2",   "1", "64", \
    "threads of each transport that move bytes") \
  X(Switch,   shm,            "shm",            "true", "", "", \
    "serve clients on this host through shared memory") \
  X(Path,     shm_path,       "shm_path",       "",    "0", "107", \
    "Unix socket of shared memory; empty: /run/larder/shm-PORT.sock, else /tmp/larder-UID/shm-PORT.sock") \
  X(Address,  ucx_listen,     "ucx_listen",     "",    "", "", \
    "where clients connect by RDMA through UCX; empty: off") \
  X(Text,     ucx_device,     "ucx_device",     "",    "0", "256", \
    "network devices for UCX (its UCX_NET_DEVICES); empty: what UCX finds") \
  X(Text,     ucx_tls,        "ucx_tls",        "",    "0", "256", \
    "transports for UCX (its UCX_TLS); empty: RDMA and this host's own") \
  X(Bytes,    socket_bytes,   "socket_bytes",   "256KiB", "16KiB", "64MiB", \
    "send and receive buffer of each TCP socket") \
  X(Duration, user_timeout,   "user_timeout",   "5s",  "100ms", "10m", \
    "a TCP peer that acknowledges nothing for so long is dead") \
  X(Duration, transfer_stall, "transfer_stall", "2s",  "100ms", "10m", \
    "a transfer past its deadline that moves no byte for so long closes its connection") \
  X(Duration, spin,           "spin",           "0",   "0", "10ms", \
    "movers poll so long before they sleep; more costs CPU and gains little") \
  X(Count,    connections_max, "connections_max", "4096", "1", "1000000", \
    "data connections at once; more are refused") \
  X(Duration, hello_timeout,  "hello_timeout",  "5s",  "100ms", "10m", \
    "a new connection that has not said hello in full for so long is closed") \
  X(Count,    requests_per_connection_max, "requests_per_connection_max", "256", "1", "65536", \
    "unanswered requests of a connection; more are answered busy") \
  X(Count,    mailbox_max,    "mailbox_max",    "65536", "1024", "16777216", \
    "events that wait for the owner's thread; requests beyond are answered busy") \
  X(Duration, owner_spin,     "owner_spin",     "0",   "0", "10ms", \
    "the owner's thread looks for work so long before it sleeps; more costs CPU and shortens matches a little") \
  X(Count,    tickets_max,    "tickets_max",    "4096", "1", "1048576", \
    "puts under way on the node; more are answered busy") \
  X(Count,    tickets_per_connection_max, "tickets_per_connection_max", "1024", "1", "1048576", \
    "puts under way on a connection") \
  X(Duration, ticket_stall,   "ticket_stall",   "5s",  "100ms", "10m", \
    "a put without progress for so long expires") \
  X(Count,    waits_per_connection_max, "waits_per_connection_max", "1024", "1", "65536", \
    "open waits of a connection; more are answered busy") \
  X(Count,    waited_keys_max, "waited_keys_max", "65536", "1", "16777216", \
    "keys under all open waits of the node") \
  X(Duration, pin_max,        "pin_max",        "60s", "1ms", "10m", \
    "a match may keep blocks from eviction for so long at most") \
  X(Bytes,    pinned_per_tenant, "pinned_per_tenant", "0", "0", "1024PiB", \
    "bytes that a tenant may pin by matches; 0: half of the memory") \
  X(Count,    namespaces_max, "namespaces_max", "4096", "1", "1000000", \
    "namespaces known at once") \
  X(Count,    miss_memory_entries, "miss_memory_entries", "1048576", "0", "67108864", \
    "how many blocks that left are remembered, so that a miss can say why; 16 bytes each") \
  X(Count,    reader_memory_entries, "reader_memory_entries", "1048576", "0", "67108864", \
    "how many reads are remembered, so that a quarantine can say who read what; 16 bytes each") \
  X(Count,    events_max,     "events_max",     "65536", "0", "16777216", \
    "events that a router may be behind before it has to begin anew; about 150 bytes each; 0: no events") \
  X(Address,  kv_events_listen, "kv_events_listen", "", "", "", \
    "where routers subscribe (ZeroMQ) to what comes and goes, in the form of vLLM's KV events; port 0 takes any free one; empty: nowhere") \
  X(List,     kv_events_connect, "kv_events_connect", "", "", "", \
    "host:port of routers that listen for KV events themselves") \
  X(Address,  kv_events_replay_listen, "kv_events_replay_listen", "", "", "", \
    "where they ask for KV events that they missed; empty: nowhere") \
  X(Text,     kv_events_topic, "kv_events_topic", "kv@{node}@{namespace}", "0", "256", \
    "topic of KV events; {node}, {namespace}, {tenant} and fields of the identity are filled in; engines of one topic must have one model") \
  X(Choice,   kv_events_form, "kv_events_form", "map", "map|array", "", \
    "how an event looks: map as vLLM 0.32 has it, or array as earlier ones and SGLang; Dynamo reads both") \
  X(Count,    kv_events_kept, "kv_events_kept", "10000", "1", "1000000", \
    "messages that are kept for who missed them, of 64 MiB in all at most; beyond, a replay tells all that is there") \
  X(Count,    kv_events_hwm,  "kv_events_hwm",  "1000", "1", "1000000", \
    "messages that wait for a subscriber; what it has no room for is lost to it, and the numbers show it") \
  X(List,     ssd,            "ssd",            "",    "", "", \
    "directories for blocks that memory does not hold, one a disk; empty: none") \
  X(Bytes,    ssd_bytes,      "ssd_bytes",      "0",   "0", "1024PiB", \
    "how much of each of them; 0: nine tenths of what is free at the start") \
  X(Bytes,    ssd_segment_bytes, "ssd_segment_bytes", "256MiB", "1MiB", "2GiB", \
    "size of a segment file, the unit that is reclaimed; a directory keeps the one it began with") \
  X(Switch,   ssd_sync,       "ssd_sync",       "false", "", "", \
    "blocks count as on SSD only when a power cut can't take them; without, a crash of the node can't") \
  X(Choice,   ssd_io,         "ssd_io",         "auto", "auto|threads", "", \
    "how bytes move: auto is io_uring where the kernel allows it, else threads") \
  X(Choice,   ssd_admission,  "ssd_admission",  "always", "always|twice", "", \
    "what goes to SSD: everything, or only what was used again or comes back (spares flash)") \
  X(Bytes,    ssd_write_per_hour, "ssd_write_per_hour", "0", "0", "1024PiB", \
    "bytes written to SSD in an hour at most, in all; 0: no cap") \
  X(Count,    ssd_promote_after, "ssd_promote_after", "2", "0", "63", \
    "reads of a block on SSD that move it up into memory; 0: none does") \
  X(Bytes,    scrub_rate,     "scrub_rate",     "8MiB", "0", "1TiB", \
    "bytes a second of memory, and as many of SSD, that are reread and verified in the background; 0: none") \
  X(Count,    spill_below,    "spill_below",    "5",   "1", "50", \
    "percent of the memory: with less free, the coldest blocks go to SSD") \
  X(Switch,   start_empty,    "start_empty",    "false", "", "", \
    "give up what is in the SSD directories, whosever and of whatever version it is") \
  X(Switch,   allow_weak_hash, "allow_weak_hash", "false", "", "", \
    "accept chain hashes that an attacker can make collide; such tenants can read each other's answers") \
  X(Duration, drain_budget,   "drain_budget",   "10s", "0", "1h", \
    "after SIGTERM, what is in flight may take so long to end") \
  X(Duration, hand_over_budget, "hand_over_budget", "300s", "0", "24h", \
    "a node that leaves for good hands the blocks in its memory to the others, hottest first, for so long at most; 0: it hands over none") \
  X(Bytes,    hand_over_rate, "hand_over_rate", "256MiB", "0", "1TiB", \
    "bytes a second that it hands over at most; 0: as fast as it goes") \
  X(Switch,   hand_over_on_stop, "hand_over_on_stop", "false", "", "", \
    "SIGTERM is leaving for good too: blocks are handed over and the place in the table is given up; without, the place is kept for a restart and only larderctl drain hands over") \
  X(Bytes,    repair_rate, "repair_rate", "64MiB", "0", "1TiB", \
    "bytes a second at most that this node puts elsewhere to restore copies of tenants with replicas; 0: as fast as it goes") \
  X(Count,    hot_copies, "hot_copies", "63", "0", "63", \
    "a block that is read more than its share is copied to so many other nodes at most, the next of its order; 0: to none") \
  X(Count,    hot_share, "hot_share", "10", "1", "100", \
    "percent of the reads that this node serves: what one block may make up of them before it is copied") \
  X(Bytes,    hot_rate, "hot_rate", "64MiB", "0", "1TiB", \
    "bytes a second at most that this node puts elsewhere as copies of hot blocks; 0: as fast as it goes") \
  X(Count,    near_share, "near_share", "0", "0", "90", \
    "percent of the memory that copies of other nodes' blocks may take; a block that engines on this host have read twice is copied here, and they ask here first; 0: neither here nor from here to others' hosts") \
  X(Choice,   log_level,      "log_level",      "info", "trace|debug|info|warn|error|off", "", \
    "what is logged, to standard error") \
  X(Choice,   log_format,     "log_format",     "text", "text|json", "", \
    "how a log line looks") \
  X(Path,     report,         "report",         "",    "0", "4096", \
    "file that gets the bound addresses as JSON once the node serves; empty: none")
// clang-format on

struct Config {
#define LARDER_MEMBER(kind, field, name, value, min, max, help) LARDER_FIELD_##kind field{};
  LARDER_KNOBS(LARDER_MEMBER)
#undef LARDER_MEMBER
};

enum class KnobKind : uint8_t { Text, Address, Path, Choice, Bytes, Duration, Count, Switch, List };

struct Knob {
  KnobKind kind;
  std::string_view name;
  std::variant<std::string Config::*, uint64_t Config::*, bool Config::*, std::vector<std::string> Config::*>
      field;
  std::string_view default_text, min, max, help;

  std::string flag() const;      // "--ticket-stall"
  std::string variable() const;  // "LARDER_TICKET_STALL"
  std::string range() const;     // "100ms..10m", "true or false", "host:port", ...
};

std::span<const Knob> Knobs();
const Knob* FindKnob(std::string_view name);
// Of the kinds Bytes, Duration and Count: bytes, microseconds, a whole number.
Result<uint64_t> ParseNumber(KnobKind kind, std::string_view text);
Config DefaultConfig();

// Sets one knob from text. kInvalid says what is wrong and what is allowed, without naming the knob.
Status SetKnob(const Knob& knob, std::string_view text, Config* config);
// The text that SetKnob reads back.
std::string KnobText(const Knob& knob, const Config& config);

enum class Asked : uint8_t { kRun, kPrint };  // kPrint: `output` goes to standard output, exit 0

struct LoadedConfig {
  Asked asked = Asked::kRun;
  std::string output;
  Config config = DefaultConfig();
  std::vector<Credential> credentials;
  std::vector<TenantLimits> tenants;
  std::map<std::string, std::string, std::less<>>
      sources;  // knob -> "--memory", "LARDER_MEMORY", "larder.toml:3"
};

// Reads flags, environment and file, and checks every value by itself and against the others (CheckConfig).
// `environment` is like environ: "NAME=value", ended by nullptr. A failure is one line for standard error.
Result<LoadedConfig> LoadConfig(int argc, const char* const* argv, const char* const* environment);

// When this node stands in its own list of peers (by node_id): host and weight come from there unless they
// were set, and a weight that was set and differs is refused.
Status TakeOwnEntry(LoadedConfig* loaded);

// What the knobs say together: ports that clash, a wildcard nobody can be told, limits above their totals.
Status CheckConfig(const Config& config);

// --print-config: a config file with every knob, its range, and where its value came from. Tokens stay
// hidden.
std::string PrintConfig(const LoadedConfig& loaded);
// node/CONFIG.md.
std::string ConfigReference();

// The nearest of `names` when it is near enough to be a slip of the hand, else empty.
std::string Nearest(std::string_view name, std::span<const std::string> names);

struct HostPort {
  std::string host;  // without brackets
  uint16_t port = 0;
};
// "127.0.0.1:7400", "[::1]:7400", "node-1:0".
Result<HostPort> ParseHostPort(std::string_view text);
std::string JoinHostPort(std::string_view host, uint16_t port);

}  // namespace larder::node
