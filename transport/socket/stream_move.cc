// From one loop of a transport to another, when two busy connections have met on one.
//
// Which of a client's connections will be busy nobody knows when they are accepted. Left where they fell,
// both of one client's were on one loop every second time, and its gets took the pace of one thread.
#include <algorithm>
#include <utility>

#include "transport/socket/stream_connection.h"

namespace larder::transport {

namespace {
constexpr uint64_t kLookBytes = 16 << 20;
}

void StreamConnection::ForgetLoads() {
  counted_bytes_ = 0;
  noted_moves_ = loop_->moves();
  noted_loads_.clear();
  for (const auto& loop : shared_->loops) noted_loads_.push_back(loop->moved_bytes());
}

// Every kLookBytes of its own: what each loop has moved meanwhile. Going must leave the fuller of the two
// loops less full by a quarter of what goes, else two that are alike would change places for ever; and who
// has seen another come or go looks anew.
void StreamConnection::CountMoved(size_t bytes) {
  loop_->CountMoved(bytes);
  counted_bytes_ += bytes;
  if (dialed_ || shared_->loops.size() < 2) return;
  if (noted_loads_.empty() || noted_moves_ != loop_->moves()) return ForgetLoads();
  if (counted_bytes_ < kLookBytes) return;
  uint64_t here = 0, least = ~uint64_t{0};
  Loop* target = nullptr;
  for (size_t i = 0; i < shared_->loops.size(); i++) {
    Loop* loop = shared_->loops[i].get();
    const uint64_t moved = loop->moved_bytes() - noted_loads_[i];
    if (loop == loop_) {
      here = moved;
    } else if (moved < least) {
      least = moved;
      target = loop;
    }
  }
  if (least + counted_bytes_ + counted_bytes_ / 4 < here) move_target_ = target;
  ForgetLoads();
}

// What Run was given until now runs here, what it is given from now on over there, in order.
void StreamConnection::MoveTo(Loop* target) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (place_ != Place::kSettled) return;
  const bool posted = loop_->Post([self = shared_from_this(), target] { self->Leave(target, false); });
  if (posted) place_ = Place::kLeaving;
}

// runs_are_in: all that Run has given to this loop lies before this in its mailbox.
void StreamConnection::Leave(Loop* target, bool runs_are_in) {
  Loop* const from = loop_;
  if (!runs_are_in) {
    const bool in = posting_runs_ == 0;
    if (from->Post([self = shared_from_this(), target, in] { self->Leave(target, in); })) return;
  }
  const bool open = state_ == State::kOpen;
  if (open) {
    from->Unwatch(fd_);
    from->Remove(this);
  }
  bool gone = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (open) {
      place_ = Place::kBetween;
      loop_ = target;
      // With the mutex held: over there nothing may begin before this has ended.
      gone = target->Post([self = shared_from_this()] { self->Arrive(); });
      if (!gone) loop_ = from;  // that loop has stopped, and this one will
    }
  }
  if (gone) {
    from->CountMove();
    from->AddLoad(-1);
    target->AddLoad(1);
    return;
  }
  if (open) {
    Arrive();
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  place_ = Place::kSettled;
  waiting_runs_.clear();
}

void StreamConnection::Arrive() {
  std::vector<std::function<void()>> runs;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    place_ = Place::kSettled;
    wake_pending_ = false;
    runs.swap(waiting_runs_);
  }
  loop_->Add(shared_from_this());
  loop_->CountMove();
  ForgetLoads();
  if (!loop_->Watch(this, fd_, watched_, true)) {
    Fail(Failure::kSystem, "epoll_ctl: it can't be watched by another thread");
  }
  for (const auto& run : runs) run();
  loop_->Again(this);
}

}  // namespace larder::transport
