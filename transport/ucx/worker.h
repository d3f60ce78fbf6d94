// A thread with its UCX worker: progresses it, runs what other threads post, sleeps when there is nothing.
//
// UCX calls its callbacks inside Progress; they only write down what happened and mark their connection
// ready. Handlers are called afterwards, from the connection's turn, where every UCX call is allowed again.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace larder::transport::ucx {

class UcxConnection;
struct SendOp;

// Options and counters of one transport, shared by its connections, which callers may keep longer.
struct Shared {
  Shared(const TransportOptions& o, bool eager) : options(o), eager_only(eager) {}
  const TransportOptions options;
  const bool eager_only;  // no rendezvous
  std::atomic<uint64_t> connections{0}, sent_messages{0}, received_messages{0}, sent_bytes{0},
      received_bytes{0}, refused_messages{0}, protocol_errors{0}, stalled_closed{0};
};

class Worker {
 public:
  Worker(ucp_context_h context, std::shared_ptr<Shared> shared);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Error Start();
  // Closes every connection, then ends the thread and destroys the UCX worker. `before_end` runs on the
  // thread when the last connection is gone. Posts are refused from then on.
  void Stop(std::function<void()> before_end);

  // From any thread. False: stopped, and the work is dropped.
  bool Post(std::function<void()> work);
  bool Post(std::shared_ptr<UcxConnection> connection);  // a turn for it, without allocating
  int connection_count() const { return connection_count_.load(std::memory_order_relaxed); }
  // For placing new connections before their Add has run.
  void Reserve(int count) { connection_count_.fetch_add(count, std::memory_order_relaxed); }

  // The rest only on the worker's thread.
  ucp_worker_h handle() const { return worker_; }
  void Add(std::shared_ptr<UcxConnection> connection);  // its place was taken by Reserve(1)
  void Remove(UcxConnection* connection);
  void BindEndpoint(ucp_ep_h endpoint, UcxConnection* connection) { by_endpoint_[endpoint] = connection; }
  void UnbindEndpoint(ucp_ep_h endpoint) { by_endpoint_.erase(endpoint); }
  UcxConnection* Find(const ucp_am_recv_param_t* param) const;
  void Ready(UcxConnection* connection);                       // it gets a turn soon
  void SetTimer(UcxConnection* connection, uint64_t when_us);  // 0 disarms; fires as a turn
  void AddClosing(int count) { closing_count_ += count; }
  // Active messages whose connection gave up waiting for them: UCX may still look at their memory.
  std::list<SendOp>& orphans() { return orphans_; }

 private:
  struct Mail {
    std::shared_ptr<UcxConnection> connection;
    std::function<void()> work;
  };
  bool PostMail(Mail mail);
  void ThreadMain();
  Error Open();
  bool TakeMail();
  void RunTurns();
  void FireTimers();
  bool Progress();
  void Wait();
  void Sleep(int timeout_ms);
  int TimeoutMs() const;
  void ShutDown();

  const ucp_context_h context_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
  int wake_fd_ = -1;
  std::atomic<int> connection_count_{0};

  std::mutex mutex_;  // guards the next ones
  std::condition_variable started_;
  bool is_started_ = false;
  Error start_error_;
  std::vector<Mail> mail_;
  bool sleeping_ = false;
  bool stop_wanted_ = false;
  bool stopped_ = true;
  std::function<void()> before_end_;
  std::atomic<bool> has_mail_{false};  // also read without the mutex while spinning

  // Of the worker's thread.
  ucp_worker_h worker_ = nullptr;
  int ucx_fd_ = -1;
  bool stopping_ = false;
  int closing_count_ = 0;  // connections whose endpoint UCX is taking apart
  uint64_t stop_deadline_us_ = 0;
  std::unordered_map<UcxConnection*, std::shared_ptr<UcxConnection>> connections_;
  std::unordered_map<ucp_ep_h, UcxConnection*> by_endpoint_;
  std::vector<std::shared_ptr<UcxConnection>> ready_, ready_batch_;
  std::set<std::pair<uint64_t, UcxConnection*>> timers_;
  std::vector<Mail> taken_;
  std::list<SendOp> orphans_;
  int futile_rounds_ = 0;  // in which UCX was busy and moved nothing
};

std::string StatusText(ucs_status_t status);

}  // namespace larder::transport::ucx
