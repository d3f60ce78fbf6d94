// The receiving side of a shm connection.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/shm/shm_connection.h"

namespace larder::transport {

namespace {
constexpr size_t kReadTurnBytes = 4 << 20;
constexpr size_t kCopyStepBytes = 64 * 1024;  // copied, then handed to OnBytes while it is in cache
constexpr int kReceivesPerTurn = 4;
constexpr size_t kInboxFramesMax = 256;
constexpr size_t kInboxBytesMax = 256 * 1024;
constexpr size_t kFdsMax = 16;  // received ahead of their kRegion
constexpr size_t kRegionsMax = 4096;
constexpr uint64_t kMappedBytesMax = uint64_t{4} << 40;
}  // namespace

ShmConnection::ShmConnection(std::shared_ptr<ShmShared> shared, Loop* loop, std::string peer)
    : StreamConnection(shared, loop, std::move(peer)), shm_(*shared) {}

ShmConnection::~ShmConnection() {
  for (const int fd : fds_) close(fd);
}

void ShmConnection::DropBegun(Failure why) {
  if (has_current_) Finish(current_.message.token, why);
  has_current_ = false;
  for (const Awaiting& awaiting : awaiting_) Finish(awaiting.token, why);
  awaiting_.clear();
  in_flight_.clear();
  passing_.clear();
  last_region_.reset();
  for (const auto& [id, shown] : shown_) shm_.regions.LetGo(shown.region, this);
  shown_.clear();
  copying_ = false;
  sources_.clear();
  inbox_.clear();
  maps_.clear();
  for (const int fd : fds_) close(fd);
  fds_.clear();
}

void ShmConnection::ReadTurn() {
  for (int i = 0; i < kReceivesPerTurn && !closing(); i++) {
    if (inbox_.size() >= kInboxFramesMax || inbox_bytes_ >= kInboxBytesMax || !ReceiveFrames()) break;
  }
  if (!closing()) CopyTurn(batch() ? kBatchStepBytes : kReadTurnBytes);
  if (!closing() && WantsTurn()) loop().Again(this);
}

// False: the socket is empty, or the connection fails.
bool ShmConnection::ReceiveFrames() {
  iovec vector{loop().scratch(), Loop::kScratchBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsMax)];
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = recvmsg(fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received < 0) {
    if (errno != EAGAIN && errno != EINTR) FailErrno("lost the connection to", errno);
    return false;
  }
  KeepFds(&message);
  if (received == 0) {
    Fail(Failure::kPeerClosed, "the peer " + peer_ + " closed the connection");
    return false;
  }
  if (!closing()) Feed({loop().scratch(), static_cast<size_t>(received)});
  return true;
}

