// The life of a ucx connection: opening, queueing, expiring, closing.
#include "transport/ucx/connection.h"

#include <algorithm>

namespace larder::transport::ucx {

namespace {
constexpr uint64_t kCloseWaitUs = 200'000;
constexpr uint64_t kHelloWaitUs = 10'000'000;
}  // namespace

UcxConnection::UcxConnection(std::shared_ptr<Shared> shared, std::shared_ptr<Worker> worker, std::string peer,
                             bool batch)
    : shared_(std::move(shared)), worker_(std::move(worker)), peer_(std::move(peer)), batch_(batch) {}

UcxConnection::~UcxConnection() = default;

Failure UcxConnection::CheckSend(const OutMessage& message) const {
  const Limits& limits = shared_->options.limits;
  if (message.header.size() > limits.header_bytes_max || message.segments.size() > limits.segments_max) {
    return Failure::kTooLarge;
  }
  std::vector<uint64_t> segment_bytes;
  uint64_t payload_bytes = 0;
  if (!SegmentBytes(message.segments, &segment_bytes, &payload_bytes)) return Failure::kInvalid;
  if (payload_bytes > limits.payload_bytes_max) return Failure::kTooLarge;
  const bool null_data =
      std::any_of(message.segments.extents.begin(), message.segments.extents.end(),
                  [](const ConstExtent& extent) { return extent.data == nullptr && extent.bytes != 0; });
  if (null_data || (message.segments.size() != 0 && message.token == 0)) return Failure::kInvalid;
  return Failure::kNone;
}

Failure UcxConnection::Send(OutMessage&& message) {
  const Failure failure = CheckSend(message);
  if (failure != Failure::kNone) return failure;
  const Limits& limits = shared_->options.limits;
  bool post = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!accepts_sends_) return Failure::kPeerClosed;
    if (queue_.size() >= limits.queued_messages_max ||
        message.header.size() > limits.queued_header_bytes_max - queued_header_bytes_) {
      return Failure::kBusy;
    }
    queued_header_bytes_ += message.header.size();
    if (message.expire_us != 0) next_expire_us_ = std::min(next_expire_us_, message.expire_us);
    queue_.push_back(std::move(message));
    post = !turn_posted_;
    turn_posted_ = true;
  }
  if (post) worker_->Post(shared_from_this());
  return Failure::kNone;
}

void UcxConnection::Cancel(uint64_t token) {
  if (token == 0) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(queue_.begin(), queue_.end(),
                                    [token](const OutMessage& message) { return message.token == token; });
    if (found == queue_.end()) return;
    queued_header_bytes_ -= found->header.size();
    queue_.erase(found);
    cancelled_.push_back(token);
  }
  worker_->Post(shared_from_this());
}

void UcxConnection::Divert(uint64_t landing_id) {
  worker_->Post([self = shared_from_this(), landing_id] {
    if (self->closing()) return;
    self->diverts_.push_back(landing_id);
    if (self->last_received_us_ < NowUs()) self->last_received_us_ = NowUs();  // the stall begins now
    self->worker_->Ready(self.get());
  });
}

bool UcxConnection::Run(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!accepts_sends_) return false;
  }
  return worker_->Post([self = shared_from_this(), work = std::move(work)] {
    if (!self->closing()) work();
  });
}

void UcxConnection::Close(Failure why) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    accepts_sends_ = false;
  }
  worker_->Post([self = shared_from_this(), why] {
    self->BeginClose({why, "closed here: " + std::string(FailureName(why))}, Failure::kCancelled);
  });
}

void UcxConnection::SetBatch(bool batch) {
  batch_.store(batch, std::memory_order_relaxed);
}

void UcxConnection::StartConnect(std::shared_ptr<Handler> handler, uint64_t timeout_us) {
  handler_ = std::move(handler);
  is_connector_ = true;
  shared_->connections.fetch_add(1, std::memory_order_relaxed);
  connect_deadline_us_ = NowUs() + timeout_us;
  UpdateTimer();
}

void UcxConnection::Abandon() {
  std::lock_guard<std::mutex> lock(mutex_);
  accepts_sends_ = false;
}

