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

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/node.h"
#include "node/peer_link.h"

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
  // Blocks of one page that go to one node under one namespace, by one writer.
  struct Parcel {
    const NodeRecord* heir = nullptr;
    Digest writer{};
    Namespace name_space;
    bool operator<(const Parcel& other) const {
      return std::tie(heir, writer, name_space) < std::tie(other.heir, other.writer, other.name_space);
    }
  };

  struct Unreachable {
    Status why;
    uint64_t retry_us = 0;
    uint64_t pause_us = 0;  // doubles with each failure
  };

  using LinkName = std::pair<std::string, Digest>;  // node, writer

  void Give();
  std::string GiveAll();
  bool Late();
  uint64_t StepEnd(uint64_t bytes) const;
  void Pause(uint64_t until_us);
  bool Place();
  std::vector<WarmPiece> OneRound(std::span<const WarmPiece> list);
  void HandPage(const OutgoingPage& page, std::vector<WarmPiece>* again);
  void HandParcel(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces,
                  std::vector<PutState>* states);
  Result<PeerLink*> LinkTo(const NodeRecord& heir, const Digest& writer);
  void NoteUnreachable(const LinkName& name, const Status& why);
  void DropIfClosed(const std::string& id, const Digest& writer);
  void ForwardAll();
  bool Carry(const Forward& forward);

  Node* const node_;
  const HandOverOptions options_;
  uint64_t end_us_ = 0;
  uint64_t paced_us_ = 0;  // when the rate allows the next page
  HandOverProgress progress_;
  NodeTable heirs_;  // the table without this node and without those that leave too
  uint64_t epoch_ = 0;
  Placement placement_;
  std::unique_ptr<transport::Transport> transport_;
  std::map<LinkName, std::unique_ptr<PeerLink>> links_;
  std::map<LinkName, Unreachable> unreachable_;
  // By namespace the nodes that may have got blocks, each with a writer whose credential opens it there.
  std::map<Namespace, std::map<std::string, Digest>> receivers_;
  uint64_t carrying_ = 0;             // the forward at hand, and
  std::set<std::string> carried_to_;  // the nodes that have heard it
  std::string last_why_;              // of the last block that was not taken

  std::mutex mutex_;
  std::condition_variable changed_;
  bool given_ = false;
  bool stop_ = false;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
