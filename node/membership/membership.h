// Who is in the cluster, where nodes have to find out: through etcd or DNS, behind one small interface. (A
// static list is configuration.) A node hands the table on to its clients; they know seeds only and talk to
// neither.
//
// Placement is slow, liveness is fast: the table changes when a node joins, drains, or stays away beyond a
// grace of minutes. A crash or a lease that is lost for seconds changes nothing here; clients go round a dead
// node by themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "proto/placement.h"
#include "proto/status.h"

namespace larder::node {

struct MembershipStatus {
  std::string kind;        // "etcd", "dns"
  bool connected = false;  // etcd or DNS answered the last time
  std::string error;       // why not, or what else an operator should know
  uint64_t epoch = 0;      // of the table in force
  uint32_t members = 0;    // in the table, those that are away included
  uint32_t live = 0;       // of these, with a lease, or heard of in the last round
  bool came_new = false;   // this node had no place in the table before it joined
};

class Membership {
 public:
  // A newer table. Called on the membership's own thread; must not call back.
  using Sink = std::function<void(const NodeTable&)>;

  // This node is about to be known to the others again, who went on without it for a while: before they hear
  // of it, on the membership's own thread, and it may take a second. `others`: the table as they have it.
  // `placeless`: its place had been given up, or it never had one.
  using OnBack = std::function<void(const NodeTable& others, bool placeless)>;

  virtual ~Membership() = default;  // as Leave, without giving the lease back

  // Makes `self` a member and begins to follow the others; tables go to the sink from then on. Waits for at
  // most `budget_us`. kInvalid: another live node has this id. kUnavailable: nobody answers; it goes on
  // trying by itself.
  virtual Status Join(const NodeRecord& self, uint64_t budget_us) = 0;
  virtual void SetOnBack(OnBack on_back) = 0;  // before Join
  // The node's own state in the table (draining). Soon, and again after a reconnect.
  virtual void SetState(NodeState state) = 0;
  // The node stops: it counts as alive no longer, its place stays for the grace, so that a restart moves
  // nothing.
  virtual void Leave() = 0;
  // The node goes for good: its place in the table goes with it, then as Leave. A failure (nobody answers)
  // leaves the place to the grace.
  virtual Status Resign() = 0;
  virtual MembershipStatus status() const = 0;
};

}  // namespace larder::node
