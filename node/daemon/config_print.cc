// The knob table as help, as a config file, and as the reference page.
#include <algorithm>

#include "node/daemon/config_load.h"
#include "node/version.h"
#include "proto/units.h"

namespace larder::node {
namespace {

std::string_view KindName(KnobKind kind) {
  switch (kind) {
    case KnobKind::Text:
      return "TEXT";
    case KnobKind::Address:
      return "HOST:PORT";
    case KnobKind::Path:
      return "PATH";
    case KnobKind::Choice:
      return "NAME";
    case KnobKind::Bytes:
      return "SIZE";
    case KnobKind::Duration:
      return "TIME";
    case KnobKind::Count:
      return "NUMBER";
    case KnobKind::Switch:
      return "[true|false]";
    case KnobKind::List:
      return "LIST";
  }
  return "";
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

// As TOML.
std::string Value(const Knob& knob, const Config& config) {
  const std::string text = KnobText(knob, config);
  if (knob.kind == KnobKind::Count || knob.kind == KnobKind::Switch) return text;
  if (knob.kind != KnobKind::List) return Quoted(text);
  std::string out = "[";
  for (const std::string& item : config.*std::get<std::vector<std::string> Config::*>(knob.field)) {
    out += (out.size() > 1 ? ", " : "") + Quoted(item);
  }
  return out + "]";
}

std::vector<std::string> LinesOf(const TenantLimits& limits) {
  std::vector<std::string> out = {"[[tenants]]", "name = " + Quoted(limits.name)};
  if (limits.quota_bytes != TenantLimits::kNoQuota) {
    out.push_back("quota = " + Quoted(ExactBytes(limits.quota_bytes)));
  }
  if (limits.ssd_quota_bytes != TenantLimits::kNoQuota) {
    out.push_back("ssd_quota = " + Quoted(ExactBytes(limits.ssd_quota_bytes)));
  }
  if (limits.ttl_us != 0) out.push_back("ttl = " + Quoted(ExactDuration(limits.ttl_us)));
  if (limits.pinned_bytes_max != TenantLimits::kAsTheNode) {
    out.push_back("pinned = " + Quoted(ExactBytes(limits.pinned_bytes_max)));
  }
  if (limits.pin_us_max != TenantLimits::kAsTheNode) {
    out.push_back("pin_max = " + Quoted(ExactDuration(limits.pin_us_max)));
  }
  if (limits.replicas != 1) out.push_back("replicas = " + Quoted(std::to_string(limits.replicas)));
  return out;
}

}  // namespace

std::string HelpText() {
  std::string out =
      VersionText() +
      ": keeps KV-cache blocks in memory and serves them to inference engines.\n\n"
      "  larder-node [FLAGS]\n\n"
      "Every flag --some-name is also a variable LARDER_SOME_NAME and a key some_name of the config\n"
      "file; a flag wins over a variable, a variable over the file. In brackets: default; range.\n\n"
      "  --config FILE            config file (TOML; also LARDER_CONFIG)\n"
      "  --print-config           print what would hold, as a config file, and exit\n"
      "  --print-reference        print the reference of all settings (node/CONFIG.md) and exit\n"
      "  --version, -h, --help    print that and exit\n\n";
  for (const Knob& knob : Knobs()) {
    out += "  " + knob.flag() + " " + std::string(KindName(knob.kind)) + "\n      " + std::string(knob.help) +
           " [" + (knob.default_text.empty() ? "empty" : std::string(knob.default_text)) + "; " +
           knob.range() + "]\n";
  }
  return out +
         "\nExit codes: 0 stopped as asked, 1 failed while running, 2 the configuration or the machine is "
         "at\n"
         "fault: one line on standard error says what and how to mend it.\n";
}

std::string PrintConfig(const LoadedConfig& loaded) {
  std::string out = "# " + VersionText() + "\n";
  for (const Knob& knob : Knobs()) {
    // The tables below are under the same key.
    if (knob.name == "tenants" && loaded.config.tenants.empty() && !loaded.tenants.empty()) continue;
    const auto source = loaded.sources.find(knob.name);
    out += "\n# " + std::string(knob.help) + "\n# " + knob.range() + "; from " +
           (source == loaded.sources.end() ? "default" : source->second) + "\n" + std::string(knob.name) +
           " = " + Value(knob, loaded.config) + "\n";
  }
  for (const Credential& one : loaded.credentials) {
    out += "\n# [[credentials]] name = " + Quoted(one.name) + ", tenant = " + Quoted(one.tenant) +
           ", its token is not shown\n";
  }
  // Of a file of their own only a remark.
  const std::string lead = loaded.config.tenants.empty() ? "\n" : "\n# ";
  for (const TenantLimits& one : loaded.tenants) {
    out += "\n";
    for (const std::string& line : LinesOf(one)) out += lead + line;
    out += "\n";
  }
  return out;
}

std::string ConfigReference() {
  std::string out =
      "# Settings of larder-node\n\n"
      "Made by `larder-node --print-reference > node/CONFIG.md` from the table in `node/daemon/config.h`; a "
      "test "
      "holds\n"
      "the two equal.\n\n"
      "Each setting is a flag (`--ticket-stall 5s`), a variable (`LARDER_TICKET_STALL=5s`) and a key of the "
      "config\n"
      "file (`ticket_stall = \"5s\"`; TOML, named by `--config` or `LARDER_CONFIG`). A flag wins over a "
      "variable, a\n"
      "variable over the file, the file over the default. `larder-node --print-config` shows what holds and "
      "where\n"
      "each value comes from; its output is a config file again.\n\n"
      "Sizes: `64MiB`, `64Mi` (1,024s), `2GB`, `2G` (1,000s), or bytes. Times: `5s`, `250ms`, `100us`, `2m`, "
      "`1h`.\n"
      "Lists: repeat the flag, separate by commas, or write a TOML list. What can't hold is refused at "
      "start: one\n"
      "line on standard error says what and how to mend it, exit code 2. Variables that Kubernetes makes for "
      "a\n"
      "Service called `larder` (`LARDER_PORT`, `LARDER_SERVICE_HOST`, ...) are passed over.\n\n"
      "| setting | default | range | what it does |\n|-|-|-|-|\n";
  for (const Knob& knob : Knobs()) {
    const std::string value =
        knob.default_text.empty() ? "empty" : "`" + std::string(knob.default_text) + "`";
    out += "| `" + std::string(knob.name) + "` | " + value + " | " + knob.range() + " | " +
           std::string(knob.help) + " |\n";
  }
  return out +
         "\n## Credentials\n\n"
         "With none, everybody who reaches the node may use it, as anonymous: keep it on loopback then. They "
         "stand\n"
         "in the config file, or in a file of their own that `credentials` names:\n\n"
         "```toml\n[[credentials]]\nname = \"prefill\"        # who; block headers keep its digest as the "
         "writer\n"
         "token = \"8f1c0f6f2e2b4c0d9a53\"  # 16..256 characters; clients send it\n"
         "tenant = \"\"             # the only tenant it may open; empty: any\n```\n\n"
         "The control port asks for one too before it lists or clears namespaces, and keeps to its tenant; "
         "info,\n"
         "stats, health and metrics are for everybody who reaches the port.\n\n"
         "## Tenants\n\n"
         "A client says which tenant it is when it opens a namespace; a credential may hold it to one. "
         "Limits "
         "of tenants\n"
         "stand in the config file, or in a file of their own that `tenants` names; values are texts in "
         "quotes:\n\n"
         "```toml\n[[tenants]]\n"
         "name = \"chat\"       # \"\": who names none; \"*\": each tenant that is not listed\n"
         "quota = \"64GiB\"     # of memory; for more its own coldest blocks leave; 0: nothing is taken; "
         "left "
         "out: no quota\n"
         "ssd_quota = \"1TiB\"  # the same on SSD, of what goes there\n"
         "ttl = \"24h\"         # 1s..87600h; so long after a block was put it is a miss, expired; left out: "
         "no end\n"
         "pinned = \"8GiB\"     # what matches may pin of the quota; left out: half of it\n"
         "pin_max = \"10s\"     # 0..10m, for how long; left out: as pin_max of the node\n"
         "replicas = \"2\"      # 1..4, as its clients have it; copies that are lost are restored\n"
         "```\n\n"
         "A quota is of each node; it limits, and reserves nothing. The names appear in metrics.\n\n"
         "## Membership\n\n"
         "`peers` is the same list on every node: the data address of each, with its id and weight. Only "
         "that is in\n"
         "the list; a node's other addresses (control, HTTP, shared memory, RDMA) come from the node itself "
         "when a\n"
         "client says hello. The node adds itself when the list lacks it. Raise `table_epoch` with every "
         "change;\n"
         "`larderctl doctor` finds nodes that disagree. With `dns` and `etcd` nodes keep the table "
         "themselves.\n";
}

}  // namespace larder::node
