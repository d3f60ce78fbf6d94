// Listening, connecting, and placing connections on workers. The first worker owns the listeners.
#include "transport/ucx/ucx_transport.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <future>
#include <list>

#include "transport/tcp/resolve.h"
#include "transport/ucx/connection.h"
#include "transport/ucx/context.h"
#include "transport/ucx/worker.h"

namespace larder::transport {

namespace ucx {
namespace {

constexpr int kThreadsMax = 256;

std::string AddressText(const SocketAddress& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.bytes, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  const bool six = address.storage.ss_family == AF_INET6;
  return (six ? "[" : "") + std::string(host) + (six ? "]:" : ":") + port;
}

SocketAddress FromStorage(const sockaddr_storage& storage) {
  SocketAddress address;
  address.storage = storage;
  address.bytes = storage.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  return address;
}

class UcxTransport final : public Transport {
 public:
  explicit UcxTransport(const TransportOptions& options)
      : shared_(std::make_shared<Shared>(options, Context::IsTcpOnly(options))) {}
  ~UcxTransport() override { Shutdown(); }

  Error Start();
  std::string_view name() const override { return "ucx"; }
  Error Listen(const std::string& address, Acceptor* acceptor, std::string* bound) override;
  std::shared_ptr<Connection> Connect(const std::string& address, std::shared_ptr<Handler> handler,
                                      const ConnectOptions& options) override;
  Error AddRegion(const Region& region) override { return context_.AddRegion(region); }
  void RemoveRegion(const std::byte* base, std::function<void()> released) override {
    context_.RemoveRegion(base);
    if (released) released();
  }
  TransportStats stats() const override;
  void Shutdown() override;

 private:
  struct Listener {
    UcxTransport* transport = nullptr;
    Acceptor* acceptor = nullptr;
    ucp_listener_h handle = nullptr;
  };

  std::shared_ptr<Worker> PickWorker(int wanted);
  Error OpenListener(const SocketAddress& address, Acceptor* acceptor, std::string* bound);
  static void OnRequest(ucp_conn_request_h request, void* listener);
  void Accept(const std::shared_ptr<Worker>& worker, Listener* listener, ucp_conn_request_h request,
              const std::string& peer);
  void Reject(Listener* listener, ucp_conn_request_h request);

