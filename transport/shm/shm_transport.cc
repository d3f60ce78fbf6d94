#include "transport/shm/shm_transport.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "transport/shm/shm_connection.h"
#include "transport/socket/stream_transport.h"

namespace larder::transport {

namespace {

constexpr int kBacklog = 1024;

Error PathAddress(const std::string& path, SocketAddress* address) {
  auto* unix_address = reinterpret_cast<sockaddr_un*>(&address->storage);
  if (path.empty() || path.size() >= sizeof(unix_address->sun_path) || path.find('\0') != std::string::npos) {
    return {Failure::kInvalid, "shm address '" + path + "': give the path of a Unix socket, at most " +
                                   std::to_string(sizeof(unix_address->sun_path) - 1) + " bytes"};
  }
  unix_address->sun_family = AF_UNIX;
  memcpy(unix_address->sun_path, path.data(), path.size());
  address->bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return {};
}

// A socket file whose process is gone stays behind: nobody can connect to it.
bool IsStale(const SocketAddress& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool stale = connect(fd, address.get(), address.bytes) != 0 && errno == ECONNREFUSED;
  close(fd);
  return stale;
}

class ShmTransport : public StreamTransport {
 public:
  explicit ShmTransport(std::shared_ptr<ShmShared> shared)
      : StreamTransport(shared), shm_(std::move(shared)) {}
  ~ShmTransport() override { Shutdown(); }

  std::string_view name() const override { return "shm"; }
  Error AddRegion(const Region& region) override { return shm_->regions.Add(region); }
  void RemoveRegion(const std::byte* base, std::function<void()> released) override {
    shm_->regions.Remove(base, std::move(released));
  }

 protected:
  Error OpenListener(const std::string& path, int* fd, std::string* bound) override;
  void CloseListeners() override {
    for (const std::string& path : paths_) unlink(path.c_str());
    paths_.clear();
  }
  std::shared_ptr<StreamConnection> MakeConnection(Loop* loop, std::string peer) override {
    return std::make_shared<ShmConnection>(shm_, loop, std::move(peer));
  }
  std::string PeerName(int fd) override {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return "unix:?";
    return "unix:pid=" + std::to_string(peer.pid) + ",uid=" + std::to_string(peer.uid);
  }
  void Resolve(const std::string& path, std::shared_ptr<StreamConnection> connection, Loop*) override {
    SocketAddress address;
    const Error error = PathAddress(path, &address);
    if (error.ok()) {
      connection->ConnectTo({address});
    } else {
      connection->FailConnect(error);
    }
  }

 private:
  const std::shared_ptr<ShmShared> shm_;
  std::vector<std::string> paths_;
};

Error ShmTransport::OpenListener(const std::string& path, int* fd, std::string* bound) {
  SocketAddress address;
  const Error error = PathAddress(path, &address);
  if (!error.ok()) return error;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return {Failure::kSystem, "cannot make a socket: " + ErrnoText(errno)};
  int rc = bind(listener, address.get(), address.bytes);
  if (rc != 0 && errno == EADDRINUSE && IsStale(address)) {
    unlink(path.c_str());
    rc = bind(listener, address.get(), address.bytes);
  }
  if (rc != 0 || listen(listener, kBacklog) != 0) {
    const int failed = errno;
    close(listener);
    return {Failure::kSystem, "cannot listen on " + path + ": " + ErrnoText(failed) +
                                  (failed == EADDRINUSE ? "; another process uses it" : "")};
  }
  paths_.push_back(path);
  *fd = listener;
  if (bound != nullptr) *bound = path;
  return {};
}

}  // namespace

std::unique_ptr<Transport> MakeShmTransport(const TransportOptions& options, Error* error) {
  auto transport = std::make_unique<ShmTransport>(std::make_shared<ShmShared>(options));
  const Error started = transport->Start();
  if (error != nullptr) *error = started;
  if (!started.ok()) return nullptr;
  return transport;
}

}  // namespace larder::transport
