// What larderctl doctor makes of what it saw. Pure, so that each finding is tested without a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/cluster.h"

namespace larder::cli {

struct Finding {
  bool problem = true;  // else a note: good to know, nothing is wrong
  std::string what;
  std::string mend;
};

// This machine, as far as it matters for a client on it.
struct LocalFacts {
  std::string host_id;
  uint64_t open_files_max = 0;    // hard limit
  uint64_t locked_bytes_max = 0;  // UINT64_MAX: no limit
  uint64_t huge_pages_total = 0;
  std::string shmem_huge;  // of transparent huge pages for shared memory: "never", "advise", ...
};
LocalFacts ReadLocalFacts();

// Ports that were tried beside data and control: HTTP, and shared memory for nodes on this host.
struct Probe {
  std::string http_error, shm_error;  // empty: well, or nothing to try
};
Probe TryPorts(const NodeView& view, const LocalFacts& local, uint64_t timeout_us);

// probes: one a view.
std::vector<Finding> Judge(const std::vector<NodeView>& views, const std::vector<Probe>& probes,
                           const LocalFacts& local);

}  // namespace larder::cli
