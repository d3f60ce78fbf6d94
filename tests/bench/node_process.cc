#include "tests/bench/node_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/bench/measure.h"
#include "tests/bench/process.h"

namespace larder::bench {

namespace {

constexpr uint64_t kStartTimeoutUs = 60'000'000;

// Body of an HTTP answer; empty when nobody answers. `address` is a numeric host and a port.
std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(uint16_t(std::atoi(address.c_str() + colon + 1)));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string answer;
  if (inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) == 1 &&
      connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n";
    char buffer[4096];
    ssize_t bytes = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    while (bytes > 0 && (bytes = recv(fd, buffer, sizeof(buffer), 0)) > 0)
      answer.append(buffer, size_t(bytes));
  }
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

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
        data_address_ = report.value("data_address", "");
        http_address_ = report.value("http_address", "");
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
  std::istringstream lines(HttpGet(http_address_, "/metrics"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.size() > name.size() && line.compare(0, name.size(), name) == 0 && line[name.size()] == ' ') {
      return std::atof(line.c_str() + name.size());
    }
  }
  return -1;
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
