// One thread for work that may take its time: touching slabs, giving memory back, checking reported blocks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace larder::node {

// Runs what is posted, in order. Long work posts its next step itself, so that others come in between; what
// waits is bounded by what posts (a step a slab, a check a hard pin).
class Background {
 public:
  Background();
  ~Background();  // Stop
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Any thread. false: stopped, `work` is dropped.
  bool Post(std::function<void()> work);
  // Ends the running step, drops the rest.
  void Stop();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace larder::node
