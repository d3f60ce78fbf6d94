// Restoring replicas: where a tenant has several copies of each block, and the table names new places for
// some (a node was away for longer than the grace, one joined, one came back without its memory), the first
// of those that still hold a copy puts it there, hottest first, at a bounded rate. Places that have it
// already say so and get no bytes.
//
// A thread of its own, that follows the table; like a hand-over it pins a page at a time, and what is removed
// or cleared meanwhile is answered when the places it went to have heard it. Blocks on SSD only, and those of
// a tenant with a time to live, are not restored.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "node/courier.h"
#include "node/node.h"
#include "node/replica_places.h"

namespace larder::node {

struct RepairOptions {
  uint64_t bytes_per_second = 0;        // 0: as fast as it goes
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
  void Follow();
  bool Restore();
  std::vector<WarmPiece> OneRound(std::span<const WarmPiece> list, bool all);
  void PutPage(const OutgoingPage& page, bool all, std::vector<WarmPiece>* again);
  bool Outdated();
  void Forward();
  void Pause(uint64_t us);

  Node* const node_;
  const RepairOptions options_;
  RepairProgress progress_;
  ReplicaPlaces known_, now_;  // as it was when all had their copies; as the table has it
  uint64_t epoch_ = 0;         // of now_
  uint64_t paced_us_ = 0;      // when the rate allows the next page
  std::unique_ptr<Courier> courier_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
