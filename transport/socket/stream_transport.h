// Loops, listeners and the life of a transport over stream sockets; tcp and shm derive from it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/loop.h"
#include "transport/socket/stream_connection.h"
#include "transport/transport.h"

namespace larder::transport {

class StreamTransport : public Transport {
 public:
  explicit StreamTransport(std::shared_ptr<StreamShared> shared);
  // Derived classes call Shutdown in their own destructor, while their overrides still stand.
  ~StreamTransport() override;

  Error Start();  // before anything else
  Error Listen(const std::string& address, Acceptor* acceptor, std::string* bound) override;
  std::shared_ptr<Connection> Connect(const std::string& address, std::shared_ptr<Handler> handler,
                                      const ConnectOptions& options) override;
  TransportStats stats() const override;
  void Shutdown() override;

 protected:
  // A listening, non-blocking socket, and the address to connect to.
  virtual Error OpenListener(const std::string& address, int* fd, std::string* bound) = 0;
  virtual void CloseListeners() {}  // after their sockets were closed
  // fd: of an accepted connection, to look at; -1.
  virtual std::shared_ptr<StreamConnection> MakeConnection(Loop* loop, std::string peer) = 0;
  virtual std::string PeerName(int fd) = 0;
  // On the connection's loop: ConnectTo or FailConnect, now or later.
  virtual void Resolve(const std::string& address, std::shared_ptr<StreamConnection> connection,
                       Loop* loop) = 0;

  const std::shared_ptr<StreamShared> shared_;

 private:
  class Listener;
  Loop* PickLoop(int wanted);  // counts the connection to come
  void Accepted(int fd, Acceptor* acceptor);

  std::atomic<uint32_t> next_loop_{0};
  std::mutex shutdown_mutex_;
};

}  // namespace larder::transport
