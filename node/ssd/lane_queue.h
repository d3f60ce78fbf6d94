// What waits for a disk: three lanes with a bound each. Interactive reads go before batch reads, reads before
// writes; but one write is always under way, so that demotion goes on under a storm of reads.
//
// Reads wait here, in order, and not in the device: that one answers out of order what it is given at a time,
// so that the last of many takes several times as long as the first, and an urgent one gets no turn before
// them. A two MiB keep it as busy as many.
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
  // The bytes of a popped job have moved, so that others may begin.
  void Moved(const Job& job) {
    const std::lock_guard lock(mutex_);
    if (job.kind == Job::Kind::kRead) --reading_, reading_bytes_ -= BytesOf(job);
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

  static uint64_t BytesOf(const Job& job) {
    uint64_t bytes = 0;
    for (const Range& range : job.ranges) bytes += range.bytes;
    return bytes;
  }

  std::optional<Job> PopLocked(uint32_t writes_open) {
    bool reads_wait = false;
    for (size_t i = 0; i < kLanes; ++i) {
      auto& lane = lanes_[i];
      if (lane.empty()) continue;
      const bool read = lane.front().kind == Job::Kind::kRead;
      const uint64_t bytes = read ? BytesOf(lane.front()) : 0;
      reads_wait = reads_wait || (reading_ >= 2 && reading_bytes_ + bytes > kReadingBytesMax);
      if (read && reads_wait) continue;
      // One that is there: reads do not starve it.
      if (i < 2 && writes_open == 0 && !lanes_[2].empty() && reads_since_write_ >= kReadsPerWrite) continue;
      if (i == 2 && writes_open >= kWritesMax) continue;
      reads_since_write_ = i == 2 ? 0 : reads_since_write_ + 1;
      Job job = std::move(lane.front());
      lane.pop_front();
      reading_ += read ? 1 : 0;
      reading_bytes_ += bytes;
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
  uint32_t reading_ = 0;  // reads that were popped and have not moved, and their bytes
  uint64_t reading_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace larder::node::ssd
