#include "tests/chaos/control_timer.h"

#include <time.h>

#include <algorithm>

namespace larder::chaos {

namespace {
constexpr uint64_t kStepUs = 1'000;
constexpr uint64_t kNotedUs = 1'000;  // less is no lateness
constexpr uint64_t kLateKeptUs = 60'000'000;
}  // namespace

uint64_t NowUs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1'000;
}

ControlTimer::ControlTimer() : due_us_(NowUs()), thread_([this] { Run(); }) {}

ControlTimer::~ControlTimer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void ControlTimer::Run() {
  uint64_t woken_us = NowUs();
  for (;;) {
    const uint64_t due_us = woken_us + kStepUs;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      due_us_ = due_us;
    }
    timespec until{};
    until.tv_sec = static_cast<time_t>(due_us / 1'000'000);
    until.tv_nsec = static_cast<long>(due_us % 1'000'000 * 1'000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    woken_us = NowUs();
    if (woken_us < due_us + kNotedUs) continue;
    const std::lock_guard lock(mutex_);
    late_.push_back({due_us, woken_us});
    while (late_.front().woken_us + kLateKeptUs < woken_us) late_.pop_front();
  }
}

uint64_t ControlTimer::WorstLateUs(uint64_t begin_us, uint64_t end_us) const {
  const std::lock_guard lock(mutex_);
  const uint64_t now_us = NowUs();
  uint64_t worst_us = due_us_ < end_us && now_us > due_us_ ? now_us - due_us_ : 0;
  for (auto late = late_.rbegin(); late != late_.rend() && late->woken_us >= begin_us; ++late) {
    if (late->due_us < end_us) worst_us = std::max(worst_us, late->woken_us - late->due_us);
  }
  return worst_us;
}

}  // namespace larder::chaos
