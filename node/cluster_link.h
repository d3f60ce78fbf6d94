// The daemon's tie to its cluster: what the configuration says of membership, made and kept going. With
// static membership there is nothing to keep going.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "node/config.h"
#include "node/membership/membership.h"
#include "node/membership/state_folder.h"
#include "node/node.h"

namespace larder::node {

class ClusterLink {
 public:
  // Opens state_dir, reads the password. kInvalid, with one line, when that can't be.
  static Result<std::unique_ptr<ClusterLink>> Open(const Config& config);
  ~ClusterLink();  // the node still lives

  // The id that is kept, and the table of the last life: with one the node serves also while etcd is away,
  // without it waits at its door until it knows the cluster.
  Status Prepare(NodeOptions* options);
  // Joins and lets the clients in. Ends early, kCancelled, when `stop` says so.
  Status Join(Node* node, const std::function<bool()>& stop);
  // Puts go elsewhere from now on.
  void Drain();
  // The lease ends; the place stays for the grace.
  void Leave();
  // As Leave, and the place in the table goes too.
  Status Resign();
  std::optional<MembershipStatus> status() const;  // none: static
  // Why the last table could not be kept on disk; empty: it was.
  std::string keep_error() const;

 private:
  explicit ClusterLink(const Config& config) : config_(config) {}
  void OnTable(const NodeTable& table);

  const Config config_;
  std::string password_;
  std::optional<StateFolder> folder_;
  NodeTable known_;
  Node* node_ = nullptr;
  bool followed_ = false;  // a table of this life; the membership's thread
  mutable std::mutex mutex_;
  std::string keep_error_;
  std::unique_ptr<Membership> membership_;
};

}  // namespace larder::node
