// Opening, turns, timers and closing. stream_send.cc has the queue, stream_receive.cc what comes in.
#include "transport/socket/stream_connection.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace larder::transport {

StreamConnection::StreamConnection(std::shared_ptr<StreamShared> shared, Loop* loop, std::string peer)
    : peer_(std::move(peer)), shared_(std::move(shared)), loop_(loop) {}

StreamConnection::~StreamConnection() {
  if (fd_ >= 0) close(fd_);
}

void StreamConnection::Wake() {
  Loop* loop = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (place_ == Place::kBetween) return;  // its first turn over there looks at everything
    loop = loop_;
    if (!loop->InLoop()) {
      if (wake_pending_) return;
      wake_pending_ = true;
    }
  }
  if (loop->InLoop()) {
    if (!in_turn_ && state_ != State::kNew && state_ != State::kClosed) loop->Again(this);
  } else {
    loop->Post(shared_from_this());  // not with the mutex held: whom it wakes wants that
  }
}

bool StreamConnection::Run(std::function<void()> work) {
  if (closing()) return false;
  auto guarded = [self = shared_from_this(), work = std::move(work)] {
    if (!self->closing()) work();
  };
  Loop* loop = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (place_ != Place::kSettled) {
      waiting_runs_.push_back(std::move(guarded));
      return true;
    }
    loop = loop_;
    posting_runs_++;
  }
  const bool posted = loop->Post(std::move(guarded));
  posting_runs_--;
  return posted;
}

void StreamConnection::SetBatch(bool batch) {
  Run([this, batch] { batch_source_ = batch; });
}

void StreamConnection::Close(Failure why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing()) return;
    close_why_ = {why, "closed by this side"};
    close_local_ = true;
    close_wanted_.store(true, std::memory_order_relaxed);
  }
  Wake();
}

void StreamConnection::Fail(Failure failure, std::string text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing()) return;
    close_why_ = {failure, std::move(text)};
    close_wanted_.store(true, std::memory_order_relaxed);
  }
  if (failure == Failure::kProtocol || failure == Failure::kTooLarge || failure == Failure::kNotSealed) {
    shared_->protocol_errors++;
  }
  Wake();
}

void StreamConnection::FailErrno(const char* what, int error) {
  Fail(FailureOfErrno(error), std::string(what) + " " + peer_ + ": " + ErrnoText(error));
}

void StreamConnection::StartAccepted(int fd, Acceptor* acceptor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    fd_ = fd;
  }
  OnSocket(fd);
  state_ = State::kConnecting;
  stranger_ = true;
  handler_ = acceptor->OnAccept(shared_from_this());
  if (!handler_) {
    Fail(Failure::kRefused, "the acceptor refused it");
    return;
  }
  Opened();
}

void StreamConnection::StartConnect(std::shared_ptr<Handler> handler, uint64_t timeout_us) {
  handler_ = std::move(handler);
  dialed_ = true;
  state_ = State::kConnecting;
  connect_deadline_us_ = NowUs() + timeout_us;
  connect_error_ = {Failure::kTimedOut, "no answer from " + peer_ + " in time"};
  ArmTimer();
  if (closing()) loop_->Again(this);  // Close came before the loop knew us
}

void StreamConnection::ConnectTo(std::vector<SocketAddress> addresses) {
  if (state_ != State::kConnecting || closing()) return;
  candidates_ = std::move(addresses);
  std::reverse(candidates_.begin(), candidates_.end());
  if (!TryConnect()) Fail(connect_error_.failure, connect_error_.text);
}

void StreamConnection::FailConnect(Error why) {
  if (state_ == State::kConnecting) Fail(why.failure, std::move(why.text));
}

// True: connected, or an answer will come. False: no candidate is left; connect_error_ says why.
bool StreamConnection::TryConnect() {
  while (!candidates_.empty()) {
    const SocketAddress address = candidates_.back();
    candidates_.pop_back();
    const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      connect_error_ = {Failure::kSystem, "cannot make a socket: " + ErrnoText(errno)};
      continue;
    }
    OnSocket(fd);
    const int rc = connect(fd, address.get(), address.bytes);
    const int error = rc == 0 ? 0 : errno;
    if (error != 0 && error != EINPROGRESS) {
      close(fd);
      connect_error_ = {FailureOfErrno(error), "cannot connect to " + peer_ + ": " + ErrnoText(error)};
      continue;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      fd_ = fd;
    }
    watched_ = EPOLLOUT;  // at once when it is connected already
    if (!loop_->Watch(this, fd, watched_, true)) {
      Fail(Failure::kSystem, "epoll_ctl: " + ErrnoText(errno));
    }
    return true;
  }
  return false;
}

