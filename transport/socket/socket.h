// Small helpers around sockets.
#pragma once

#include <sys/socket.h>

#include <string>

#include "transport/transport.h"

namespace larder::transport {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "Connection refused (errno 111)"
std::string ErrnoText(int error);
// Whether a TCP socket's two ends have one address.
bool IsWithinHost(int fd);
// A connect to a free port of the ephemeral range may meet itself (a simultaneous open).
bool IsConnectedToItself(int fd);
// What a failed connect or a broken connection means.
Failure FailureOfErrno(int error);

}  // namespace larder::transport
