#include "client/cli/router_match.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/block_stories.h"
#include "client/cli/cluster.h"
#include "client/cli/text_table.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;
namespace api = larder::control::v1;

void PrintJson(const RouterQuestion& question, const NamedBlocks& blocks, const api::MatchResponse& answer) {
  const size_t groups = question.groups.size();
  ordered_json list = ordered_json::array(), nodes = ordered_json::array();
  for (size_t i = 0; i < blocks.chain.size() * groups; ++i) {
    const auto presence = static_cast<Presence>(static_cast<uint8_t>(answer.presence()[i]));
    const uint32_t home = answer.homes(static_cast<int>(i / groups));
    list.push_back({{"hash", question.hashes[i / groups]},
                    {"group", question.groups[i % groups]},
                    {"home", answer.nodes(static_cast<int>(home)).id()},
                    {"presence", PresenceName(presence)}});
  }
  for (const auto& node : answer.nodes()) {
    ordered_json shown = {{"id", node.id()}, {"data_address", node.data_address()}};
    if (!node.error().empty()) shown["error"] = node.error();
    nodes.push_back(shown);
  }
  const ordered_json out = {{"namespace", blocks.name_space},
                            {"answered_by", question.node},
                            {"leading", answer.leading()},
                            {"nodes", nodes},
                            {"blocks", list}};
  std::printf("%s\n", out.dump().c_str());
}

void PrintText(const RouterQuestion& question, const NamedBlocks& blocks, const api::MatchResponse& answer) {
  const size_t groups = question.groups.size();
  TextTable table;
  table.Row({"HASH", "GROUP", "HOME", "PRESENCE"});
  for (size_t i = 0; i < blocks.chain.size() * groups; ++i) {
    const auto presence = static_cast<Presence>(static_cast<uint8_t>(answer.presence()[i]));
    const uint32_t home = answer.homes(static_cast<int>(i / groups));
    table.Row({question.hashes[i / groups], std::to_string(question.groups[i % groups]),
               answer.nodes(static_cast<int>(home)).id(), std::string(PresenceName(presence))});
  }
  std::fputs(table.Text().c_str(), stdout);
  for (const auto& node : answer.nodes()) {
    if (!node.error().empty()) std::printf("%s: %s\n", node.id().c_str(), node.error().c_str());
  }
  std::printf("the leading %u of %zu are there\n", answer.leading(), blocks.chain.size());
}

// Whether it is what was asked for: what prints it relies on that.
bool Fits(const RouterQuestion& question, const NamedBlocks& blocks, const api::MatchResponse& answer) {
  const size_t keys = blocks.chain.size();
  return answer.presence().size() == keys * question.groups.size() &&
         answer.homes_size() == static_cast<int>(keys) &&
         std::all_of(answer.homes().begin(), answer.homes().end(),
                     [&](uint32_t home) { return home < static_cast<uint32_t>(answer.nodes_size()); });
}

}  // namespace

int MatchAtNode(const Globals& globals, RouterQuestion question) {
  NamedBlocks blocks;
  if (const int failed =
          FindBlocks(globals, *question.name_space, question.file, &question.hashes, &blocks)) {
    return failed;
  }
  const auto& nodes = blocks.table.nodes;
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const NodeRecord& record) { return record.id == question.node; });
  if (node == nodes.end()) {
    return Fail(Invalid("no node " + question.node + "; larderctl status lists them"), kExitUsage);
  }
  api::MatchRequest request;
  request.set_hex(blocks.name_space);
  for (const ChainHash& hash : blocks.chain) {
    request.mutable_hashes()->append(reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size());
  }
  for (const uint32_t group : question.groups) request.add_groups(group);
  api::MatchResponse answer;
  const Status status = AskMatch(node->control_address, globals, request, &answer);
  if (!status.ok()) return Fail(status);
  if (!Fits(question, blocks, answer)) return Fail(Invalid(node->id + " answered another question"));
  if (globals.json()) {
    PrintJson(question, blocks, answer);
  } else {
    PrintText(question, blocks, answer);
  }
  return answer.leading() == blocks.chain.size() ? kExitOk : kExitFailed;
}

}  // namespace larder::cli
