// How a message moves from one end of a loopback connection to the other.
#include <algorithm>
#include <cstring>

#include "transport/loopback/connection.h"

namespace larder::transport::loopback {

void LoopbackConnection::PumpLater() {
  if (pump_posted_ || state_ != State::kOpen) return;
  pump_posted_ = true;
  core_->Post(core_->now_us(), batch_, [self = shared_from_this()] {
    self->pump_posted_ = false;
    self->Pump();
  });
}

void LoopbackConnection::Pump() {
  while (state_ == State::kOpen && !moving_ && !queue_.empty()) {
    if (BeginNext()) return;
  }
}

// False when the next message had expired.
bool LoopbackConnection::BeginNext() {
  Queued next = std::move(queue_.front());
  queue_.pop_front();
  queued_header_bytes_ -= next.message.header.size();
  if (next.message.expire_us != 0 && next.message.expire_us <= core_->now_us()) {
    Report(next.message.token, Failure::kTimedOut);
    return false;
  }
  moving_ = std::make_unique<Moving>();
  moving_->serial = next.serial;
  moving_->message = std::move(next.message);
  moving_->last_move_us = core_->now_us();
  const SendSegments& segments = moving_->message.segments;
  size_t extent = 0;
  for (const uint32_t count : segments.counts) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; ++i) bytes += segments.extents[extent++].bytes;
    moving_->segment_bytes.push_back(bytes);
    moving_->payload_bytes += bytes;
  }
  moving_->fate = core_->DrawFate(process_->host, peer_host_, moving_->payload_bytes);
  core_->Deliver(process_->host, peer_host_, 0, batch_,
                 [self = shared_from_this(), serial = next.serial] { self->OnHeaderThere(serial); });
  return true;
}

void LoopbackConnection::OnHeaderThere(uint64_t serial) {
  const auto peer = peer_.lock();
  if (!IsMoving(serial) || state_ != State::kOpen || !peer) return;
  peer->Open();  // what arrives proves that the connection is open, whichever news is faster
  if (!IsMoving(serial) || state_ != State::kOpen || peer->state_ != State::kOpen) return;
  core_->Trace(id_ * 5 + moving_->message.header.size());
  moving_->last_move_us = core_->now_us();
  const Limits& limits = peer->process_->limits;
  if (moving_->message.header.size() > limits.header_bytes_max ||
      moving_->segment_bytes.size() > limits.segments_max ||
      moving_->payload_bytes > limits.payload_bytes_max) {
    ++peer->process_->stats.protocol_errors;
    peer->CloseLater({Failure::kTooLarge, peer_name_ + " was sent a message over its limits"},
                     Failure::kCancelled);
    return;
  }
  if (moving_->segment_bytes.empty()) {
    if (moving_->fate.reset_at_byte != kNever) return Break();
    moving_->landed = true;
    return Complete(*peer);
  }
  if (PlaceAtPeer(*peer)) ScheduleStep(NextStepBytes());
}

// False when the connection did not survive it.
bool LoopbackConnection::PlaceAtPeer(LoopbackConnection& peer) {
  const uint64_t serial = moving_->serial;
  const auto handler = peer.handler_;
  Landing landing;
  const bool taken = handler->Place(peer, moving_->message.header, moving_->segment_bytes, &landing);
  if (!IsMoving(serial) || state_ != State::kOpen || peer.state_ != State::kOpen) return false;
  moving_->landing = std::move(landing);
  moving_->landed = taken;
  if (!taken) return true;
  const LandSegments& segments = moving_->landing.segments;
  bool fits = segments.counts.size() == moving_->segment_bytes.size();
  size_t extent = 0;
  for (size_t i = 0; fits && i < segments.counts.size(); ++i) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; fits && k < segments.counts[i]; ++k) {
      fits = extent < segments.extents.size();
      if (fits) bytes += segments.extents[extent++].bytes;
    }
    fits = fits && bytes == moving_->segment_bytes[i];
  }
  if (!fits || extent != segments.extents.size()) {
    peer.CloseLater({Failure::kInvalid, "Place gave extents that do not add up to the payload"},
                    Failure::kCancelled);
    return false;
  }
  peer.landing_now_.assign(1, moving_->landing.id);
  return true;
}

// A step lies within one segment and one extent of the landing; 0 when only empty segments are left.
uint64_t LoopbackConnection::NextStepBytes() const {
  const Moving& moving = *moving_;
  uint64_t bytes = kStepBytes;
  size_t segment = moving.segment;
  uint64_t offset = moving.segment_offset;
  while (segment < moving.segment_bytes.size() && moving.segment_bytes[segment] == offset) {
    ++segment;
    offset = 0;
  }
  if (segment == moving.segment_bytes.size()) return 0;
  bytes = std::min(bytes, moving.segment_bytes[segment] - offset);
  if (moving.landed) {
    size_t extent = moving.land_extent;
    uint64_t used = moving.land_offset;
    while (moving.landing.segments.extents[extent].bytes == used) {
      ++extent;
      used = 0;
    }
    bytes = std::min<uint64_t>(bytes, moving.landing.segments.extents[extent].bytes - used);
  }
  return bytes;
}

