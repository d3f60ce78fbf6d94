// How to reach etcd.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace larder::node {

struct EtcdOptions {
  std::vector<std::string> endpoints;      // host:port
  std::string user, password;              // empty: none
  std::string ca_path;                     // PEM; empty: no TLS
  std::string certificate_path, key_path;  // PEM; this node's own, for etcd's --client-cert-auth
  uint64_t call_timeout_us = 2'000'000;    // of one endpoint
};

}  // namespace larder::node
