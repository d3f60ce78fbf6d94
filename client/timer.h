// An alarm clock with a thread of its own that sleeps until the next alarm and never polls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace larder::client {

class Timer {
 public:
  explicit Timer(std::function<void()> ring);
  ~Timer() { Stop(); }
  // Rings once at `us` (transport::NowUs) or soon after, unless another alarm replaces this one. Any thread,
  // also from inside `ring`.
  void Set(uint64_t us);
  void Stop();  // no ring is under way or will come when it returns; not from inside `ring`

 private:
  void Run();

  std::function<void()> ring_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t at_us_ = UINT64_MAX;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace larder::client
