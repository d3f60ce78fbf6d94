#include "tests/integration/node_process.h"

#include <netdb.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

extern char** environ;

namespace larder::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kPause = std::chrono::milliseconds(5);

bool WaitFor(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace

NodeProcess::NodeProcess(std::vector<std::string> flags, std::string data_listen)
    : flags_(std::move(flags)), data_(std::move(data_listen)), control_("127.0.0.1:0"), http_("127.0.0.1:0") {
  char name[] = "/tmp/larder-test-XXXXXX";
  folder_ = mkdtemp(name);
  Start();
}

NodeProcess::~NodeProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const char* file : {"/report.json", "/shm.sock"}) unlink((folder_ + file).c_str());
  rmdir(folder_.c_str());
}

void NodeProcess::Start() {
  const std::string report_path = folder_ + "/report.json";
  unlink(report_path.c_str());
  std::vector<std::string> argv = {LARDER_NODE_PROGRAM,
                                   "--memory=64MiB",
                                   "--log-level=warn",
                                   "--report=" + report_path,
                                   "--shm-path=" + folder_ + "/shm.sock",
                                   "--data-listen=" + data_,
                                   "--control-listen=" + control_,
                                   "--http-listen=" + http_};
  argv.insert(argv.end(), flags_.begin(), flags_.end());
  std::vector<char*> pointers;
  for (std::string& text : argv) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  if (posix_spawn(&pid_, LARDER_NODE_PROGRAM, nullptr, nullptr, pointers.data(), environ) != 0) {
    pid_ = -1;
    return;
  }
  serves_ = WaitFor(
      [&] { return access(report_path.c_str(), R_OK) == 0 || waitpid(pid_, nullptr, WNOHANG) == pid_; });
  std::ifstream file(report_path);
  const auto report = nlohmann::json::parse(file, nullptr, false);
  serves_ = serves_ && report.is_object();
  if (!serves_) return;
  data_ = report.value("data", "");
  control_ = report.value("control", "");
  http_ = report.value("http", "");
}

void NodeProcess::Signal(int number) {
  if (pid_ > 0) kill(pid_, number);
}

int NodeProcess::Wait() {
  int status = 0;
  if (!WaitFor([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void NodeProcess::Restart() {
  Start();
}

std::string NodeProcess::Http(const std::string& path) const {
  const size_t colon = http_.rfind(':');
  addrinfo* found = nullptr;
  if (getaddrinfo(http_.substr(0, colon).c_str(), http_.substr(colon + 1).c_str(), nullptr, &found) != 0)
    return "";
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      for (ssize_t n; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;)
        answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  freeaddrinfo(found);
  return answer;
}

int NodeProcess::HttpStatus(const std::string& path) const {
  const std::string answer = Http(path);
  return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
}

double NodeProcess::Metric(const std::string& name) const {
  const std::string text = Http("/metrics");
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

}  // namespace larder::test
