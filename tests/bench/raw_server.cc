// The serving side of the raw sockets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/bench/raw_sockets.h"

namespace larder::bench {
namespace raw {

bool SendAll(int fd, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, from, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    bytes -= size_t(sent);
  }
  return true;
}

bool ReceiveAll(int fd, void* data, size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(fd, to, std::min(bytes, kStepBytes), MSG_WAITALL);
    if (received <= 0) return false;
    to += received;
    bytes -= size_t(received);
  }
  return true;
}

void SetBuffers(int fd) {
  const int bytes = kSocketBytes;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);  // as transport/tcp does within a host
}

namespace {

struct Region {
  std::byte* data;
  uint64_t bytes;
  std::byte* Block(uint64_t index, uint64_t block_bytes) const {
    return data + index % (bytes / block_bytes) * block_bytes;
  }
};

// All blocks of the batch in as few calls as the kernel allows.
bool SendBlocks(int fd, const Region& region, const Request& request) {
  std::vector<iovec> parts(request.blocks);
  for (uint32_t i = 0; i < request.blocks; ++i) {
    parts[i] = {region.Block(request.first_block + i, request.block_bytes), request.block_bytes};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  while (message.msg_iovlen > 0) {
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    while (message.msg_iovlen > 0 && size_t(sent) >= message.msg_iov->iov_len) {
      sent -= ssize_t(message.msg_iov->iov_len);
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen > 0) {
      message.msg_iov->iov_base = static_cast<char*>(message.msg_iov->iov_base) + sent;
      message.msg_iov->iov_len -= size_t(sent);
    }
  }
  return true;
}

bool ReceiveBlocks(int fd, const Region& region, const Request& request) {
  for (uint32_t i = 0; i < request.blocks; ++i) {
    if (!ReceiveAll(fd, region.Block(request.first_block + i, request.block_bytes), request.block_bytes)) {
      return false;
    }
  }
  const char done = 1;
  return SendAll(fd, &done, 1);
}

bool Echo(int fd, const Request& request, std::vector<std::byte>* scratch) {
  scratch->resize(std::max<size_t>(request.block_bytes, request.answer_bytes));
  return ReceiveAll(fd, scratch->data(), request.block_bytes) &&
         SendAll(fd, scratch->data(), request.answer_bytes);
}

void ServeConnection(int fd, Region region) {
  std::vector<std::byte> scratch;
  Request request;
  bool good = true;
  while (good && ReceiveAll(fd, &request, sizeof(request))) {
    switch (request.verb) {
      case RawVerb::kGet:
        good = SendBlocks(fd, region, request);
        break;
      case RawVerb::kPut:
        good = ReceiveBlocks(fd, region, request);
        break;
      case RawVerb::kEcho:
        good = Echo(fd, request, &scratch);
        break;
    }
  }
  close(fd);
}

}  // namespace

void Serve(int listener, uint64_t working_set_bytes) {
  TouchedMemory memory(working_set_bytes);
  FillPattern(memory.data(), memory.bytes(), 7);
  const Region region{memory.data(), memory.bytes()};
  while (true) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) _exit(1);
    SetBuffers(fd);
    std::thread(ServeConnection, fd, region).detach();
  }
}

}  // namespace raw

std::unique_ptr<RawServer> RawServer::Start(uint64_t working_set_bytes) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  raw::SetBuffers(listener);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener, 64) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return nullptr;
  }
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    raw::Serve(listener, working_set_bytes);
  }
  close(listener);
  if (child < 0) return nullptr;
  auto server = std::unique_ptr<RawServer>(new RawServer);
  server->pid_ = child;
  server->port_ = ntohs(address.sin_port);
  server->working_set_bytes_ = working_set_bytes;
  return server;
}

RawServer::~RawServer() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace larder::bench
