// larderctl locate: the order of a block's homes, and which nodes have it, homes or not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/blocks.h"
#include "client/cli/cluster.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

namespace api = larder::control::v1;
using nlohmann::ordered_json;

struct Arguments {
  std::shared_ptr<NamespaceFlags> name_space;
  std::string hash;
  uint32_t group = 0;
};

struct Place {
  NodeRecord node;
  size_t rank = 0;  // in the block's order, 1 is its home; 0: takes no blocks
  std::string presence;
  std::string error;
  uint64_t bytes = 0;
  bool there() const { return presence == "ram" || presence == "ssd"; }
};

void Ask(const Globals& globals, const std::string& hex, const ChainHash& hash, uint32_t group,
         Place* place) {
  api::ExplainRequest request;
  request.set_hex(hex);
  api::ExplainRequest::Block* block = request.add_blocks();
  block->set_hash(hash.bytes.data(), hash.bytes.size());
  block->set_group(group);
  api::ExplainResponse response;
  const Status status = AskExplain(place->node.control_address, globals, request, &response);
  if (status.code() == Code::kNotFound) {
    place->presence = "never-stored";
  } else if (!status.ok() || response.blocks_size() != 1) {
    place->error = status.ok() ? "a short answer" : status.text();
  } else {
    place->presence = response.blocks(0).presence();
    for (const auto& piece : response.blocks(0).pieces()) place->bytes += piece.payload_bytes();
  }
}

int Locate(const Globals& globals, const Arguments& arguments) {
  std::vector<std::string> words = {arguments.hash};
  std::vector<ChainHash> chain;
  if (Status status = ReadChain(&words, "", &chain); !status.ok()) return Fail(status, kExitUsage);
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  const Result<NamespaceHandle> handle = OpenNamespace(*arguments.name_space, client.value().get());
  if (!handle.ok()) return Fail(handle.status(), kExitUsage);
  const std::string hex = ToHex(handle.value().name_space.bytes);
  const NodeTable table = TableWithControl(globals, *client.value());
  const Placement placement(table, static_cast<uint32_t>(table.nodes.size()));
  const auto order = placement.Order(chain[0]);
  std::vector<Place> places(table.nodes.size());
  for (size_t i = 0; i < places.size(); ++i) places[i].node = table.nodes[i];
  for (size_t i = 0; i < order.size(); ++i) places[order[i]].rank = i + 1;
  ForEachInParallel(places.size(),
                    [&](size_t i) { Ask(globals, hex, chain[0], arguments.group, &places[i]); });
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tuple(a.rank == 0, a.rank, a.node.id) < std::tuple(b.rank == 0, b.rank, b.node.id);
  });
  const bool found =
      std::any_of(places.begin(), places.end(), [](const Place& place) { return place.there(); });
  if (globals.json()) {
    ordered_json nodes = ordered_json::array();
    for (const Place& place : places) {
      ordered_json node = {{"id", place.node.id}, {"rank", place.rank}, {"payload_bytes", place.bytes}};
      node[place.error.empty() ? "presence" : "error"] = place.error.empty() ? place.presence : place.error;
      nodes.push_back(node);
    }
    std::printf(
        "%s\n",
        ordered_json{
            {"namespace", hex}, {"hash", arguments.hash}, {"slot", SlotOf(chain[0])}, {"nodes", nodes}}
            .dump()
            .c_str());
    return found ? kExitOk : kExitFailed;
  }
  std::printf("slot %u\n", static_cast<unsigned>(SlotOf(chain[0])));
  TextTable text;
  text.Row({"ORDER", "NODE", "HAS IT", "PAYLOAD"});
  for (const Place& place : places) {
    text.Row({place.rank == 0   ? "-"
              : place.rank == 1 ? "home"
                                : std::to_string(place.rank),
              place.node.id, place.error.empty() ? place.presence : place.error,
              place.there() ? PrettyBytes(static_cast<double>(place.bytes)) : ""});
  }
  std::fputs(text.Text().c_str(), stdout);
  return found ? kExitOk : kExitFailed;
}

}  // namespace

void AddLocate(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("locate", "the order of a block's homes, and who has it");
  auto arguments = std::make_shared<Arguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("hash", arguments->hash, "its chain hash, 64 hex digits")->required();
  command->add_option("--group", arguments->group, "group of the engine's cache")
      ->check(CLI::Range(0, 65535));
  command->callback([run, arguments] {
    *run = [arguments](const Globals& globals) { return Locate(globals, *arguments); };
  });
}

}  // namespace larder::cli
