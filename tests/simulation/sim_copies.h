// Copying hot blocks in the simulation: the production round over a node's owner, with bytes that go from
// owner to owner without a wire. Leases, revokes and what readers are told are all as in a running node.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "node/owner/hot_round.h"
#include "tests/simulation/sim_node.h"

namespace larder::simulation {

class SimCopies {
 public:
  // `reach`: the node of that name as `from` sees it; nullptr: it cannot be reached.
  using Reach = std::function<SimNode*(const std::string& from, const std::string& name)>;
  SimCopies(transport::loopback::Network* network, const NodeTable& table, Reach reach)
      : network_(network), table_(table), reach_(std::move(reach)) {}

  // What a home does every second: tells of what is gone, then renews and copies.
  void Round(SimNode* home);
  // The first part alone.
  void Tell(SimNode* home);

 private:
  class Side;

  transport::loopback::Network* const network_;
  const NodeTable table_;
  const Reach reach_;
};

}  // namespace larder::simulation
