// Where completions go: a queue with an eventfd for asynchronous calls, a waiter for blocking ones.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "client/core/effects.h"

namespace larder::client {

// One blocking call. Shared by the caller and the operation, since the waker may still be at it when the
// caller has left.
class Waiter : public CompletionSink {
 public:
  void Push(Completion&& completion) override;
  void Wake() override;
  Completion Wait();

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool done_ = false;
  Completion completion_;
};

// The shared part of a queue: operations keep it alive after the caller's CompletionQueue is gone.
class QueueState : public CompletionSink {
 public:
  ~QueueState() override;
  void Push(Completion&& completion) override;
  void Wake() override;
  std::vector<Completion> Poll(size_t max, uint64_t timeout_us);
  int event_fd();  // made on first use: queues that are only polled cost no descriptor and no system call

 private:
  void SignalLocked();

  int event_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Completion> completions_;
  bool signalled_ = false;  // the eventfd is readable
};

class Queue : public CompletionQueue {
 public:
  Queue() : state_(std::make_shared<QueueState>()) {}
  int event_fd() const override { return state_->event_fd(); }
  std::vector<Completion> Poll(size_t max, uint64_t timeout_us) override {
    return state_->Poll(max, timeout_us);
  }
  const std::shared_ptr<QueueState>& state() const { return state_; }

 private:
  std::shared_ptr<QueueState> state_;
};

}  // namespace larder::client
