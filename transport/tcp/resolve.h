// "host:port" to socket addresses. Numbers are parsed at once; names are asked for on a thread of their own,
// since a resolver may block for seconds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/socket/socket.h"
#include "transport/transport.h"

namespace larder::transport {

// "127.0.0.1:7400", "[::1]:7400", "node-3:7400"; an empty host means any address (passive) or this host.
Error SplitHostPort(const std::string& address, std::string* host, std::string* port);
// kUnreachable when it is a name and `numeric_only`, or when nobody knows it.
Error ResolveNow(const std::string& address, bool numeric_only, bool passive,
                 std::vector<SocketAddress>* found);

class Resolver {
 public:
  using Done = std::function<void(const Error&, const std::vector<SocketAddress>&)>;

  Resolver();
  // Answers that are still to come are dropped; a look-up that blocks is left to end by itself.
  ~Resolver();
  // `done` runs on the resolver's thread; not after Stop() or the destructor began.
  void Resolve(const std::string& address, Done done);
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object
};

}  // namespace larder::transport
