// Child processes that end with this one.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace larder::bench {

struct SpawnOptions {
  std::vector<std::string> argv;                                 // argv[0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  int input_fd = -1;                                             // the child's stdin; -1: this process's
  int output_fd = -1;                                            // the child's stdout; -1: /dev/null
  int error_fd = -1;                                             // the child's stderr; -1: where stdout goes
};

// -1 when the process could not be made; a program that can't be executed exits 127.
pid_t Spawn(const SpawnOptions& options);
// SIGTERM, then SIGKILL when it is still there after `patience_ms`. Returns its wait status.
int End(pid_t pid, int patience_ms);
bool IsAlive(pid_t pid);

// Runs to its end; its output. Empty when it failed or took longer than `timeout_ms`.
std::string OutputOf(SpawnOptions options, int timeout_ms);

}  // namespace larder::bench
