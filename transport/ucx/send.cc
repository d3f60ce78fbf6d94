// The way out: from the queue into active messages.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "transport/ucx/connection.h"

namespace larder::transport::ucx {

// What is on its way is bounded: in active messages, and in messages that the peer may have to keep while the
// payload of an older one arrives.
bool UcxConnection::MayBegin() const {
  return outgoing_.size() < kMessagesInFlight && frame_bytes_in_flight_ < kFrameBytesInFlight;
}

void UcxConnection::Pump() {
  while (!closing() && ops_.size() < kSendsInFlight) {
    if (posting_) {
      PostFragment();
    } else if (!MayBegin() || !BeginNext()) {
      break;
    }
  }
  if (!reports_.empty()) worker_->Ready(this);
}

bool UcxConnection::BeginNext() {
  auto outgoing = std::make_shared<Outgoing>();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.empty()) return false;
    outgoing->message = std::move(queue_.front());
    queue_.pop_front();
    queued_header_bytes_ -= outgoing->message.header.size();
  }
  const OutMessage& message = outgoing->message;
  const uint64_t now_us = NowUs();
  if (message.expire_us != 0 && message.expire_us <= now_us) {
    if (message.token != 0) reports_.emplace_back(message.token, Failure::kTimedOut);
    return true;
  }
  if (outgoing_.empty()) last_sent_us_ = now_us;
  outgoing_.push_back(outgoing);
  PostFrame(outgoing);
  return true;
}

void UcxConnection::PostFrame(const std::shared_ptr<Outgoing>& outgoing) {
  const OutMessage& message = outgoing->message;
  uint64_t payload_bytes = 0;
  SegmentBytes(message.segments, &outgoing->segment_bytes, &payload_bytes);
  SendOp* const op = NewOp(outgoing);
  op->frame = FrameHeader{};
  op->frame.sequence = ++last_sequence_;
  op->frame.segments = static_cast<uint32_t>(outgoing->segment_bytes.size());
  op->frame.header_bytes = static_cast<uint32_t>(message.header.size());
  if (payload_bytes <= kInlineBytes) op->frame.inline_bytes = static_cast<uint32_t>(payload_bytes);
  std::vector<std::byte>& data = op->owned;
  const auto append = [&data](const void* from, size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(from);
    data.insert(data.end(), begin, begin + bytes);
  };
  data.reserve(outgoing->segment_bytes.size() * 8 + message.header.size() + op->frame.inline_bytes);
  append(outgoing->segment_bytes.data(), outgoing->segment_bytes.size() * 8);
  append(message.header.data(), message.header.size());
  if (op->frame.inline_bytes != 0) {
    for (const ConstExtent& extent : message.segments.extents) append(extent.data, extent.bytes);
    op->bytes = payload_bytes;
  }
  outgoing->frame_bytes = data.size();
  frame_bytes_in_flight_ += data.size();
  if (op->frame.inline_bytes == payload_bytes) {
    outgoing->all_posted = true;
  } else {
    outgoing->cursor = ExtentCursor<ConstExtent>(&outgoing->message.segments);
    posting_ = outgoing;
  }
  PostOp(op, kFrame, &op->frame, sizeof op->frame, data.data(), data.size(), false);
}

// The next fragment: a piece of one large extent as it is, or several small ones of a segment gathered.
void UcxConnection::PostFragment() {
  const auto outgoing = posting_;
  SendOp* const op = NewOp(outgoing);
  op->fragment = FragmentHeader{};
  op->fragment.sequence = last_sequence_;
  op->fragment.index = outgoing->fragments++;
  ExtentCursor<ConstExtent>& cursor = outgoing->cursor;
  ConstExtent data = cursor.Here();
  if (data.bytes >= kRendezvousBytes) {
    data.bytes = std::min<size_t>(data.bytes, batch() ? kBatchFragmentBytes : kFragmentBytes);
    cursor.Advance(data.bytes);
  } else {
    const uint32_t segment = cursor.segment();
    while (!cursor.done() && cursor.segment() == segment) {
      const ConstExtent here = cursor.Here();
      const size_t bytes = std::min<size_t>(here.bytes, kGatherBytes - op->owned.size());
      if (here.bytes >= kRendezvousBytes || bytes == 0) break;
      op->owned.insert(op->owned.end(), here.data, here.data + bytes);
      cursor.Advance(bytes);
    }
    data = {op->owned.data(), op->owned.size()};
  }
  op->bytes = data.bytes;
  if (cursor.done()) {
    outgoing->all_posted = true;
    posting_.reset();
  }
  PostOp(op, kFragment, &op->fragment, sizeof op->fragment, data.data, data.bytes,
         data.bytes >= kRendezvousBytes && !shared_->eager_only);
}

void UcxConnection::PostHello(unsigned id) {
  SendOp* const op = NewOp(nullptr);
  op->hello = HelloHeader{};
  PostOp(op, id, &op->hello, sizeof op->hello, nullptr, 0, false);
}

SendOp* UcxConnection::NewOp(std::shared_ptr<Outgoing> outgoing) {
  SendOp* const op = &ops_.emplace_back();
  op->connection = this;
  op->home = &ops_;
  op->self = std::prev(ops_.end());
  op->outgoing = std::move(outgoing);
  return op;
}

void UcxConnection::PostOp(SendOp* op, unsigned id, const void* header, size_t header_bytes, const void* data,
                           size_t bytes, bool rendezvous) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_AM_SEND_FLAG_REPLY | (rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  param.cb.send = &UcxConnection::OnSendDone;
  param.user_data = op;
  if (op->outgoing) op->outgoing->sends++;
  const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint_, id, header, header_bytes, data, bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) CompleteOp(op, UCS_PTR_STATUS(request));
}

void UcxConnection::OnSendDone(void* request, ucs_status_t status, void* op) {
  ucp_request_free(request);
  CompleteOp(static_cast<SendOp*>(op), status);
}

void UcxConnection::CompleteOp(SendOp* op, ucs_status_t status) {
  if (op->connection != nullptr) op->connection->OnOpCompleted(*op, status);
  op->home->erase(op->self);
}

void UcxConnection::OnOpCompleted(const SendOp& op, ucs_status_t status) {
  worker_->Ready(this);
  if (status != UCS_OK) {
    // Its message stays uncompleted: the close that follows reports it.
    if (endpoint_error_ == UCS_OK) endpoint_error_ = status;
    return;
  }
  last_sent_us_ = NowUs();
  shared_->sent_bytes.fetch_add(op.bytes, std::memory_order_relaxed);
  if (!op.outgoing) {
    if (is_connector_) ready_ = true;
    return;
  }
  Outgoing& outgoing = *op.outgoing;
  outgoing.sends--;
  if (outgoing.completed()) {
    outgoing.reported = true;
    shared_->sent_messages.fetch_add(1, std::memory_order_relaxed);
    if (outgoing.message.token != 0) reports_.emplace_back(outgoing.message.token, Failure::kNone);
  }
  while (!outgoing_.empty() && outgoing_.front()->reported) {
    frame_bytes_in_flight_ -= outgoing_.front()->frame_bytes;
    outgoing_.pop_front();
  }
}

void UcxConnection::ReportSent() {
  if (reports_.empty() || !handler_) return;
  const auto reports = std::move(reports_);
  reports_.clear();
  for (const auto& [token, failure] : reports) handler_->OnSent(*this, token, failure);
}

}  // namespace larder::transport::ucx
