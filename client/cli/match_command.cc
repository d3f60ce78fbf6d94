// larderctl match: which blocks of a chain are there, and why others are not.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/blocks.h"
#include "client/cli/router_match.h"
#include "client/cli/text_table.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

struct MatchArguments {
  std::shared_ptr<NamespaceFlags> name_space;
  std::vector<std::string> hashes;
  std::string file;
  std::vector<uint32_t> groups = {0};
  std::vector<uint32_t> windows;
  std::string node;
};

Status ReadHashes(std::istream& in, std::vector<std::string>* out) {
  std::string word;
  while (in >> word) {
    if (out->size() == kHashesMax) return Invalid("more than " + std::to_string(kHashesMax) + " hashes");
    out->push_back(word);
  }
  return Status::Ok();
}

Status ParseArguments(MatchArguments* arguments, std::vector<ChainHash>* chain,
                      std::vector<GroupSpec>* groups) {
  LARDER_RETURN_IF_ERROR(ReadChain(&arguments->hashes, arguments->file, chain));
  if (arguments->windows.size() > arguments->groups.size()) return Invalid("more --window than --group");
  for (size_t i = 0; i < arguments->groups.size(); i++) {
    groups->push_back({static_cast<uint16_t>(arguments->groups[i]),
                       i < arguments->windows.size() ? arguments->windows[i] : 0});
  }
  return Status::Ok();
}

int Match(const Globals& globals, MatchArguments arguments) {
  if (!arguments.node.empty()) {
    return MatchAtNode(globals, {arguments.name_space, std::move(arguments.hashes), arguments.file,
                                 arguments.groups, arguments.node});
  }
  std::vector<ChainHash> chain;
  std::vector<GroupSpec> groups;
  if (Status status = ParseArguments(&arguments, &chain, &groups); !status.ok())
    return Fail(status, kExitUsage);
  Result<std::unique_ptr<Client>> client = Connect(globals);
  if (!client.ok()) return Fail(client.status());
  const Result<NamespaceHandle> handle = OpenNamespace(*arguments.name_space, client.value().get());
  if (!handle.ok()) return Fail(handle.status(), kExitUsage);
  MatchRequest request;
  request.chain = chain;
  request.groups = groups;
  const MatchResult result = client.value()->Match(handle.value(), request, {globals.timeout_us});
  if (!result.status.ok()) return Fail(result.status);
  const auto presence = [&](size_t key, size_t group) {
    return result.presence[key * groups.size() + group];
  };
  size_t hits = 0;
  ordered_json blocks = ordered_json::array();
  TextTable table;
  for (size_t key = 0; key < chain.size(); key++) {
    for (size_t group = 0; group < groups.size(); group++) {
      const std::string name(PresenceName(presence(key, group)));
      hits += IsHit(presence(key, group));
      if (globals.json())
        blocks.push_back(
            {{"hash", arguments.hashes[key]}, {"group", groups[group].group}, {"presence", name}});
      else
        table.Row({arguments.hashes[key],
                   groups.size() > 1 ? "group " + std::to_string(groups[group].group) : name,
                   groups.size() > 1 ? name : ""});
    }
  }
  const bool whole = hits == chain.size() * groups.size();
  if (globals.json()) {
    std::printf("%s\n", ordered_json{{"namespace", ToHex(handle.value().name_space.bytes)},
                                     {"usable_length", result.usable_length},
                                     {"hits", hits},
                                     {"blocks", blocks}}
                            .dump()
                            .c_str());
  } else {
    std::fputs(table.Text().c_str(), stdout);
    std::printf("%zu of %zu there; the leading %u of %zu can be used\n", hits, chain.size() * groups.size(),
                result.usable_length, chain.size());
  }
  return whole ? kExitOk : kExitFailed;
}

}  // namespace

Status ReadChain(std::vector<std::string>* words, const std::string& file, std::vector<ChainHash>* chain) {
  if (file == "-") {
    LARDER_RETURN_IF_ERROR(ReadHashes(std::cin, words));
  } else if (!file.empty()) {
    std::ifstream in(file);
    if (!in) return Invalid("cannot open " + file + ": " + std::strerror(errno));
    LARDER_RETURN_IF_ERROR(ReadHashes(in, words));
  }
  if (words->empty()) return Invalid("it wants hashes, as arguments or by --hashes FILE");
  if (words->size() > kHashesMax) return Invalid("at most " + std::to_string(kHashesMax) + " hashes at once");
  for (const std::string& text : *words) {
    ChainHash hash;
    const Status status = FromHex(text, &hash.bytes);
    if (!status.ok()) return Invalid("\"" + text.substr(0, 80) + "\" is no hash: 64 hex digits");
    chain->push_back(hash);
  }
  return Status::Ok();
}

void AddMatch(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("match", "which blocks of a chain are there");
  auto arguments = std::make_shared<MatchArguments>();
  arguments->name_space = AddNamespaceFlags(command);
  command->add_option("hash", arguments->hashes, "chain hashes in order, 64 hex digits each");
  command->add_option("--hashes", arguments->file, "file of hashes, by white space; - reads standard input");
  command->add_option("--group", arguments->groups, "group of the engine's cache; repeat it")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(CLI::Range(0, 65535));
  CLI::Option* windows = command
                             ->add_option("--window", arguments->windows,
                                          "blocks of that group's sliding window; 0: full attention")
                             ->expected(1)
                             ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--node", arguments->node, "ask this node for the whole cluster, as routers do")
      ->excludes(windows);
  command->callback([run, arguments] {
    *run = [arguments](const Globals& globals) { return Match(globals, *arguments); };
  });
}

}  // namespace larder::cli
