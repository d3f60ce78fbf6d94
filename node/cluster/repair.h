// Restoring replicas: where a tenant has several copies of each block, and the table names new places for
// some (a node was away for longer than the grace, one joined, one came back without its memory), the first
// of those that held a copy all along puts it there, hottest first, at a bounded rate. Places that have it
// already say so and get no bytes.
//
// What was removed never comes back by it. A node restores only slots whose place it has not lost since the
// block was put: so it has heard every remove. A place that has heard of a remove takes the block from nobody
// that restores (MustNotComeBack), and what leaves here while it is put is taken back there.
//
// A thread of its own, that follows the table and pins a page at a time. Blocks on SSD only, and those of a
// tenant with a time to live, are not restored.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "node/cluster/courier.h"
#include "node/cluster/job_wait.h"
#include "node/node.h"
#include "node/owner/replica_places.h"

namespace larder::node {

struct RepairOptions {
  uint64_t bytes_per_second = 0;  // 0: as fast as it goes
  // Clients hear of a table within so long, and remove at its places from then on.
  uint64_t settle_us = 2'000'000;
  std::vector<Credential> credentials;  // this node's own; empty: everybody is anonymous
};

class Repair {
 public:
  // Begins with the table as it is. Node::info tells how far it is.
  Repair(Node* node, const RepairOptions& options);
  ~Repair();
  Repair(const Repair&) = delete;
  Repair& operator=(const Repair&) = delete;

 private:
  using Parcels = std::map<Parcel, std::vector<const OutgoingPiece*>>;

  void Follow();
  void Take(const NodeTable& table);
  bool Restore();
  std::vector<WarmPiece> OneRound(std::span<const WarmPiece> list, bool all);
  Parcels Sort(const OutgoingPage& page, bool all, std::set<uint32_t>* later) const;
  void PutPage(const OutgoingPage& page, bool all, std::vector<WarmPiece>* again);
  bool Outdated();

  Node* const node_;
  const RepairOptions options_;
  const std::string self_;
  RepairProgress progress_;
  ReplicaPlaces now_;  // as the table has it
  uint64_t epoch_ = 0;
  // The tables from the one whose places all had their copies up to now_, without it. Blocks were put by
  // each.
  std::vector<ReplicaPlaces> before_;
  // By number of copies and slot: when this node got the place, by the owner's clock; 0: with its first
  // table.
  std::array<std::vector<uint32_t>, kReplicasMax + 1> since_s_;
  Pace pace_;
  Courier courier_;

  JobWait wait_;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
