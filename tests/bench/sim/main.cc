// larder-sim: what a cache of a given size would hit on a trace, under the very policies that the node runs.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/sim/advise.h"
#include "tests/bench/sim/cluster.h"

namespace larder::sim {
namespace {

constexpr std::string_view kMin = "min";  // not a policy of nodes: it knows the future

struct Choice {
  std::vector<std::string> traces;
  std::vector<std::string> policies;
  std::vector<double> sizes_percent;
  uint32_t tiers = 1;
  double ssd_percent = 20;
  std::string admission = "always";
  uint32_t promote_on = 2;
  bool demote_partial = false;
  uint32_t nodes = 1;
  uint32_t hot_copies = 0;
  bool json = false;
  bool advise = false;
  std::string svg;
};

struct Cell {
  std::string trace, policy;
  double size_percent = 0;
  PlayResult result;
};

uint64_t BlocksOf(const SimTrace& trace, double percent) {
  return static_cast<uint64_t>(static_cast<double>(trace.distinct) * percent / 100 + 0.5);
}

PlayResult PlayCell(const SimTrace& trace, const Choice& choice, const std::string& policy, double percent) {
  if (policy == kMin) return PlayMin(trace, BlocksOf(trace, percent));
  ClusterOptions options;
  options.cache.policy = *node::PolicyOfName(policy);
  options.cache.ram_blocks = BlocksOf(trace, percent);
  if (choice.tiers == 2) options.cache.ssd_blocks = BlocksOf(trace, choice.ssd_percent);
  options.cache.admission = choice.admission == "twice" ? Admission::kTwice : Admission::kAlways;
  options.cache.promote_on = choice.promote_on;
  options.cache.demote_partial = choice.demote_partial;
  options.nodes = choice.nodes;
  options.hot_copies = choice.hot_copies;
  return Play(trace, options);
}

void PrintJson(const Cell& cell, const Choice& choice) {
  nlohmann::ordered_json line = {{"trace", cell.trace},
                                 {"policy", cell.policy},
                                 {"tiers", choice.tiers},
                                 {"size_percent", cell.size_percent},
                                 {"hit_percent", cell.result.hit_percent()}};
  if (cell.policy == node::PolicyName(node::kPolicyDefault)) line["default"] = true;
  if (choice.nodes > 1) {
    line["nodes"] = choice.nodes;
    line["hot_copies"] = choice.hot_copies;
    line["load_max_over_mean"] = cell.result.load_max_over_mean;
  }
  if (choice.tiers == 2) {
    line["ssd_percent"] = choice.ssd_percent;
    line["admission"] = choice.admission;
    line["ram_hit_percent"] = cell.result.ram_hit_percent();
    line["ssd_hit_percent"] = cell.result.hit_percent() - cell.result.ram_hit_percent();
    line["ssd_writes"] = cell.result.ssd_writes;
    line["ssd_writes_per_block"] = cell.result.ssd_writes_per_block();
  }
  if (!cell.result.following.empty() && cell.result.following != cell.policy) {
    line["following"] = cell.result.following;
  }
  line["references"] = cell.result.references;
  line["references_per_second"] = static_cast<double>(cell.result.references) / cell.result.seconds;
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

void PrintRow(const Cell& cell, const Choice& choice) {
  std::printf("%-24s %-11s %6.1f %8.2f", cell.trace.c_str(), cell.policy.c_str(), cell.size_percent,
              cell.result.hit_percent());
  if (choice.tiers == 2) {
    std::printf(" %8.2f %8.2f", cell.result.ram_hit_percent(), cell.result.ssd_writes_per_block());
  }
  if (choice.nodes > 1) std::printf(" %8.2f", cell.result.load_max_over_mean);
  std::printf(" %8.2f  %s\n", static_cast<double>(cell.result.references) / cell.result.seconds * 1e-6,
              cell.result.following == cell.policy ? "" : cell.result.following.c_str());
  std::fflush(stdout);
}

void PrintHead(const Choice& choice) {
  std::printf("%-24s %-11s %6s %8s", "trace", "policy", "size %", "hit %");
  if (choice.tiers == 2) std::printf(" %8s %8s", "in RAM %", "writes/b");
  if (choice.nodes > 1) std::printf(" %8s", "load max");
  std::printf(" %8s  %s\n", "Mref/s", "followed at the end");
}

int Run(const Choice& choice) {
  if (!choice.json && !choice.advise) PrintHead(choice);
  for (const std::string& path : choice.traces) {
    const Result<SimTrace> trace = ReadSimTrace(path);
    if (!trace.ok()) {
      std::fprintf(stderr, "larder-sim: %s\n", trace.status().text().c_str());
      return 2;
    }
    if (choice.advise) {
      const Advice advice = Advise(trace.value());
      std::printf("%s", AdviceTable(advice).c_str());
      const std::string svg = choice.svg.empty() ? trace.value().name + ".svg" : choice.svg;
      if (!(std::ofstream(svg) << AdviceSvg(advice)).flush()) {
        std::fprintf(stderr, "larder-sim: %s can't be written; name another file with --svg\n", svg.c_str());
        return 2;
      }
      std::printf("\nThe same as a picture: %s\n", svg.c_str());
      continue;
    }
    for (const std::string& policy : choice.policies) {
      for (const double percent : choice.sizes_percent) {
        const Cell cell{trace.value().name, policy, percent,
                        PlayCell(trace.value(), choice, policy, percent)};
        choice.json ? PrintJson(cell, choice) : PrintRow(cell, choice);
      }
    }
  }
  return 0;
}

void AddOptions(CLI::App* app, Choice* choice) {
  std::vector<std::string> names = {"default", std::string(kMin)};
  for (const node::PolicyKind kind : node::kPolicyKinds) names.emplace_back(node::PolicyName(kind));
  app->add_option("trace", choice->traces,
                  "files of the Mooncake format: one JSON object a line with timestamp (ms) and hash_ids")
      ->required();
  app->add_option("--policy", choice->policies,
                  "what decides who leaves; may be repeated (default: all, and min)")
      ->check(CLI::IsMember(names));
  app->add_option("--size", choice->sizes_percent,
                  "RAM in percent of the trace's distinct blocks; may be repeated (default: 1 2 5 10 20 40)")
      ->check(CLI::Range(0.001, 100.0));
  app->add_option("--tiers", choice->tiers, "2: an SSD below the RAM")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app->add_option("--ssd", choice->ssd_percent, "SSD in percent of the distinct blocks, with --tiers 2")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  app->add_option("--admission", choice->admission,
                  "to SSD: always, or twice: only blocks that were used twice")
      ->check(CLI::IsMember({"always", "twice"}))
      ->capture_default_str();
  app->add_option("--promote-on", choice->promote_on, "the SSD hit that brings a block back to RAM")
      ->check(CLI::Range(1, 2))
      ->capture_default_str();
  app->add_flag("--demote-partial", choice->demote_partial, "partly filled blocks go to SSD too");
  app->add_option("--nodes", choice->nodes,
                  "the cache is divided over so many nodes, each with its own policy")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  app->add_option("--hot-copies", choice->hot_copies, "at most so many hot blocks are copied to every node")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app->add_flag("--json", choice->json, "one object a line");
  app->add_flag("--advise", choice->advise, "how much RAM and SSD is worth having: a table and an SVG plot");
  app->add_option("--svg", choice->svg, "file of that plot (default: the trace's name with .svg, here)");
}

int Main(int argc, char** argv) {
  Choice choice;
  CLI::App app{"Plays a trace against the node's eviction policies.", "larder-sim"};
  AddOptions(&app, &choice);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (choice.policies.empty()) {
    for (const node::PolicyKind kind : node::kPolicyKinds)
      choice.policies.emplace_back(node::PolicyName(kind));
    if (choice.tiers == 1 && choice.nodes == 1) choice.policies.emplace_back(kMin);
  }
  for (std::string& policy : choice.policies) {
    if (policy == "default") policy = node::PolicyName(node::kPolicyDefault);
    if (policy == kMin && (choice.tiers != 1 || choice.nodes != 1)) {
      std::fprintf(
          stderr,
          "larder-sim: min is the optimum of one node with one tier; leave out --nodes and --tiers\n");
      return 2;
    }
  }
  if (choice.sizes_percent.empty()) choice.sizes_percent = {1, 2, 5, 10, 20, 40};
  return Run(choice);
}

}  // namespace
}  // namespace larder::sim

int main(int argc, char** argv) {
  return larder::sim::Main(argc, argv);
}
