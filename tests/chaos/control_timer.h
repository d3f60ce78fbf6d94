// How late this machine wakes a thread that asked for nothing but to be woken: what a call may be late
// without being to blame.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace larder::chaos {

uint64_t NowUs();  // CLOCK_MONOTONIC, which all processes of a machine share

class ControlTimer {
 public:
  ControlTimer();
  ~ControlTimer();
  ControlTimer(const ControlTimer&) = delete;
  ControlTimer& operator=(const ControlTimer&) = delete;

  // The worst of the wake-ups that were due or late between the two.
  uint64_t WorstLateUs(uint64_t begin_us, uint64_t end_us) const;

 private:
  struct Late {
    uint64_t due_us, woken_us;
  };
  void Run();

  mutable std::mutex mutex_;
  std::deque<Late> late_;  // in order, those of the last minute
  uint64_t due_us_ = 0;    // the wake-up that is waited for
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace larder::chaos
