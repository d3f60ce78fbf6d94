// The life of a loopback connection: opening, queueing, expiring, closing. Bytes move in pipe.cc.
#include "transport/loopback/connection.h"

#include <algorithm>

namespace larder::transport::loopback {

LoopbackConnection::LoopbackConnection(std::shared_ptr<Core> core, std::shared_ptr<Process> process,
                                       std::string peer_name, std::string peer_host, bool batch)
    : core_(std::move(core)),
      process_(std::move(process)),
      peer_name_(std::move(peer_name)),
      peer_host_(std::move(peer_host)),
      id_(core_->NextId()),
      batch_(batch) {}

void LoopbackConnection::Pair(const std::shared_ptr<LoopbackConnection>& connector,
                              const std::shared_ptr<LoopbackConnection>& acceptor_side) {
  connector->peer_ = acceptor_side;
  acceptor_side->peer_ = connector;
}

void LoopbackConnection::Open() {
  if (state_ != State::kConnecting) return;
  state_ = State::kOpen;
  core_->Trace(id_);
  const auto handler = handler_;
  handler->OnOpen(*this);
  Pump();
}

void LoopbackConnection::OnConnectTimeout() {
  if (state_ != State::kConnecting) return;
  CloseLater({Failure::kTimedOut, "connect to " + peer_name_ + " timed out"}, Failure::kTimedOut);
}

Failure LoopbackConnection::CheckSend(const OutMessage& message) const {
  if (closed() || !process_->alive) return Failure::kPeerClosed;
  const Limits& limits = process_->limits;
  const SendSegments& segments = message.segments;
  if (message.header.size() > limits.header_bytes_max || segments.size() > limits.segments_max) {
    return Failure::kTooLarge;
  }
  uint64_t extents = 0;
  for (const uint32_t count : segments.counts) extents += count;
  if (extents != segments.extents.size()) return Failure::kInvalid;
  uint64_t payload_bytes = 0;
  for (const ConstExtent& extent : segments.extents) {
    if (extent.bytes > limits.payload_bytes_max - payload_bytes) return Failure::kTooLarge;
    if (extent.data == nullptr && extent.bytes != 0) return Failure::kInvalid;
    payload_bytes += extent.bytes;
  }
  if (segments.size() != 0 && message.token == 0) return Failure::kInvalid;
  if (queue_.size() >= limits.queued_messages_max ||
      message.header.size() > limits.queued_header_bytes_max - queued_header_bytes_) {
    return Failure::kBusy;
  }
  return Failure::kNone;
}

Failure LoopbackConnection::Send(OutMessage&& message) {
  const Failure failure = CheckSend(message);
  if (failure != Failure::kNone) return failure;
  const uint64_t serial = ++last_serial_;
  queued_header_bytes_ += message.header.size();
  if (message.expire_us != 0) {
    core_->Post(message.expire_us, batch_, [self = shared_from_this(), serial] { self->OnExpire(serial); });
  }
  queue_.push_back({serial, std::move(message)});
  PumpLater();
  return Failure::kNone;
}

void LoopbackConnection::Cancel(uint64_t token) {
  if (closed() || token == 0) return;
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [token](const Queued& queued) { return queued.message.token == token; });
  if (found == queue_.end()) return;
  queued_header_bytes_ -= found->message.header.size();
  queue_.erase(found);
  Report(token, Failure::kCancelled);
}

void LoopbackConnection::Divert(uint64_t landing_id) {
  if (closed()) return;
  std::erase(landing_now_, landing_id);
  diverted_.push_back(landing_id);
  core_->Post(core_->now_us(), batch_, [self = shared_from_this()] {
    if (self->closed() || self->diverted_.empty()) return;
    const uint64_t id = self->diverted_.front();
    self->diverted_.erase(self->diverted_.begin());
    const auto handler = self->handler_;
    handler->OnDiverted(*self, id);
  });
}

bool LoopbackConnection::Run(std::function<void()> work) {
  if (closed() || !process_->alive) return false;
  core_->Post(core_->now_us(), batch_, [self = shared_from_this(), work = std::move(work)] {
    if (!self->closed()) work();
  });
  return true;
}

void LoopbackConnection::Close(Failure why) {
  CloseLater({why, std::string("closed here: ") + std::string(FailureName(why))}, Failure::kCancelled);
}

