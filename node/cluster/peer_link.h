// A client's connection from this node to another: what a node that leaves says to those that take its
// blocks, and one that joins to those that were home before. The plain data plane, as any client speaks it,
// one request at a time. Calls block, for a thread that may wait, and no longer than until `end_us`; after a
// failure that closed the connection nothing works any more.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "node/owner/owner.h"
#include "node/session.h"
#include "transport/transport.h"

namespace larder::node {

// The token by which this node may speak for a writer, out of its own credentials; nullptr: it may not.
const std::string* TokenOf(const std::vector<Credential>& credentials, const Digest& writer);

// Of a copy; as Reserve has them. None: it is put for good.
struct LeaseTerms {
  uint64_t since_us = 0;
  uint64_t lease_us = 0;
};

class PeerLink {
 public:
  // kInvalid when another node answers at the peer's address. `token` is the credential that the peer files
  // blocks under; empty: anonymous.
  static Result<std::unique_ptr<PeerLink>> Connect(transport::Transport* transport, const NodeRecord& peer,
                                                   const std::string& token, const std::string& name,
                                                   uint64_t end_us, uint64_t features = 0);
  ~PeerLink();  // no byte of anybody's is read any more
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // The peer's number of the namespace; it must come to the same name there.
  Result<uint32_t> Open(const Namespace& name_space, const larder::Open& open, uint64_t end_us);
  // Reserves, sends, commits with the checksums of the pieces' headers; one state a piece. When it returns
  // the pieces' bytes are read no more.
  Result<std::vector<PutState>> Put(uint32_t number, std::span<const OutgoingPiece* const> pieces,
                                    uint64_t end_us, LeaseTerms lease = {});
  bool leases() const { return leases_; }  // it knows what a lease is
  Result<LeaseReply> Renew(const Lease& lease, uint64_t end_us);
  struct Moved {
    MoveReply reply;
    std::vector<Bytes> segments;  // one a piece; none when the payload was more than `landing_bytes_max`
  };
  // Whole pieces of blocks that the peer has, about `payload_bytes_max` of them. What has come is not
  // verified.
  Result<Moved> Move(uint32_t number, std::vector<BlockRef> blocks, uint64_t payload_bytes_max,
                     uint64_t landing_bytes_max, uint64_t end_us);
  Status Carry(uint32_t number, const Forward& forward, uint64_t end_us);  // a remove or a clear
  bool closed() const;

 private:
  class Wire;
  explicit PeerLink(std::shared_ptr<Wire> wire) : wire_(std::move(wire)) {}
  template <typename Reply, typename Body>
  Result<Reply> Ask(Verb verb, const Body& body, uint64_t end_us);

  std::shared_ptr<Wire> wire_;
  uint64_t payload_bytes_max_ = 0;
  bool leases_ = false;
  std::map<Namespace, uint32_t> numbers_;
};

}  // namespace larder::node
