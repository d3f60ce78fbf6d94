// What this machine has and what is free on it: read once at start, so that a node that can't run says so in
// one line instead of dying later.
#pragma once

#include <cstdint>
#include <string>

#include "node/daemon/config.h"

namespace larder::node {

struct MachineMemory {
  uint64_t total_bytes = 0;      // RAM, or the control group's limit when that is lower
  uint64_t available_bytes = 0;  // of it now
  bool limited = false;          // total is a control group's limit
};
MachineMemory ReadMachineMemory();

// kInvalid when `memory` is more than there is, with how much that is. When it is only more than what is free
// now, `warning` says so.
Status CheckMemory(const Config& config, const MachineMemory& machine, std::string* warning);

// kInvalid when somebody listens at the address, or it isn't this machine's. Port 0 is always free.
Status CheckPortFree(std::string_view name, const std::string& address);

// The socket path of shared memory, in a directory that exists and may be written. `config.shm_path` when
// given.
Result<std::string> PrepareShmPath(const Config& config);

struct ProcessUsage {
  double cpu_seconds = 0;
  uint64_t resident_bytes = 0, virtual_bytes = 0, threads = 0, open_files = 0, open_files_max = 0;
};
ProcessUsage ReadProcessUsage();

// Raises the soft limit of open files to the hard one; each connection is one.
void RaiseOpenFiles();

}  // namespace larder::node
