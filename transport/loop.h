// One thread that serves many sources: an epoll set, a mailbox other threads post to, and one timer a source.
//
// Fairness. All interactive sources that are ready get a turn, then one batch source, then the loop looks for
// news again: an interactive source never waits behind more than one batch turn.
//
// Sleeping. The loop polls for spin_us after its last work, then blocks in epoll_wait. A poster writes the
// eventfd only when the loop sleeps, so a busy loop costs its posters one mutex and no system call.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/home_core.h"
#include "transport/transport.h"

namespace larder::transport {

class Loop;

// Something a loop serves. All members belong to the loop's thread once it was added.
class Source {
 public:
  // Beside epoll's own bits in OnTurn's argument.
  static constexpr uint32_t kTimer = 1u << 24;   // the timer is due
  static constexpr uint32_t kPosted = 1u << 25;  // somebody called Loop::Post(source) or Again
  static constexpr uint32_t kStop = 1u << 26;    // the loop ends: remove yourself now

  virtual ~Source() = default;
  // `events` is the union of what happened since the last turn.
  virtual void OnTurn(uint32_t events) = 0;

 protected:
  bool batch_source_ = false;

 private:
  friend class Loop;
  uint32_t pending_events_ = 0;
  bool enqueued_ = false;
  uint64_t timer_us_ = 0;
};

class Loop {
 public:
  explicit Loop(uint32_t spin_us);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  Error Start();
  // Gives every source a kStop turn, and ends the thread when all have removed themselves. Idempotent; not
  // from the loop's own thread. Posts are refused from then on.
  void Stop();

  // From any thread. false: the loop has stopped and drops it.
  bool Post(std::function<void()> work);
  bool Post(std::shared_ptr<Source> source);  // a kPosted turn, without allocating

  bool InLoop() const { return this_loop_ == this; }
  // How many connections were placed here; counted by those who place and end them.
  int load() const { return load_.load(std::memory_order_relaxed); }
  void AddLoad(int connections) { load_.fetch_add(connections, std::memory_order_relaxed); }
  // Payload that this loop's sources have moved since it started, and how often one came or went to another
  // loop.
  uint64_t moved_bytes() const { return moved_bytes_.load(std::memory_order_relaxed); }
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }
  void CountMoved(uint64_t bytes) { moved_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountMove() { moves_.fetch_add(1, std::memory_order_relaxed); }

  // The rest only on the loop's thread.
  void Add(std::shared_ptr<Source> source);
  bool Watch(Source* source, int fd, uint32_t events, bool is_new);
  void Unwatch(int fd);
  // The loop lets go of the source after this iteration; no turn comes any more.
  void Remove(Source* source);
  // Another turn soon, after others had theirs.
  void Again(Source* source, uint32_t events = Source::kPosted) { Enqueue(source, events); }
  // One timer a source; 0 disarms it. It disarms itself when it fires.
  void SetTimer(Source* source, uint64_t when_us);
  uint64_t timer_us(const Source* source) const { return source->timer_us_; }
  // Memory for one system call's worth of bytes, shared by the loop's sources: valid during a turn.
  std::byte* scratch() { return scratch_.get(); }
  static constexpr size_t kScratchBytes = 64 * 1024;
  HomeCore& home_core() { return home_core_; }

 private:
  struct Item {
    std::shared_ptr<Source> source;
    std::function<void()> work;
  };
  bool PostItem(Item item);
  void ThreadMain();
  bool TakeMail();
  void Wait();
  int Poll(int timeout_ms);
  bool Spin();
  bool PrepareSleep();
  void FireTimers(uint64_t now_us);
  void RunReady();
  void Enqueue(Source* source, uint32_t events);
  void RunOne(Source* source);

  const uint32_t spin_us_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  static thread_local const Loop* this_loop_;
  pthread_t thread_{};
  bool started_ = false;
  std::atomic<int> load_{0};
  std::atomic<uint64_t> moved_bytes_{0}, moves_{0};

  std::mutex mutex_;  // guards the next five
  std::vector<Item> mail_;
  bool sleeping_ = false;
  bool stop_wanted_ = false;
  bool stopped_ = true;
  std::atomic<bool> has_mail_{false};  // also read without the mutex while spinning

  // Of the loop's thread.
  std::vector<Item> taken_;
  std::unordered_map<Source*, std::shared_ptr<Source>> sources_;
  std::vector<std::shared_ptr<Source>> graveyard_;
  std::vector<Source*> ready_, ready_batch_;
  std::set<std::pair<uint64_t, Source*>> timers_;
  std::unique_ptr<std::byte[]> scratch_;
  bool stopping_ = false;
  HomeCore home_core_;
};

}  // namespace larder::transport