void ShmConnection::KeepFds(msghdr* message) {
  for (cmsghdr* head = CMSG_FIRSTHDR(message); head != nullptr; head = CMSG_NXTHDR(message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int received = -1;
      memcpy(&received, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
      fds_.push_back(received);
    }
  }
  if (fds_.size() > kFdsMax || (message->msg_flags & MSG_CTRUNC) != 0) {
    Fail(Failure::kProtocol, "the peer passes descriptors that nobody asked for");
  }
}

void ShmConnection::OnFrame(const FrameHeader& frame, ByteView body) {
  switch (frame.type) {
    case FrameType::kAck:
      OnAck(frame.number);
      return;
    case FrameType::kUnmapped:
      OnUnmapped(frame.number);
      return;
    case FrameType::kRegion:
      OnRegion(frame);
      return;
    default:
      break;
  }
  if (inbox_.empty() && !copying_) {
    Handle(frame, body);
    return;
  }
  inbox_.push_back({frame, {body.begin(), body.end()}});
  inbox_bytes_ += body.size();
}

void ShmConnection::OnRegion(const FrameHeader& frame) {
  if (fds_.empty() || maps_.count(frame.number) != 0) {
    Fail(Failure::kProtocol, "the peer names a region without a descriptor, or twice");
    return;
  }
  const int fd = fds_.front();
  fds_.pop_front();
  std::shared_ptr<const Mapping> mapping;
  Error error;
  if (maps_.size() >= kRegionsMax || frame.payload_bytes > kMappedBytesMax - mapped_bytes_) {
    error = {Failure::kTooLarge, "the peer shares more memory than this side maps"};
  } else {
    error = shm_.mappings.Map(PeerPid(), fd, frame.payload_bytes, &mapping);
  }
  close(fd);
  if (!error.ok()) {
    Fail(error.failure, error.text);
    return;
  }
  mapped_bytes_ += mapping->bytes();
  maps_.emplace(frame.number, std::move(mapping));
}

pid_t ShmConnection::PeerPid() const {
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  return getsockopt(fd(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

// What must keep its place among the messages.
void ShmConnection::Handle(const FrameHeader& frame, ByteView body) {
  if (frame.type == FrameType::kData) {
    BeginData(frame, body);
  } else if (frame.type == FrameType::kUnmap) {
    const auto it = maps_.find(frame.number);
    if (it == maps_.end()) {
      Fail(Failure::kProtocol, "the peer wants a region unmapped that is not mapped");
      return;
    }
    mapped_bytes_ -= it->second->bytes();
    maps_.erase(it);
    unmapped_.push_back(frame.number);
  } else if (incoming_.active) {
    Fail(Failure::kProtocol, "the peer begins a message within another's payload");
  } else {
    BeginMessage(frame, body);
  }
}

void ShmConnection::BeginData(const FrameHeader& frame, ByteView body) {
  if (!incoming_.active || frame.number != received_number_ + 1 ||
      frame.payload_bytes > incoming_.payload_left) {
    Fail(Failure::kProtocol, "the peer sends payload out of turn");
    return;
  }
  received_number_ = frame.number;
  sources_.clear();
  uint64_t left_bytes = frame.payload_bytes;
  for (uint32_t i = 0; i < frame.segments; i++) {
    Descriptor source;
    memcpy(&source, body.data() + i * sizeof(source), sizeof(source));
    const auto it = maps_.find(source.region);
    if (it == maps_.end() || source.bytes == 0 || source.bytes > left_bytes ||
        source.offset > it->second->bytes() || source.bytes > it->second->bytes() - source.offset) {
      Fail(Failure::kProtocol, "the peer describes payload outside of what it shares");
      return;
    }
    left_bytes -= source.bytes;
    sources_.push_back({it->second->base() + source.offset, source.bytes});
  }
  if (left_bytes != 0) {
    Fail(Failure::kProtocol, "the peer's descriptors don't add up to its data");
    return;
  }
  source_ = 0;
  source_done_ = 0;
  copying_ = true;
}

void ShmConnection::CopyTurn(size_t budget_bytes) {
  while (!closing()) {
    if (copying_) {
      if (budget_bytes == 0) return;
      budget_bytes -= CopyStep(budget_bytes);
    } else if (!inbox_.empty()) {
      const Inbound next = std::move(inbox_.front());
      inbox_.pop_front();
      inbox_bytes_ -= next.body.size();
      Handle(next.frame, next.body);
    } else {
      return;
    }
  }
}

// Copies up to budget_bytes, and says how many.
size_t ShmConnection::CopyStep(size_t budget_bytes) {
  const Copy& source = sources_[source_];
  const uint64_t left_bytes = source.bytes - source_done_;
  size_t copied_bytes = 0;
  if (incoming_.landed) {
    const Extent here = incoming_.cursor.Here();
    copied_bytes = std::min({here.bytes, kCopyStepBytes, budget_bytes});
    copied_bytes = static_cast<size_t>(std::min<uint64_t>(copied_bytes, left_bytes));
    memcpy(here.data, source.from + source_done_, copied_bytes);
    source_done_ += copied_bytes;
    Landed({here.data, copied_bytes});
  } else {
    source_done_ += left_bytes;
    Skipped(left_bytes);
  }
  if (source_done_ == source.bytes) {
    source_done_ = 0;
    if (++source_ == sources_.size()) EndData();
  }
  return copied_bytes;
}

void ShmConnection::EndData() {
  copying_ = false;
  ack_wanted_ = received_number_;
  if (incoming_.payload_left == 0 && !closing()) FinishMessage();
}

}  // namespace larder::transport
