// The sending side of a shm connection.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/shm/shm_connection.h"

namespace larder::transport {

namespace {
constexpr size_t kWireBytesMax = 256 * 1024;        // encoded ahead of the socket
constexpr size_t kBounceTurnBytes = 1 << 20;        // into the bounce buffer
constexpr uint64_t kDataBytesMax = 4 << 20;         // of one kData: acknowledgements come at least so often
constexpr size_t kBounceDataBytesMax = 512 * 1024;  // of one kData: the peer copies while we copy the next
constexpr size_t kAwaitingMax = 1024;               // begun and not acknowledged
constexpr uint64_t kHoldUs = 10'000'000;            // without an expiry, a reader may hold a payload so long
}  // namespace

void ShmConnection::AppendFrame(const FrameHeader& frame, const void* body, size_t body_bytes) {
  const auto* head = reinterpret_cast<const std::byte*>(&frame);
  wire_.insert(wire_.end(), head, head + sizeof(frame));
  const auto* rest = static_cast<const std::byte*>(body);
  wire_.insert(wire_.end(), rest, rest + body_bytes);
}

bool ShmConnection::ControlWaits() const {
  return ack_wanted_ > ack_sent_ || !to_unmap_.empty() || !unmapped_.empty();
}

void ShmConnection::EmitControl() {
  FrameHeader frame;
  if (ack_wanted_ > ack_sent_) {
    frame.type = FrameType::kAck;
    frame.number = ack_sent_ = ack_wanted_;
    AppendFrame(frame, nullptr, 0);
  }
  frame.type = FrameType::kUnmapped;
  for (const uint64_t id : unmapped_) {
    frame.number = id;
    AppendFrame(frame, nullptr, 0);
  }
  unmapped_.clear();
  frame.type = FrameType::kUnmap;
  for (const uint64_t id : to_unmap_) {
    frame.number = id;
    AppendFrame(frame, nullptr, 0);
  }
  to_unmap_.clear();
}

void ShmConnection::WriteTurn() {
  const uint64_t now_us = NowUs();
  const size_t budget_bytes = batch() ? kBatchStepBytes : kBounceTurnBytes;
  size_t copied_bytes = 0;
  bool blocked = false;  // until an acknowledgement comes
  OutFrame next;
  if (ControlWaits()) {
    if (HoldWriter() && TakeNext(now_us, true, &next)) BeginNext(std::move(next), now_us);
    EmitControl();
  }
  while (wire_left() < kWireBytesMax && copied_bytes < budget_bytes && !blocked && !closing()) {
    if (has_current_) {
      blocked = !EmitData(&copied_bytes);
    } else if (awaiting_.size() >= kAwaitingMax) {
      blocked = true;
    } else if (TakeNext(now_us, true, &next)) {
      BeginNext(std::move(next), now_us);
    } else {
      break;
    }
  }
  if (!closing()) FlushWire();
  if (closing()) return;
  SettleAwaiting();
  const bool full = wire_left() > 0;
  WantWrite(full);
  if (full || blocked) return;
  if (has_current_ || !ReleaseWriter()) loop().Again(this);
}

void ShmConnection::BeginNext(OutFrame next, uint64_t now_us) {
  if (awaiting_.empty()) last_progress_us_ = now_us;
  const size_t begin = wire_.size();
  const size_t table_bytes = next.segment_bytes.size() * sizeof(uint64_t);
  AppendFrame(next.frame, next.segment_bytes.data(), table_bytes);
  wire_.insert(wire_.end(), next.message.header.begin(), next.message.header.end());
  // What another thread got into the socket already.
  const auto from = wire_.begin() + static_cast<ptrdiff_t>(begin);
  wire_.erase(from, from + static_cast<ptrdiff_t>(next.sent_bytes));
  current_ = std::move(next);
  current_.cursor = ExtentCursor<ConstExtent>(&current_.message.segments);
  OutMessage& message = current_.message;
  if (message.expire_us == 0 && current_.frame.payload_bytes > 0) message.expire_us = now_us + kHoldUs;
  if (message.expire_us != 0) expire_us_ = std::min(expire_us_, message.expire_us);
  has_current_ = true;
  if (current_.cursor.done()) EndCurrent();
}

void ShmConnection::EndCurrent() {
  has_current_ = false;
  const uint64_t number = current_.frame.payload_bytes > 0 ? data_number_ : 0;
  awaiting_.push_back(
      {number, wire_base_ + wire_.size(), current_.message.token, current_.message.expire_us});
  current_.message.header.clear();
  current_.message.segments.clear();
}

// Emits one kData of the current message. False: nothing can move before an acknowledgement.
bool ShmConnection::EmitData(size_t* copied_bytes) {
  Data data;
  uint64_t bytes = 0;
  const size_t copied_before = *copied_bytes;
  while (!current_.cursor.done() && data.list.size() < kDescriptorsMax && bytes < kDataBytesMax &&
         *copied_bytes - copied_before < kBounceDataBytesMax) {
    ConstExtent here = current_.cursor.Here();
    here.bytes = static_cast<size_t>(std::min<uint64_t>(here.bytes, kDataBytesMax - bytes));
    const size_t took = Describe(here, &data, copied_bytes);
    if (took == 0) break;
    current_.cursor.Advance(took);
    bytes += took;
  }
  if (bytes == 0) return false;
  FrameHeader frame;
  frame.type = FrameType::kData;
  frame.segments = static_cast<uint32_t>(data.list.size());
  frame.payload_bytes = bytes;
  frame.number = data.number = ++data_number_;
  AppendFrame(frame, data.list.data(), data.list.size() * sizeof(Descriptor));
  data.list = {};
  in_flight_.push_back(std::move(data));
  shared().sent_bytes += bytes;
  if (current_.cursor.done()) EndCurrent();
  return true;
}

// Describes the beginning of `from` to the peer; returns of how many bytes. 0: no shared memory is free.
size_t ShmConnection::Describe(ConstExtent from, Data* data, size_t* copied_bytes) {
  const std::shared_ptr<SharedRegion> region = FindShown(from.data);
  if (!region) return Bounce(from, data, copied_bytes);
  const auto offset = static_cast<uint64_t>(from.data - region->base);
  const size_t bytes = static_cast<size_t>(std::min<uint64_t>(from.bytes, region->bytes - offset));
  Descriptor* last = data->list.empty() ? nullptr : &data->list.back();
  if (last != nullptr && last->region == region->id && last->offset + last->bytes == offset) {
    last->bytes += bytes;
  } else {
    data->list.push_back({region->id, offset, bytes});
  }
  return bytes;
}

std::shared_ptr<SharedRegion> ShmConnection::FindShown(const std::byte* data) {
  if (last_region_ && data >= last_region_->base && data < last_region_->base + last_region_->bytes) {
    return last_region_;
  }
  std::shared_ptr<SharedRegion> region = shm_.regions.Find(data);
  if (!region) return nullptr;
  if (shown_.count(region->id) == 0) {
    const auto self = std::static_pointer_cast<ShmConnection>(shared_from_this());
    if (!shm_.regions.Hold(region, self)) return nullptr;
    shown_[region->id] = {region, false};
    FrameHeader frame;
    frame.type = FrameType::kRegion;
    frame.payload_bytes = region->bytes;
    frame.number = region->id;
    passing_.push_back({wire_base_ + wire_.size(), region->fd, region});
    AppendFrame(frame, nullptr, 0);
  }
  last_region_ = region;
  return region;
}

size_t ShmConnection::Bounce(ConstExtent from, Data* data, size_t* copied_bytes) {
  if (!bounce_.is_open()) {
    const Error error = bounce_.Open();
    if (!error.ok()) {
      Fail(error.failure, error.text);
      return 0;
    }
    FrameHeader frame;
    frame.type = FrameType::kRegion;
    frame.payload_bytes = BounceBuffer::kBytes;
    frame.number = kBounceId;
    passing_.push_back({wire_base_ + wire_.size(), bounce_.fd(), nullptr});
    AppendFrame(frame, nullptr, 0);
  }
  if (data->slot_used_bytes == BounceBuffer::kSlotBytes) {
    uint32_t slot = 0;
    if (!bounce_.Take(&slot)) return 0;
    data->slots.push_back(slot);
    data->slot_used_bytes = 0;
    data->list.push_back({kBounceId, uint64_t{slot} * BounceBuffer::kSlotBytes, 0});
  } else if (data->list.back().region != kBounceId) {
    data->list.push_back(
        {kBounceId, uint64_t{data->slots.back()} * BounceBuffer::kSlotBytes + data->slot_used_bytes, 0});
  }
  Descriptor& to = data->list.back();
  const size_t bytes = std::min(from.bytes, BounceBuffer::kSlotBytes - data->slot_used_bytes);
  memcpy(bounce_.base() + to.offset + to.bytes, from.data, bytes);
  to.bytes += bytes;
  data->slot_used_bytes += bytes;
  *copied_bytes += bytes;
  return bytes;
}

void ShmConnection::FlushWire() {
  while (wire_left() > 0) {
    const uint64_t at = wire_base_ + wire_sent_;
    iovec vector{wire_.data() + wire_sent_, wire_left()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    const bool with_fd = !passing_.empty() && passing_.front().at == at;
    const size_t marks_sent = with_fd ? 1 : 0;  // one descriptor a call: it belongs to the first byte
    if (passing_.size() > marks_sent) {
      vector.iov_len = static_cast<size_t>(std::min<uint64_t>(vector.iov_len, passing_[marks_sent].at - at));
    }
    if (with_fd) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int));
      memcpy(CMSG_DATA(head), &passing_.front().fd, sizeof(int));
    }
    const ssize_t sent = sendmsg(fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) {
      if (sent < 0 && errno != EAGAIN && errno != EINTR) FailErrno("lost the connection to", errno);
      return;
    }
    if (with_fd) passing_.pop_front();
    wire_sent_ += static_cast<size_t>(sent);
  }
  wire_base_ += wire_.size();
  wire_sent_ = 0;
  wire_.clear();
  if (wire_.capacity() > kWireBytesMax) wire_.shrink_to_fit();
}

