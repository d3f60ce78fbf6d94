// Addresses behind a name in DNS: A and AAAA records, or SRV records. c-ares rather than getaddrinfo: that
// one can't be ended before resolv.conf's own patience is over, knows no SRV and asks no servers but the
// host's.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/status.h"

namespace larder::node {

struct ResolverOptions {
  std::string name;                  // of a headless Service; one that begins with _ is asked for SRV records
  uint16_t port = 0;                 // beside A and AAAA records; SRV records bring their own
  std::vector<std::string> servers;  // host:port; empty: those of /etc/resolv.conf
  size_t addresses_max = 256;
  uint64_t timeout_us = 5'000'000;  // of it all
};

struct Resolved {
  std::vector<std::string> addresses;  // host:port, sorted, each once; at most addresses_max
  size_t left_out = 0;                 // beyond them
};

class Resolver {
 public:
  // kInvalid: a server that is no address.
  static Status Check(const ResolverOptions& options);
  explicit Resolver(ResolverOptions options);
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Blocks for as long as the timeout says. No addresses: the name has none, which is an answer.
  // kUnavailable: there is none. One call at a time.
  Result<Resolved> Resolve();
  void Stop();  // from any thread: a call that is under way ends, later ones fail

 private:
  const ResolverOptions options_;
  std::atomic<bool> stopping_{false};
};

}  // namespace larder::node