void UcxConnection::ConnectTo(const SocketAddress& address) {
  if (closing()) return;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = address.get();
  params.sockaddr.addrlen = address.bytes;
  CreateEndpoint(&params);
}

void UcxConnection::StartAccepted(std::shared_ptr<Handler> handler, ucp_conn_request_h request) {
  handler_ = std::move(handler);
  shared_->connections.fetch_add(1, std::memory_order_relaxed);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  if (!CreateEndpoint(&params)) return;
  connect_deadline_us_ = NowUs() + kHelloWaitUs;
  UpdateTimer();
  PostHello(kWelcome);
}

bool UcxConnection::CreateEndpoint(ucp_ep_params_t* params) {
  params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler.cb = &UcxConnection::OnEndpointError;
  params->err_handler.arg = this;
  const ucs_status_t status = ucp_ep_create(worker_->handle(), params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    Fail(Failure::kUnreachable, "cannot reach " + peer_ + ": " + StatusText(status));
    return false;
  }
  endpoint_closed_ = false;
  worker_->BindEndpoint(endpoint_, this);
  return true;
}

void UcxConnection::OnEndpointError(void* self, ucp_ep_h, ucs_status_t status) {
  auto* connection = static_cast<UcxConnection*>(self);
  if (connection->endpoint_error_ == UCS_OK) connection->endpoint_error_ = status;
  connection->worker_->Ready(connection);
}

void UcxConnection::Turn() {
  const auto self = shared_from_this();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    turn_posted_ = false;
    TakeCancelled();
  }
  if (state_ == State::kClosed) return;
  if (timer_fired) {
    timer_fired = false;
    HandleTimer();
  }
  if (endpoint_error_ != UCS_OK && !closing()) {
    Failure failure = Failure::kPeerClosed;
    if (!opened_) failure = endpoint_error_ == UCS_ERR_REJECTED ? Failure::kRefused : Failure::kUnreachable;
    Fail(failure, peer_ + ": " + StatusText(endpoint_error_));
  }
  if (!protocol_error_.empty() && !closing()) {
    shared_->protocol_errors.fetch_add(1, std::memory_order_relaxed);
    Fail(protocol_failure_, peer_ + " sent " + protocol_error_);
  }
  if (is_connector_ && hello_arrived_ && !hello_sent_ && !closing()) {
    hello_sent_ = true;
    PostHello(kHello);
  }
  if (ready_ && !opened_ && !closing()) {
    opened_ = true;
    state_ = State::kOpen;
    connect_deadline_us_ = kNever;
    handler_->OnOpen(*this);
  }
  if (opened_ && !closing()) Receive();
  ReportSent();
  if (opened_ && !closing()) Pump();
  if (closing()) FinishIfQuiet();
  UpdateTimer();
}

// With the mutex held.
void UcxConnection::TakeCancelled() {
  for (const uint64_t token : cancelled_) reports_.emplace_back(token, Failure::kCancelled);
  cancelled_.clear();
}

// Takes messages out of the queue and reports them.
void UcxConnection::TakeFromQueue(const std::function<bool(const OutMessage&)>& which, Failure failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  TakeCancelled();
  std::erase_if(queue_, [&](const OutMessage& message) {
    if (!which(message)) return false;
    queued_header_bytes_ -= message.header.size();
    if (message.token != 0) reports_.emplace_back(message.token, failure);
    return true;
  });
  next_expire_us_ = kNever;
  for (const OutMessage& message : queue_) {
    if (message.expire_us != 0) next_expire_us_ = std::min(next_expire_us_, message.expire_us);
  }
}

void UcxConnection::HandleTimer() {
  if (closing()) return;
  const uint64_t now_us = NowUs();
  if (connect_deadline_us_ <= now_us) {
    Fail(Failure::kTimedOut, "connect to " + peer_ + " timed out");
    return;
  }
  const auto expired = [now_us](const OutMessage& message) {
    return message.expire_us != 0 && message.expire_us <= now_us;
  };
  TakeFromQueue(expired, Failure::kTimedOut);
  const uint64_t stall_us = shared_->options.stall_us;
  const bool sender_stalled =
      last_sent_us_ + stall_us <= now_us &&
      std::any_of(outgoing_.begin(), outgoing_.end(), [&](const std::shared_ptr<Outgoing>& outgoing) {
        return !outgoing->reported && expired(outgoing->message);
      });
  const bool receiver_stalled = !diverts_.empty() && last_received_us_ + stall_us <= now_us;
  if (sender_stalled || receiver_stalled) {
    shared_->stalled_closed.fetch_add(1, std::memory_order_relaxed);
    Fail(Failure::kTimedOut, peer_ + " moved no byte of an expired message");
  }
}

