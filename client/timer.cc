#include "client/timer.h"

#include <pthread.h>

#include <chrono>

#include "transport/transport.h"

namespace larder::client {

Timer::Timer(std::function<void()> ring) : ring_(std::move(ring)), thread_([this] { Run(); }) {}

void Timer::Set(uint64_t us) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    at_us_ = us;
  }
  changed_.notify_one();
}

void Timer::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Timer::Run() {
  pthread_setname_np(pthread_self(), "larder-timer");
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    const uint64_t now_us = transport::NowUs();
    if (at_us_ == UINT64_MAX) {
      changed_.wait(lock);
    } else if (at_us_ > now_us) {
      changed_.wait_until(lock,
                          std::chrono::steady_clock::now() + std::chrono::microseconds(at_us_ - now_us));
    } else {
      at_us_ = UINT64_MAX;
      lock.unlock();
      ring_();
      lock.lock();
    }
  }
}

}  // namespace larder::client
