#include "tests/demo/worker.h"

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/demo/content.h"

namespace larder::demo {

namespace {

constexpr uint64_t kBatchBytes = 32ull << 20;
constexpr uint64_t kBatchBlocks = 16;

}  // namespace

Result<Larder> OpenLarder(const WorkerOptions& options, const std::string& name, bool ready) {
  // Ctrl-C reaches the whole group; the coordinator ends its workers in order.
  if (ready) signal(SIGINT, SIG_IGN);
  ClientOptions client_options;
  client_options.seeds = options.nodes;
  client_options.transport = options.transport;
  client_options.client_name = "larder-demo " + name;
  auto client = Client::Open(client_options);
  if (!client.ok()) return client.status();
  Identity identity;
  LARDER_RETURN_IF_ERROR(identity.Set("kind", "opaque"));
  LARDER_RETURN_IF_ERROR(identity.Set("model", "larder-demo"));
  Larder larder;
  larder.client = std::move(client).value();
  auto name_space = larder.client->OpenNamespace(identity, "demo");
  if (!name_space.ok()) return name_space.status();
  larder.name_space = name_space.value();
  larder.batch_blocks = uint32_t(std::clamp<uint64_t>(kBatchBytes / options.block_bytes, 1, kBatchBlocks));
  if (ready) std::cout << "{\"ready\": true}" << std::endl;
  return larder;
}

bool NextJob(const WorkerOptions& options, Job* job) {
  std::string line;
  if (!std::getline(std::cin, line)) return false;
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return false;
  job->id = object.value("id", uint64_t{0});
  job->blocks = object.value("blocks", std::vector<uint64_t>{});
  job->chain.clear();
  for (const uint64_t block : job->blocks) job->chain.push_back(HashOf(options.seed, block));
  return true;
}

}  // namespace larder::demo
