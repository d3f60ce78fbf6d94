#include "transport/tcp/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace larder::transport {

namespace {

constexpr size_t kReceiveTurnBytes = 4 << 20;
constexpr size_t kReceiveStepBytes = 1 << 20;
constexpr size_t kSendStepBytes = 2 << 20;
constexpr size_t kHeaderReadBytes = 16 * 1024;  // more would copy payload that came behind a header
constexpr size_t kTailBytes = 4096;             // room for the next header behind the end of a payload
constexpr size_t kBegunFramesMax = 64;
constexpr size_t kTogetherBytes = 1 << 20;
constexpr uint64_t kTogetherMessageBytes = 128 << 10;  // of less, bytes are not what takes the time
constexpr size_t kVectors = 256;

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

size_t LeadBytes(const FrameHeader& frame) {
  return sizeof(FrameHeader) + BodyBytes(frame);
}

}  // namespace

void TcpConnection::OnSocket(int fd) {
  const TransportOptions& options = shared().options;
  SetOption(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(options.socket_bytes));
  SetOption(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(options.socket_bytes));
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(options.user_timeout_ms));
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 5);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void TcpConnection::OnOpen() {
  within_host_ = IsWithinHost(fd());
  // There is no network to be fair to: a congestion control that paces (BBR) only costs timers here.
  if (within_host_) setsockopt(fd(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

void TcpConnection::ReadTurn() {
  size_t left = batch() ? kBatchStepBytes : kReceiveTurnBytes;
  bool drained = false;
  while (left > 0 && !drained && !closing()) {
    size_t moved = 0;
    if (!incoming_.active) {
      moved = ReceiveHeaders();
      drained = moved < kHeaderReadBytes;
    } else {
      const size_t step =
          static_cast<size_t>(std::min<uint64_t>({incoming_.payload_left, kReceiveStepBytes, left}));
      moved = incoming_.landed ? ReceivePayload(step, &drained) : DiscardPayload(step, &drained);
    }
    left -= std::min(left, moved);
  }
}

size_t TcpConnection::Received(ssize_t result) {
  if (result > 0) return static_cast<size_t>(result);
  if (result == 0) {
    Fail(Failure::kPeerClosed, "the peer " + peer_ + " closed the connection");
  } else if (errno != EAGAIN && errno != EINTR) {
    FailErrno("lost the connection to", errno);
  }
  return 0;
}

size_t TcpConnection::ReceiveHeaders() {
  std::byte* scratch = loop().scratch();
  const size_t bytes = Received(recv(fd(), scratch, kHeaderReadBytes, MSG_DONTWAIT));
  Feed({scratch, bytes});
  return bytes;
}

size_t TcpConnection::ReceivePayload(size_t step_bytes, bool* drained) {
  iovec vectors[kVectors];
  size_t count = 0, asked = 0;
  for (auto cursor = incoming_.cursor; asked < step_bytes && count < kVectors - 1; count++) {
    const Extent here = cursor.Here();
    const size_t bytes = std::min(here.bytes, step_bytes - asked);
    vectors[count] = {here.data, bytes};
    asked += bytes;
    cursor.Advance(bytes);
  }
  std::byte* tail = loop().scratch();
  if (asked == incoming_.payload_left) vectors[count++] = {tail, kTailBytes};
  msghdr in{};
  in.msg_iov = vectors;
  in.msg_iovlen = count;
  const size_t bytes = Received(recvmsg(fd(), &in, MSG_DONTWAIT));
  *drained = bytes < asked;
  const size_t payload_bytes = std::min(bytes, asked);
  KeepTogether(payload_bytes, incoming_.payload_bytes, false);
  LandInOrder(payload_bytes);
  if (bytes > asked && !closing()) Feed({tail, bytes - asked});
  return bytes;
}

// Both threads on one core (home_core.h) while a large message moves within this host. A segment that came in
// came on the core of who sent it, but on the sending side some are our own.
void TcpConnection::KeepTogether(size_t bytes, uint64_t message_bytes, bool sent) {
  CountMoved(bytes);
  if (!within_host_ || !dialed() || message_bytes < kTogetherMessageBytes) return;
  moved_bytes_ += bytes;
  if (moved_bytes_ < kTogetherBytes) return;
  moved_bytes_ = 0;
  int core = -1;
  socklen_t size = sizeof(core);
  if (getsockopt(fd(), SOL_SOCKET, SO_INCOMING_CPU, &core, &size) != 0) return;
  if (!sent || core != sched_getcpu()) loop().home_core().Follow(core, NowUs());
}

size_t TcpConnection::DiscardPayload(size_t step_bytes, bool* drained) {
  // MSG_TRUNC on TCP: the kernel forgets the bytes without copying them.
  const size_t bytes = Received(recv(fd(), nullptr, step_bytes, MSG_DONTWAIT | MSG_TRUNC));
  *drained = bytes < step_bytes;
  Skipped(bytes);
  if (incoming_.payload_left == 0 && !closing()) FinishMessage();
  return bytes;
}

size_t TcpConnection::TakePayload(ByteView bytes) {
  const size_t take = static_cast<size_t>(std::min<uint64_t>(bytes.size(), incoming_.payload_left));
  if (incoming_.landed) {
    size_t copied = 0;
    for (auto cursor = incoming_.cursor; copied < take;) {
      const Extent here = cursor.Here();
      const size_t step = std::min(here.bytes, take - copied);
      std::copy_n(bytes.data() + copied, step, here.data);
      copied += step;
      cursor.Advance(step);
    }
    LandInOrder(take);
  } else {
    Skipped(take);
    if (incoming_.payload_left == 0) FinishMessage();
  }
  return take;
}

// `bytes` bytes lie at the cursor: say so, extent by extent.
void TcpConnection::LandInOrder(size_t bytes) {
  while (bytes > 0 && !closing()) {
    const Extent here = incoming_.cursor.Here();
    const size_t step = std::min(here.bytes, bytes);
    Landed({here.data, step});
    bytes -= step;
  }
  if (incoming_.payload_left == 0 && !closing()) FinishMessage();
}

void TcpConnection::Refill(size_t step_bytes) {
  uint64_t now_us = 0;
  while (active_bytes_ < step_bytes && active_.size() < kBegunFramesMax) {
    if (now_us == 0) now_us = NowUs();
    OutFrame next;
    if (!TakeNext(now_us, !active_.empty(), &next)) return;
    if (active_.empty()) last_progress_us_ = now_us;
    active_bytes_ += LeadBytes(next.frame) + next.frame.payload_bytes - next.sent_bytes;
    active_.push_back(std::move(next));
    active_.back().cursor = ExtentCursor<ConstExtent>(&active_.back().message.segments);
  }
}

void TcpConnection::WriteTurn() {
  const size_t step_bytes = batch() ? kBatchStepBytes : kSendStepBytes;
  Refill(step_bytes);
  const bool full = !active_.empty() && !WriteStep(step_bytes);
  if (closing()) return;
  WantWrite(full);
  if (full || active_.empty()) {
    // An empty queue is only known to be empty after asking: TakeNext then lets other threads write.
    if (!full) Refill(1);
    if (full || active_.empty()) return;
  }
  loop().Again(this);
}

// Writes up to about step_bytes of what has begun. False: the socket is full.
bool TcpConnection::WriteStep(size_t step_bytes) {
  iovec vectors[kVectors];
  size_t count = 0, asked = 0;
  const auto add = [&](const void* data, size_t bytes) {
    if (bytes == 0) return;
    vectors[count++] = {const_cast<void*>(data), bytes};
    asked += bytes;
  };
  for (const OutFrame& out : active_) {
    if (asked >= step_bytes || count + 4 > kVectors) break;
    const size_t table_bytes = out.segment_bytes.size() * sizeof(uint64_t);
    size_t skip = out.sent_bytes;
    const std::pair<const void*, size_t> lead[] = {{&out.frame, sizeof(FrameHeader)},
                                                   {out.segment_bytes.data(), table_bytes},
                                                   {out.message.header.data(), out.message.header.size()}};
    for (const auto& [data, bytes] : lead) {
      const size_t skipped = std::min(skip, bytes);
      add(static_cast<const std::byte*>(data) + skipped, bytes - skipped);
      skip -= skipped;
    }
    for (auto cursor = out.cursor; !cursor.done() && asked < step_bytes && count < kVectors;) {
      const ConstExtent here = cursor.Here();
      const size_t bytes = std::min(here.bytes, step_bytes - asked);
      add(here.data, bytes);
      cursor.Advance(bytes);
    }
  }
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  const ssize_t sent = sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno != EAGAIN && errno != EINTR) FailErrno("lost the connection to", errno);
    return false;
  }
  KeepTogether(static_cast<size_t>(sent), active_.front().frame.payload_bytes, true);
  Advance(static_cast<size_t>(sent));
  return static_cast<size_t>(sent) == asked;
}

void TcpConnection::Advance(size_t bytes) {
  if (bytes > 0) last_progress_us_ = NowUs();
  active_bytes_ -= bytes;
  while (!active_.empty()) {
    OutFrame& out = active_.front();
    const size_t lead_bytes = LeadBytes(out.frame);
    if (out.sent_bytes < lead_bytes) {
      const size_t step = std::min(bytes, lead_bytes - out.sent_bytes);
      out.sent_bytes += step;
      bytes -= step;
    }
    while (bytes > 0 && !out.cursor.done()) {
      const size_t step = std::min(bytes, out.cursor.Here().bytes);
      out.cursor.Advance(step);
      out.sent_bytes += step;
      shared().sent_bytes += step;
      bytes -= step;
    }
    if (out.sent_bytes < lead_bytes + out.frame.payload_bytes) return;
    Finish(out.message.token, Failure::kNone);
    active_.pop_front();
  }
}

void TcpConnection::DropBegun(Failure why) {
  for (const OutFrame& out : active_) Finish(out.message.token, why);
  active_.clear();
  active_bytes_ = 0;
}

uint64_t TcpConnection::NextTimerUs() const {
  uint64_t expire_us = kNever;
  for (const OutFrame& out : active_) {
    if (out.message.expire_us != 0) expire_us = std::min(expire_us, out.message.expire_us);
  }
  if (expire_us == kNever) return kNever;
  return std::max(expire_us, last_progress_us_ + shared().options.stall_us);
}

void TcpConnection::OnTimers(uint64_t now_us) {
  if (now_us < NextTimerUs()) return;
  shared().stalled_closed++;
  Fail(Failure::kTimedOut, "the peer " + peer_ + " takes no bytes any more");
}

}  // namespace larder::transport
