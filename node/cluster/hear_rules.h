// What was ruled out or cleared while this node was away: asked of the others before it serves.
#pragma once

#include <string>

#include "node/node.h"

namespace larder::node {

struct HeardRules {
  size_t asked = 0, answered = 0;  // other nodes
  size_t taken = 0;                // rules that were not known here, or reach further back
  size_t cleared = 0;              // namespaces
  Status status;                   // why one that was heard does not hold here
};

// Asks the members of the table that are not away, all at the same time, for `timeout_us` at most, and
// rules out here what is ruled out anywhere; bypass too. Clears what they know to have been cleared since.
// What was lifted meanwhile holds here until it is lifted here.
HeardRules HearRules(Node* node, const NodeTable& table, const std::string& token, uint64_t timeout_us);

}  // namespace larder::node
