// What waits for a disk: three lanes with a bound each. Interactive reads go before batch reads, reads before
// writes; but one write is always under way, so that demotion goes on under a storm of reads.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "node/ssd/disk.h"

namespace larder::node::ssd {

class LaneQueue {
 public:
  explicit LaneQueue(size_t lane_max) : lane_max_(lane_max) {}

  // false: the lane is full, or closed.
  bool Push(Job&& job) {
    const std::lock_guard lock(mutex_);
    auto& lane = lanes_[static_cast<size_t>(job.lane)];
    if (closed_ || lane.size() >= lane_max_) return false;
    lane.push_back(std::move(job));
    changed_.notify_one();
    return true;
  }
  // The next job that may begin, given how many writes are under way.
  std::optional<Job> TryPop(uint32_t writes_open) {
    const std::lock_guard lock(mutex_);
    return PopLocked(writes_open);
  }
  // Waits for one; nothing: closed and empty. `writes_open` is asked while waiting.
  template <typename WritesOpen>
  std::optional<Job> Pop(const WritesOpen& writes_open) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (std::optional<Job> job = PopLocked(writes_open())) return job;
      if (closed_) return std::nullopt;
      changed_.wait(lock);
    }
  }
  // Somebody's write ended, so that another may begin.
  void Nudge() {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& lane : lanes_) lane.clear();
    changed_.notify_all();
  }

 private:
  static constexpr uint32_t kWritesMax = 3;

  std::optional<Job> PopLocked(uint32_t writes_open) {
    for (size_t i = 0; i < kLanes; ++i) {
      auto& lane = lanes_[i];
      if (lane.empty()) continue;
      // One that is there: reads do not starve it.
      if (i < 2 && writes_open == 0 && !lanes_[2].empty() && reads_since_write_ >= kReadsPerWrite) continue;
      if (i == 2 && writes_open >= kWritesMax) continue;
      reads_since_write_ = i == 2 ? 0 : reads_since_write_ + 1;
      Job job = std::move(lane.front());
      lane.pop_front();
      return job;
    }
    return std::nullopt;
  }
  static constexpr uint32_t kReadsPerWrite = 32;

  const size_t lane_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> lanes_[kLanes];
  uint32_t reads_since_write_ = 0;
  bool closed_ = false;
};

}  // namespace larder::node::ssd
