// How this node introduces itself in the node table.
#pragma once

#include <string>

#include "node/node.h"

namespace larder::node {

struct BoundAddresses {
  std::string data;  // host:port, as bound
  std::string ucx;   // empty: none
  std::string shm_path;
};

// Refuses what others could not use: a wildcard address without a name to advertise, a bad id or weight.
Result<NodeRecord> MakeRecord(const NodeOptions& options, const BoundAddresses& bound);

// A name for a node that was given none and has a folder to keep it in: its address when that is
// known beforehand, else a random one.
std::string NewNodeId(const NodeOptions& options);

// `table` with this node's own record in it: the same id is replaced (a list knows only addresses). Its state
// stays, if it speaks of this incarnation.
NodeTable TableWith(const NodeTable& table, const NodeRecord& self);

// Equal in all processes of one running kernel, whatever their container or network namespace; empty when the
// kernel does not tell. Decides whether a client tries shared memory.
std::string HostId();

}  // namespace larder::node
