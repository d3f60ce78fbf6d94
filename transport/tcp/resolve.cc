#include "transport/tcp/resolve.h"

#include <netdb.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

namespace larder::transport {

Error SplitHostPort(const std::string& address, std::string* host, std::string* port) {
  const Error bad{Failure::kInvalid, "address '" + address + "': write it as host:port or [ipv6]:port"};
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) return bad;
  *port = address.substr(colon + 1);
  if (port->size() > 5 || port->find_first_not_of("0123456789") != std::string::npos) return bad;
  if (std::strtoul(port->c_str(), nullptr, 10) > 65535) return bad;
  *host = address.substr(0, colon);
  if (!host->empty() && host->front() == '[') {
    if (host->back() != ']') return bad;
    *host = host->substr(1, host->size() - 2);
  } else if (host->find(':') != std::string::npos) {
    return bad;
  }
  return {};
}

Error ResolveNow(const std::string& address, bool numeric_only, bool passive,
                 std::vector<SocketAddress>* found) {
  std::string host, port;
  const Error error = SplitHostPort(address, &host, &port);
  if (!error.ok()) return error;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0) | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &list);
  if (rc != 0) return {Failure::kUnreachable, "cannot resolve '" + address + "': " + gai_strerror(rc)};
  found->clear();
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    SocketAddress one;
    memcpy(&one.storage, at->ai_addr, at->ai_addrlen);
    one.bytes = at->ai_addrlen;
    found->push_back(one);
  }
  freeaddrinfo(list);
  return {};
}

struct Resolver::State {
  std::mutex mutex;
  bool stopped = false;
  bool running = false;
  std::deque<std::pair<std::string, Done>> wanted;

  static void Work(const std::shared_ptr<State>& state) {
    for (;;) {
      std::pair<std::string, Done> next;
      {
        std::lock_guard<std::mutex> lock(state->mutex);
        if (state->stopped || state->wanted.empty()) {
          state->running = false;
          return;
        }
        next = std::move(state->wanted.front());
        state->wanted.pop_front();
      }
      std::vector<SocketAddress> found;
      const Error error = ResolveNow(next.first, false, false, &found);
      std::lock_guard<std::mutex> lock(state->mutex);  // so that Stop waits for an answer being given
      if (!state->stopped) next.second(error, found);
      next.second = nullptr;
    }
  }
};

Resolver::Resolver() : state_(std::make_shared<State>()) {}
Resolver::~Resolver() {
  Stop();
}

void Resolver::Resolve(const std::string& address, Done done) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->stopped) return;
  state_->wanted.emplace_back(address, std::move(done));
  if (state_->running) return;
  const auto main = [](void* argument) -> void* {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(argument));
    State::Work(*state);
    return nullptr;
  };
  auto argument = std::make_unique<std::shared_ptr<State>>(state_);
  pthread_t thread{};
  const int rc = pthread_create(&thread, nullptr, main, argument.get());
  if (rc != 0) {
    const Done failed = std::move(state_->wanted.back().second);
    state_->wanted.pop_back();
    failed({Failure::kSystem, "cannot start a thread to resolve '" + address + "'"}, {});
    return;
  }
  (void)argument.release();
  pthread_detach(thread);
  state_->running = true;
}

void Resolver::Stop() {
  std::deque<std::pair<std::string, Done>> dropped;
  std::lock_guard<std::mutex> lock(state_->mutex);
  state_->stopped = true;
  dropped.swap(state_->wanted);
}

}  // namespace larder::transport