void StreamConnection::FinishConnect(uint32_t events) {
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0 || fd_ < 0) return;
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == 0 && IsConnectedToItself(fd_)) error = ECONNREFUSED;
  if (error == 0) {
    Opened();
    return;
  }
  connect_error_ = {FailureOfErrno(error), "cannot connect to " + peer_ + ": " + ErrnoText(error)};
  if (connect_error_.failure == Failure::kPeerClosed) connect_error_.failure = Failure::kUnreachable;
  loop_->Unwatch(fd_);
  close(fd_);
  fd_ = -1;
  if (!TryConnect()) Fail(connect_error_.failure, connect_error_.text);
}

void StreamConnection::Opened() {
  connect_deadline_us_ = kNever;
  candidates_.clear();
  const bool is_new = watched_ == 0;
  watched_ = EPOLLIN;
  if (!loop_->Watch(this, fd_, watched_, is_new)) {
    Fail(Failure::kSystem, "epoll_ctl: " + ErrnoText(errno));
    return;
  }
  state_ = State::kOpen;
  OnOpen();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    direct_ok_ = true;
  }
  shared_->connections++;
  handler_->OnOpen(*this);
  loop_->Again(this);  // what was sent before we were open
}

void StreamConnection::WantWrite(bool want) {
  const uint32_t events = want ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (events == watched_ || fd_ < 0) return;
  watched_ = events;
  if (!loop_->Watch(this, fd_, events, false)) Fail(Failure::kSystem, "epoll_ctl: " + ErrnoText(errno));
}

void StreamConnection::OnTurn(uint32_t events) {
  if (state_ == State::kClosed) return;
  in_turn_ = true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_pending_ = false;
  }
  if ((events & kStop) != 0) Fail(Failure::kCancelled, "the transport was shut down");
  if (state_ == State::kConnecting && !closing()) FinishConnect(events);
  if (state_ == State::kOpen && !closing()) {
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 || WantsTurn()) ReadTurn();
    if (!closing() && ((watched_ & EPOLLOUT) == 0 || (events & EPOLLOUT) != 0)) WriteTurn();
  }
  if ((events & kTimer) != 0 && !closing()) {
    const uint64_t now_us = NowUs();
    ExpireQueued(now_us);
    OnTimers(now_us);
    if (now_us >= connect_deadline_us_) Fail(Failure::kTimedOut, "no answer from " + peer_ + " in time");
  }
  in_turn_ = false;  // what a handler sends from here on asks for a turn of its own
  DeliverSent();
  if (closing()) {
    TearDown();
    return;
  }
  ArmTimer();
  if (move_target_ != nullptr) MoveTo(std::exchange(move_target_, nullptr));
}

void StreamConnection::ArmTimer() {
  uint64_t when_us = std::min(connect_deadline_us_, NextTimerUs());
  {
    std::lock_guard<std::mutex> lock(mutex_);
    when_us = std::min(when_us, queue_expire_us_);
  }
  loop_->SetTimer(this, when_us == kNever ? 0 : when_us);
}

void StreamConnection::DeliverSent() {
  std::vector<std::pair<uint64_t, Failure>> sent;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (sent_.empty()) return;
    sent.swap(sent_);
  }
  for (const auto& [token, failure] : sent) {
    if (handler_) handler_->OnSent(*this, token, failure);
  }
}

void StreamConnection::TearDown() {
  const bool was_open = state_ == State::kOpen;
  state_ = State::kClosed;
  Error why;
  Failure left = Failure::kCancelled;
  int fd = -1;
  std::deque<Queued> queue;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    direct_ok_ = false;
    std::swap(fd, fd_);
    queue.swap(queue_);
    queued_header_bytes_ = 0;
    why = close_why_;
    if (!close_local_) left = why.failure;
  }
  if (fd >= 0) {
    loop_->Unwatch(fd);
    close(fd);
  }
  DropBegun(left);
  for (const Queued& queued : queue) Finish(queued.message.token, left);
  DeliverSent();
  incoming_.active = false;
  if (was_open) shared_->connections--;
  if (handler_) {
    handler_->OnClosed(*this, why);
    handler_.reset();
  }
  loop_->AddLoad(-1);
  loop_->Remove(this);
}

}  // namespace larder::transport
