// larderctl explain: where blocks are, or why not, by what their home nodes remember.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
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
  std::vector<std::string> hashes;
  std::string file;
  uint32_t group = 0;
};

// One block's answer, or why there is none.
struct Answer {
  std::string home;      // node id
  std::string error;     // the home did not answer
  bool unknown = false;  // the home has never heard of the namespace
  api::ExplainResponse::Block story;
  uint64_t since_ms = 0;
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
      {"expired", "its time was over"},
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

std::string PresenceOf(const Answer& answer) {
  if (!answer.error.empty()) return "unreachable";
  return answer.unknown ? "never-stored" : answer.story.presence();
}

bool IsThere(const std::string& presence) {
  return presence == "ram" || presence == "ssd";
}

// Asks one home for its blocks; `places` are their places in `answers`.
void AskHome(const Globals& globals, const NodeRecord& home, const std::string& hex, uint32_t group,
             const std::vector<ChainHash>& chain, const std::vector<size_t>& places,
             std::vector<Answer>* answers) {
  for (size_t begin = 0; begin < places.size(); begin += kBlocksMax) {
    const size_t end = std::min<size_t>(places.size(), begin + kBlocksMax);
    api::ExplainRequest request;
    request.set_hex(hex);
    for (size_t i = begin; i < end; ++i) {
      const auto& bytes = chain[places[i]].bytes;
      api::ExplainRequest::Block* block = request.add_blocks();
      block->set_hash(bytes.data(), bytes.size());
      block->set_group(group);
    }
    api::ExplainResponse response;
    const Status status = AskExplain(home.control_address, globals, request, &response);
    for (size_t i = begin; i < end; ++i) {
      Answer& answer = (*answers)[places[i]];
      answer.home = home.id;
      answer.since_ms = response.remembers_since_unix_ms();
      answer.unknown = status.code() == Code::kNotFound;
      const bool short_answer = static_cast<size_t>(response.blocks_size()) != end - begin;
      if (answer.unknown) continue;
      if (!status.ok() || short_answer) {
        answer.error = status.ok() ? "a short answer" : status.text();
      } else {
        answer.story = response.blocks(static_cast<int>(i - begin));
      }
    }
  }
}

ordered_json ToJson(const std::string& hash, uint32_t group, const Answer& answer) {
  const std::string presence = PresenceOf(answer);
  ordered_json out = {{"hash", hash},
                      {"group", group},
                      {"home", answer.home},
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

void Print(const std::string& hash, const Answer& answer) {
  const std::string presence = PresenceOf(answer);
  std::printf("%s  on %s: %s (%s)\n", hash.c_str(), answer.home.c_str(), presence.c_str(),
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

int Explain(const Globals& globals, Arguments arguments) {
  std::vector<ChainHash> chain;
  if (Status status = ReadChain(&arguments.hashes, arguments.file, &chain); !status.ok())
    return Fail(status, kExitUsage);
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  const Result<NamespaceHandle> handle = OpenNamespace(*arguments.name_space, client.value().get());
  if (!handle.ok()) return Fail(handle.status(), kExitUsage);
  const std::string hex = ToHex(handle.value().name_space.bytes);
  const NodeTable table = TableWithControl(globals, *client.value());
  const Placement placement(table, 1);
  std::map<uint16_t, std::vector<size_t>> of_home;
  std::vector<Answer> answers(chain.size());
  for (size_t i = 0; i < chain.size(); ++i) {
    const auto order = placement.Order(chain[i]);
    if (order.empty()) {
      answers[i].error = "the table has no node that is active";
    } else {
      of_home[order[0]].push_back(i);
    }
  }
  const std::vector<std::pair<uint16_t, std::vector<size_t>>> homes(of_home.begin(), of_home.end());
  ForEachInParallel(homes.size(), [&](size_t i) {
    AskHome(globals, table.nodes[homes[i].first], hex, arguments.group, chain, homes[i].second, &answers);
  });
  bool all_there = true;
  ordered_json blocks = ordered_json::array();
  for (size_t i = 0; i < chain.size(); ++i) {
    all_there = all_there && IsThere(PresenceOf(answers[i]));
    if (globals.json()) {
      blocks.push_back(ToJson(arguments.hashes[i], arguments.group, answers[i]));
    } else {
      Print(arguments.hashes[i], answers[i]);
    }
  }
  if (globals.json())
    std::printf("%s\n", ordered_json{{"namespace", hex}, {"blocks", blocks}}.dump().c_str());
  return all_there ? kExitOk : kExitFailed;
}

}  // namespace

void AddExplain(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("explain", "where blocks are, or why they are not");
  auto arguments = std::make_shared<Arguments>();
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
