// A directory on a real file system: segments by O_DIRECT, the index by RocksDB.
//
// Threads: the engine's (bytes, checksums) and one that keeps the index: it loads, makes segments, and makes
// a batch of appends durable in one step. With `sync` an append is told only when segment and index are on
// the device; without, when the kernel has them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/ssd/directory.h"

namespace larder::node::ssd {

struct FileDiskOptions {
  DirectoryOptions directory;
  uint64_t capacity_bytes = 0;  // 0: nine tenths of what is free now, with what is there already
  bool sync = false;
  bool io_uring = true;  // where the kernel allows it
  uint32_t depth = 64;   // jobs under way in the kernel
  uint32_t threads = 8;  // without io_uring
  // Jobs that wait, of each lane.
  uint32_t queue_max = 256;
  std::function<void()> notify;  // any thread; something is there to Poll
};

// Returns once the directory is this node's, its namespaces are known and loading goes on by itself.
Result<std::unique_ptr<Disk>> OpenFileDisk(const FileDiskOptions& options, std::vector<std::string>* remarks);

}  // namespace larder::node::ssd
