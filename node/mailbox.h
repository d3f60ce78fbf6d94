// What waits for the owner's thread: events of all sessions in two lanes, and calls.
//
// Many threads post, one takes. The taker swaps whole lanes, so that the lock is held for nanoseconds, and is
// woken (eventfd) only when it sleeps.
#pragma once

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
  // Sleeps until something is posted or `timeout_us` have passed. May return early.
  void Sleep(uint64_t timeout_us);
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
  bool sleeping_ = false;
  bool closed_ = false;
};

}  // namespace larder::node
