#include "transport/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/thread.h"

namespace larder::transport {

namespace {
constexpr int kEventsMax = 64;
}

thread_local const Loop* Loop::this_loop_ = nullptr;

Loop::Loop(uint32_t spin_us) : spin_us_(spin_us), scratch_(new std::byte[kScratchBytes]) {}

Loop::~Loop() {
  Stop();
  if (epoll_fd_ >= 0) close(epoll_fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

Error Loop::Start() {
  epoll_fd_ = epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (epoll_fd_ < 0 || wake_fd_ < 0 || epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wake_fd_, &event) != 0) {
    return {Failure::kSystem, std::string("cannot make an event loop: ") + strerror(errno)};
  }
  stopped_ = false;
  // Not std::thread: that throws where a limit on threads is reached.
  const auto main = [](void* loop) -> void* {
    static_cast<Loop*>(loop)->ThreadMain();
    return nullptr;
  };
  const int error = pthread_create(&thread_, nullptr, main, this);
  if (error != 0) {
    stopped_ = true;
    return {Failure::kSystem, std::string("cannot start a thread: ") + strerror(error)};
  }
  started_ = true;
  return {};
}

void Loop::Stop() {
  if (!started_) return;
  started_ = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_wanted_ = true;
  }
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof(one));
  pthread_join(thread_, nullptr);
}

bool Loop::PostItem(Item item) {
  bool wake = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return false;
    mail_.push_back(std::move(item));
    has_mail_.store(true, std::memory_order_relaxed);
    wake = sleeping_;
    sleeping_ = false;  // one wake-up is enough
  }
  if (wake) {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof(one));
  }
  return true;
}

bool Loop::Post(std::function<void()> work) {
  return PostItem({nullptr, std::move(work)});
}
bool Loop::Post(std::shared_ptr<Source> source) {
  return PostItem({std::move(source), nullptr});
}

void Loop::Add(std::shared_ptr<Source> source) {
  Source* raw = source.get();
  sources_.emplace(raw, std::move(source));
  if (stopping_) Enqueue(raw, Source::kStop);
}

bool Loop::Watch(Source* source, int fd, uint32_t events, bool is_new) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = source;
  return epoll_ctl(epoll_fd_, is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0;
}

void Loop::Unwatch(int fd) {
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, nullptr);
}

void Loop::Remove(Source* source) {
  auto it = sources_.find(source);
  if (it == sources_.end()) return;
  SetTimer(source, 0);
  source->enqueued_ = false;
  source->pending_events_ = 0;
  Source* const nobody = nullptr;
  for (auto* list : {&ready_, &ready_batch_}) std::replace(list->begin(), list->end(), source, nobody);
  graveyard_.push_back(std::move(it->second));
  sources_.erase(it);
}

void Loop::SetTimer(Source* source, uint64_t when_us) {
  if (source->timer_us_ == when_us) return;
  if (source->timer_us_ != 0) timers_.erase({source->timer_us_, source});
  source->timer_us_ = when_us;
  if (when_us != 0) timers_.insert({when_us, source});
}

void Loop::Enqueue(Source* source, uint32_t events) {
  source->pending_events_ |= events;
  if (source->enqueued_) return;
  source->enqueued_ = true;
  (source->batch_source_ ? ready_batch_ : ready_).push_back(source);
}

void Loop::RunOne(Source* source) {
  const uint32_t events = source->pending_events_;
  source->pending_events_ = 0;
  source->enqueued_ = false;
  source->OnTurn(events);
}

void Loop::RunReady() {
  // By index: a turn may enqueue (then it waits for the next call) and may null entries out (Remove).
  const size_t count = ready_.size();
  for (size_t i = 0; i < count; i++) {
    if (ready_[i] != nullptr) RunOne(ready_[i]);
  }
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<ptrdiff_t>(count));
  while (!ready_batch_.empty()) {
    Source* source = ready_batch_.front();
    ready_batch_.erase(ready_batch_.begin());
    if (source == nullptr) continue;
    RunOne(source);
    break;
  }
}

bool Loop::TakeMail() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    sleeping_ = false;
    has_mail_.store(false, std::memory_order_relaxed);
    taken_.swap(mail_);
    if (stop_wanted_ && !stopping_) {
      stopping_ = true;
      for (auto& [raw, owned] : sources_) Enqueue(raw, Source::kStop);
    }
    // Only with an empty mailbox may the end be declared: a posted Add would be lost with its handler.
    if (stopping_ && taken_.empty() && sources_.empty()) {
      stopped_ = true;
      return false;
    }
  }
  for (Item& item : taken_) {
    if (item.work) {
      item.work();
    } else if (sources_.count(item.source.get()) != 0) {
      Enqueue(item.source.get(), Source::kPosted);
    }
  }
  taken_.clear();
  return true;
}

void Loop::FireTimers(uint64_t now_us) {
  while (!timers_.empty() && timers_.begin()->first <= now_us) {
    Source* source = timers_.begin()->second;
    timers_.erase(timers_.begin());
    source->timer_us_ = 0;
    Enqueue(source, Source::kTimer);
  }
}

int Loop::Poll(int timeout_ms) {
  epoll_event events[kEventsMax];
  const int count = epoll_wait(epoll_fd_, events, kEventsMax, timeout_ms);
  for (int i = 0; i < count; i++) {
    if (events[i].data.ptr == nullptr) {
      uint64_t value = 0;
      (void)!read(wake_fd_, &value, sizeof(value));
    } else {
      Enqueue(static_cast<Source*>(events[i].data.ptr), events[i].events);
    }
  }
  return count;
}

bool Loop::Spin() {
  uint64_t now_us = NowUs();
  const uint64_t end_us = now_us + spin_us_;
  for (; now_us < end_us; now_us = NowUs()) {
    if (has_mail_.load(std::memory_order_relaxed) || Poll(0) > 0) return true;
    if (!timers_.empty() && timers_.begin()->first <= now_us) return true;
  }
  return false;
}

bool Loop::PrepareSleep() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!mail_.empty() || (stop_wanted_ && !stopping_) || (stopping_ && sources_.empty())) return false;
  sleeping_ = true;
  return true;
}

void Loop::Wait() {
  if (!ready_.empty() || !ready_batch_.empty()) {
    Poll(0);
    return;
  }
  if (spin_us_ != 0 && Spin()) return;
  int timeout_ms = -1;
  if (!timers_.empty()) {
    const uint64_t now_us = NowUs();
    const uint64_t first_us = timers_.begin()->first;
    const uint64_t wait_us = first_us > now_us ? first_us - now_us : 0;
    timeout_ms = static_cast<int>(std::min<uint64_t>((wait_us + 999) / 1000, 60'000));
  }
  Poll(PrepareSleep() ? timeout_ms : 0);
}

void Loop::ThreadMain() {
  this_loop_ = this;
  NameServingThread("larder-mover");
  while (TakeMail()) {
    if (!timers_.empty()) FireTimers(NowUs());
    RunReady();
    graveyard_.clear();
    Wait();
  }
}

}  // namespace larder::transport
