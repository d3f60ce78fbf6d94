// What waits for the owner's thread: events of all sessions in two lanes, and calls.
//
// Many threads post, one takes. The taker swaps whole lanes, so that the lock is held for nanoseconds, and is
// woken (eventfd) only when it sleeps. While it sleeps with nothing waiting, a thread that would post may
// stand in for it for one event: two wake-ups fewer on the way of an answer, 5 to 30 us each.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "node/owner/owner.h"

namespace larder::node {

class Mailbox {
 public:
  struct Item {
    SessionId session = 0;
    Event event;
  };
  using Call = std::function<void(Owner&)>;
  struct Batch {
    std::vector<Item> urgent;  // first
    std::vector<Item> batch;   // then; may wait while urgent ones come
    std::vector<Call> calls;
    bool empty() const { return urgent.empty() && batch.empty() && calls.empty(); }
  };

  // Requests beyond so many events, or so many bytes of them, are refused; other events always have room
  // (they are bounded by tickets, tokens and sessions).
  explicit Mailbox(size_t events_max, uint64_t bytes_max = 512ull << 20);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // --- any thread ---
  // false: full (only for a Request), or closed.
  bool Post(SessionId session, Event&& event);
  // true: the owner's thread sleeps, nothing waits, and the caller is the owner until it calls StandBack. It
  // handles one small event then, and never blocks.
  bool StandIn(const Event& event);
  // `timer_us` is when the owner wants to be called next, on the clock of transport::NowUs.
  void StandBack(uint64_t timer_us);
  // false: closed, the call was dropped.
  bool PostCall(Call call);
  // What is posted from now on is refused; what is there is still taken.
  void Close();

  // --- the owner's thread ---
  // Appends what is there to empty lists. Both lanes in one step: so a Closed, which travels behind its
  // session's batch requests, never overtakes an urgent event of that session.
  void Take(Batch* out);
  // Only the urgent lane, between steps of batch work.
  void TakeUrgent(std::vector<Item>* out);
  // Sleeps until something is posted or the time has come (transport::NowUs). May return early, and only
  // while nobody stands in.
  void SleepUntil(uint64_t until_us);
  bool closed() const;

 private:
  void Wake(std::unique_lock<std::mutex>* lock);

  const size_t events_max_;
  const uint64_t bytes_max_;
  const int event_fd_;
  mutable std::mutex mutex_;
  Batch waiting_;
  uint64_t urgent_bytes_ = 0;
  uint64_t batch_bytes_ = 0;
  bool sleeping_ = false;  // the owner's thread, and nobody has woken it or stands in
  bool in_poll_ = false;   // the owner's thread is between the two locks of SleepUntil
  bool stood_in_ = false;  // a caller is the owner
  uint64_t until_us_ = 0;  // when the sleep ends by itself
  bool closed_ = false;
  std::condition_variable stood_back_;
};

}  // namespace larder::node
