// What comes in on a stream connection: frames, and the landing of payloads.
#include <algorithm>
#include <cstring>

#include "transport/socket/stream_connection.h"

namespace larder::transport {

namespace {
constexpr size_t kHead = sizeof(FrameHeader);
constexpr size_t kKeptBytesMax = 64 * 1024;  // buffers above this are given back after use
constexpr size_t kStepBytesMax = 1 << 20;    // of one OnBytes
}  // namespace

void StreamConnection::Feed(ByteView bytes) {
  while (!bytes.empty() && !closing()) {
    if (incoming_.active && !IsShm()) {
      bytes = bytes.subspan(TakePayload(bytes));
    } else if (!ParseFrame(&bytes)) {
      return;
    }
  }
}

// Takes bytes of one frame; false: it is not whole yet, or the connection fails.
bool StreamConnection::ParseFrame(ByteView* bytes) {
  const auto good = [this](const FrameHeader& frame) {
    Error error = CheckFrame(frame, shared_->options.limits, IsShm());
    if (error.ok() && stranger_ && BodyBytes(frame) > kFirstBodyBytesMax) {
      error = {Failure::kTooLarge, "the peer begins with a message over the limit of a first one"};
    }
    if (!error.ok()) Fail(error.failure, error.text);
    return error.ok();
  };
  if (partial_.empty() && bytes->size() >= kHead) {
    FrameHeader frame;
    memcpy(&frame, bytes->data(), kHead);
    if (!good(frame)) return false;
    const size_t body_bytes = BodyBytes(frame);
    if (bytes->size() - kHead >= body_bytes) {
      const ByteView body = bytes->subspan(kHead, body_bytes);
      *bytes = bytes->subspan(kHead + body_bytes);
      OnFrame(frame, body);
      return true;
    }
  }
  const bool had_head = partial_.size() >= kHead;
  const size_t want = had_head ? kHead + BodyBytes(partial_frame_) : kHead;
  const size_t take = std::min(want - partial_.size(), bytes->size());
  partial_.insert(partial_.end(), bytes->begin(), bytes->begin() + static_cast<ptrdiff_t>(take));
  *bytes = bytes->subspan(take);
  if (partial_.size() < kHead) return false;
  if (!had_head) {
    memcpy(&partial_frame_, partial_.data(), kHead);
    if (!good(partial_frame_)) return false;
  }
  if (partial_.size() < kHead + BodyBytes(partial_frame_)) return !bytes->empty();
  std::vector<std::byte> whole;
  whole.swap(partial_);
  OnFrame(partial_frame_, ByteView(whole).subspan(kHead));
  if (whole.capacity() <= kKeptBytesMax) {
    whole.clear();
    partial_.swap(whole);
  }
  return true;
}

void StreamConnection::BeginMessage(const FrameHeader& frame, ByteView body) {
  shared_->received_messages++;
  stranger_ = false;
  const size_t table_bytes = size_t{frame.segments} * sizeof(uint64_t);
  const ByteView header = body.subspan(table_bytes);
  if (frame.segments == 0) {
    handler_->OnMessage(*this, header, 0, true);
    return;
  }
  Incoming& in = incoming_;
  in.segment_bytes.resize(frame.segments);
  memcpy(in.segment_bytes.data(), body.data(), table_bytes);
  uint64_t sum = 0;
  for (const uint64_t bytes : in.segment_bytes) {
    if (__builtin_add_overflow(sum, bytes, &sum)) sum = ~uint64_t{0};
  }
  if (sum != frame.payload_bytes) {
    Fail(Failure::kProtocol, "the peer's segments don't add up to its payload");
    return;
  }
  in.header.assign(header.begin(), header.end());
  in.landing.id = 0;
  in.landing.segments.clear();
  in.landed = handler_->Place(*this, in.header, in.segment_bytes, &in.landing);
  if (closing()) return;
  if (in.landed) {
    std::vector<uint64_t> landing_bytes;
    uint64_t landing_total = 0;
    if (!SegmentBytes(in.landing.segments, &landing_bytes, &landing_total) ||
        landing_bytes != in.segment_bytes) {
      Fail(Failure::kInvalid, "the receiver's extents don't add up to the segments");
      return;
    }
    in.cursor = ExtentCursor<Extent>(&in.landing.segments);
  } else {
    shared_->refused_messages++;
  }
  in.active = true;
  in.payload_bytes = in.payload_left = frame.payload_bytes;
  if (in.payload_left == 0) FinishMessage();
}

void StreamConnection::Landed(ByteView bytes) {
  Incoming& in = incoming_;
  shared_->received_bytes += bytes.size();
  in.payload_left -= bytes.size();
  while (!bytes.empty()) {
    const ByteView step = bytes.first(std::min(bytes.size(), kStepBytesMax));
    const uint32_t segment = in.cursor.segment();
    const uint64_t offset = in.cursor.segment_offset();
    in.cursor.Advance(step.size());
    handler_->OnBytes(*this, in.landing.id, segment, offset, step);
    bytes = bytes.subspan(step.size());
  }
}

void StreamConnection::Skipped(size_t bytes) {
  incoming_.payload_left -= bytes;
}

void StreamConnection::FinishMessage() {
  Incoming& in = incoming_;
  in.active = false;
  handler_->OnMessage(*this, in.header, in.landing.id, in.landed);
  if (in.header.capacity() > kKeptBytesMax) std::vector<std::byte>().swap(in.header);
}

void StreamConnection::Divert(uint64_t landing_id) {
  Run([this, landing_id] {
    if (incoming_.active && incoming_.landed && incoming_.landing.id == landing_id) incoming_.landed = false;
    handler_->OnDiverted(*this, landing_id);
  });
}

}  // namespace larder::transport
