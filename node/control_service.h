// The control plane: larder.control.v1.Control and the standard gRPC health service, for larderctl, probes
// and routers. Block bytes never pass here.
#pragma once

#include <memory>
#include <string>

#include "node/node.h"
#include "proto/status.h"

namespace larder::node {

class ControlService {
 public:
  // Listens at once; answers UNAVAILABLE until it has a node, and health says NOT_SERVING until told.
  // At most four calls run at a time on as many threads; the rest wait inside gRPC, bounded by its quota.
  static Result<std::unique_ptr<ControlService>> Start(const std::string& listen);
  ~ControlService();  // cancels what still runs

  const std::string& address() const { return address_; }  // as bound
  // The node outlives the service.
  void SetNode(Node* node);
  void SetServing(bool serving);

 private:
  struct Impl;
  ControlService(std::unique_ptr<Impl> impl, std::string address);
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace larder::node