void LoopbackConnection::ScheduleStep(uint64_t bytes) {
  core_->DeliverBytes(
      process_->host, peer_host_, bytes, batch_,
      [self = shared_from_this(), serial = moving_->serial, bytes] { self->OnStep(serial, bytes); });
}

void LoopbackConnection::OnStep(uint64_t serial, uint64_t bytes) {
  const auto peer = peer_.lock();
  if (!IsMoving(serial) || state_ != State::kOpen || !peer || peer->state_ != State::kOpen) return;
  moving_->last_move_us = core_->now_us();
  const Fate& fate = moving_->fate;
  if (fate.reset_at_byte != kNever &&
      fate.reset_at_byte < moving_->moved_bytes + std::max<uint64_t>(bytes, 1)) {
    return Break();
  }
  if (bytes != 0) CopyStep(*peer, bytes);
  if (!IsMoving(serial) || state_ != State::kOpen || peer->state_ != State::kOpen) return;
  if (moving_->moved_bytes == moving_->payload_bytes) return Complete(*peer);
  ScheduleStep(NextStepBytes());
}

void LoopbackConnection::CopyStep(LoopbackConnection& peer, uint64_t bytes) {
  Moving& moving = *moving_;
  while (moving.segment_bytes[moving.segment] == moving.segment_offset) {
    ++moving.segment;
    moving.segment_offset = 0;
  }
  const bool land = moving.landed && !peer.landing_now_.empty();
  std::byte* to = nullptr;
  if (moving.landed) {
    const auto& extents = moving.landing.segments.extents;
    while (extents[moving.land_extent].bytes == moving.land_offset) {
      ++moving.land_extent;
      moving.land_offset = 0;
    }
    to = extents[moving.land_extent].data + moving.land_offset;
    moving.land_offset += bytes;
  }
  for (uint64_t done = 0; done < bytes;) {
    const ConstExtent& from = moving.message.segments.extents[moving.source_extent];
    const uint64_t now = std::min<uint64_t>(bytes - done, from.bytes - moving.source_offset);
    if (land && now != 0) std::memcpy(to + done, from.data + moving.source_offset, now);
    done += now;
    moving.source_offset += now;
    if (moving.source_offset == from.bytes) {
      ++moving.source_extent;
      moving.source_offset = 0;
    }
  }
  const uint64_t corrupt_at = moving.fate.corrupt_at_byte - moving.moved_bytes;
  if (land && moving.fate.corrupt_at_byte >= moving.moved_bytes && corrupt_at < bytes) {
    to[corrupt_at] ^= static_cast<std::byte>(1u << moving.fate.corrupt_bit);
    ++core_->stats().corrupted;
  }
  const uint64_t offset = moving.segment_offset;
  moving.segment_offset += bytes;
  moving.moved_bytes += bytes;
  process_->stats.sent_bytes += bytes;
  peer.process_->stats.received_bytes += bytes;
  if (!land) return;
  const auto handler = peer.handler_;
  handler->OnBytes(peer, moving.landing.id, static_cast<uint32_t>(moving.segment), offset, {to, bytes});
}

void LoopbackConnection::Complete(LoopbackConnection& peer) {
  const std::unique_ptr<Moving> moving = std::move(moving_);
  core_->Trace(id_ * 7 + moving->payload_bytes);
  const bool with_payload = !moving->segment_bytes.empty();
  const bool landed = moving->landed && (!with_payload || !peer.landing_now_.empty());
  peer.landing_now_.clear();
  unacknowledged_.push_back(
      {moving->serial, moving->message.token, moving->message.expire_us, core_->now_us()});
  core_->Deliver(peer_host_, process_->host, 0, batch_,
                 [self = shared_from_this(), serial = moving->serial] { self->OnAcknowledged(serial); });
  PumpLater();
  ++process_->stats.sent_messages;
  ++peer.process_->stats.received_messages;
  if (with_payload && !moving->landed) ++peer.process_->stats.refused_messages;
  const auto handler = peer.handler_;
  handler->OnMessage(peer, moving->message.header, moving->landing.id, landed);
}

void LoopbackConnection::OnAcknowledged(uint64_t serial) {
  if (closed()) return;
  const auto found = std::find_if(unacknowledged_.begin(), unacknowledged_.end(),
                                  [serial](const Unacknowledged& sent) { return sent.serial == serial; });
  if (found == unacknowledged_.end()) return;
  const uint64_t token = found->token;
  unacknowledged_.erase(found);
  const auto handler = handler_;
  if (token != 0) handler->OnSent(*this, token, Failure::kNone);
}

void LoopbackConnection::Break() {
  ++core_->stats().resets;
  const auto peer = peer_.lock();
  CloseLater({Failure::kPeerClosed, "connection to " + peer_name_ + " was reset"}, Failure::kPeerClosed);
  if (!peer) return;
  peer->CloseLater({Failure::kPeerClosed, "connection to " + peer->peer_name_ + " was reset"},
                   Failure::kPeerClosed);
}

}  // namespace larder::transport::loopback
