#include "node/daemon/machine.h"

#include <dirent.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "proto/units.h"

namespace larder::node {
namespace {

uint64_t ReadNumber(const std::string& path) {  // 0 when there is none, or it says "max"
  std::ifstream in(path);
  uint64_t value = 0;
  in >> value;
  return in ? value : 0;
}

// The tightest limit on the way from our control group to the root; version 2, then 1.
uint64_t ControlGroupLimit(uint64_t* used) {
  uint64_t limit = 0;
  const auto look = [&](const std::string& folder, const char* max, const char* now) {
    const uint64_t value = ReadNumber(folder + "/" + max);
    if (value == 0 || value >= (1ull << 60) || (limit != 0 && value >= limit)) return;
    limit = value;
    *used = ReadNumber(folder + "/" + now);
  };
  std::ifstream in("/proc/self/cgroup");
  std::string line;
  while (std::getline(in, line)) {
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    const bool version2 = line.rfind("0::", 0) == 0;
    if (!version2 && line.find(":memory:") == std::string::npos) continue;
    for (;;) {
      if (version2)
        look("/sys/fs/cgroup" + path, "memory.max", "memory.current");
      else
        look("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", "memory.usage_in_bytes");
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path.size() <= 1) break;
      path.resize(slash);
    }
    look(version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory",
         version2 ? "memory.max" : "memory.limit_in_bytes",
         version2 ? "memory.current" : "memory.usage_in_bytes");
  }
  return limit;
}

// A directory that is there, is ours to write, and is no link that somebody else placed.
Status PrepareFolder(const std::string& folder, mode_t mode) {
  if (mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
    return Invalid("cannot make " + folder + ": " + std::strerror(errno));
  }
  struct stat info {};
  if (lstat(folder.c_str(), &info) != 0)
    return Invalid("cannot look at " + folder + ": " + std::strerror(errno));
  if (!S_ISDIR(info.st_mode)) return Invalid(folder + " is no directory");
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return Invalid("cannot write to " + folder + ": " + std::strerror(errno));
  return Status::Ok();
}

}  // namespace

MachineMemory ReadMachineMemory() {
  MachineMemory out;
  std::ifstream in("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  std::string line;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    words >> name >> kib;
    if (name == "MemTotal:") out.total_bytes = kib * 1024;
    if (name == "MemAvailable:") out.available_bytes = kib * 1024;
  }
  uint64_t used = 0;
  const uint64_t limit = ControlGroupLimit(&used);
  if (limit != 0 && limit < out.total_bytes) {
    out.total_bytes = limit;
    out.available_bytes = std::min(out.available_bytes, limit - std::min(limit, used));
    out.limited = true;
  }
  return out;
}

Status CheckMemory(const Config& config, const MachineMemory& machine, std::string* warning) {
  warning->clear();
  if (machine.total_bytes == 0) return Status::Ok();  // no /proc: nothing to compare with
  const std::string have = PrettyBytes(static_cast<double>(machine.total_bytes)) +
                           (machine.limited ? " (its control group's limit)" : " of RAM");
  const std::string free = PrettyBytes(static_cast<double>(machine.available_bytes));
  if (config.memory_bytes > machine.total_bytes) {
    return Invalid("memory is " + ExactBytes(config.memory_bytes) + ", but there is only " + have + ", " +
                   free + " of it available; lower --memory");
  }
  if (config.memory_bytes > machine.available_bytes) {
    *warning = "memory is " + ExactBytes(config.memory_bytes) + ", but only " + free + " of " + have +
               " is available now; the kernel may kill the node when it fills";
  }
  return Status::Ok();
}

Status CheckPortFree(std::string_view name, const std::string& address) {
  const Result<HostPort> parsed = ParseHostPort(address);
  if (!parsed.ok()) return Invalid(std::string(name) + ": " + parsed.status().text());
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(parsed->port);
  if (const int error = getaddrinfo(parsed->host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return Invalid(std::string(name) + ": cannot resolve " + parsed->host + ": " + gai_strerror(error) +
                   "; choose an address of this machine with " + flag);
  }
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  int failed = 0;
  if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0) failed = errno;
  close(fd);
  freeaddrinfo(found);
  if (failed == 0) return Status::Ok();
  if (failed == EADDRINUSE) {
    return Invalid(std::string(name) + ": " + address +
                   " is in use; stop who has it (ss -ltnp shows who), or choose "
                   "another port with " +
                   flag + " (port 0 takes any free one)");
  }
  return Invalid(std::string(name) + ": cannot listen at " + address + ": " + std::strerror(failed) +
                 "; choose an address of this machine with " + flag);
}

Result<std::string> PrepareShmPath(const Config& config) {
  const std::string mend = "; choose another place with --shm-path, or --shm false";
  std::string path = config.shm_path;
  Status status;
  if (path.empty()) {
    const uint16_t port = ParseHostPort(config.data_listen).value().port;
    // With any port, the process is what tells this node's socket from others'.
    const std::string file =
        "/shm-" + (port != 0 ? std::to_string(port) : "p" + std::to_string(getpid())) + ".sock";
    status = PrepareFolder("/run/larder", 0755);
    path = "/run/larder" + file;
    if (!status.ok()) {
      const std::string folder = "/tmp/larder-" + std::to_string(getuid());
      status = PrepareFolder(folder, 0755);
      path = folder + file;
      struct stat info {};
      if (status.ok() && (lstat(folder.c_str(), &info) != 0 || info.st_uid != getuid())) {
        status = Invalid(folder + " belongs to another user");
      }
    }
  } else {
    const size_t slash = path.rfind('/');
    status = PrepareFolder(slash == 0 ? "/" : path.substr(0, slash), 0755);
  }
  if (!status.ok()) return Invalid("shm_path: " + status.text() + mend);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return Invalid("shm_path: " + path + " is there and is no socket" + mend);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return Invalid("shm_path: " + path + " is longer than 107 bytes" + mend);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool answered =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN;
  close(fd);
  if (answered) return Invalid("shm_path: another node serves " + path + mend);
  return path;
}

ProcessUsage ReadProcessUsage() {
  ProcessUsage out;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  out.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  std::ifstream pages("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  pages >> all >> resident;
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  out.virtual_bytes = all * page;
  out.resident_bytes = resident * page;
  const auto count = [](const char* folder) {
    uint64_t entries = 0;
    if (DIR* dir = opendir(folder); dir != nullptr) {
      while (const dirent* entry = readdir(dir)) entries += entry->d_name[0] != '.';
      closedir(dir);
    }
    return entries;
  };
  out.threads = count("/proc/self/task");
  out.open_files = count("/proc/self/fd");
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  out.open_files_max = files.rlim_cur;
  return out;
}

void RaiseOpenFiles() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

}  // namespace larder::node