void UcxConnection::UpdateTimer() {
  if (closing()) {
    worker_->SetTimer(this,
                      state_ == State::kClosed || NowUs() > close_deadline_us_ ? 0 : close_deadline_us_);
    return;
  }
  uint64_t when_us = connect_deadline_us_;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    when_us = std::min(when_us, next_expire_us_);
  }
  const uint64_t stall_us = shared_->options.stall_us;
  for (const auto& outgoing : outgoing_) {
    if (outgoing->reported || outgoing->message.expire_us == 0) continue;
    when_us = std::min(when_us, std::max(outgoing->message.expire_us, last_sent_us_ + stall_us));
  }
  if (!diverts_.empty()) when_us = std::min(when_us, last_received_us_ + stall_us);
  worker_->SetTimer(this, when_us == kNever ? 0 : std::max<uint64_t>(when_us, 1));
}

void UcxConnection::Fail(Failure failure, std::string text) {
  BeginClose({failure, std::move(text)}, failure == Failure::kTimedOut ? failure : Failure::kPeerClosed);
}

void UcxConnection::BeginClose(Error why, Failure queued) {
  if (closing()) return;
  state_ = State::kClosing;
  why_ = std::move(why);
  queued_failure_ = queued;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    accepts_sends_ = false;
  }
  worker_->AddClosing(1);
  close_deadline_us_ = NowUs() + kCloseWaitUs;
  ReleaseEarly();
  if (endpoint_ != nullptr) CloseEndpoint();
  worker_->Ready(this);
}

void UcxConnection::CloseEndpoint() {
  worker_->UnbindEndpoint(endpoint_);
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = &UcxConnection::OnEndpointClosed;
  param.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &param);
  endpoint_ = nullptr;
  if (!UCS_PTR_IS_PTR(request)) endpoint_closed_ = true;
}

void UcxConnection::OnEndpointClosed(void* request, ucs_status_t, void* self) {
  auto* connection = static_cast<UcxConnection*>(self);
  ucp_request_free(request);
  connection->endpoint_closed_ = true;
  connection->worker_->Ready(connection);
}

void UcxConnection::FinishIfQuiet() {
  const bool patient = NowUs() < close_deadline_us_;
  if (receives_in_flight_ != 0 || (patient && (!endpoint_closed_ || !ops_.empty()))) return;
  FinishClose();
}

void UcxConnection::OrphanSends() {
  for (SendOp& op : ops_) {
    op.connection = nullptr;
    op.home = &worker_->orphans();
  }
  worker_->orphans().splice(worker_->orphans().end(), ops_);
}

void UcxConnection::FinishWithoutUcx() {
  if (state_ == State::kClosed) return;
  endpoint_ = nullptr;  // went with its worker
  endpoint_closed_ = true;
  incoming_.clear();
  BeginClose({Failure::kCancelled, "the transport shuts down"}, Failure::kCancelled);
  FinishClose();
}

void UcxConnection::FinishClose() {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  state_ = State::kClosed;
  worker_->AddClosing(-1);
  OrphanSends();
  for (const auto& outgoing : outgoing_) {
    if (!outgoing->reported && outgoing->message.token != 0) {
      reports_.emplace_back(outgoing->message.token, queued_failure_);
    }
  }
  outgoing_.clear();
  posting_.reset();
  TakeFromQueue([](const OutMessage&) { return true; }, queued_failure_);
  landing_ = LandingState();
  worker_->Remove(this);
  const auto handler = std::move(handler_);
  if (!handler) return;
  shared_->connections.fetch_sub(1, std::memory_order_relaxed);
  for (const auto& [token, failure] : reports_) handler->OnSent(*this, token, failure);
  reports_.clear();
  handler->OnClosed(*this, why_);
}

}  // namespace larder::transport::ucx
