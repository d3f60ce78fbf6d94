#include "transport/socket/stream_transport.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace larder::transport {

namespace {
constexpr int kAcceptsPerTurn = 16;
constexpr uint64_t kNoDescriptorsPauseUs = 100'000;
}  // namespace

// Accepts on one loop, hands the connections out to all.
class StreamTransport::Listener : public Source {
 public:
  Listener(StreamTransport* transport, Loop* loop, int fd, Acceptor* acceptor)
      : transport_(transport), loop_(loop), fd_(fd), acceptor_(acceptor) {}
  ~Listener() override {
    if (fd_ >= 0) close(fd_);
  }

  void Watch(bool on, bool is_new) { loop_->Watch(this, fd_, on ? uint32_t{EPOLLIN} : 0, is_new); }

  void OnTurn(uint32_t events) override {
    if ((events & kStop) != 0) {
      loop_->Unwatch(fd_);
      close(fd_);
      fd_ = -1;
      loop_->Remove(this);
      return;
    }
    if ((events & kTimer) != 0) Watch(true, false);
    for (int i = 0; i < kAcceptsPerTurn; i++) {
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        transport_->Accepted(fd, acceptor_);
        continue;
      }
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // The waiting connection would wake us at once again and again: look away for a while.
        Watch(false, false);
        loop_->SetTimer(this, NowUs() + kNoDescriptorsPauseUs);
      }
      return;
    }
  }

 private:
  StreamTransport* const transport_;
  Loop* const loop_;
  int fd_;
  Acceptor* const acceptor_;
};

StreamTransport::StreamTransport(std::shared_ptr<StreamShared> shared) : shared_(std::move(shared)) {}
StreamTransport::~StreamTransport() {
  StreamTransport::Shutdown();
}

Error StreamTransport::Start() {
  const int threads = std::max(1, shared_->options.threads);
  for (int i = 0; i < threads; i++) {
    shared_->loops.push_back(std::make_unique<Loop>(shared_->options.spin_us));
    const Error error = shared_->loops.back()->Start();
    if (!error.ok()) return error;
  }
  return {};
}

Loop* StreamTransport::PickLoop(int wanted) {
  size_t best = 0;
  if (wanted >= 0) {
    best = static_cast<size_t>(wanted) % shared_->loops.size();
  } else {
    // Among equals in turn. Where two that are busy meet all the same, one moves.
    const size_t first = next_loop_.fetch_add(1, std::memory_order_relaxed) % shared_->loops.size();
    best = first;
    for (size_t i = 1; i < shared_->loops.size(); i++) {
      const size_t at = (first + i) % shared_->loops.size();
      if (shared_->loops[at]->load() < shared_->loops[best]->load()) best = at;
    }
  }
  shared_->loops[best]->AddLoad(1);
  return shared_->loops[best].get();
}

Error StreamTransport::Listen(const std::string& address, Acceptor* acceptor, std::string* bound) {
  int fd = -1;
  const Error error = OpenListener(address, &fd, bound);
  if (!error.ok()) return error;
  Loop* loop = shared_->loops[0].get();
  auto listener = std::make_shared<Listener>(this, loop, fd, acceptor);
  const bool posted = loop->Post([loop, listener] {
    loop->Add(listener);
    listener->Watch(true, true);
  });
  if (!posted) return {Failure::kInvalid, "the transport was shut down"};
  return {};
}

void StreamTransport::Accepted(int fd, Acceptor* acceptor) {
  Loop* loop = PickLoop(-1);
  auto connection = MakeConnection(loop, PeerName(fd));
  const bool posted = loop->Post([loop, connection, fd, acceptor] {
    loop->Add(connection);
    connection->StartAccepted(fd, acceptor);
  });
  if (!posted) close(fd);
}

std::shared_ptr<Connection> StreamTransport::Connect(const std::string& address,
                                                     std::shared_ptr<Handler> handler,
                                                     const ConnectOptions& options) {
  Loop* loop = PickLoop(options.loop);
  auto connection = MakeConnection(loop, address);
  connection->UseBatch(options.batch);
  const bool posted = loop->Post(
      [this, loop, connection, address, handler = std::move(handler), timeout_us = options.timeout_us] {
        loop->Add(connection);
        connection->StartConnect(handler, timeout_us);
        Resolve(address, connection, loop);
      });
  if (!posted) return nullptr;
  return connection;
}

TransportStats StreamTransport::stats() const {
  TransportStats stats;
  stats.connections = shared_->connections;
  stats.sent_messages = shared_->sent_messages;
  stats.received_messages = shared_->received_messages;
  stats.sent_bytes = shared_->sent_bytes;
  stats.received_bytes = shared_->received_bytes;
  stats.refused_messages = shared_->refused_messages;
  stats.protocol_errors = shared_->protocol_errors;
  stats.stalled_closed = shared_->stalled_closed;
  return stats;
}

void StreamTransport::Shutdown() {
  std::lock_guard<std::mutex> lock(shutdown_mutex_);
  for (const auto& loop : shared_->loops) loop->Stop();
  CloseListeners();
}

}  // namespace larder::transport
