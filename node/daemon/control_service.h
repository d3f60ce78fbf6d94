// The control plane: larder.control.v1.Control and the standard gRPC health service, for larderctl, probes
// and routers. Block bytes never pass here.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/node.h"
#include "proto/status.h"

namespace larder::control::v1 {
class ExchangeRequest;
class ExchangeResponse;
}  // namespace larder::control::v1

namespace larder::node {

class ControlService {
 public:
  using Exchange = std::function<Status(const control::v1::ExchangeRequest&, control::v1::ExchangeResponse*)>;
  // Listens at once; answers UNAVAILABLE until it has a node, and health says NOT_SERVING until told.
  // Calls run on up to 32 threads; more than that at a time are answered RESOURCE_EXHAUSTED.
  // With credentials, Drain wants one that is no tenant's; Namespaces and Clear want one (metadata
  // `authorization: Bearer TOKEN`) and keep to its tenant; info, stats and health are everybody's.
  static Result<std::unique_ptr<ControlService>> Start(const std::string& listen,
                                                       const std::vector<Credential>& credentials);
  ~ControlService();  // cancels what still runs

  const std::string& address() const { return address_; }  // as bound
  // The node outlives the service.
  void SetNode(Node* node);
  void SetServing(bool serving);
  // What Drain calls, on any thread and more than once; it must not block. Before SetNode.
  void SetDrain(std::function<void()> drain, uint64_t budget_us);
  // What Exchange asks, on any thread. Before the node: nodes find each other while they start.
  void SetExchange(Exchange exchange);
  // Somebody was told how the hand-over ended.
  bool hand_over_end_told() const;

 private:
  struct Impl;
  ControlService(std::unique_ptr<Impl> impl, std::string address);
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace larder::node
