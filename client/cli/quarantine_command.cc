// larderctl quarantine and bypass: what no node may serve any more.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <nlohmann/json.hpp>

#include "client/cli/cluster.h"
#include "client/cli/text_table.h"
#include "proto/sha256.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

namespace api = larder::control::v1;
using nlohmann::ordered_json;

struct QuarantineArguments {
  std::string writer, since;
  bool transitive = false;
};

// The name that a credential has in the nodes' file, its 64 hex digits, or "anonymous".
Digest WriterOf(const std::string& text) {
  Digest digest{};
  if (text != "anonymous" && !FromHex(text, &digest).ok()) digest = Sha256(AsBytes(text));
  return digest;
}

// "2h": so long ago. "2026-11-30T04:00:00Z", or seconds since 1970.
Result<uint64_t> SinceMs(const std::string& text) {
  tm parts{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  if (end != nullptr && *end == '\0') return static_cast<uint64_t>(timegm(&parts)) * 1000;
  if (!text.empty() && text.find_first_not_of("0123456789") == text.npos && text.size() <= 12)
    return std::stoull(text) * 1000;
  const Result<uint64_t> ago_us = ParseDurationUs(text);
  if (!ago_us.ok())
    return Invalid("--since \"" + text +
                   "\" is no time: 2026-11-30T04:00:00Z, seconds since 1970, or 2h for so long ago");
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto now_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  return now_ms - std::min(now_ms, ago_us.value() / 1000);
}

std::string Short(const std::string& hex) {
  return hex.find_first_not_of('0') == hex.npos ? "anonymous" : hex.substr(0, 16);
}

ordered_json ToJson(const std::string& node, const api::QuarantineState& state) {
  ordered_json rules = ordered_json::array();
  for (const auto& rule : state.rules()) {
    ordered_json readers = ordered_json::array();
    for (const auto& reader : rule.readers()) {
      readers.push_back({{"credential", reader.credential()},
                         {"first_unix_ms", reader.first_unix_ms()},
                         {"blocks", reader.blocks()}});
    }
    rules.push_back({{"writer", rule.writer()},
                     {"since_unix_ms", rule.since_unix_ms()},
                     {"set_unix_ms", rule.set_unix_ms()},
                     {"because", rule.because()},
                     {"readers", readers}});
  }
  return {{"node", node},
          {"bypass", state.bypass()},
          {"rules", rules},
          {"dropped_pieces", state.dropped_pieces()},
          {"readers_forgotten", state.readers_forgotten()},
          {"kept", state.kept()}};
}

void Print(const std::string& node, const api::QuarantineState& state) {
  std::printf("%s: bypass %s, %d rules, %s pieces dropped%s\n", node.c_str(), state.bypass() ? "on" : "off",
              state.rules_size(), Grouped(state.dropped_pieces()).c_str(),
              state.kept() ? "" : "; a restart forgets this (it has no state_dir and no SSD)");
  for (const auto& rule : state.rules()) {
    std::printf("  writer %s since %s%s\n", Short(rule.writer()).c_str(),
                TimeText(rule.since_unix_ms()).c_str(),
                rule.because() == rule.writer() ? "" : (", for it read " + Short(rule.because())).c_str());
    for (const auto& reader : rule.readers()) {
      std::printf("    read by %s since %s, %s blocks\n", Short(reader.credential()).c_str(),
                  TimeText(reader.first_unix_ms()).c_str(), Grouped(reader.blocks()).c_str());
    }
  }
  if (state.readers_forgotten() != 0 && state.rules_size() != 0)
    std::printf("  %s reads were forgotten: there may be more readers\n",
                Grouped(state.readers_forgotten()).c_str());
}

// Asks every node of the cluster, and shows what each has then. A node that can't be reached is a failure: it
// may still serve what was ruled out.
using Question = std::function<Status(const std::string& address, api::QuarantineState* out)>;
int OnEveryNode(const Globals& globals, const Question& question) {
  const std::vector<NodeView> nodes = LookAtCluster(globals);
  std::vector<api::QuarantineState> states(nodes.size());
  std::vector<Status> outcomes(nodes.size());
  ForEachInParallel(nodes.size(), [&](size_t i) {
    outcomes[i] = nodes[i].record.control_address.empty()
                      ? Status(Code::kUnavailable, "nobody knows its control address")
                      : question(nodes[i].record.control_address, &states[i]);
  });
  bool good = !nodes.empty();
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string& id = nodes[i].record.id;
    if (!outcomes[i].ok()) {
      good = false;
      std::fprintf(stderr, "larderctl: %s: %s\n", id.c_str(), outcomes[i].text().c_str());
      if (globals.json()) list.push_back({{"node", id}, {"error", outcomes[i].text()}});
    } else if (globals.json()) {
      list.push_back(ToJson(id, states[i]));
    } else {
      Print(id, states[i]);
    }
  }
  if (globals.json()) std::printf("%s\n", ordered_json{{"nodes", list}}.dump().c_str());
  return good ? kExitOk : kExitFailed;
}

