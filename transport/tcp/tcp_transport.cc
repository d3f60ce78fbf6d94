#include "transport/tcp/tcp_transport.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>

#include "transport/socket/stream_transport.h"
#include "transport/tcp/resolve.h"
#include "transport/tcp/tcp_connection.h"

namespace larder::transport {

namespace {

constexpr int kBacklog = 1024;

std::string AddressText(const SocketAddress& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(address.get(), address.bytes, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  const bool six = address.storage.ss_family == AF_INET6;
  return (six ? "[" : "") + std::string(host) + (six ? "]:" : ":") + port;
}

class TcpTransport : public StreamTransport {
 public:
  using StreamTransport::StreamTransport;
  ~TcpTransport() override { TcpTransport::Shutdown(); }

  std::string_view name() const override { return "tcp"; }
  Error AddRegion(const Region&) override { return {}; }  // all memory is alike to a socket
  void RemoveRegion(const std::byte*, std::function<void()> released) override {
    if (released) released();
  }
  void Shutdown() override {
    resolver_.Stop();
    StreamTransport::Shutdown();
  }

 protected:
  Error OpenListener(const std::string& address, int* fd, std::string* bound) override;
  std::shared_ptr<StreamConnection> MakeConnection(Loop* loop, std::string peer) override {
    return std::make_shared<TcpConnection>(shared_, loop, std::move(peer));
  }
  std::string PeerName(int fd) override {
    SocketAddress there;
    there.bytes = sizeof(there.storage);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.bytes) != 0) return "?";
    return AddressText(there);
  }
  void Resolve(const std::string& address, std::shared_ptr<StreamConnection> connection, Loop* loop) override;

 private:
  Resolver resolver_;
};

Error TcpTransport::OpenListener(const std::string& address, int* fd, std::string* bound) {
  std::vector<SocketAddress> found;
  Error error = ResolveNow(address, false, true, &found);
  if (!error.ok()) return error;
  for (const SocketAddress& one : found) {
    const int candidate = socket(one.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (candidate < 0) {
      error = {Failure::kSystem, "cannot make a socket: " + ErrnoText(errno)};
      continue;
    }
    const int on = 1, buffer_bytes = static_cast<int>(shared_->options.socket_bytes);
    setsockopt(candidate, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    // Accepted sockets inherit these; set later they would not change the window any more.
    setsockopt(candidate, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes));
    setsockopt(candidate, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
    SocketAddress here;
    here.bytes = sizeof(here.storage);
    if (bind(candidate, one.get(), one.bytes) == 0 && listen(candidate, kBacklog) == 0 &&
        getsockname(candidate, reinterpret_cast<sockaddr*>(&here.storage), &here.bytes) == 0) {
      *fd = candidate;
      if (bound != nullptr) *bound = AddressText(here);
      return {};
    }
    error = {Failure::kSystem, "cannot listen on " + address + ": " + ErrnoText(errno) +
                                   (errno == EADDRINUSE ? "; choose another port, or 0 for any" : "")};
    close(candidate);
  }
  return error;
}

void TcpTransport::Resolve(const std::string& address, std::shared_ptr<StreamConnection> connection,
                           Loop* loop) {
  std::vector<SocketAddress> found;
  const Error error = ResolveNow(address, true, false, &found);
  if (error.ok()) {
    connection->ConnectTo(std::move(found));
  } else if (error.failure == Failure::kInvalid) {
    connection->FailConnect(error);
  } else {
    resolver_.Resolve(address, [connection, loop](const Error& why, const std::vector<SocketAddress>& list) {
      loop->Post([connection, why, list] {
        if (why.ok()) {
          connection->ConnectTo(list);
        } else {
          connection->FailConnect(why);
        }
      });
    });
  }
}

}  // namespace

std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options, Error* error) {
  auto transport = std::make_unique<TcpTransport>(std::make_shared<StreamShared>(options));
  const Error started = transport->Start();
  if (error != nullptr) *error = started;
  if (!started.ok()) return nullptr;
  return transport;
}

}  // namespace larder::transport
