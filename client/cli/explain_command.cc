// larderctl explain: where blocks are, or why not, by what their home nodes remember.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "client/cli/block_stories.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

struct ExplainArguments {
  std::shared_ptr<NamespaceFlags> name_space;
  std::vector<std::string> hashes;
  std::string file;
  uint32_t group = 0;
};

std::string Meaning(const std::string& presence) {
  static const std::map<std::string, std::string> kMeanings = {
      {"ram", "in memory"},
      {"ssd", "on SSD"},
      {"writing", "a writer is putting it now"},
      {"never-stored", "nobody put it here, or it left before what the node remembers"},
      {"evicted", "left memory for others; the node has no SSD tier"},
      {"disk-behind",
       "left memory for others while the SSD could not take it: behind, full, or its hour's bytes used"},
      {"not-admitted", "left memory, and the admission rule kept it from SSD"},
      {"evicted-ssd", "left SSD with its segment, to make room"},
      {"disk-lost", "its disk failed"},
      {"expired", "its tenant's time to live was over"},
      {"over-quota", "its tenant's quota had no room: it was not taken, or left for others of that tenant"},
      {"place-lost", "the node was not its home for a while, and may have missed its removal"},
      {"cleared", "its namespace was cleared"},
      {"removed", "a client removed it"},
      {"corrupt", "its bytes were not what was written, so it was dropped"},
      {"quarantined", "an operator quarantined its writer"},
      {"bypassed", "an operator has everything answered as a miss"},
      {"uncovered", "some of it is here, not the whole block"},
      {"busy", "the node had too much to look at; ask again"},
      {"unreachable", "its home node does not answer"},
  };
  const auto found = kMeanings.find(presence);
  return found == kMeanings.end() ? "" : found->second;
}

ordered_json ToJson(const std::string& hash, uint32_t group, const BlockStory& answer) {
  const std::string presence = answer.presence();
  ordered_json out = {{"hash", hash},
                      {"group", group},
                      {"home", answer.node},
                      {"presence", presence},
                      {"meaning", Meaning(presence)}};
  if (!answer.error.empty()) out["error"] = answer.error;
  if (answer.story.left_unix_ms() != 0) out["left_unix_ms"] = answer.story.left_unix_ms();
  if (answer.since_ms != 0) out["remembers_since_unix_ms"] = answer.since_ms;
  ordered_json pieces = ordered_json::array();
  for (const auto& each : answer.story.pieces()) {
    pieces.push_back({{"tier", each.tier()},
                      {"layers", {each.layer_begin(), each.layer_end()}},
                      {"heads", {each.head_begin(), each.head_end()}},
                      {"payload_bytes", each.payload_bytes()},
                      {"created_unix_ms", each.created_unix_ms()},
                      {"writer", each.writer()},
                      {"pinned", each.pinned()}});
  }
  out["pieces"] = pieces;
  return out;
}

void Print(const std::string& hash, const BlockStory& answer) {
  const std::string presence = answer.presence();
  std::printf("%s  on %s: %s (%s)\n", hash.c_str(), answer.node.c_str(), presence.c_str(),
              Meaning(presence).c_str());
  if (!answer.error.empty()) std::printf("    %s\n", answer.error.c_str());
  if (answer.story.left_unix_ms() != 0)
    std::printf("    left %s\n", TimeText(answer.story.left_unix_ms()).c_str());
  if (presence == "never-stored" && answer.since_ms != 0)
    std::printf("    the node remembers since %s\n", TimeText(answer.since_ms).c_str());
  for (const auto& each : answer.story.pieces()) {
    std::printf("    %s  layers %u-%u heads %u-%u  %s  written %s%s%s\n", each.tier().c_str(),
                each.layer_begin(), each.layer_end(), each.head_begin(), each.head_end(),
                PrettyBytes(static_cast<double>(each.payload_bytes())).c_str(),
                TimeText(each.created_unix_ms()).c_str(),
                each.writer().empty() ? "" : (" by " + each.writer().substr(0, 16)).c_str(),
                each.pinned() ? "  pinned" : "");
  }
}

int Explain(const Globals& globals, ExplainArguments arguments) {
  NamedBlocks blocks;
  if (const int failed =
          FindBlocks(globals, *arguments.name_space, arguments.file, &arguments.hashes, &blocks)) {
    return failed;
  }
  const Placement placement(blocks.table, 1);
  std::map<uint16_t, std::vector<size_t>> of_home;
  std::vector<BlockStory> answers(blocks.chain.size());
  for (size_t i = 0; i < blocks.chain.size(); ++i) {
    const auto order = placement.Order(blocks.chain[i]);
    if (order.empty()) {
      answers[i].error = "the table has no node that is active";
    } else {
      of_home[order[0]].push_back(i);
    }
  }
  const std::vector<std::pair<uint16_t, std::vector<size_t>>> homes(of_home.begin(), of_home.end());
  ForEachInParallel(homes.size(), [&](size_t i) {
    AskNode(globals, blocks.table.nodes[homes[i].first], blocks, arguments.group, homes[i].second, &answers);
  });
  bool all_there = true;
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    all_there = all_there && answers[i].there();
    if (globals.json()) {
      out.push_back(ToJson(arguments.hashes[i], arguments.group, answers[i]));
    } else {
      Print(arguments.hashes[i], answers[i]);
    }
  }
  if (globals.json())
    std::printf("%s\n", ordered_json{{"namespace", blocks.name_space}, {"blocks", out}}.dump().c_str());
  return all_there ? kExitOk : kExitFailed;
}

}  // namespace

void AddExplain(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("explain", "where blocks are, or why they are not");
  auto arguments = std::make_shared<ExplainArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("hash", arguments->hashes,
                      "a block's chain hash, or those of a chain; 64 hex digits each");
  command->add_option("--hashes", arguments->file, "file of hashes, by white space; - reads standard input");
  command->add_option("--group", arguments->group, "group of the engine's cache")
      ->check(CLI::Range(0, 65535));
  command->callback([run, arguments] {
    *run = [arguments](const Globals& globals) { return Explain(globals, *arguments); };
  });
}

}  // namespace larder::cli
