// Handing blocks over: a node that leaves puts what it has in memory to the nodes that are home to it without
// this one, hottest first. It does so as any writer does, with the credential that wrote each block, so the
// others file a block under the same namespace and writer, and check every part against the checksums that
// its first writer gave.
//
// One thread that may wait; it pins a page of blocks at a time and never holds up the owner. It ends when all
// is handed over, when its budget is over, or when nobody takes anything any more.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "node/node.h"
#include "node/peer_link.h"

namespace larder::node {

struct HandOverOptions {
  uint64_t budget_us = 0;
  uint64_t bytes_per_second = 0;        // 0: as fast as it goes
  std::vector<Credential> credentials;  // this node's own; empty: everybody is anonymous
};

// Another node of the table takes blocks.
bool HasHeir(const NodeInfo& info);

class HandOver {
 public:
  HandOver(Node* node, const HandOverOptions& options);
  ~HandOver();

  // Returns when it has ended. The node takes no puts any more (BeginDrain). Node::info tells how far it is.
  void Run();

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

  bool Late() const;
  uint64_t StepEnd(uint64_t bytes) const;
  void Pause(uint64_t until_us) const;
  bool Place();
  std::vector<WarmPiece> OneRound(std::span<const WarmPiece> list);
  void HandPage(const OutgoingPage& page, std::vector<WarmPiece>* again);
  void HandParcel(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces,
                  std::vector<PutState>* states);
  Result<PeerLink*> LinkTo(const NodeRecord& heir, const Digest& writer);
  const std::string* TokenOf(const Digest& writer) const;
  void TakeBack(const Parcel& parcel, const BlockHeader& block);
  void End(std::string reason);

  Node* const node_;
  const HandOverOptions options_;
  uint64_t end_us_ = 0;
  uint64_t paced_us_ = 0;  // when the rate allows the next page
  HandOverProgress progress_;
  NodeTable heirs_;  // the table without this node and without those that leave too
  uint64_t epoch_ = 0;
  Placement placement_;
  std::unique_ptr<transport::Transport> transport_;
  std::map<std::pair<std::string, Digest>, std::unique_ptr<PeerLink>> links_;  // node, writer
  std::map<std::string, Status> unreachable_;                                  // nodes, in this round
  std::string last_why_;  // of the last block that was not taken
};

}  // namespace larder::node
