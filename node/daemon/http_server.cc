#include "node/daemon/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <thread>
#include <unordered_map>

#include "node/daemon/config.h"
#include "node/daemon/http_request.h"

namespace larder::node {
namespace {

uint64_t NowUs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

const char* Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

Result<int> ListenAt(const std::string& text, std::string* bound) {
  const Result<HostPort> parsed = ParseHostPort(text);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parsed->host.c_str(), std::to_string(parsed->port).c_str(), &hints, &found);
  if (error != 0) return Invalid("cannot resolve " + parsed->host + ": " + gai_strerror(error));
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool good = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 128) == 0;
  const int failed = errno;
  freeaddrinfo(found);
  if (!good) {
    if (fd >= 0) close(fd);
    return Invalid("cannot listen at " + text + ": " + std::strerror(failed));
  }
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  const uint16_t port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                      : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  *bound = JoinHostPort(parsed->host, ntohs(port));
  return fd;
}

}  // namespace

struct HttpServer::Loop {
  struct Peer {
    int fd = -1;
    std::string in, out;
    size_t sent = 0;
    bool close_after = false;
    bool waits_to_write = false;  // epoll watches for writing
    uint64_t due_us = 0;          // closed when nothing happened by then
    uint64_t since_us = 0;        // of the present phase
    bool answering() const { return sent < out.size(); }
  };

  HttpOptions options;
  Handler handler;
  int listen_fd = -1, epoll_fd = -1, wake_fd = -1;
  int spare_fd = -1;  // given up for a moment when descriptors run out
  std::unordered_map<int, Peer> peers;
  std::thread thread;

  ~Loop() {
    for (auto& [fd, peer] : peers) close(fd);
    for (const int fd : {listen_fd, epoll_fd, wake_fd, spare_fd}) {
      if (fd >= 0) close(fd);
    }
  }

