// The queue of a stream connection.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "transport/socket/stream_connection.h"

namespace larder::transport {

namespace {
constexpr size_t kDirectBytesMax = 16 * 1024;
}

Failure StreamConnection::Send(OutMessage&& message) {
  const Limits& limits = shared_->options.limits;
  Queued queued;
  if (message.header.size() > limits.header_bytes_max || message.segments.size() > limits.segments_max) {
    return Failure::kTooLarge;
  }
  if (!SegmentBytes(message.segments, &queued.segment_bytes, &queued.payload_bytes)) return Failure::kInvalid;
  if (queued.payload_bytes > limits.payload_bytes_max) return Failure::kTooLarge;
  if (message.segments.size() != 0 && message.token == 0) return Failure::kInvalid;

  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closing()) return Failure::kPeerClosed;
    if (queue_.size() >= limits.queued_messages_max ||
        queued_header_bytes_ + message.header.size() > limits.queued_header_bytes_max) {
      return Failure::kBusy;
    }
    queued.message = std::move(message);
    if (direct_ok_ && !writer_busy_ && queue_.empty() && WriteDirectly(&queued)) return Failure::kNone;
    const OutMessage& kept = queued.message;
    queued_header_bytes_ += kept.header.size();
    if (kept.expire_us != 0) queue_expire_us_ = std::min(queue_expire_us_, kept.expire_us);
    queue_.push_back(std::move(queued));
  }
  Wake();
  return Failure::kNone;
}

// With the mutex held: saves a small message the hop to the loop. False: it must be queued, perhaps because
// only its beginning fitted into the socket. The loop's own thread gathers instead what a turn sends.
bool StreamConnection::WriteDirectly(Queued* queued) {
  OutMessage& message = queued->message;
  if (message.segments.size() != 0 || message.token != 0 || message.header.size() > kDirectBytesMax ||
      loop_->InLoop()) {
    return false;
  }
  FrameHeader frame;
  frame.header_bytes = static_cast<uint32_t>(message.header.size());
  iovec parts[2] = {{&frame, sizeof(frame)}, {message.header.data(), message.header.size()}};
  msghdr out{};
  out.msg_iov = parts;
  out.msg_iovlen = 2;
  const ssize_t sent = sendmsg(fd_, &out, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent <= 0) return false;  // full, or broken: the loop finds out which
  queued->sent_bytes = static_cast<size_t>(sent);
  if (queued->sent_bytes < sizeof(frame) + message.header.size()) return false;
  shared_->sent_messages++;
  return true;
}

bool StreamConnection::TakeNext(uint64_t now_us, bool keep_busy, OutFrame* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!queue_.empty()) {
    Queued queued = std::move(queue_.front());
    queue_.pop_front();
    OutMessage& message = queued.message;
    queued_header_bytes_ -= message.header.size();
    if (queued.sent_bytes == 0 && message.expire_us != 0 && now_us >= message.expire_us) {
      if (message.token != 0) sent_.emplace_back(message.token, Failure::kTimedOut);
      continue;
    }
    out->frame = FrameHeader{};
    out->frame.header_bytes = static_cast<uint32_t>(message.header.size());
    out->frame.segments = static_cast<uint32_t>(message.segments.size());
    out->frame.payload_bytes = queued.payload_bytes;
    out->segment_bytes = std::move(queued.segment_bytes);
    out->sent_bytes = queued.sent_bytes;
    out->message = std::move(message);
    writer_busy_ = true;
    return true;
  }
  if (!keep_busy) writer_busy_ = false;
  return false;
}

bool StreamConnection::HoldWriter() {
  std::lock_guard<std::mutex> lock(mutex_);
  writer_busy_ = true;
  return !queue_.empty() && queue_.front().sent_bytes != 0;
}

bool StreamConnection::ReleaseWriter() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!queue_.empty()) return false;
  writer_busy_ = false;
  return true;
}

void StreamConnection::Finish(uint64_t token, Failure failure) {
  if (failure == Failure::kNone) shared_->sent_messages++;
  if (token == 0) return;
  std::lock_guard<std::mutex> lock(mutex_);
  sent_.emplace_back(token, failure);
}

void StreamConnection::Cancel(uint64_t token) {
  if (token == 0) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = std::find_if(queue_.begin(), queue_.end(), [token](const Queued& queued) {
      return queued.message.token == token && queued.sent_bytes == 0;
    });
    if (it == queue_.end()) return;
    queued_header_bytes_ -= it->message.header.size();
    queue_.erase(it);
    sent_.emplace_back(token, Failure::kCancelled);
  }
  Wake();
}

void StreamConnection::ExpireQueued(uint64_t now_us) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (now_us < queue_expire_us_) return;
  queue_expire_us_ = kNever;
  for (auto it = queue_.begin(); it != queue_.end();) {
    const OutMessage& message = it->message;
    if (message.expire_us == 0 || it->sent_bytes != 0) {
      ++it;
    } else if (now_us >= message.expire_us) {
      if (message.token != 0) sent_.emplace_back(message.token, Failure::kTimedOut);
      queued_header_bytes_ -= message.header.size();
      it = queue_.erase(it);
    } else {
      queue_expire_us_ = std::min(queue_expire_us_, message.expire_us);
      ++it;
    }
  }
}

}  // namespace larder::transport
