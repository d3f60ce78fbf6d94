// larderctl doctor: looks for what is wrong and says how to mend it.
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/findings.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

// Empty when the other side takes the connection in time.
std::string TryConnect(int family, const sockaddr* address, socklen_t size, uint64_t timeout_us) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return std::strerror(errno);
  int error = connect(fd, address, size) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd wait{fd, POLLOUT, 0};
    if (poll(&wait, 1, static_cast<int>(timeout_us / 1000) + 1) != 1) {
      error = ETIMEDOUT;
    } else {
      socklen_t length = sizeof error;
      getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  close(fd);
  return error == 0 ? "" : std::strerror(error);
}

std::string TryTcp(const std::string& text, uint64_t timeout_us) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return "that is no address";
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), text.substr(colon + 1).c_str(), &hints, &found);
      error != 0) {
    return gai_strerror(error);
  }
  const std::string result = TryConnect(found->ai_family, found->ai_addr, found->ai_addrlen, timeout_us);
  freeaddrinfo(found);
  return result;
}

std::string TryUnix(const std::string& path, uint64_t timeout_us) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return "the path is too long";
  std::memcpy(address.sun_path, path.c_str(), path.size());
  return TryConnect(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address, timeout_us);
}

std::string FirstLine(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int Doctor(const Globals& globals) {
  const std::vector<NodeView> views = LookAtCluster(globals);
  const LocalFacts local = ReadLocalFacts();
  std::vector<Probe> probes(views.size());
  ForEachInParallel(views.size(),
                    [&](size_t i) { probes[i] = TryPorts(views[i], local, globals.timeout_us); });
  const std::vector<Finding> findings = Judge(views, probes, local);
  const auto problems =
      std::count_if(findings.begin(), findings.end(), [](const Finding& each) { return each.problem; });
  if (globals.json()) {
    ordered_json list = ordered_json::array(), notes = ordered_json::array();
    for (const Finding& each : findings)
      (each.problem ? list : notes).push_back({{"what", each.what}, {"mend", each.mend}});
    std::printf("%s\n",
                ordered_json{{"nodes", views.size()}, {"findings", list}, {"notes", notes}}.dump().c_str());
  } else {
    for (const Finding& each : findings) {
      std::printf("%s %s\n        mend: %s\n", each.problem ? "FINDING" : "note   ", each.what.c_str(),
                  each.mend.c_str());
    }
    std::printf("%zu node%s looked at: %s\n", views.size(), views.size() == 1 ? "" : "s",
                problems == 0 ? "all is well" : (std::to_string(problems) + " findings").c_str());
  }
  return problems == 0 ? kExitOk : kExitFailed;
}

}  // namespace

LocalFacts ReadLocalFacts() {
  LocalFacts out;
  out.host_id = FirstLine("/proc/sys/kernel/random/boot_id");
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) out.open_files_max = limit.rlim_max;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0)
    out.locked_bytes_max = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.rfind("HugePages_Total:", 0) == 0) std::istringstream(line.substr(16)) >> out.huge_pages_total;
  }
  // The chosen one stands in brackets: "always within_size advise [never] deny force".
  const std::string choices = FirstLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  const size_t begin = choices.find('['), end = choices.find(']');
  if (begin != choices.npos && end != choices.npos && begin < end)
    out.shmem_huge = choices.substr(begin + 1, end - begin - 1);
  return out;
}

Probe TryPorts(const NodeView& view, const LocalFacts& local, uint64_t timeout_us) {
  Probe out;
  const NodeRecord& record = view.record;
  if (!record.http_address.empty()) out.http_error = TryTcp(record.http_address, timeout_us);
  const bool here = !record.host_id.empty() && record.host_id == local.host_id;
  if (here && !record.shm_path.empty()) out.shm_error = TryUnix(record.shm_path, timeout_us);
  return out;
}

void AddDoctor(CLI::App* app, Run* run) {
  app->add_subcommand("doctor", "what is wrong, and how to mend it; exit 1 when something is")
      ->callback([run] { *run = Doctor; });
}

}  // namespace larder::cli
