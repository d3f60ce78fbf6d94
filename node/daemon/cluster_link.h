// The daemon's tie to its cluster: what the configuration says of membership, made and kept going. With
// static membership there is nothing to keep going.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "node/cluster/hear_rules.h"
#include "node/daemon/config.h"
#include "node/membership/membership.h"
#include "node/membership/state_folder.h"
#include "node/node.h"

namespace larder::control::v1 {
class ExchangeRequest;
class ExchangeResponse;
}  // namespace larder::control::v1

namespace larder::node {

class DnsMembership;

class ClusterLink {
 public:
  // Opens state_dir, reads the password. kInvalid, with one line, when that can't be.
  static Result<std::unique_ptr<ClusterLink>> Open(const Config& config,
                                                   const std::vector<Credential>& credentials);
  ~ClusterLink();  // the node still lives

  // The id that is kept, and the table of the last life: with one the node serves also while etcd or DNS is
  // away, without it waits at its door until it knows the cluster.
  Status Prepare(NodeOptions* options);
  // Joins, hears from the others what was ruled out meanwhile, and lets the clients in. Ends early,
  // kCancelled, when `stop` says so. `on_heard` is told what was heard, now and whenever this node was gone
  // for a while, on any thread.
  Status Join(Node* node, const std::function<bool()>& stop, std::function<void(const HeardRules&)> on_heard);
  // Puts go elsewhere from now on.
  void Drain();
  // The node counts as alive no longer; the place stays for the grace.
  void Leave();
  // As Leave, and the place in the table goes too.
  Status Resign();
  std::optional<MembershipStatus> status() const;  // none: static
  // What another node asks, where membership is dns. kUnsupported where it is not.
  Status AnswerExchange(const control::v1::ExchangeRequest& request, control::v1::ExchangeResponse* response);
  // Why the last table could not be kept on disk; empty: it was.
  std::string keep_error() const;

 private:
  explicit ClusterLink(const Config& config) : config_(config) {}
  Result<std::unique_ptr<Membership>> OpenEtcd();
  Result<std::unique_ptr<Membership>> OpenDns();
  Membership* membership() const;
  void OnTable(const NodeTable& table);
  void OnBack(const NodeTable& others, bool placeless);
  void Hear(const NodeTable& table, uint64_t timeout_us);
  void NoteKept(const Status& kept);

  const Config config_;
  std::string password_;  // for etcd
  std::string token_;     // for other nodes
  std::optional<StateFolder> folder_;
  NodeTable known_;
  Node* node_ = nullptr;
  std::function<void(const HeardRules&)> on_heard_;
  std::atomic<bool> accepted_{false};
  mutable std::mutex mutex_;  // guards the next block
  std::string keep_error_;
  std::unique_ptr<Membership> membership_;  // made once
  DnsMembership* dns_ = nullptr;            // the same, if it is one
};

}  // namespace larder::node
