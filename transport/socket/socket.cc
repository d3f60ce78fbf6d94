#include "transport/socket/socket.h"

#include <cerrno>
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

}  // namespace larder::transport
