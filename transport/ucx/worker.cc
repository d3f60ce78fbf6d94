#include "transport/ucx/worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/thread.h"
#include "transport/ucx/connection.h"

namespace larder::transport::ucx {

namespace {
// Closing takes as long as UCX needs to say that nothing moves any more. What it has not said by then is cut
// off by destroying the worker, after which nothing moves either.
constexpr uint64_t kStopUs = 2'000'000;
constexpr int kFutileRoundsMax = 1000;

void RegisterHandler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t callback, void* self) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = callback;
  param.arg = self;
  ucp_worker_set_am_recv_handler(worker, &param);
}
}  // namespace

std::string StatusText(ucs_status_t status) {
  return ucs_status_string(status);
}

Worker::Worker(ucp_context_h context, std::shared_ptr<Shared> shared)
    : context_(context), shared_(std::move(shared)) {}

Worker::~Worker() {
  Stop(nullptr);
  if (wake_fd_ >= 0) close(wake_fd_);
}

Error Worker::Start() {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return {Failure::kSystem, std::string("eventfd: ") + strerror(errno)};
  thread_ = std::thread([this] { ThreadMain(); });
  std::unique_lock<std::mutex> lock(mutex_);
  started_.wait(lock, [this] { return is_started_; });
  return start_error_;
}

void Worker::Stop(std::function<void()> before_end) {
  if (!thread_.joinable()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_wanted_ = true;
    has_mail_.store(true, std::memory_order_relaxed);
    before_end_ = std::move(before_end);
  }
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
  thread_.join();
}

bool Worker::PostMail(Mail mail) {
  bool wake = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return false;
    mail_.push_back(std::move(mail));
    has_mail_.store(true, std::memory_order_relaxed);
    wake = sleeping_;
    sleeping_ = false;  // one wake-up is enough
  }
  if (wake) {
    const uint64_t one = 1;
    (void)!write(wake_fd_, &one, sizeof one);
  }
  return true;
}

bool Worker::Post(std::function<void()> work) {
  return PostMail({nullptr, std::move(work)});
}
bool Worker::Post(std::shared_ptr<UcxConnection> connection) {
  return PostMail({std::move(connection), nullptr});
}

Error Worker::Open() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return {Failure::kUnsupported, "cannot make a UCX worker: " + StatusText(status)};
  status = ucp_worker_get_efd(worker_, &ucx_fd_);
  if (status != UCS_OK) return {Failure::kUnsupported, "UCX worker without events: " + StatusText(status)};
  RegisterHandler(worker_, kFrame, &UcxConnection::OnFrameArrived, this);
  RegisterHandler(worker_, kFragment, &UcxConnection::OnFragmentArrived, this);
  RegisterHandler(worker_, kWelcome, &UcxConnection::OnHelloArrived, this);
  RegisterHandler(worker_, kHello, &UcxConnection::OnHelloArrived, this);
  return {};
}

void Worker::Add(std::shared_ptr<UcxConnection> connection) {
  UcxConnection* raw = connection.get();
  connections_.emplace(raw, std::move(connection));
}

void Worker::Remove(UcxConnection* connection) {
  SetTimer(connection, 0);
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  const auto keep = std::move(found->second);
  connections_.erase(found);
  connection_count_.fetch_sub(1, std::memory_order_relaxed);
}

UcxConnection* Worker::Find(const ucp_am_recv_param_t* param) const {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return nullptr;
  const auto found = by_endpoint_.find(param->reply_ep);
  return found == by_endpoint_.end() ? nullptr : found->second;
}

void Worker::Ready(UcxConnection* connection) {
  if (connection->enqueued) return;
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  connection->enqueued = true;
  (connection->batch() ? ready_batch_ : ready_).push_back(found->second);
}

void Worker::SetTimer(UcxConnection* connection, uint64_t when_us) {
  if (connection->timer_us == when_us) return;
  if (connection->timer_us != 0) timers_.erase({connection->timer_us, connection});
  connection->timer_us = when_us;
  if (when_us != 0) timers_.insert({when_us, connection});
}

