// A port of the loopback address that nobody listens at just now, for programs that must be told one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace larder::testing {

// 0 when there is none.
inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool good = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(fd);
  return good ? ntohs(address.sin_port) : 0;
}

}  // namespace larder::testing
