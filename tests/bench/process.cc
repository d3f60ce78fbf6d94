#include "tests/bench/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/measure.h"

namespace larder::bench {

pid_t Spawn(const SpawnOptions& options) {
  std::vector<char*> argv;
  for (const std::string& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int output = options.output_fd >= 0 ? options.output_fd : open("/dev/null", O_WRONLY);
  dup2(output, STDOUT_FILENO);
  if (options.error_fd != STDERR_FILENO) {
    dup2(options.error_fd >= 0 ? options.error_fd : STDOUT_FILENO, STDERR_FILENO);
  }
  if (options.input_fd >= 0) dup2(options.input_fd, STDIN_FILENO);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  execvp(argv[0], argv.data());
  _exit(127);
}

bool IsAlive(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, id_t(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

int End(pid_t pid, int patience_ms) {
  int status = 0;
  if (pid <= 0) return status;
  kill(pid, SIGTERM);
  const uint64_t end_us = NowUs() + uint64_t(patience_ms) * 1000;
  while (IsAlive(pid)) {
    if (NowUs() >= end_us) kill(pid, SIGKILL);
    usleep(5000);
  }
  waitpid(pid, &status, 0);
  return status;
}

std::string OutputOf(SpawnOptions options, int timeout_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  options.output_fd = ends[1];
  const pid_t pid = Spawn(options);
  close(ends[1]);
  std::string output;
  const uint64_t end_us = NowUs() + uint64_t(timeout_ms) * 1000;
  bool whole = false;
  while (!whole) {
    const uint64_t now_us = NowUs();
    pollfd ready{ends[0], POLLIN, 0};
    if (now_us >= end_us || poll(&ready, 1, int((end_us - now_us) / 1000) + 1) <= 0) break;
    char buffer[4096];
    const ssize_t bytes = read(ends[0], buffer, sizeof(buffer));
    if (bytes > 0) output.append(buffer, size_t(bytes));
    whole = bytes == 0;
  }
  close(ends[0]);
  const int status = whole ? 0 : -1;
  int wait_status = 0;
  if (pid > 0 && whole) waitpid(pid, &wait_status, 0);
  if (pid > 0 && !whole) End(pid, 0);
  return status == 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0 ? output : "";
}

}  // namespace larder::bench