// False: the thread may end.
bool Worker::TakeMail() {
  if (!stopping_ && !has_mail_.load(std::memory_order_relaxed)) return true;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    has_mail_.store(false, std::memory_order_relaxed);
    taken_.swap(mail_);
    if (stop_wanted_ && !stopping_) {
      stopping_ = true;
      stop_deadline_us_ = NowUs() + kStopUs;
    }
    const bool over = connections_.empty() || (stopping_ && NowUs() >= stop_deadline_us_);
    if (stopping_ && taken_.empty() && over) {
      stopped_ = true;
      return false;
    }
  }
  for (Mail& mail : taken_) {
    if (mail.work) {
      mail.work();
    } else {
      Ready(mail.connection.get());
    }
  }
  taken_.clear();
  if (stopping_) {
    const auto connections = connections_;
    for (const auto& [raw, connection] : connections) {
      connection->BeginClose({Failure::kCancelled, "the transport shuts down"}, Failure::kCancelled);
    }
  }
  return true;
}

// All interactive connections that are ready get a turn, then one of batch, and those of batch that have more
// than may wait.
void Worker::RunTurns() {
  auto ready = std::move(ready_);
  ready_.clear();
  for (const auto& connection : ready) {
    connection->enqueued = false;
    connection->Turn();
  }
  ready.clear();
  std::erase_if(ready_batch_, [&ready](const std::shared_ptr<UcxConnection>& connection) {
    const bool now = ready.empty() || connection->Backlogged();
    if (now) ready.push_back(connection);
    return now;
  });
  for (const auto& connection : ready) {
    connection->enqueued = false;
    connection->Turn();
  }
}

void Worker::FireTimers() {
  if (timers_.empty()) return;
  const uint64_t now_us = NowUs();
  while (!timers_.empty() && timers_.begin()->first <= now_us) {
    UcxConnection* connection = timers_.begin()->second;
    timers_.erase(timers_.begin());
    connection->timer_us = 0;
    connection->timer_fired = true;
    Ready(connection);
  }
}

bool Worker::Progress() {
  bool any = false;
  while (ucp_worker_progress(worker_) != 0) {
    any = true;
    if (!ready_.empty() || !ready_batch_.empty()) break;  // what arrived is in cache now
  }
  return any;
}

void Worker::Wait() {
  if (!ready_.empty() || !ready_batch_.empty() || has_mail_.load(std::memory_order_relaxed)) return;
  const uint64_t spin_us = shared_->options.spin_us;
  for (uint64_t end_us = NowUs() + spin_us; spin_us != 0 && NowUs() < end_us;) {
    if (Progress() || has_mail_.load(std::memory_order_relaxed)) return;
  }
  // UCS_ERR_BUSY: something arrived meanwhile. Or shared memory waits for a peer that takes nothing any more,
  // and will be busy for ever: then look again at intervals.
  if (ucp_worker_arm(worker_) == UCS_OK) {
    futile_rounds_ = 0;
    Sleep(TimeoutMs());
  } else if (++futile_rounds_ > kFutileRoundsMax) {
    Sleep(1);
  }
}

int Worker::TimeoutMs() const {
  // UCX takes endpoints apart in steps of ucp_worker_progress that wake nobody, and nobody says that the last
  // connection is gone.
  if (closing_count_ != 0 || stopping_) return 1;
  if (timers_.empty()) return -1;
  const uint64_t now_us = NowUs();
  const uint64_t first_us = timers_.begin()->first;
  return static_cast<int>(
      std::min<uint64_t>(first_us > now_us ? (first_us - now_us + 999) / 1000 : 0, 60'000));
}

void Worker::Sleep(int timeout_ms) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!mail_.empty() || (stop_wanted_ && !stopping_)) return;
    sleeping_ = true;
  }
  pollfd fds[2] = {{ucx_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  if (poll(fds, 2, timeout_ms) > 0 && (fds[1].revents & POLLIN) != 0) {
    uint64_t value = 0;
    (void)!read(wake_fd_, &value, sizeof value);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  sleeping_ = false;
}

void Worker::ThreadMain() {
  NameServingThread("larder-ucx");
  const Error error = Open();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    start_error_ = error;
    is_started_ = true;
    stopped_ = !error.ok();
  }
  started_.notify_all();
  if (error.ok()) {
    while (TakeMail()) {
      FireTimers();
      const bool moved = Progress();
      if (moved) futile_rounds_ = 0;
      RunTurns();
      if (!moved) Wait();
    }
  }
  ShutDown();
}

void Worker::ShutDown() {
  std::function<void()> before_end;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    before_end = std::move(before_end_);
  }
  if (before_end) before_end();
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  orphans_.clear();
  // Turns that were still to come: they hold their connections, and those hold this.
  ready_.clear();
  ready_batch_.clear();
  const auto connections = std::move(connections_);
  connections_.clear();
  for (const auto& [raw, connection] : connections) connection->FinishWithoutUcx();
}

}  // namespace larder::transport::ucx
