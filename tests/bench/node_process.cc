#include "tests/bench/node_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/bench/http_get.h"
#include "tests/bench/measure.h"
#include "tests/bench/process.h"

namespace larder::bench {

namespace {

constexpr uint64_t kStartTimeoutUs = 60'000'000;

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace

std::unique_ptr<NodeProcess> NodeProcess::Start(const NodeSpec& spec, std::string* error) {
  char folder[] = "/tmp/larder-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) {
    *error = "no temporary folder in /tmp";
    return nullptr;
  }
  auto node = std::unique_ptr<NodeProcess>(new NodeProcess);
  node->folder_ = folder;
  SpawnOptions spawn;
  spawn.argv = {spec.program,
                "--data-listen=127.0.0.1:0",
                "--control-listen=127.0.0.1:0",
                "--http-listen=127.0.0.1:0",
                "--memory=" + std::to_string(spec.memory_bytes >> 10) + "KiB",
                "--shm=" + std::string(spec.transport == "shm" ? "true" : "false"),
                "--shm-path=" + node->folder_ + "/shm.sock",
                "--log-level=warn",
                "--report=" + node->folder_ + "/report.json"};
  if (spec.transport == "ucx") spawn.argv.push_back("--ucx-listen=127.0.0.1:0");
  spawn.argv.insert(spawn.argv.end(), spec.flags.begin(), spec.flags.end());
  const std::string log = node->folder_ + "/log";
  spawn.output_fd = open(log.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  node->pid_ = Spawn(spawn);
  close(spawn.output_fd);
  if (!node->WaitUntilReady(error)) return nullptr;
  return node;
}

bool NodeProcess::WaitUntilReady(std::string* error) {
  const uint64_t end_us = NowUs() + kStartTimeoutUs;
  while (NowUs() < end_us) {
    if (!IsAlive(pid_)) {
      *error = "larder-node did not start: " + LastLine(folder_ + "/log");
      return false;
    }
    if (data_address_.empty()) {
      std::ifstream file(folder_ + "/report.json");
      const auto report = nlohmann::json::parse(file, nullptr, false);
      if (report.is_object()) {
        data_address_ = report.value("data", "");
        http_address_ = report.value("http", "");
      }
    } else if (Metric("larder_ready") > 0 && Metric("larder_memory_bytes{kind=\"prefaulted\"}") >=
                                                 Metric("larder_memory_bytes{kind=\"slabs\"}")) {
      return true;
    }
    usleep(20'000);
  }
  *error = "larder-node is not ready after a minute: " + LastLine(folder_ + "/log");
  return false;
}

NodeProcess::~NodeProcess() {
  End(pid_, 3000);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

double NodeProcess::Metric(const std::string& name) const {
  return MetricIn(HttpGet(http_address_, "/metrics"), name);
}

uint64_t NodeProcess::AnonymousBytes() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == "RssAnon:" && file >> kib) return kib << 10;
  }
  return 0;
}

}  // namespace larder::bench
