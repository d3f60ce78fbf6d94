// A port of the loopback address that nobody listens at just now, for programs that must be told one. It is
// below those that the kernel gives to connections: between the question and the program's start one of those
// would be taken again now and then.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace larder::testing {

inline bool IsFree(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return free;
}

// 0 when there is none. Another at every call, and others in another process.
inline int FreePort() {
  constexpr int kFirst = 10'000;
  int end = 32'768;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  const uint32_t count = static_cast<uint32_t>(std::max(end, kFirst + 1) - kFirst);
  static uint32_t calls = 0;
  for (uint32_t tried = 0; tried < count; ++tried) {
    const uint32_t at = static_cast<uint32_t>(getpid()) * 2'654'435'761u + calls++;
    const int port = kFirst + static_cast<int>(at % count);
    if (IsFree(port)) return port;
  }
  return 0;
}

}  // namespace larder::testing
