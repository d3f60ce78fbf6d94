// larder-bench: what the store moves, beside what the machine could, in one run.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/bench/leg.h"
#include "tests/bench/limits.h"

namespace {

using larder::bench::Group;
using larder::bench::LegResult;
using larder::bench::LegSpec;
using larder::bench::Options;

struct Choice {
  std::string mode = "canonical";
  std::vector<std::string> only;
  std::string transports;
  std::string address;  // of `load`
  bool list = false;
  bool json = false;
};

// `*` stands for any text; without one the pattern may stand anywhere in the name.
bool Matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name.find(pattern) != std::string_view::npos;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at) {
    const std::string_view tail = name.substr(at);
    if (rest.find('*') == std::string_view::npos ? tail == rest : Matches(rest, tail)) return true;
  }
  return false;
}

bool ModeWants(const std::string& mode, const LegSpec& leg) {
  if (mode == "canonical") return leg.canonical;
  if (mode == "all") return leg.name.rfind("reference/", 0) != 0;
  return leg.name.rfind(mode, 0) == 0;
}

bool Wants(const Choice& choice, const LegSpec& leg) {
  if (!choice.transports.empty()) {
    const size_t slash = leg.name.find('/');
    const std::string transport = leg.name.substr(slash + 1, leg.name.find('/', slash + 1) - slash - 1);
    if (("," + choice.transports + ",").find("," + transport + ",") == std::string::npos) return false;
  }
  if (choice.only.empty()) return ModeWants(choice.mode, leg);
  for (const std::string& pattern : choice.only) {
    if (Matches(pattern, leg.name)) return true;
  }
  return false;
}

std::string LimitName(const LegSpec& leg) {
  return leg.reference.substr(0, leg.reference.find('/'));
}

