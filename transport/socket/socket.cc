#include "transport/socket/socket.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace larder::transport {

std::string ErrnoText(int error) {
  return std::generic_category().message(error) + " (errno " + std::to_string(error) + ")";
}

Failure FailureOfErrno(int error) {
  switch (error) {
    case ECONNREFUSED:
    case ENOENT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
    case EACCES:
      return Failure::kUnreachable;
    case ECONNRESET:
    case EPIPE:
      return Failure::kPeerClosed;
    case ETIMEDOUT:
      return Failure::kTimedOut;
    default:
      return Failure::kSystem;
  }
}

namespace {
// Of a connected socket; false: not known.
bool EndsOf(int fd, SocketAddress* here, SocketAddress* there) {
  here->bytes = there->bytes = sizeof(sockaddr_storage);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&here->storage), &here->bytes) == 0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&there->storage), &there->bytes) == 0 &&
         here->storage.ss_family == there->storage.ss_family;
}
}  // namespace

bool IsConnectedToItself(int fd) {
  SocketAddress here, there;
  if (!EndsOf(fd, &here, &there)) return false;
  const bool internet = here.storage.ss_family == AF_INET || here.storage.ss_family == AF_INET6;
  return internet && here.bytes == there.bytes && memcmp(&here.storage, &there.storage, here.bytes) == 0;
}

bool IsWithinHost(int fd) {
  SocketAddress here, there;
  if (!EndsOf(fd, &here, &there)) return false;
  if (here.storage.ss_family == AF_INET) {
    const auto* a = reinterpret_cast<const sockaddr_in*>(&here.storage);
    const auto* b = reinterpret_cast<const sockaddr_in*>(&there.storage);
    return a->sin_addr.s_addr == b->sin_addr.s_addr;
  }
  if (here.storage.ss_family == AF_INET6) {
    const auto* a = reinterpret_cast<const sockaddr_in6*>(&here.storage);
    const auto* b = reinterpret_cast<const sockaddr_in6*>(&there.storage);
    return memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0;
  }
  return false;
}

}  // namespace larder::transport