void LoopbackConnection::CloseLater(Error why, Failure queued) {
  if (closed()) return;
  state_ = State::kClosing;
  why_ = std::move(why);
  queued_failure_ = queued;
  landing_now_.clear();
  core_->Post(core_->now_us(), batch_, [self = shared_from_this()] { self->FinishClose(); });
  if (const auto peer = peer_.lock()) {
    core_->Deliver(process_->host, peer_host_, 0, batch_, [peer] {
      peer->CloseLater({Failure::kPeerClosed, peer->peer_name_ + " closed the connection"},
                       Failure::kPeerClosed);
    });
  }
}

void LoopbackConnection::FinishClose() {
  if (state_ != State::kClosing) return;
  core_->Trace(id_ * 3);
  const auto self = shared_from_this();
  if (moving_ && moving_->message.token != 0) reports_.emplace_back(moving_->message.token, queued_failure_);
  for (const auto& sent : unacknowledged_) {
    if (sent.token != 0) reports_.emplace_back(sent.token, queued_failure_);
  }
  for (const auto& queued : queue_) {
    if (queued.message.token != 0) reports_.emplace_back(queued.message.token, queued_failure_);
  }
  moving_.reset();
  unacknowledged_.clear();
  queue_.clear();
  FlushReports();
  if (state_ != State::kClosing) return;  // a handler crashed this host
  state_ = State::kClosed;
  process_->connections.erase(id_);
  const auto handler = std::move(handler_);
  if (handler) handler->OnClosed(*this, why_);
}

void LoopbackConnection::Die() {
  if (state_ == State::kClosed) return;
  const bool told = state_ == State::kClosing;  // then the peer hears of it already
  state_ = State::kClosed;
  moving_.reset();
  unacknowledged_.clear();
  queue_.clear();
  reports_.clear();
  landing_now_.clear();
  const auto handler = std::move(handler_);
  const auto peer = peer_.lock();
  if (told || !peer) return;
  core_->Deliver(process_->host, peer_host_, 0, batch_, [peer] {
    peer->CloseLater({Failure::kPeerClosed, peer->peer_name_ + " died"}, Failure::kPeerClosed);
  });
}

void LoopbackConnection::Refuse() {
  peer_.reset();
  Die();
}

void LoopbackConnection::Report(uint64_t token, Failure failure) {
  if (token == 0) return;
  reports_.emplace_back(token, failure);
  if (flush_posted_) return;
  flush_posted_ = true;
  core_->Post(core_->now_us(), batch_, [self = shared_from_this()] {
    self->flush_posted_ = false;
    if (!self->closed()) self->FlushReports();
  });
}

void LoopbackConnection::FlushReports() {
  const auto self = shared_from_this();
  const auto handler = handler_;
  auto reports = std::move(reports_);
  reports_.clear();
  for (size_t i = 0; i < reports.size() && state_ != State::kClosed && handler; ++i) {
    handler->OnSent(*this, reports[i].first, reports[i].second);
  }
}

void LoopbackConnection::OnExpire(uint64_t serial) {
  if (closed()) return;
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [serial](const Queued& queued) { return queued.serial == serial; });
  if (found == queue_.end()) {
    CheckStall(serial);
    return;
  }
  const uint64_t token = found->message.token;
  queued_header_bytes_ -= found->message.header.size();
  queue_.erase(found);
  Report(token, Failure::kTimedOut);
}

// A begun and expired message that moves no byte for stall_us closes its connection.
void LoopbackConnection::CheckStall(uint64_t serial) {
  if (closed()) return;
  uint64_t last_move_us = 0;
  if (IsMoving(serial)) {
    last_move_us = moving_->last_move_us;
  } else {
    const auto found = std::find_if(unacknowledged_.begin(), unacknowledged_.end(),
                                    [serial](const Unacknowledged& sent) { return sent.serial == serial; });
    if (found == unacknowledged_.end()) return;
    last_move_us = found->last_move_us;
  }
  const uint64_t due_us = last_move_us + process_->stall_us;
  if (due_us > core_->now_us()) {
    core_->Post(due_us, batch_, [self = shared_from_this(), serial] { self->CheckStall(serial); });
    return;
  }
  ++process_->stats.stalled_closed;
  CloseLater({Failure::kTimedOut, peer_name_ + " took no byte of an expired message"}, Failure::kTimedOut);
}

}  // namespace larder::transport::loopback
