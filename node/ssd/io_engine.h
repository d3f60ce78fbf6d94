// Moves the bytes of jobs between memory and segment files: io_uring where the kernel allows it, else threads
// that wait. Both take jobs from one LaneQueue and give every job back.
#pragma once

#include <sys/uio.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/ssd/lane_queue.h"

namespace larder::node::ssd {

// Transfers of one job that are contiguous in the file, so that each is one system call.
struct Run {
  uint64_t offset = 0;
  std::vector<iovec> parts;
};
std::vector<Run> RunsOf(const std::vector<Range>& ranges);
// Takes `bytes` that were moved off the front; false: nothing is left.
bool Advance(Run* run, uint64_t bytes);

struct EngineCalls {
  std::function<int(uint32_t segment)> fd_of;  // -1: no such file
  // The bytes were moved (or not). On a thread of the engine; takes some time for `check`.
  std::function<void(Job&& job, DiskStatus status, const std::string& error, uint64_t service_us)> finish;
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;  // the queue is closed; what is under way ends first
  virtual void Wake() = 0;        // something was pushed
  virtual const char* name() const = 0;
};
std::unique_ptr<IoEngine> MakeThreadEngine(LaneQueue* queue, EngineCalls calls, uint32_t threads);
// nullptr where the kernel refuses.
std::unique_ptr<IoEngine> MakeUringEngine(LaneQueue* queue, EngineCalls calls, uint32_t depth);

}  // namespace larder::node::ssd
