// What HTTP answers: /metrics for Prometheus, /livez and /readyz for probes, /healthz for people.
#pragma once

#include <mutex>
#include <string_view>

#include "node/daemon/cluster_link.h"
#include "node/daemon/http_server.h"
#include "node/node.h"

namespace larder::node {

// Thread-safe.
class Endpoints {
 public:
  // The node must outlive the HTTP server. Until it is given: alive, not ready.
  void SetNode(const Node* node);
  // Who is in the cluster; it outlives the HTTP server.
  void SetCluster(const ClusterLink* cluster);
  // Told to stop: alive, not ready.
  void SetStopping();

  // /livez asks the owner's thread: a node whose owner hangs does not answer, and its probe times out.
  HttpResponse Handle(std::string_view path) const;

 private:
  struct State {
    const Node* node = nullptr;
    const ClusterLink* cluster = nullptr;
    bool stopping = false;
  };
  State state() const;
  HttpResponse Health(const State& state) const;
  HttpResponse Metrics(const State& state) const;

  mutable std::mutex mutex_;
  State state_;
};

}  // namespace larder::node
