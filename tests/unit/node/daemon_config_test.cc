// Configuration of larder-node: every knob, every layer, every way to get it wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "node/daemon/config.h"
#include "node/daemon/config_load.h"
#include "node/daemon/machine.h"
#include "proto/units.h"

namespace larder::node {
namespace {

class TempFolder {
 public:
  TempFolder() {
    char name[] = "/tmp/larder-config-test-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~TempFolder() {
    for (const std::string& file : files_) unlink(file.c_str());
    rmdir(path_.c_str());
  }
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = path_ + "/" + name;
    std::ofstream(path) << text;
    files_.insert(path);
    return path;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::set<std::string> files_;
};

Result<LoadedConfig> Load(std::vector<std::string> flags, std::vector<std::string> environment = {}) {
  std::vector<const char*> argv = {"larder-node"};
  for (const std::string& flag : flags) argv.push_back(flag.c_str());
  std::vector<const char*> variables;
  for (const std::string& variable : environment) variables.push_back(variable.c_str());
  variables.push_back(nullptr);
  return LoadConfig(static_cast<int>(argv.size()), argv.data(), variables.data());
}

std::string ErrorOf(const Result<LoadedConfig>& loaded) {
  return loaded.ok() ? "" : loaded.status().text();
}

TEST(Config, DefaultsReadBackAsThemselves) {
  const Config config = DefaultConfig();
  for (const Knob& knob : Knobs()) {
    Config other = DefaultConfig();
    EXPECT_TRUE(SetKnob(knob, KnobText(knob, config), &other).ok()) << knob.name;
    EXPECT_EQ(KnobText(knob, other), knob.default_text) << knob.name;
    EXPECT_FALSE(knob.help.empty()) << knob.name;
  }
  EXPECT_TRUE(CheckConfig(config).ok());
}

TEST(Config, KvEventsAreCheckedTogether) {
  const std::vector<std::string> listen = {"--kv-events-listen", "0.0.0.0:5557"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> flags = listen;
    flags.insert(flags.end(), more.begin(), more.end());
    return ErrorOf(Load(flags));
  };
  EXPECT_EQ(with({"--kv-events-replay-listen", "0.0.0.0:5558", "--kv-events-topic", "kv@{model}"}), "");
  EXPECT_NE(with({"--kv-events-replay-listen", "127.0.0.1:5557"}).find("both want port"), std::string::npos);
  EXPECT_NE(with({"--kv-events-topic", "kv@{model"}).find("kv_events_topic: "), std::string::npos);
  EXPECT_NE(with({"--kv-events-connect", "tcp://router:1"}).find("no host:port"), std::string::npos);
  EXPECT_NE(with({"--events-max", "0"}).find("events_max is 0"), std::string::npos);
  EXPECT_NE(ErrorOf(Load({"--kv-events-replay-listen", "127.0.0.1:1"})).find("needs kv_events_listen"),
            std::string::npos);
}

TEST(Config, EveryKnobCanBeSetByFlagVariableAndFile) {
  TempFolder folder;
  for (const Knob& knob : Knobs()) {
    if (knob.name == "membership" || knob.name.starts_with("etcd_")) continue;  // only together: below
    if (knob.name == "kv_events_replay_listen") continue;                       // the same
    if (knob.name == "dns_name" || knob.name == "dns_servers") continue;        // the same
    std::string text(knob.default_text);
    switch (knob.kind) {
      case KnobKind::Switch:
        text = text == "true" ? "false" : "true";
        break;
      case KnobKind::Count:
        text = knob.min == "0" ? "1" : std::string(knob.min);
        if (text == knob.default_text) text = "2";
        break;
      case KnobKind::Bytes:
        text = knob.name == "slab_bytes" || knob.name == "pinned_per_tenant" ? "4MiB" : "32MiB";
        break;
      case KnobKind::Duration:
        text = "7ms";
        if (knob.min == "100ms") text = "700ms";
        if (knob.min == "1s") text = "7s";
        break;
      case KnobKind::Address:
        text = "127.0.0.1:17";
        break;
      case KnobKind::Choice:
        text = knob.min.substr(knob.min.rfind('|') + 1);
        break;
      case KnobKind::List:
        text = "a@127.0.0.1:1*2,127.0.0.1:2";
        break;
      case KnobKind::Text:
        text = "some";
        break;
      case KnobKind::Path:
        text = "/tmp/some";
        break;
    }
    if (knob.name == "credentials")
      text = folder.Write("c.toml", "[[credentials]]\nname='a'\ntoken='0123456789abcdef'\n");
    if (knob.name == "tenants") text = folder.Write("t.toml", "[[tenants]]\nname='a'\n");
    if (knob.name == "kv_events_connect") text = "127.0.0.1:1,127.0.0.1:2";
    if (knob.name == "ssd_io") text = "threads";
    if (knob.name == "ssd_admission") text = "twice";
    if (knob.name == "tickets_max") text = "2000";
    const std::string file = folder.Write("f.toml", std::string(knob.name) + " = \"" + text + "\"\n");
    const Result<LoadedConfig> ways[] = {Load({knob.flag(), text}), Load({knob.flag() + "=" + text}),
                                         Load({}, {knob.variable() + "=" + text}), Load({"--config", file})};
    for (const auto& loaded : ways) {
      ASSERT_TRUE(loaded.ok()) << knob.name << ": " << ErrorOf(loaded);
      EXPECT_EQ(KnobText(knob, loaded->config), text);
      EXPECT_EQ(loaded->sources.count(std::string(knob.name)), 1u);
      EXPECT_EQ(loaded->sources.size(), 1u);
    }
  }
}

TEST(Config, EtcdsKnobsGoTogether) {
  const std::vector<std::string> all = {"--membership=etcd", "--etcd-endpoints=127.0.0.1:2379,etcd:2379",
                                        "--etcd-user=u",     "--etcd-password-file=/p",
                                        "--etcd-ca=/ca",     "--etcd-certificate=/c",
                                        "--etcd-key=/k",     "--cluster=blue"};
  const auto loaded = Load(all);
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  EXPECT_EQ(loaded->config.etcd_endpoints, (std::vector<std::string>{"127.0.0.1:2379", "etcd:2379"}));
  EXPECT_EQ(loaded->config.etcd_key, "/k");
  // Each alone, each half of a pair, and what contradicts.
  for (size_t i = 1; i < 7; ++i) EXPECT_FALSE(Load({all[i]}).ok()) << all[i];
  for (const size_t left_out : {1u, 2u, 3u, 4u, 5u, 6u}) {
    auto some = all;
    some.erase(some.begin() + static_cast<ptrdiff_t>(left_out));
    EXPECT_FALSE(Load(some).ok()) << "without " << all[left_out];
  }
  EXPECT_FALSE(Load({all[0], "--etcd-endpoints=http://127.0.0.1:2379"}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--peers=127.0.0.1:1"}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--cluster=a/b"}).ok());
}

TEST(Config, DnssKnobsGoTogether) {
  const std::vector<std::string> all = {"--membership=dns", "--dns-name=nodes.test:7401",
                                        "--dns-servers=127.0.0.1:53,[::1]:53"};
  const auto loaded = Load(all);
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  EXPECT_EQ(loaded->config.dns_servers, (std::vector<std::string>{"127.0.0.1:53", "[::1]:53"}));
  EXPECT_TRUE(Load({all[0], "--dns-name=_control._tcp.nodes.test"}).ok());
  EXPECT_FALSE(Load({all[0], "--dns-name=nodes.test"}).ok());
  EXPECT_FALSE(Load({all[0], "--dns-name=nodes.test:0"}).ok());
  EXPECT_FALSE(Load({all[0], "--dns-name=_control._tcp.nodes.test:7401"}).ok());
  EXPECT_FALSE(Load({all[0]}).ok());
  EXPECT_FALSE(Load({all[1]}).ok());
  EXPECT_FALSE(Load({all[2]}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--peers=127.0.0.1:1"}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--etcd-endpoints=127.0.0.1:2379"}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--dns-servers=127.0.0.1"}).ok());
  EXPECT_FALSE(Load({all[0], all[1], "--dns-servers=dns.test:53"}).ok());
}

TEST(Config, FlagWinsOverVariableOverFile) {
  TempFolder folder;
  const std::string file = folder.Write("f.toml", "movers = 3\nweight = 3\nzone = 'file'\n");
  const auto loaded = Load({"--config", file, "--movers", "5"}, {"LARDER_MOVERS=4", "LARDER_WEIGHT=4"});
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  EXPECT_EQ(loaded->config.movers, 5u);
  EXPECT_EQ(loaded->config.weight, 4u);
  EXPECT_EQ(loaded->config.zone, "file");
  EXPECT_EQ(loaded->sources.at("movers"), "--movers");
  EXPECT_EQ(loaded->sources.at("weight"), "LARDER_WEIGHT");
  EXPECT_EQ(loaded->sources.at("zone"), file + ":3");
}

TEST(Config, TheFileCanComeFromTheEnvironment) {
  TempFolder folder;
  const std::string file = folder.Write("f.toml", "movers = 3\n");
  EXPECT_EQ(Load({}, {"LARDER_CONFIG=" + file})->config.movers, 3u);
  const std::string other = folder.Write("g.toml", "movers = 4\n");
  EXPECT_EQ(Load({"--config", other}, {"LARDER_CONFIG=" + file})->config.movers, 4u);
}

TEST(Config, AWrongVariableIsFoundEvenWhenAFlagWins) {
  EXPECT_NE(ErrorOf(Load({"--movers", "5"}, {"LARDER_MOVERS=many"})).find("LARDER_MOVERS"),
            std::string::npos);
}

TEST(Config, SwitchesMayStandAlone) {
  const auto loaded = Load({"--allow-weak-hash", "--memory", "64MiB", "--shm", "off"});
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  EXPECT_TRUE(loaded->config.allow_weak_hash);
  EXPECT_FALSE(loaded->config.shm);
  EXPECT_EQ(loaded->config.memory_bytes, 64u << 20);
}

TEST(Config, ListsRepeatOrSplit) {
  const auto loaded = Load({"--peers", "a@127.0.0.1:1,b@127.0.0.1:2*3", "--peers", "127.0.0.1:3"});
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  EXPECT_EQ(loaded->config.peers,
            (std::vector<std::string>{"a@127.0.0.1:1", "b@127.0.0.1:2*3", "127.0.0.1:3"}));
  TempFolder folder;
  const std::string file = folder.Write("f.toml", "peers = ['a@127.0.0.1:1', '127.0.0.1:2']\n");
  EXPECT_EQ(Load({"--config", file})->config.peers.size(), 2u);
}

TEST(Config, MistakesAreOneLineThatNamesThePlaceAndTheCure) {
  struct Case {
    std::vector<std::string> flags, environment;
    std::vector<std::string> expected;  // all of these stand in the line
  };
  const Case cases[] = {
      {{"--memroy", "1GiB"}, {}, {"--memroy", "did you mean --memory"}},
      {{"--memory-bytes=1GiB"}, {}, {"--memory-bytes", "is no flag"}},
      {{"--zzzzzzzzzz"}, {}, {"--zzzzzzzzzz", "--help"}},
      {{"serve"}, {}, {"\"serve\"", "only flags"}},
      {{"--memory"}, {}, {"--memory"}},
      {{"--memory", "1GIB"}, {}, {"--memory", "unknown unit \"GIB\"", "64MiB"}},
      {{"--memory", "lots"}, {}, {"--memory", "\"lots\"", "digit"}},
      {{"--memory", "-1"}, {}, {"--memory"}},
      {{"--memory", "1MiB"}, {}, {"--memory", "out of range", "4MiB..1024PiB"}},
      {{"--memory", "99999999999999999999TiB"}, {}, {"--memory", "too large"}},
      {{"--ticket-stall", "5"}, {}, {"--ticket-stall", "the unit is missing", "250ms"}},
      {{"--ticket-stall", "5 parsecs"}, {}, {"--ticket-stall", "parsecs"}},
      {{"--movers", "0"}, {}, {"--movers", "1..64"}},
      {{"--movers", "2.5"}, {}, {"--movers", "whole number"}},
      {{"--shm", "maybe"}, {}, {"--shm", "true or false"}},
      {{"--log-level", "loud"}, {}, {"--log-level", "trace, debug, info"}},
      {{"--data-listen", "7400"}, {}, {"--data-listen", "port is missing"}},
      {{"--data-listen", "127.0.0.1:74000"}, {}, {"--data-listen", "65535"}},
      {{"--data-listen", "::1:7400"}, {}, {"brackets"}},
      {{"--data-listen", ""}, {}, {"--data-listen"}},
      {{"--control-listen", "127.0.0.1:7400"}, {}, {"control_listen", "data_listen", "7400"}},
      {{"--data-listen", "0.0.0.0:7400"}, {}, {"0.0.0.0:7400", "--advertise"}},
      {{"--advertise", "node:7400"}, {}, {"advertise", "port"}},
      {{"--node-id", "no spaces"}, {}, {"node_id"}},
      {{"--peers", "a@127.0.0.1:1,a@127.0.0.1:2"}, {}, {"peers", "twice"}},
      {{"--peers", "nonsense"}, {}, {"peers"}},
      {{"--slab-bytes", "3000KiB"}, {}, {}},
      {{"--slab-bytes", "1001KB"}, {}, {"slab_bytes", "4KiB"}},
      {{"--slab-bytes", "2GiB"}, {}, {"slab_bytes", "memory"}},
      {{"--pinned-per-tenant", "2GiB"}, {}, {"pinned_per_tenant", "memory"}},
      {{"--tickets-max", "10"}, {}, {"tickets_per_connection_max", "tickets_max"}},
      {{"--shm-path", "relative.sock"}, {}, {"shm_path", "/"}},
      {{"--zone", std::string("a\nb")}, {}, {"--zone", "control character"}},
      {{"--config", "/nowhere/larder.toml"}, {}, {"/nowhere/larder.toml", "No such file"}},
      {{"--config", "/tmp"}, {}, {"/tmp"}},
      {{"--credentials", "/nowhere/c.toml"}, {}, {"/nowhere/c.toml"}},
      {{}, {"LARDER_MEMROY=1GiB"}, {"LARDER_MEMROY", "LARDER_MEMORY"}},
      {{}, {"LARDER_memory=1GiB"}, {"LARDER_memory"}},
      {{}, {"LARDER_MEMORY=1 apple"}, {"LARDER_MEMORY: ", "apple"}},
  };
  for (const Case& each : cases) {
    const auto loaded = Load(each.flags, each.environment);
    const std::string error = ErrorOf(loaded);
    EXPECT_EQ(loaded.ok(), each.expected.empty()) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    for (const std::string& part : each.expected)
      EXPECT_NE(error.find(part), std::string::npos) << error << " | " << part;
  }
}

TEST(Config, MistakesInTheFileNameItsLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"movers = 2\nmemroy = '1GiB'\n",
       "f.toml:2: \"memroy\" is no setting of larder-node; did you mean memory?"},
      {"data-listen = 'a:1'\n", "did you mean data_listen"},
      {"movers = 2.5\n", "f.toml:1: movers: "},
      {"movers = -2\n", "negative"},
      {"movers = true\n", "wrong type"},
      {"memory = '1GIB'\n", "f.toml:1: memory: "},
      {"ticket_stall = 5\n", "the unit is missing"},
      {"[memory]\nx = 1\n", "wrong type"},
      {"peers = [1]\n", "quotes"},
      {"movers = 2\nmovers = 3\n", "f.toml:2"},
      {"movers = \n", "f.toml:1"},
      {"movers 2\n", "f.toml:1"},
      {"\x01", "f.toml:1"},
      {"[[credentials]]\nnmae = 'x'\n", "did you mean name"},
      {"[[credentials]]\nname = 'x'\n", "needs a token"},
      {"[[credentials]]\nname = 'x'\ntoken = 'short'\n", "16..256"},
      {"[[credentials]]\nname = 'x'\ntoken = 3\n", "text in quotes"},
      {"[[credentials]]\nname='x'\ntoken='0123456789abcdef'\n[[credentials]]\nname='x'\ntoken='"
       "1123456789abcdef'\n",
       "twice"},
      {"[[credentials]]\nname='x'\ntoken='0123456789abcdef'\n[[credentials]]\nname='y'\ntoken='"
       "0123456789abcdef'\n",
       "token of its own"},
      {"credentials = [1]\n", "[[credentials]]"},
      {"tenants = [1]\n", "[[tenants]]"},
      {"[[tenants]]\nttl = '1h'\n", "needs a name"},
      {"[[tenants]]\nname = 'x'\nqouta = '1GiB'\n", "did you mean quota"},
      {"[[tenants]]\nname = 'x'\nquota = 5\n", "text in quotes"},
      {"[[tenants]]\nname = 'x'\nquota = '-1'\n", "tenant \"x\": quota"},
      {"[[tenants]]\nname = 'x'\nttl = '5'\n", "tenant \"x\": ttl"},
      {"[[tenants]]\nname = 'x'\nttl = '10ms'\n", "1s..87600h"},
      {"[[tenants]]\nname = 'x'\npin_max = '11m'\n", "0..10m"},
      {"[[tenants]]\nname = 'x'\nquota = '1GiB'\npinned = '2GiB'\n", "more than its quota"},
      {"[[tenants]]\nname = 'x'\n[[tenants]]\nname = 'x'\n", "there twice"},
  };
  TempFolder folder;
  for (const auto& [text, expected] : cases) {
    const std::string error = ErrorOf(Load({"--config", folder.Write("f.toml", text)}));
    EXPECT_NE(error.find(expected), std::string::npos) << text << " -> " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Config, CredentialsComeFromOnePlace) {
  TempFolder folder;
  const std::string one = "[[credentials]]\nname = 'a'\ntoken = '0123456789abcdef'\ntenant = 't'\n";
  const std::string alone = folder.Write("c.toml", one);
  auto loaded = Load({"--credentials", alone});
  ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
  ASSERT_EQ(loaded->credentials.size(), 1u);
  EXPECT_EQ(loaded->credentials[0].tenant, "t");
  const std::string both = folder.Write("f.toml", one);
  EXPECT_TRUE(Load({"--config", both}).ok());
  EXPECT_NE(ErrorOf(Load({"--config", both, "--credentials", alone})).find("keep one"), std::string::npos);
  EXPECT_NE(
      ErrorOf(Load({"--credentials", folder.Write("m.toml", "movers = 2\n")})).find("only [[credentials]]"),
      std::string::npos);
}

TEST(Config, TenantsComeFromOnePlace) {
  TempFolder folder;
  const std::string two =
      "[[tenants]]\nname = 'chat'\nquota = '64MiB'\nssd_quota = '2GiB'\nttl = '24h'\npinned = "
      "'8MiB'\npin_max = '1500ms'\n"
      "[[tenants]]\nname = '*'\nquota = '0'\n";
  const std::string alone = folder.Write("t.toml", two);
  const std::string inside = folder.Write("f.toml", "movers = 1\n" + two);
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--tenants", alone}, std::vector<std::string>{"--config", inside}}) {
    auto loaded = Load(flags);
    ASSERT_TRUE(loaded.ok()) << ErrorOf(loaded);
    ASSERT_EQ(loaded->tenants.size(), 2u);
    const TenantLimits& chat = loaded->tenants[0];
    EXPECT_EQ(chat.name, "chat");
    EXPECT_EQ(chat.quota_bytes, 64u << 20);
    EXPECT_EQ(chat.ssd_quota_bytes, 2ull << 30);
    EXPECT_EQ(chat.ttl_us, 24 * 3'600'000'000ull);
    EXPECT_EQ(chat.pinned_bytes_max, 8u << 20);
    EXPECT_EQ(chat.pin_us_max, 1'500'000u);
    EXPECT_EQ(loaded->tenants[1].quota_bytes, 0u);
    EXPECT_EQ(loaded->tenants[1].pin_us_max, TenantLimits::kAsTheNode);
    // What is printed says the same.
    std::vector<std::string> print = flags;
    print.push_back("--print-config");
    const auto printed = Load(print);
    ASSERT_TRUE(printed.ok());
    const auto again = Load({"--config", folder.Write("g.toml", printed->output)});
    ASSERT_TRUE(again.ok()) << ErrorOf(again);
    EXPECT_EQ(again->tenants, loaded->tenants);
  }
  EXPECT_NE(ErrorOf(Load({"--config", inside, "--tenants", alone})).find("keep one"), std::string::npos);
  EXPECT_NE(ErrorOf(Load({"--tenants", folder.Write("m.toml", "movers = 2\n")})).find("only [[tenants]]"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Load({"--tenants", folder.Write("e.toml", "")})).find("no [[tenants]]"),
            std::string::npos);
}

TEST(Config, KubernetesServiceVariablesAreNoTypos) {
  for (const char* name :
       {"LARDER_PORT", "LARDER_SERVICE_HOST", "LARDER_SERVICE_PORT", "LARDER_SERVICE_PORT_DATA",
        "LARDER_PORT_7400_TCP", "LARDER_PORT_7400_TCP_ADDR", "LARDER_HEADLESS_PORT",
        "LARDER_HEADLESS_SERVICE_HOST", "LARDER_HEADLESS_PORT_7401_TCP_PROTO", "LARDER_ENDPOINTS"}) {
    EXPECT_TRUE(Load({}, {std::string(name) + "=tcp://10.0.0.1:7400"}).ok()) << name;
  }
  for (const Knob& knob : Knobs()) EXPECT_FALSE(IsServiceVariable(knob.variable())) << knob.name;
}

TEST(Config, WhatPrintConfigPrintsIsAConfigFileAgain) {
  TempFolder folder;
  const std::string secret = "0123456789abcdef-secret";
  const std::string file = folder.Write("f.toml", "[[credentials]]\nname='a'\ntoken='" + secret + "'\n");
  const auto first =
      Load({"--config", file, "--print-config", "--memory", "96MiB", "--peers", "a@127.0.0.1:1", "--peers",
            "b@127.0.0.1:2", "--pin-max", "1500us", "--pin-max", "1500ms"});
  ASSERT_TRUE(first.ok()) << ErrorOf(first);
  EXPECT_EQ(first->asked, Asked::kPrint);
  EXPECT_EQ(first->output.find(secret), std::string::npos);
  const auto second = Load({"--config", folder.Write("g.toml", first->output)});
  ASSERT_TRUE(second.ok()) << ErrorOf(second);
  for (const Knob& knob : Knobs())
    EXPECT_EQ(KnobText(knob, second->config), KnobText(knob, first->config)) << knob.name;
  EXPECT_NE(first->output.find("from --memory"), std::string::npos);
}

TEST(Config, HelpNamesEveryKnob) {
  const auto loaded = Load({"--help"});
  ASSERT_TRUE(loaded.ok());
  for (const Knob& knob : Knobs())
    EXPECT_NE(loaded->output.find("  " + knob.flag() + " "), std::string::npos);
  EXPECT_EQ(Load({"--version"})->output.find("larder-node "), 0u);
}

TEST(Config, TheReferencePageIsUpToDate) {
  std::ifstream in(LARDER_SOURCE_DIR "/node/CONFIG.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), ConfigReference()) << "run larder-node --print-reference > node/CONFIG.md";
}

TEST(Config, NearestFindsSlipsOnly) {
  const std::string names[] = {"memory", "movers", "zone"};
  EXPECT_EQ(Nearest("memroy", names), "memory");
  EXPECT_EQ(Nearest("mover", names), "movers");
  EXPECT_EQ(Nearest("credentials", names), "");
}

TEST(Machine, MemoryBeyondTheMachineIsRefusedWithWhatThereIs) {
  MachineMemory machine{8ull << 30, 2ull << 30, false};
  Config config = DefaultConfig();
  std::string warning;
  EXPECT_TRUE(CheckMemory(config, machine, &warning).ok());
  EXPECT_EQ(warning, "");
  config.memory_bytes = 4ull << 30;
  EXPECT_TRUE(CheckMemory(config, machine, &warning).ok());
  EXPECT_NE(warning.find("2 GiB"), std::string::npos) << warning;
  config.memory_bytes = 9ull << 30;
  const Status status = CheckMemory(config, machine, &warning);
  EXPECT_NE(status.text().find("only 8 GiB of RAM, 2 GiB of it available"), std::string::npos)
      << status.text();
  machine.limited = true;
  EXPECT_NE(CheckMemory(config, machine, &warning).text().find("control group"), std::string::npos);
  EXPECT_GT(ReadMachineMemory().total_bytes, 64u << 20);
}

TEST(Machine, AShmPathThatCannotBeIsRefused) {
  TempFolder folder;
  Config config = DefaultConfig();
  config.shm_path = folder.path() + "/new.sock";
  EXPECT_EQ(PrepareShmPath(config).value(), config.shm_path);
  config.shm_path = folder.Write("file", "x");
  EXPECT_NE(PrepareShmPath(config).status().text().find("no socket"), std::string::npos);
  config.shm_path = folder.path() + "/file/x.sock";
  EXPECT_NE(PrepareShmPath(config).status().text().find("--shm false"), std::string::npos);
  config.shm_path.clear();
  EXPECT_NE(PrepareShmPath(config).value().find("shm-7400.sock"), std::string::npos);
}

TEST(Units, Sizes) {
  const std::pair<const char*, uint64_t> good[] = {{"0", 0},
                                                   {"4096", 4096},
                                                   {"1KiB", 1024},
                                                   {"1Ki", 1024},
                                                   {"1kB", 1000},
                                                   {"1.5GiB", 3u << 29},
                                                   {"64 MiB", 64u << 20},
                                                   {"2GB", 2'000'000'000},
                                                   {"0.5KiB", 512},
                                                   {"3T", 3'000'000'000'000},
                                                   {"18446744073709551615", UINT64_MAX}};
  for (const auto& [text, bytes] : good) EXPECT_EQ(ParseBytes(text).value(), bytes) << text;
  for (const char* text : {"", "x", "-1", "+1", " 1", "1 ", "1.GiB", ".5GiB", "1gib", "1GiBs", "0.5", "1e3",
                           "0x10", "18446744073709551616", "16777216TiB", "0.0000001GiB", "1,5GiB"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1} << 30, UINT64_MAX}) {
    EXPECT_EQ(ParseBytes(ExactBytes(bytes)).value(), bytes);
  }
  EXPECT_EQ(PrettyBytes(819200), "800 KiB");
  EXPECT_EQ(PrettyBytes(1677721600), "1.56 GiB");
}

TEST(Units, Durations) {
  const std::pair<const char*, uint64_t> good[] = {
      {"0", 0},        {"5s", 5'000'000},   {"250ms", 250'000},   {"100us", 100},
      {"1.5ms", 1500}, {"2m", 120'000'000}, {"1h", 3'600'000'000}};
  for (const auto& [text, us] : good) EXPECT_EQ(ParseDurationUs(text).value(), us) << text;
  for (const char* text : {"", "5", "5sec", "1.5us", "-1s", "1d"})
    EXPECT_FALSE(ParseDurationUs(text).ok()) << text;
  for (const uint64_t us : {uint64_t{0}, uint64_t{1}, uint64_t{1500}, uint64_t{5'000'000}}) {
    EXPECT_EQ(ParseDurationUs(ExactDuration(us)).value(), us);
  }
}

}  // namespace
}  // namespace larder::node
