#include "tests/demo/worker.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

bool Jobs::Next(Job* job) {
  while (jobs_.empty()) {
    if (!Read(-1)) return false;
  }
  *job = std::move(jobs_.front());
  jobs_.pop_front();
  return true;
}

bool Jobs::IsPrefilled(uint64_t id) {
  while (prefilled_ <= id && Read(0)) {
  }
  return prefilled_ > id;
}

bool Jobs::Read(int timeout_ms) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  const int ready = poll(&input, 1, timeout_ms);
  if (ready <= 0) return ready < 0 && errno == EINTR;
  char buffer[64 * 1024];
  const ssize_t bytes = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (bytes <= 0) return bytes < 0 && errno == EINTR;
  text_.append(buffer, size_t(bytes));
  for (size_t end; (end = text_.find('\n')) != std::string::npos;) {
    Take(text_.substr(0, end));
    text_.erase(0, end + 1);
  }
  return true;
}

void Jobs::Take(const std::string& line) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return;
  if (object.contains("prefilled")) {
    prefilled_ = object.value("prefilled", uint64_t{0}) + 1;
    return;
  }
  Job& job = jobs_.emplace_back();
  job.id = object.value("id", uint64_t{0});
  job.blocks = object.value("blocks", std::vector<uint64_t>{});
  for (const uint64_t block : job.blocks) job.chain.push_back(HashOf(options_.seed, block));
}

}  // namespace larder::demo
