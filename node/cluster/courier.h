// Carries blocks of this node to others, and what is removed or cleared here meanwhile to whoever may have
// got some: the links, by node and writer. It puts as any writer does, with the credential that wrote each
// block, so the others file a block under the same namespace and writer, and check every part against the
// checksums that its first writer gave.
//
// Of one thread, that may wait. No call takes longer than until `end_us`, by transport::NowUs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "node/cluster/peer_link.h"
#include "node/node.h"
#include "node/owner/hot_round.h"

namespace larder::node {

// Blocks of one page that go to one node under one namespace, by one writer.
struct Parcel {
  const NodeRecord* heir = nullptr;
  Digest writer{};
  Namespace name_space;
  bool operator<(const Parcel& other) const {
    return std::tie(heir, writer, name_space) < std::tie(other.heir, other.writer, other.name_space);
  }
};

// Pages at a rate, of which there are several a second.
class Pace {
 public:
  explicit Pace(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: as fast as it goes
  PageLimits limits() const;
  void Begin();  // a page
  // It was of so many bytes; when the next may go, by transport::NowUs. 0: at once.
  uint64_t After(uint64_t bytes);

 private:
  const uint64_t bytes_per_second_;
  uint64_t next_us_ = 0;
};

class Courier {
 public:
  // `name`, `features`: how it introduces itself to others.
  Courier(Node* node, const std::vector<Credential>& credentials, std::string name, uint64_t features = 0);
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  Status Start();
  // Leaves the states as they are (busy: to be tried again) when the node can't be asked.
  void Put(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces, uint64_t end_us,
           std::vector<PutState>* states);
  // They left here while they were put.
  Status TakeBack(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces, uint64_t end_us);
  // A copy by lease: renews it for what is there and puts the rest. `own_counts`: pieces that are there as
  // the node's own will do.
  CopyAnswer Copy(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces, uint64_t lease_us,
                  bool own_counts, uint64_t end_us);
  // Blocks of a writer whose credential is not among this node's stay here.
  bool Carries(const Digest& writer) const { return TokenOf(credentials_, writer) != nullptr; }
  // That something is removed.
  Status Tell(const std::string& node, const Digest& writer, const Forward& forward, uint64_t end_us);
  // What was removed here and waits to be heard by others, until one of them can't be asked for now. Of one
  // that has not answered for long nobody waits: a remove ends without an answer, a clear it hears when it is
  // back.
  void ForwardAll(const std::function<bool()>& late, uint64_t end_us);
  const std::string& last_why() const { return last_why_; }  // of the last block that was not taken

 private:
  struct Unreachable {
    Status why;
    uint64_t since_us = 0;
    uint64_t retry_us = 0;
    uint64_t pause_us = 0;  // doubles with each failure
  };

  using LinkName = std::pair<std::string, Digest>;  // node, writer

  uint64_t StepEnd(uint64_t bytes, uint64_t end_us) const;
  Result<PeerLink*> LinkTo(const NodeRecord& heir, const Digest& writer, uint64_t end_us);
  void NoteUnreachable(const LinkName& name, const Status& why);
  bool DropIfClosed(const LinkName& name);
  enum class Carried : uint8_t { kToAll, kNotYet, kNever };
  Carried Carry(const Forward& forward, const std::function<bool()>& late, uint64_t end_us);
  bool LongGone(const LinkName& name) const;
  Status CarryTo(const NodeRecord& heir, const Digest& writer, const Forward& forward, uint64_t end_us);
  Result<CopyAnswer> CopyBy(PeerLink* link, const Parcel& parcel,
                            const std::vector<const OutgoingPiece*>& pieces, uint64_t lease_us,
                            bool own_counts, uint64_t end_us);

  Node* const node_;
  const std::vector<Credential> credentials_;  // this node's own; empty: everybody is anonymous
  const std::string name_;
  const uint64_t features_;
  std::unique_ptr<transport::Transport> transport_;
  std::map<LinkName, std::unique_ptr<PeerLink>> links_;
  std::map<LinkName, Unreachable> unreachable_;
  // By namespace the nodes that may have got blocks, each with a writer whose credential opens it there.
  std::map<Namespace, std::map<std::string, Digest>> receivers_;
  uint64_t carrying_ = 0;             // the forward at hand, and
  std::set<std::string> carried_to_;  // the nodes that have heard it
  std::string last_why_;
};

}  // namespace larder::node
