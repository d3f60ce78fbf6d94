// Copying hot blocks: of what this node is home to and what is read more than its share, the next nodes of
// the block's own order get copies, at a bounded rate, by the same courier as leaving and restoring. Copies
// live by leases that are renewed here four times as often as they would end; what is removed, cleared or
// ruled out here is told to whoever has a copy, and only then answered. A node that cannot be told forgets
// its copy when the lease ends.
//
// A thread of its own, that may wait. The owner decides what is hot (hot_blocks.h); readers hear of the
// copies with the answers of their gets.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "node/cluster/courier.h"
#include "node/cluster/job_wait.h"
#include "node/node.h"
#include "node/owner/hot_round.h"

namespace larder::node {

struct HotCopiesOptions {
  uint64_t bytes_per_second = 0;        // 0: as fast as it goes
  std::vector<Credential> credentials;  // this node's own; empty: everybody is anonymous
};

class HotCopies {
 public:
  HotCopies(Node* node, const HotCopiesOptions& options);
  ~HotCopies();  // copies elsewhere end with their leases; before the node stops
  HotCopies(const HotCopies&) = delete;
  HotCopies& operator=(const HotCopies&) = delete;

 private:
  class Side;

  void Run();
  bool Pause(uint64_t until_us);
  void TellRevokes();
  bool TellHolder(const HotRevoke& revoke, const HotHolder& holder);

  Node* const node_;
  const std::string self_;
  Pace pace_;
  Courier courier_;

  JobWait wait_;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
