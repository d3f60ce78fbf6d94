#include "client/completion_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>

namespace larder::client {

void Waiter::Push(Completion&& completion) {
  const std::lock_guard<std::mutex> lock(mutex_);
  completion_ = std::move(completion);
}

void Waiter::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  woken_.notify_one();
}

Completion Waiter::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  woken_.wait(lock, [this] { return done_; });
  return std::move(completion_);
}

QueueState::~QueueState() {
  if (event_fd_ >= 0) close(event_fd_);
}

void QueueState::Push(Completion&& completion) {
  const std::lock_guard<std::mutex> lock(mutex_);
  completions_.push_back(std::move(completion));
}

void QueueState::Wake() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    SignalLocked();
  }
  filled_.notify_all();
}

void QueueState::SignalLocked() {
  if (completions_.empty() || signalled_ || event_fd_ < 0) return;
  signalled_ = true;
  const uint64_t one = 1;
  (void)!write(event_fd_, &one, sizeof one);
}

int QueueState::event_fd() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (event_fd_ < 0) {
    event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    SignalLocked();
  }
  return event_fd_;
}

std::vector<Completion> QueueState::Poll(size_t max, uint64_t timeout_us) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (completions_.empty() && timeout_us != 0) {
    const auto most = std::chrono::microseconds(std::min<uint64_t>(timeout_us, uint64_t{1} << 50));
    filled_.wait_until(lock, std::chrono::steady_clock::now() + most,
                       [this] { return !completions_.empty(); });
  }
  std::vector<Completion> taken;
  while (!completions_.empty() && taken.size() < max) {
    taken.push_back(std::move(completions_.front()));
    completions_.pop_front();
  }
  if (completions_.empty() && signalled_) {
    uint64_t count = 0;
    (void)!read(event_fd_, &count, sizeof count);
    signalled_ = false;
  }
  return taken;
}

}  // namespace larder::client