  const std::shared_ptr<Shared> shared_;
  Context context_;  // before the workers: they end first
  std::vector<std::shared_ptr<Worker>> workers_;
  Resolver resolver_;
  std::list<Listener> listeners_;  // of the first worker's thread
  std::atomic<bool> stopping_{false};
};

Error UcxTransport::Start() {
  const int threads = shared_->options.threads;
  if (threads < 1 || threads > kThreadsMax) return {Failure::kInvalid, "ucx: 1 to 256 threads"};
  Error error = context_.Open(shared_->options);
  for (int i = 0; i < threads && error.ok(); i++) {
    workers_.push_back(std::make_shared<Worker>(context_.handle(), shared_));
    error = workers_.back()->Start();
  }
  return error;
}

std::shared_ptr<Worker> UcxTransport::PickWorker(int wanted) {
  auto picked = wanted >= 0 ? workers_[static_cast<size_t>(wanted) % workers_.size()]
                            : *std::min_element(workers_.begin(), workers_.end(), [](auto& a, auto& b) {
                                return a->connection_count() < b->connection_count();
                              });
  picked->Reserve(1);
  return picked;
}

Error UcxTransport::Listen(const std::string& address, Acceptor* acceptor, std::string* bound) {
  if (acceptor == nullptr) return {Failure::kInvalid, "an acceptor is needed"};
  std::vector<SocketAddress> found;
  Error error = ResolveNow(address, false, true, &found);
  if (!error.ok()) return error;
  std::promise<Error> done;
  const bool posted =
      workers_.front()->Post([&] { done.set_value(OpenListener(found.front(), acceptor, bound)); });
  if (!posted) return {Failure::kPeerClosed, "the transport is shut down"};
  return done.get_future().get();
}

Error UcxTransport::OpenListener(const SocketAddress& address, Acceptor* acceptor, std::string* bound) {
  listeners_.push_back({this, acceptor, nullptr});
  Listener& listener = listeners_.back();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = address.get();
  params.sockaddr.addrlen = address.bytes;
  params.conn_handler.cb = &UcxTransport::OnRequest;
  params.conn_handler.arg = &listener;
  const ucs_status_t status = ucp_listener_create(workers_.front()->handle(), &params, &listener.handle);
  if (status != UCS_OK) {
    listeners_.pop_back();
    return {Failure::kSystem, "ucx cannot listen at " + AddressText(address) + ": " + StatusText(status)};
  }
  ucp_listener_attr_t attr{};
  attr.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (bound != nullptr && ucp_listener_query(listener.handle, &attr) == UCS_OK) {
    *bound = AddressText(FromStorage(attr.sockaddr));
  }
  return {};
}

// On the first worker's thread, inside UCX: the rest happens on the same thread later. Not on another
// worker's: what UCX has yet to tell this one about a request's socket would end the process (an assertion in
// UCX 1.13's async.c), and which requests came over a socket it does not say.
void UcxTransport::OnRequest(ucp_conn_request_h request, void* user_data) {
  auto* listener = static_cast<Listener*>(user_data);
  UcxTransport* transport = listener->transport;
  ucp_conn_request_attr_t attr{};
  attr.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  std::string peer = "?";
  if (ucp_conn_request_query(request, &attr) == UCS_OK) peer = AddressText(FromStorage(attr.client_address));
  if (transport->stopping_.load(std::memory_order_relaxed)) {
    ucp_listener_reject(listener->handle, request);
    return;
  }
  const auto worker = transport->PickWorker(0);
  const bool posted = worker->Post(
      [transport, worker, listener, request, peer] { transport->Accept(worker, listener, request, peer); });
  if (!posted) ucp_listener_reject(listener->handle, request);
}

void UcxTransport::Accept(const std::shared_ptr<Worker>& worker, Listener* listener,
                          ucp_conn_request_h request, const std::string& peer) {
  const auto connection = std::make_shared<UcxConnection>(shared_, worker, peer, false);
  worker->Add(connection);
  auto handler = listener->acceptor->OnAccept(connection);
  if (handler) {
    connection->StartAccepted(std::move(handler), request);
    return;
  }
  connection->BeginClose({Failure::kRefused, "refused"}, Failure::kRefused);
  // The listener's own thread must do this. It outlives the others, so the post can't be lost.
  workers_.front()->Post([listener, request] { ucp_listener_reject(listener->handle, request); });
}

std::shared_ptr<Connection> UcxTransport::Connect(const std::string& address,
                                                  std::shared_ptr<Handler> handler,
                                                  const ConnectOptions& options) {
  const auto worker = PickWorker(options.loop);
  const auto connection = std::make_shared<UcxConnection>(shared_, worker, address, options.batch);
  const auto connect_to = [connection](const Error& error, const std::vector<SocketAddress>& found) {
    if (error.ok()) {
      connection->ConnectTo(found.front());
    } else {
      connection->BeginClose(error, error.failure);
    }
  };
  std::vector<SocketAddress> found;
  const Error error = ResolveNow(address, true, false, &found);
  const bool ask = error.failure == Failure::kUnreachable;  // it is a name
  const bool posted = worker->Post([=, timeout_us = options.timeout_us] {
    worker->Add(connection);
    connection->StartConnect(handler, timeout_us);
    if (!ask) connect_to(error, found);
  });
  if (posted && ask) {
    resolver_.Resolve(address, [=](const Error& late, const std::vector<SocketAddress>& addresses) {
      worker->Post([=] { connect_to(late, addresses); });
    });
  }
  if (!posted) connection->Abandon();
  return connection;
}

TransportStats UcxTransport::stats() const {
  const auto value = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  TransportStats stats;
  stats.connections = value(shared_->connections);
  stats.sent_messages = value(shared_->sent_messages);
  stats.received_messages = value(shared_->received_messages);
  stats.sent_bytes = value(shared_->sent_bytes);
  stats.received_bytes = value(shared_->received_bytes);
  stats.refused_messages = value(shared_->refused_messages);
  stats.protocol_errors = value(shared_->protocol_errors);
  stats.stalled_closed = value(shared_->stalled_closed);
  return stats;
}

// The listeners' worker goes last: the others may still have requests to reject.
void UcxTransport::Shutdown() {
  stopping_.store(true, std::memory_order_relaxed);
  resolver_.Stop();
  for (size_t i = workers_.size(); i-- > 1;) workers_[i]->Stop(nullptr);
  if (workers_.empty()) return;
  workers_.front()->Stop([this] {
    for (const Listener& listener : listeners_) ucp_listener_destroy(listener.handle);
    listeners_.clear();
  });
}

}  // namespace
}  // namespace ucx

std::unique_ptr<Transport> MakeUcxTransport(const TransportOptions& options, Error* error) {
  auto transport = std::make_unique<ucx::UcxTransport>(options);
  const Error failed = transport->Start();
  if (error != nullptr) *error = failed;
  if (!failed.ok()) return nullptr;
  return transport;
}

}  // namespace larder::transport
