// The way in: active messages arrive in any order, messages are delivered in theirs.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "transport/ucx/connection.h"

namespace larder::transport::ucx {

namespace {
constexpr uint32_t kArrivalsInFlight = 16;
constexpr uint32_t kBatchArrivalsInFlight = 2;
constexpr int kMessagesPerTurn = 64;
}  // namespace

// --- UCX's callbacks: look, note, no handler calls --------------------------------------------------------

// The welcome at the connector, the hello at the acceptor.
ucs_status_t UcxConnection::OnHelloArrived(void* worker, const void* header, size_t header_bytes, void*,
                                           size_t, const ucp_am_recv_param_t* param) {
  UcxConnection* connection = static_cast<Worker*>(worker)->Find(param);
  if (connection == nullptr || connection->closing()) return UCS_OK;
  HelloHeader hello;
  if (header_bytes == sizeof hello) memcpy(&hello, header, sizeof hello);
  if (header_bytes != sizeof hello || hello.magic != kMagic || connection->hello_arrived_) {
    connection->protocol_error_ = "a bad hello";
  } else {
    connection->hello_arrived_ = true;
    if (!connection->is_connector_) connection->ready_ = true;
  }
  connection->worker_->Ready(connection);
  return UCS_OK;
}

void UcxConnection::NoteTooLarge(const char* what) {
  protocol_error_ = what;
  protocol_failure_ = Failure::kTooLarge;
}

UcxConnection::Incoming* UcxConnection::FindIncoming(uint64_t sequence) {
  if (sequence < next_sequence_ || sequence - next_sequence_ >= kEarlyMessagesMax) {
    protocol_error_ = "a message out of its window";
    return nullptr;
  }
  return &incoming_[sequence];
}

ucs_status_t UcxConnection::OnFrameArrived(void* worker, const void* header, size_t header_bytes, void* data,
                                           size_t bytes, const ucp_am_recv_param_t* param) {
  UcxConnection* connection = static_cast<Worker*>(worker)->Find(param);
  if (connection == nullptr || connection->closing()) return UCS_OK;
  connection->TakeFrame(header, header_bytes, data, bytes,
                        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
  connection->worker_->Ready(connection);
  return UCS_OK;
}

void UcxConnection::TakeFrame(const void* header, size_t header_bytes, const void* data, size_t bytes,
                              bool rendezvous) {
  const Limits& limits = shared_->options.limits;
  FrameHeader frame;
  if (header_bytes == sizeof frame) memcpy(&frame, header, sizeof frame);
  if (header_bytes != sizeof frame || frame.magic != kMagic || rendezvous ||
      bytes != frame.segments * uint64_t{8} + frame.header_bytes + frame.inline_bytes) {
    protocol_error_ = "a bad frame";
  } else if (frame.segments > limits.segments_max || frame.header_bytes > limits.header_bytes_max ||
             frame.inline_bytes > kInlineBytes ||
             early_bytes_ > 2 * kFrameBytesInFlight + limits.header_bytes_max) {
    NoteTooLarge("a frame over the limits");
  } else if (Incoming* incoming = FindIncoming(frame.sequence)) {
    if (incoming->has_frame) {
      protocol_error_ = "one message twice";
      return;
    }
    incoming->has_frame = true;
    incoming->frame = frame;
    const auto* begin = static_cast<const std::byte*>(data);
    incoming->data.assign(begin, begin + bytes);
    early_bytes_ += bytes;
  }
}

ucs_status_t UcxConnection::OnFragmentArrived(void* worker, const void* header, size_t header_bytes,
                                              void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  UcxConnection* connection = static_cast<Worker*>(worker)->Find(param);
  if (connection == nullptr || connection->closing()) return UCS_OK;
  connection->worker_->Ready(connection);
  FragmentHeader fragment;
  if (header_bytes == sizeof fragment) memcpy(&fragment, header, sizeof fragment);
  if (header_bytes != sizeof fragment || fragment.magic != kMagic) {
    connection->protocol_error_ = "a bad fragment";
    return UCS_OK;
  }
  const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return connection->TakeFragment(fragment, data, bytes, rendezvous);
}

ucs_status_t UcxConnection::TakeFragment(const FragmentHeader& header, void* data, size_t bytes,
                                         bool rendezvous) {
  const uint64_t copied_bytes = rendezvous ? 0 : bytes;
  if (bytes == 0 || bytes > kFragmentBytes || early_fragments_ >= kEarlyFragmentsMax ||
      early_bytes_ + copied_bytes > 3 * kFrameBytesInFlight + shared_->options.limits.header_bytes_max) {
    protocol_error_ = "a fragment over the limits";
    return UCS_OK;
  }
  Incoming* incoming = FindIncoming(header.sequence);
  if (incoming == nullptr) return UCS_OK;
  const bool past =
      header.sequence == next_sequence_ && landing_.active && header.index < landing_.next_fragment;
  if (past || incoming->early.count(header.index) != 0) {
    protocol_error_ = "one fragment twice";
    return UCS_OK;
  }
  Early& early = incoming->early[header.index];
  early.bytes = bytes;
  early_fragments_++;
  if (rendezvous) {
    early.descriptor = data;
    return UCS_INPROGRESS;
  }
  const auto* begin = static_cast<const std::byte*>(data);
  early.copy.assign(begin, begin + bytes);
  early_bytes_ += bytes;
  return UCS_OK;
}

void UcxConnection::OnReceiveDone(void* request, ucs_status_t status, size_t, void* user_data) {
  ucp_request_free(request);
  auto* arriving = static_cast<Arriving*>(user_data);
  UcxConnection* connection = arriving->connection;
  arriving->done = true;
  connection->receives_in_flight_--;
  if (status != UCS_OK) {
    if (connection->endpoint_error_ == UCS_OK) connection->endpoint_error_ = status;
  } else {
    connection->last_received_us_ = NowUs();
  }
  connection->worker_->Ready(connection);
}

// --- in the connection's turn -----------------------------------------------------------------------------

void UcxConnection::Receive() {
  int messages = 0;
  while (!closing() && endpoint_error_ == UCS_OK && protocol_error_.empty()) {
    AnswerDiverts();
    if (landing_.active) {
      const auto incoming = incoming_.find(next_sequence_);
      StartArrivals(&incoming->second);
      DeliverArrived();
      if (!protocol_error_.empty() || endpoint_error_ != UCS_OK) break;
      if (landing_.left_bytes != 0 || !landing_.arriving.empty()) return;
      AnswerDiverts();
      EndMessage(landing_.landed && !landing_.diverted);
    } else if (messages++ >= kMessagesPerTurn && !Backlogged()) {
      worker_->Ready(this);
      return;
    } else if (!DeliverNext()) {
      return;
    }
  }
  worker_->Ready(this);  // the next turn closes
}

ByteView UcxConnection::HeaderOf(const Incoming& incoming) const {
  return ByteView(incoming.data).subspan(incoming.frame.segments * size_t{8}, incoming.frame.header_bytes);
}

bool UcxConnection::ParseSizes(const Incoming& incoming, std::vector<uint64_t>* segment_bytes,
                               uint64_t* payload_bytes) const {
  segment_bytes->resize(incoming.frame.segments);
  if (!segment_bytes->empty()) memcpy(segment_bytes->data(), incoming.data.data(), segment_bytes->size() * 8);
  *payload_bytes = 0;
  for (const uint64_t bytes : *segment_bytes) {
    if (bytes > shared_->options.limits.payload_bytes_max - *payload_bytes) return false;
    *payload_bytes += bytes;
  }
  return incoming.frame.inline_bytes == 0 || incoming.frame.inline_bytes == *payload_bytes;
}

// Eager messages complete at their sender once its transport took them, so that its window does not hold them
// back: they come as fast as UCX is progressed, and all but a window of them has to go before it is again.
bool UcxConnection::Backlogged() const {
  return incoming_.size() > kMessagesInFlight || early_bytes_ > kFrameBytesInFlight;
}

// False: the next message in order is not here yet.
bool UcxConnection::DeliverNext() {
  const auto found = incoming_.find(next_sequence_);
  if (found == incoming_.end() || !found->second.has_frame) return false;
  Incoming* incoming = &found->second;
  std::vector<uint64_t> segment_bytes;
  uint64_t payload_bytes = 0;
  if (!ParseSizes(*incoming, &segment_bytes, &payload_bytes)) {
    NoteTooLarge("payload sizes over the limit");
    return true;
  }
  if (segment_bytes.empty()) {
    landing_ = LandingState();
    EndMessage(true);
  } else {
    BeginLanding(incoming, std::move(segment_bytes), payload_bytes);
  }
  return true;
}

void UcxConnection::BeginLanding(Incoming* incoming, std::vector<uint64_t> segment_bytes,
                                 uint64_t payload_bytes) {
  landing_ = LandingState();
  landing_.active = true;
  landing_.left_bytes = payload_bytes;
  landing_.segment_bytes = std::move(segment_bytes);
  last_received_us_ = NowUs();
  landing_.landed = handler_->Place(*this, HeaderOf(*incoming), landing_.segment_bytes, &landing_.landing);
  if (!landing_.landed) {
    shared_->refused_messages.fetch_add(1, std::memory_order_relaxed);
  } else {
    std::vector<uint64_t> placed_bytes;
    uint64_t placed_total = 0;
    if (!SegmentBytes(landing_.landing.segments, &placed_bytes, &placed_total) ||
        placed_bytes != landing_.segment_bytes) {
      landing_.active = false;
      Fail(Failure::kInvalid, "Place gave extents that do not add up to the payload");
      return;
    }
    landing_.cursor = ExtentCursor<Extent>(&landing_.landing.segments);
  }
  // An inline payload is cut into what would have been its fragments: one a segment.
  if (incoming->frame.inline_bytes == 0) return;
  if (!incoming->early.empty()) protocol_error_ = "a payload twice";
  const std::byte* from = incoming->data.data() + incoming->data.size() - payload_bytes;
  uint32_t index = 0;
  for (const uint64_t bytes : landing_.segment_bytes) {
    if (bytes == 0) continue;
    Early& early = incoming->early[index++];
    early.bytes = bytes;
    early.copy.assign(from, from + bytes);
    from += bytes;
    early_fragments_++;
    early_bytes_ += bytes;
  }
}

void UcxConnection::StartArrivals(Incoming* incoming) {
  const uint32_t window = batch() ? kBatchArrivalsInFlight : kArrivalsInFlight;
  while (landing_.left_bytes != 0 && receives_in_flight_ < window && protocol_error_.empty()) {
    const auto found = incoming->early.find(landing_.next_fragment);
    if (found == incoming->early.end()) return;
    Early early = std::move(found->second);
    incoming->early.erase(found);
    early_fragments_--;
    early_bytes_ -= early.copy.size();
    landing_.next_fragment++;
    StartArrival(std::move(early));
  }
}

// Finds where a fragment goes and moves the cursor past it. False: it doesn't fit.
bool UcxConnection::LocateArrival(Arriving* arriving) {
  LandingState& landing = landing_;
  while (landing.offset == landing.segment_bytes[landing.segment]) {
    landing.segment++;
    landing.offset = 0;
  }
  if (arriving->bytes > landing.segment_bytes[landing.segment] - landing.offset) return false;
  arriving->segment = landing.segment;
  arriving->offset = landing.offset;
  landing.offset += arriving->bytes;
  landing.left_bytes -= arriving->bytes;
  if (!landing.landed) return true;
  for (uint64_t left = arriving->bytes; left != 0;) {
    Extent here = landing.cursor.Here();
    here.bytes = std::min<size_t>(here.bytes, left);
    landing.cursor.Advance(here.bytes);
    left -= here.bytes;
    arriving->to.push_back(here);
  }
  return true;
}

void UcxConnection::StartArrival(Early early) {
  auto owned = std::make_unique<Arriving>();
  Arriving* arriving = owned.get();
  arriving->connection = this;
  arriving->bytes = early.bytes;
  arriving->done = true;
  const bool fits = LocateArrival(arriving);
  if (!fits) protocol_error_ = "a fragment that does not fit";
  if (landing_.diverted) arriving->to.clear();
  if (!fits || arriving->to.empty()) {
    if (early.descriptor != nullptr) ucp_am_data_release(worker_->handle(), early.descriptor);
  } else if (early.descriptor == nullptr) {
    const std::byte* from = early.copy.data();
    for (const Extent& extent : arriving->to) {
      memcpy(extent.data, from, extent.bytes);
      from += extent.bytes;
    }
  } else {
    std::byte* to = arriving->to.front().data;
    if (arriving->to.size() > 1) {
      arriving->bounce.reset(new std::byte[arriving->bytes]);
      to = arriving->bounce.get();
    }
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.cb.recv_am = &UcxConnection::OnReceiveDone;
    param.user_data = arriving;
    const ucs_status_ptr_t request =
        ucp_am_recv_data_nbx(worker_->handle(), early.descriptor, to, arriving->bytes, &param);
    if (UCS_PTR_IS_PTR(request)) {
      arriving->done = false;
      receives_in_flight_++;
    } else if (UCS_PTR_STATUS(request) != UCS_OK && endpoint_error_ == UCS_OK) {
      endpoint_error_ = UCS_PTR_STATUS(request);
    }
  }
  landing_.arriving.push_back(std::move(owned));
}

// Hands on what has arrived, in order, as far as there is no gap.
void UcxConnection::DeliverArrived() {
  while (!landing_.arriving.empty() && landing_.arriving.front()->done && endpoint_error_ == UCS_OK) {
    const std::unique_ptr<Arriving> arriving = std::move(landing_.arriving.front());
    landing_.arriving.pop_front();
    shared_->received_bytes.fetch_add(arriving->bytes, std::memory_order_relaxed);
    if (landing_.diverted) continue;
    const std::byte* from = arriving->bounce.get();
    uint64_t offset = arriving->offset;
    for (const Extent& extent : arriving->to) {
      if (from != nullptr) {
        memcpy(extent.data, from, extent.bytes);
        from += extent.bytes;
      }
      handler_->OnBytes(*this, landing_.landing.id, arriving->segment, offset, {extent.data, extent.bytes});
      offset += extent.bytes;
    }
  }
}

void UcxConnection::AnswerDiverts() {
  if (diverts_.empty()) return;
  const auto diverts = std::move(diverts_);
  diverts_.clear();
  for (const uint64_t id : diverts) {
    const bool current = landing_.active && landing_.landed && landing_.landing.id == id;
    if (current) landing_.diverted = true;
    if (current && receives_in_flight_ != 0) {
      diverts_.push_back(id);
    } else {
      handler_->OnDiverted(*this, id);
    }
  }
}

// Delivers the message whose turn it is, and forgets it.
void UcxConnection::EndMessage(bool landed) {
  auto node = incoming_.extract(next_sequence_++);
  const Incoming& incoming = node.mapped();
  early_bytes_ -= incoming.data.size();
  if (!incoming.early.empty()) {
    protocol_error_ = "more payload than it said";
    for (const auto& [index, early] : incoming.early) {
      if (early.descriptor != nullptr) ucp_am_data_release(worker_->handle(), early.descriptor);
    }
    return;
  }
  const uint64_t id = landing_.landing.id;
  landing_ = LandingState();
  shared_->received_messages.fetch_add(1, std::memory_order_relaxed);
  handler_->OnMessage(*this, HeaderOf(incoming), id, landed);
}

void UcxConnection::ReleaseEarly() {
  for (const auto& [sequence, incoming] : incoming_) {
    for (const auto& [index, early] : incoming.early) {
      if (early.descriptor != nullptr) ucp_am_data_release(worker_->handle(), early.descriptor);
    }
  }
  incoming_.clear();
  early_bytes_ = 0;
  early_fragments_ = 0;
}

}  // namespace larder::transport::ucx