void ShmConnection::SettleAwaiting() {
  const uint64_t flushed = wire_base_ + wire_sent_;
  while (!awaiting_.empty()) {
    const Awaiting& first = awaiting_.front();
    if (flushed < first.wire_end || acked_number_ < first.number) return;
    Finish(first.token, Failure::kNone);
    awaiting_.pop_front();
  }
}

void ShmConnection::OnAck(uint64_t number) {
  if (number <= acked_number_ || number > data_number_) {
    Fail(Failure::kProtocol, "the peer acknowledges what was not sent");
    return;
  }
  acked_number_ = number;
  while (!in_flight_.empty() && in_flight_.front().number <= number) {
    for (const uint32_t slot : in_flight_.front().slots) bounce_.Give(slot);
    in_flight_.pop_front();
  }
  last_progress_us_ = NowUs();
  SettleAwaiting();
  if (overdue_) Rescan(last_progress_us_);
}

void ShmConnection::OnUnmapped(uint64_t id) {
  const auto it = shown_.find(id);
  if (it == shown_.end() || !it->second.unmapping) {
    Fail(Failure::kProtocol, "the peer unmapped what it was not asked to");
    return;
  }
  shm_.regions.LetGo(it->second.region, this);
  shown_.erase(it);
}

void ShmConnection::AskToUnmap(const std::shared_ptr<SharedRegion>& region) {
  Run([this, region] {
    if (last_region_ == region) last_region_.reset();
    const auto it = shown_.find(region->id);
    if (it == shown_.end() || it->second.unmapping) return;
    it->second.unmapping = true;
    to_unmap_.push_back(region->id);
    Wake();
  });
}

uint64_t ShmConnection::NextTimerUs() const {
  return std::min(expire_us_, overdue_ ? last_progress_us_ + shared().options.stall_us : kNever);
}

void ShmConnection::OnTimers(uint64_t now_us) {
  if (now_us >= expire_us_) Rescan(now_us);
  if (!overdue_ || now_us < last_progress_us_ + shared().options.stall_us) return;
  shared().stalled_closed++;
  Fail(Failure::kTimedOut, "the peer " + peer_ + " copies nothing any more");
}

// Gives back what a peer has held for too long; finds the next expiry.
void ShmConnection::Rescan(uint64_t now_us) {
  expire_us_ = kNever;
  overdue_ = false;
  const auto look = [&](uint64_t expire_us) {
    if (expire_us == 0) return false;
    if (now_us >= expire_us) return overdue_ = true;
    expire_us_ = std::min(expire_us_, expire_us);
    return false;
  };
  for (Awaiting& awaiting : awaiting_) {
    if (!look(awaiting.expire_us) || awaiting.token == 0) continue;
    Finish(awaiting.token, Failure::kTimedOut);
    awaiting.token = 0;
  }
  if (has_current_) look(current_.message.expire_us);
}

}  // namespace larder::transport
