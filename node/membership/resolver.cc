#include "node/membership/resolver.h"

#include <ares.h>
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "transport/transport.h"

namespace larder::node {

namespace {

using transport::NowUs;

constexpr int kTries = 2;             // of each server
constexpr uint64_t kStepUs = 50'000;  // how soon Stop is noticed

struct Channel {
  ~Channel() {
    if (made) ares_destroy(channel);
  }
  Status Make(const ResolverOptions& options) {
    ares_options settings{};
    settings.tries = kTries;
    settings.timeout = static_cast<int>(std::max<uint64_t>(options.timeout_us / 1000 / (kTries + 1), 1));
    const int code = ares_init_options(&channel, &settings, ARES_OPT_TRIES | ARES_OPT_TIMEOUTMS);
    if (code != ARES_SUCCESS) return {Code::kUnavailable, std::string("dns: ") + ares_strerror(code)};
    made = true;
    std::string list;
    for (const std::string& server : options.servers) list += (list.empty() ? "" : ",") + server;
    if (!list.empty() && ares_set_servers_ports_csv(channel, list.c_str()) != ARES_SUCCESS) {
      return Invalid("dns_servers: " + list + " are no addresses; write IP:PORT, by number");
    }
    return Status::Ok();
  }
  ares_channel channel = nullptr;
  bool made = false;
};

struct Target {
  std::string host;
  uint16_t port = 0;
};

// What the callbacks fill; they run in Wait only, or when the channel is destroyed.
struct Lookup {
  int open = 0;
  int failure = ARES_SUCCESS;  // the last one that is no answer
  std::vector<Target> targets;
  std::set<std::string> addresses;
};

struct Question {
  Lookup* lookup;
  uint16_t port;
};

// A name that is not there, or has nothing of the kind, is an answer.
bool Answered(int status) {
  return status == ARES_SUCCESS || status == ARES_ENOTFOUND || status == ARES_ENODATA;
}

void OnAddresses(void* context, int status, int, ares_addrinfo* found) {
  const auto* question = static_cast<Question*>(context);
  Lookup* lookup = question->lookup;
  --lookup->open;
  if (!Answered(status)) lookup->failure = status;
  if (status != ARES_SUCCESS) return;
  for (const ares_addrinfo_node* node = found->nodes; node != nullptr; node = node->ai_next) {
    char text[INET6_ADDRSTRLEN] = {};
    const bool six = node->ai_family == AF_INET6;
    const void* raw =
        six ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(node->ai_addr)->sin6_addr)
            : &reinterpret_cast<sockaddr_in*>(node->ai_addr)->sin_addr;
    if (inet_ntop(node->ai_family, raw, text, sizeof text) == nullptr) continue;
    const std::string host = six ? "[" + std::string(text) + "]" : text;
    lookup->addresses.insert(host + ":" + std::to_string(question->port));
  }
  ares_freeaddrinfo(found);
}

void OnTargets(void* context, int status, int, unsigned char* answer, int bytes) {
  auto* lookup = static_cast<Lookup*>(context);
  --lookup->open;
  if (!Answered(status)) lookup->failure = status;
  if (status != ARES_SUCCESS) return;
  ares_srv_reply* first = nullptr;
  const int parsed = ares_parse_srv_reply(answer, bytes, &first);
  if (!Answered(parsed)) lookup->failure = parsed;
  for (const ares_srv_reply* each = first; each != nullptr; each = each->next) {
    lookup->targets.push_back({each->host, each->port});
  }
  if (first != nullptr) ares_free_data(first);
}

void Step(ares_channel channel) {
  ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
  const auto mask = static_cast<unsigned>(ares_getsock(channel, sockets, ARES_GETSOCK_MAXNUM));
  pollfd waits[ARES_GETSOCK_MAXNUM];
  nfds_t count = 0;
  for (unsigned i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
    short events = 0;
    if ((mask >> i & 1) != 0) events |= POLLIN;
    if ((mask >> (i + ARES_GETSOCK_MAXNUM) & 1) != 0) events |= POLLOUT;
    if (events != 0) waits[count++] = {sockets[i], events, 0};
  }
  timeval most{0, kStepUs}, wanted{};
  const timeval* sooner = ares_timeout(channel, &most, &wanted);
  (void)poll(waits, count, static_cast<int>(sooner->tv_sec * 1000 + sooner->tv_usec / 1000 + 1));
  for (nfds_t i = 0; i < count; ++i) {
    const bool in = (waits[i].revents & ~POLLOUT) != 0, out = (waits[i].revents & POLLOUT) != 0;
    ares_process_fd(channel, in ? waits[i].fd : ARES_SOCKET_BAD, out ? waits[i].fd : ARES_SOCKET_BAD);
  }
  ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // what ran out of time
}

}  // namespace

Status Resolver::Check(const ResolverOptions& options) {
  ares_library_init(ARES_LIB_INIT_ALL);
  const Status status = Channel().Make(options);
  ares_library_cleanup();
  return status;
}

Resolver::Resolver(ResolverOptions options) : options_(std::move(options)) {
  ares_library_init(ARES_LIB_INIT_ALL);
}

Resolver::~Resolver() {
  ares_library_cleanup();
}

void Resolver::Stop() {
  stopping_ = true;
}

// A channel a call: /etc/resolv.conf may have changed.
Result<Resolved> Resolver::Resolve() {
  Lookup lookup;
  std::vector<Question> questions;  // not moved once they are asked
  Channel channel;                  // its end calls back into those above
  LARDER_RETURN_IF_ERROR(channel.Make(options_));
  const uint64_t end_us = NowUs() + options_.timeout_us;
  const auto wait = [&]() -> Status {
    while (lookup.open > 0 && !stopping_ && NowUs() < end_us) Step(channel.channel);
    if (stopping_) return {Code::kCancelled, "dns: stopping"};
    if (lookup.open == 0 && lookup.failure == ARES_SUCCESS) return Status::Ok();
    const int why = lookup.open == 0 ? lookup.failure : ARES_ETIMEOUT;
    return {Code::kUnavailable, "dns: " + options_.name + ": " + ares_strerror(why)};
  };
  if (options_.name.starts_with("_")) {
    ++lookup.open;
    ares_search(channel.channel, options_.name.c_str(), ns_c_in, ns_t_srv, OnTargets, &lookup);
    LARDER_RETURN_IF_ERROR(wait());
  } else {
    lookup.targets.push_back({options_.name, options_.port});
  }
  Resolved out;
  if (lookup.targets.size() > options_.addresses_max) {
    out.left_out = lookup.targets.size() - options_.addresses_max;
    lookup.targets.resize(options_.addresses_max);
  }
  questions.reserve(lookup.targets.size());
  ares_addrinfo_hints hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = ARES_AI_NOSORT;
  for (const Target& target : lookup.targets) {
    questions.push_back({&lookup, target.port});
    ++lookup.open;
    ares_getaddrinfo(channel.channel, target.host.c_str(), nullptr, &hints, OnAddresses, &questions.back());
  }
  // Of several targets some may be found: those are an answer.
  const Status status = wait();
  if (!status.ok() && (lookup.addresses.empty() || stopping_)) return status;
  for (const std::string& address : lookup.addresses) {
    if (out.addresses.size() < options_.addresses_max) {
      out.addresses.push_back(address);
    } else {
      ++out.left_out;
    }
  }
  return out;
}

}  // namespace larder::node
