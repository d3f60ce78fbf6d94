// A DNS server of a test's own, and nodes behind it as far as membership is concerned: each with a real
// control port, found by SRV records.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "node/daemon/control_service.h"
#include "node/membership/dns_membership.h"

namespace larder::node {

// UDP on the loopback address.
class NameServer {
 public:
  static constexpr char kService[] = "_control._tcp.larder.test";
  static constexpr char kHost[] = "host.larder.test";  // 127.0.0.1

  NameServer();
  ~NameServer();
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void SetSilent(bool silent) { silent_ = silent; }
  void AddPort(uint16_t port);                                                // to the service
  void SetAddresses(const std::string& name, std::vector<std::string> ipv4);  // none: no such name

 private:
  void Serve();
  std::string Answer(const std::string& question);

  int socket_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> silent_{false}, stopping_{false};
  std::mutex mutex_;
  std::vector<uint16_t> ports_;
  std::map<std::string, std::vector<std::string>> addresses_;
  std::thread thread_;
};

}  // namespace larder::node
