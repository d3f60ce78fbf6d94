// Handing blocks over: a node that leaves puts what it has in memory to the nodes that are home to it without
// this one, hottest first. It does so as any writer does, with the credential that wrote each block, so the
// others file a block under the same namespace and writer, and check every part against the checksums that
// its first writer gave.
//
// A thread of its own, that may wait; it pins a page of blocks at a time and never holds up the owner. It is
// done when all is handed over, when its budget is over, or when nobody takes anything any more. What is
// removed or cleared here meanwhile, and until the node stops, it carries to where the blocks went; only then
// it is answered.
#pragma once

#include <latch>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/cluster/courier.h"
#include "node/cluster/job_wait.h"
#include "node/node.h"

namespace larder::node {

struct HandOverOptions {
  uint64_t budget_us = 0;
  uint64_t bytes_per_second = 0;        // 0: as fast as it goes
  uint64_t patience_us = 10'000'000;    // with others that take nothing: one that restarts is back by then
  std::vector<Credential> credentials;  // this node's own; empty: everybody is anonymous
};

// Another node of the table takes blocks.
bool HasHeir(const NodeInfo& info);

class HandOver {
 public:
  // Begins. The node takes no puts any more (BeginDrain); Node::info tells how far it is.
  HandOver(Node* node, const HandOverOptions& options);
  ~HandOver();  // nothing is handed over or forwarded any more
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  // Until all is handed over, or it has given up.
  void Wait();

 private:
  void Give();
  std::string GiveAll();
  bool Late();
  void Pause(uint64_t until_us);
  bool Place();
  std::vector<WarmPiece> OneRound(std::span<const WarmPiece> list);
  void HandPage(const OutgoingPage& page, std::vector<WarmPiece>* again);

  Node* const node_;
  const HandOverOptions options_;
  uint64_t end_us_ = 0;
  Pace pace_;
  HandOverProgress progress_;
  NodeTable heirs_;  // the table without this node and without those that leave too
  uint64_t epoch_ = 0;
  Placement placement_;
  Courier courier_;

  std::latch given_{1};
  JobWait wait_;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
