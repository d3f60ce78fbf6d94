// How the thread of a job among nodes waits: until the time has come, it is woken, or it is told to stop.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace larder::node {

// Any thread may wake and stop; one waits.
class JobWait {
 public:
  void Wake() { Set(&woken_); }
  void Stop() { Set(&stop_); }  // for good
  bool stopping() const {
    const std::lock_guard lock(mutex_);
    return stop_;
  }
  // False: it is to stop. A wake-up that came while nobody waited ends the next wait.
  bool For(uint64_t us) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::microseconds(us), [this] { return stop_ || woken_; });
    woken_ = false;
    return !stop_;
  }
  bool UntilWoken() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_ || woken_; });
    woken_ = false;
    return !stop_;
  }

 private:
  void Set(bool* what) {
    const std::lock_guard lock(mutex_);
    *what = true;
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool stop_ = false;
};

}  // namespace larder::node