  void Watch(int fd, uint32_t events, int operation) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    epoll_ctl(epoll_fd, operation, fd, &event);
  }

  void Drop(int fd) {
    close(fd);  // epoll forgets it
    peers.erase(fd);
  }

  void MakeRoom() {
    const Peer* oldest = nullptr;
    for (const auto& [fd, peer] : peers) {
      const bool worse = oldest == nullptr || peer.answering() < oldest->answering() ||
                         (peer.answering() == oldest->answering() && peer.since_us < oldest->since_us);
      if (worse) oldest = &peer;
    }
    if (oldest != nullptr) Drop(oldest->fd);
  }

  // Out of descriptors: one connection is closed unseen, or the listener would wake us without end.
  void TurnAway() {
    close(spare_fd);
    const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) close(fd);
    spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }

  void Accept(uint64_t now_us) {
    for (int i = 0; i < 64; i++) {
      const int fd = accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE) TurnAway();
        return;
      }
      if (peers.size() >= options.connections_max) MakeRoom();
      Peer& peer = peers[fd];
      peer.fd = fd;
      peer.since_us = now_us;
      peer.due_us = now_us + options.head_timeout_us;
      Watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
  }

  void Answer(Peer* peer, const HttpResponse& response, bool head_only, bool keep_alive) {
    peer->close_after = !keep_alive;
    peer->out += "HTTP/1.1 " + std::to_string(response.status) + " " + Reason(response.status) +
                 "\r\nContent-Type: " + response.content_type +
                 "\r\nContent-Length: " + std::to_string(response.body.size()) +
                 "\r\nCache-Control: no-store\r\nConnection: " + (keep_alive ? "keep-alive" : "close") +
                 "\r\n" + (response.status == 405 ? "Allow: GET, HEAD\r\n" : "") + "\r\n";
    if (!head_only) peer->out += response.body;
  }

  void Refuse(Peer* peer, int status, const std::string& why) {
    Answer(peer, {status, "text/plain; charset=utf-8", why + "\n"}, false, false);
  }

  // Takes one request from `in`; false when there is none (yet).
  bool TakeRequest(Peer* peer) {
    HttpRequest request;
    switch (ParseHttpRequest(peer->in, &request)) {
      case HttpParse::kIncomplete:
        if (peer->in.size() < options.head_bytes_max) return false;
        Refuse(peer, 431,
               "the head of a request may have " + std::to_string(options.head_bytes_max) + " bytes");
        return true;
      case HttpParse::kBad:
        Refuse(peer, 400, "that is no HTTP/1.1 request");
        return true;
      case HttpParse::kOk:
        break;
    }
    if (request.head_bytes > options.head_bytes_max) {
      Refuse(peer, 431,
             "the head of a request may have " + std::to_string(options.head_bytes_max) + " bytes");
    } else if (request.has_body) {
      Refuse(peer, 413, "no body is taken");
    } else if (request.method != "GET" && request.method != "HEAD") {
      Refuse(peer, 405, "only GET and HEAD are known");
    } else {
      Answer(peer, handler(request.path), request.method == "HEAD", request.keep_alive);
    }
    peer->in.erase(0, request.head_bytes);
    return true;
  }

  // Sends, then takes the next request, until something would block. False: the peer is gone.
  bool Serve(int fd, uint64_t now_us) {
    Peer& peer = peers[fd];
    for (;;) {
      while (peer.answering()) {
        const ssize_t n = send(fd, peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return false;
        if (n < 0) break;
        peer.sent += static_cast<size_t>(n);
      }
      if (peer.answering() != peer.waits_to_write) {
        peer.waits_to_write = peer.answering();
        // While an answer waits nothing is read: a peer that only asks and never takes is held by its own
        // socket.
        Watch(fd, peer.waits_to_write ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
      }
      if (peer.answering()) return true;
      if (!peer.out.empty()) {
        peer.out.clear();
        peer.sent = 0;
        if (peer.close_after) return Linger(&peer);
        peer.since_us = now_us;
        peer.due_us = now_us + (peer.in.empty() ? options.idle_timeout_us : options.head_timeout_us);
      }
      if (!TakeRequest(&peer)) return true;
      peer.since_us = now_us;
      peer.due_us = now_us + options.write_timeout_us;
    }
  }

  // Ends our side; what the peer still sends is thrown away for a moment, or a reset could eat the answer.
  bool Linger(Peer* peer) {
    shutdown(peer->fd, SHUT_WR);
    peer->close_after = true;
    peer->in.clear();
    return true;
  }

  bool Read(int fd, uint64_t now_us) {
    Peer& peer = peers[fd];
    std::array<char, 4096> buffer;
    const bool first = peer.in.empty();
    for (int i = 0; i < 4; i++) {
      const ssize_t n = recv(fd, buffer.data(), buffer.size(), 0);
      if (n == 0) return false;
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) return false;
      if (n < 0) break;
      if (peer.close_after) continue;  // lingering
      peer.in.append(buffer.data(), static_cast<size_t>(n));
      if (peer.in.size() > options.head_bytes_max) break;  // the rest stays in the socket
    }
    if (peer.close_after) return true;
    if (first && !peer.in.empty()) {
      peer.since_us = now_us;
      peer.due_us = now_us + options.head_timeout_us;
    }
    return Serve(fd, now_us);
  }

  uint64_t DropOverdue(uint64_t now_us) {
    uint64_t next = UINT64_MAX;
    for (auto it = peers.begin(); it != peers.end();) {
      if (it->second.due_us <= now_us) {
        close(it->first);
        it = peers.erase(it);
      } else {
        next = std::min(next, it->second.due_us);
        ++it;
      }
    }
    return next;
  }

  void Run() {
    std::array<epoll_event, 64> events;
    for (;;) {
      const uint64_t next_us = DropOverdue(NowUs());
      const uint64_t now_us = NowUs();
      const int timeout_ms =
          next_us == UINT64_MAX ? -1 : static_cast<int>((std::max(next_us, now_us) - now_us) / 1000 + 1);
      const int count = epoll_wait(epoll_fd, events.data(), static_cast<int>(events.size()), timeout_ms);
      for (int i = 0; i < count; i++) {
        const int fd = events[static_cast<size_t>(i)].data.fd;
        if (fd == wake_fd) return;
        if (fd == listen_fd) {
          Accept(NowUs());
          continue;
        }
        // Accept may have dropped a peer whose event still stands here, and its number may serve another one:
        // then Read or Serve finds nothing to do.
        if (peers.find(fd) == peers.end()) continue;
        const bool alive = peers[fd].waits_to_write ? Serve(fd, NowUs()) : Read(fd, NowUs());
        if (!alive) Drop(fd);
      }
    }
  }
};

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, Handler handler) {
  auto loop = std::make_unique<Loop>();
  loop->options = options;
  loop->handler = std::move(handler);
  std::string bound;
  const Result<int> listening = ListenAt(options.listen, &bound);
  if (!listening.ok()) return listening.status();
  loop->listen_fd = listening.value();
  loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (loop->epoll_fd < 0 || loop->wake_fd < 0) return Status(Code::kInternal, std::strerror(errno));
  loop->Watch(loop->listen_fd, EPOLLIN, EPOLL_CTL_ADD);
  loop->Watch(loop->wake_fd, EPOLLIN, EPOLL_CTL_ADD);
  loop->thread = std::thread([raw = loop.get()] { raw->Run(); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(loop), std::move(bound)));
}

HttpServer::HttpServer(std::unique_ptr<Loop> loop, std::string address)
    : loop_(std::move(loop)), address_(std::move(address)) {}

HttpServer::~HttpServer() {
  const uint64_t one = 1;
  while (write(loop_->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
  loop_->thread.join();
}

}  // namespace larder::node
