#include "node/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace larder::node {

Background::Background() : thread_([this] { Loop(); }) {}

Background::~Background() {
  Stop();
}

bool Background::Post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  work_.push_back(std::move(work));
  wake_.notify_one();
  return true;
}

void Background::Stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(work_);
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Background::Loop() {
  pthread_setname_np(pthread_self(), "larder-backgr");
  // Movers go first. A machine that refuses this only shares its cores otherwise.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (work_.empty()) {
      wake_.wait(lock);
      continue;
    }
    std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    next();
    next = nullptr;
    lock.lock();
  }
}

}  // namespace larder::node
