// larderctl locate: the order of a block's homes, and which nodes have it, homes or not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <tuple>

#include "client/cli/block_stories.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

struct LocateArguments {
  std::shared_ptr<NamespaceFlags> name_space;
  std::string hash;
  uint32_t group = 0;
};

struct Place {
  BlockStory story;
  size_t rank = 0;  // in the block's order, 1 is its home; 0: takes no blocks
};

uint64_t BytesOf(const BlockStory& story) {
  uint64_t bytes = 0;
  for (const auto& piece : story.story.pieces()) bytes += piece.payload_bytes();
  return bytes;
}

void PrintJson(const NamedBlocks& blocks, const LocateArguments& arguments,
               const std::vector<Place>& places) {
  ordered_json nodes = ordered_json::array();
  for (const auto& [story, rank] : places) {
    ordered_json node = {{"id", story.node}, {"rank", rank}, {"payload_bytes", BytesOf(story)}};
    node["presence"] = story.presence();
    if (!story.error.empty()) node["error"] = story.error;
    nodes.push_back(node);
  }
  const ordered_json out = {{"namespace", blocks.name_space},
                            {"hash", arguments.hash},
                            {"slot", SlotOf(blocks.chain[0])},
                            {"nodes", nodes}};
  std::printf("%s\n", out.dump().c_str());
}

void PrintText(const NamedBlocks& blocks, const std::vector<Place>& places) {
  std::printf("slot %u\n", static_cast<unsigned>(SlotOf(blocks.chain[0])));
  TextTable text;
  text.Row({"ORDER", "NODE", "HAS IT", "PAYLOAD"});
  for (const auto& [story, rank] : places) {
    const std::string order = rank == 0 ? "-" : rank == 1 ? "home" : std::to_string(rank);
    text.Row({order, story.node, story.error.empty() ? story.presence() : story.error,
              story.there() ? PrettyBytes(static_cast<double>(BytesOf(story))) : ""});
  }
  std::fputs(text.Text().c_str(), stdout);
}

int Locate(const Globals& globals, const LocateArguments& arguments) {
  std::vector<std::string> words = {arguments.hash};
  NamedBlocks blocks;
  if (const int failed = FindBlocks(globals, *arguments.name_space, "", &words, &blocks)) return failed;
  const auto& nodes = blocks.table.nodes;
  const Placement placement(blocks.table, static_cast<uint32_t>(nodes.size()));
  const auto order = placement.Order(blocks.chain[0]);
  std::vector<Place> places(nodes.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]].rank = i + 1;
  ForEachInParallel(places.size(), [&](size_t i) {
    std::vector<BlockStory> story(1);
    AskNode(globals, nodes[i], blocks, arguments.group, {0}, &story);
    places[i].story = std::move(story[0]);
  });
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.rank == 0, a.rank, a.story.node) < std::tuple(b.rank == 0, b.rank, b.story.node);
  });
  if (globals.json()) {
    PrintJson(blocks, arguments, places);
  } else {
    PrintText(blocks, places);
  }
  const bool found =
      std::any_of(places.begin(), places.end(), [](const Place& place) { return place.story.there(); });
  return found ? kExitOk : kExitFailed;
}

}  // namespace

void AddLocate(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("locate", "the order of a block's homes, and who has it");
  auto arguments = std::make_shared<LocateArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("hash", arguments->hash, "its chain hash, 64 hex digits")->required();
  command->add_option("--group", arguments->group, "group of the engine's cache")
      ->check(CLI::Range(0, 65535));
  command->callback([run, arguments] {
    *run = [arguments](const Globals& globals) { return Locate(globals, *arguments); };
  });
}

}  // namespace larder::cli