int Add(const Globals& globals, const QuarantineArguments& arguments) {
  if (arguments.writer.empty() || arguments.since.empty())
    return Fail(Invalid("quarantine wants --writer and --since, or one of list and lift"), kExitUsage);
  const Result<uint64_t> since_ms = SinceMs(arguments.since);
  if (!since_ms.ok()) return Fail(since_ms.status(), kExitUsage);
  api::AddQuarantineRequest request;
  request.set_writer(ToHex(WriterOf(arguments.writer)));
  request.set_since_unix_ms(since_ms.value());
  request.set_transitive(arguments.transitive);
  return OnEveryNode(globals, [&](const std::string& address, api::QuarantineState* out) {
    return AskAddQuarantine(address, globals, request, out);
  });
}

int Lift(const Globals& globals, const std::string& writer) {
  api::LiftQuarantineRequest request;
  request.set_writer(ToHex(WriterOf(writer)));
  return OnEveryNode(globals, [&](const std::string& address, api::QuarantineState* out) {
    return AskLiftQuarantine(address, globals, request, out);
  });
}

int List(const Globals& globals) {
  return OnEveryNode(globals, [&](const std::string& address, api::QuarantineState* out) {
    return AskQuarantine(address, globals, out);
  });
}

int Bypass(const Globals& globals, bool on) {
  return OnEveryNode(globals, [&](const std::string& address, api::QuarantineState* out) {
    return AskBypass(address, globals, on, out);
  });
}

}  // namespace

void AddQuarantine(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("quarantine", "no node serves what a writer wrote from a time on");
  auto arguments = std::make_shared<QuarantineArguments>();
  command->add_option("--writer", arguments->writer, "credential's name, its 64 hex digits, or anonymous");
  command->add_option(
      "--since", arguments->since,
      "2026-11-30T04:00:00Z, seconds since 1970, or 2h for so long ago; by the nodes' clocks");
  command->add_flag("--transitive", arguments->transitive,
                    "also what those wrote afterwards who read it, as far as the nodes remember");
  command->require_subcommand(0, 1);
  command->callback([run, arguments, command] {
    if (command->get_subcommands().empty())
      *run = [arguments](const Globals& globals) { return Add(globals, *arguments); };
  });
  command->add_subcommand("list", "what is ruled out, and who read it")->callback([run] { *run = List; });
  CLI::App* lift = command->add_subcommand("lift", "lets a writer in again; what was dropped stays away");
  auto writer = std::make_shared<std::string>();
  lift->add_option("--writer", *writer, "as above")->required();
  lift->callback(
      [run, writer] { *run = [writer](const Globals& globals) { return Lift(globals, *writer); }; });

  CLI::App* bypass = app->add_subcommand("bypass", "on: every node answers everything as a miss");
  auto state = std::make_shared<std::string>();
  bypass->add_option("state", *state, "on or off")->required()->check(CLI::IsMember({"on", "off"}));
  bypass->callback(
      [run, state] { *run = [state](const Globals& globals) { return Bypass(globals, *state == "on"); }; });
}

}  // namespace larder::cli