void PrintJson(const LegResult& result) {
  nlohmann::ordered_json line = {
      {"name", result.leg.name}, {"value", result.median.value}, {"unit", result.leg.unit}};
  if (!result.median.error.empty()) {
    line = {{"name", result.leg.name}, {"skipped", result.median.error}};
  } else {
    if (result.median.p50_us > 0) line["p50_us"] = result.median.p50_us;
    if (result.median.p99_us > 0) line["p99_us"] = result.median.p99_us;
    if (result.median.cpu_s_per_gib > 0) line["cpu_s_per_gib"] = result.median.cpu_s_per_gib;
    if (!result.leg.reference.empty() && result.reference.error.empty()) {
      line["reference"] = LimitName(result.leg);
      line["reference_value"] = result.reference.value;
      line["ratio"] = result.ratio;
      if (result.reference.cpu_s_per_gib > 0)
        line["reference_cpu_s_per_gib"] = result.reference.cpu_s_per_gib;
      if (result.cpu_ratio > 0) line["cpu_ratio"] = result.cpu_ratio;
    }
    line["spread"] = result.spread;
    if (!result.median.detail.empty()) line["detail"] = result.median.detail;
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void PrintHead() {
  std::printf("%-30s %10s %-6s %9s %9s %8s  %-17s %9s %6s %6s\n", "leg", "value", "unit", "p50 us", "p99 us",
              "cpu/GiB", "limit", "its value", "ratio", "cpu x");
}

void PrintRow(const LegResult& result) {
  if (!result.median.error.empty()) {
    std::printf("%-30s skipped: %s\n", result.leg.name.c_str(), result.median.error.c_str());
    return;
  }
  std::printf("%-30s %10.2f %-6s %9.0f %9.0f %8.3f", result.leg.name.c_str(), result.median.value,
              result.leg.unit.c_str(), result.median.p50_us, result.median.p99_us,
              result.median.cpu_s_per_gib);
  if (!result.leg.reference.empty()) {
    if (result.reference.error.empty()) {
      std::printf("  %-17s %9.2f %6.2f %6.2f", LimitName(result.leg).c_str(), result.reference.value,
                  result.ratio, result.cpu_ratio);
    } else {
      std::printf("  %s", result.reference.error.c_str());
    }
  } else if (!result.median.detail.empty()) {
    std::printf("  %s", result.median.detail.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<std::unique_ptr<Group>> AllGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  for (auto make : {larder::bench::BlockGroups, larder::bench::MatchGroups, larder::bench::FleetGroups,
                    larder::bench::SpaceGroups, larder::bench::SsdGroups, larder::bench::RecoverGroups,
                    larder::bench::TiersGroups, larder::bench::ReferenceGroups}) {
    for (auto& group : make()) groups.push_back(std::move(group));
  }
  return groups;
}

// Legs that were chosen, by group.
using Selection = std::vector<std::pair<std::unique_ptr<Group>, std::vector<LegSpec>>>;

Selection Select(const Choice& choice) {
  const bool every = choice.list && choice.only.empty() && choice.mode == "canonical";
  Selection selection;
  for (auto& group : AllGroups()) {
    std::vector<LegSpec> wanted;
    for (const LegSpec& leg : group->legs()) {
      if (every || Wants(choice, leg)) wanted.push_back(leg);
    }
    if (!wanted.empty()) selection.emplace_back(std::move(group), std::move(wanted));
  }
  return selection;
}

bool NeedsSockets(const Selection& selection) {
  for (const auto& [group, wanted] : selection) {
    for (const LegSpec& leg : wanted) {
      if ((leg.reference + leg.name).find("sockets") != std::string::npos) return true;
    }
  }
  return false;
}

int Run(const Choice& choice, const Options& options) {
  const Selection selection = Select(choice);
  if (selection.empty()) {
    std::fprintf(stderr, "larder-bench: no leg has such a name; --list shows them all\n");
    return 2;
  }
  if (!choice.list && NeedsSockets(selection)) larder::bench::PrepareSockets(options);
  if (!choice.list && !choice.json) PrintHead();
  int failed = 0;
  for (const auto& [group, wanted] : selection) {
    if (choice.list) {
      for (const LegSpec& leg : wanted) std::printf("%s\n", leg.name.c_str());
      continue;
    }
    const std::vector<LegResult> results = RunGroup(*group, wanted, options);
    if (larder::bench::StopAsked()) return 130;
    for (const LegResult& result : results) {
      // UCX may be missing here; everything else has to run.
      if (!result.median.error.empty() && result.leg.name.find("ucx") == std::string::npos) ++failed;
      choice.json ? PrintJson(result) : PrintRow(result);
    }
  }
  if (failed > 0) std::fprintf(stderr, "larder-bench: %d legs failed\n", failed);
  return failed > 0 ? 1 : 0;
}

void AddOptions(CLI::App* app, Choice* choice, Options* options, uint64_t* working_set_mib) {
  app->add_option(
         "mode", choice->mode,
         "canonical: get and put at three sizes over tcp and shm; match; metadata; payload-share; "
         "ssd: the SSD tier beside its disk, in the working directory; tiers: what a busy one costs others; "
         "recover: restarts; "
         "reference: the limits alone; all; load: get from --address until ended; fleet: 64 doubles of nodes "
         "until ended")
      ->check(CLI::IsMember({"canonical", "match", "metadata", "payload-share", "ssd", "tiers", "recover",
                             "reference", "all", "load", "fleet"}))
      ->capture_default_str();
  app->add_flag("--list", choice->list,
                "print the names of all legs (of those that --only or the mode chooses)");
  app->add_option("--only", choice->only,
                  "legs whose name contains this; * stands for any text; may be repeated");
  app->add_option("--transport", choice->transports, "only these, by comma: tcp,shm,ucx");
  app->add_option("--seconds", options->seconds, "of one measurement")
      ->check(CLI::Range(0.05, 600.0))
      ->capture_default_str();
  app->add_option("--repeat", options->repeat, "rounds of which the median counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--working-set-mib", *working_set_mib,
                  "resident blocks of the node, and what limits walk over")
      ->check(CLI::Range(128, 1 << 20))
      ->capture_default_str();
  app->add_option("--match-keys", options->match_keys, "resident keys for match and metadata")
      ->check(CLI::Range(uint64_t{1000}, uint64_t{100'000'000}))
      ->capture_default_str();
  app->add_option("--node", options->node_program, "the larder-node to measure")->capture_default_str();
  app->add_option("--address", choice->address, "data address of the node that `load` gets from");
  app->add_flag("--json", choice->json, "one object a line");
}

}  // namespace

int main(int argc, char** argv) {
  Choice choice;
  Options options;
  const auto own = std::filesystem::read_symlink("/proc/self/exe");
  options.own_program = own.string();
  options.node_program = (own.parent_path() / "larder-node").string();
  uint64_t working_set_mib = options.working_set_bytes >> 20;
  CLI::App app{"Measures Larder beside the machine's limits, in one run, in turns; prints medians.",
               "larder-bench"};
  AddOptions(&app, &choice, &options, &working_set_mib);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (choice.mode == "load") return larder::bench::RunLoad(choice.address);
  if (choice.mode == "fleet") return larder::bench::RunFleet();
  options.working_set_bytes = working_set_mib << 20;
  options.quiet = isatty(STDERR_FILENO) == 0;
  // Nodes are ended and their folders removed on the way out.
  struct sigaction action {};
  action.sa_handler = [](int) { larder::bench::AskToStop(); };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return Run(choice, options);
}
