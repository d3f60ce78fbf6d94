// Membership through etcd: a lease for being alive, a kept record for one's place, a watch for the others
// (cluster_state.h has the keys and the rules).
//
// Two threads: one keeps the lease and this node's record and takes out members that stay away; one follows
// what changes. etcd gone: both go on trying, and the last table stays in force.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "node/membership/cluster_state.h"
#include "node/membership/etcd_options.h"
#include "node/membership/membership.h"

namespace etcdserverpb {
class TxnRequest;
}

namespace larder::node {

class EtcdClient;

struct EtcdMembershipOptions {
  EtcdOptions etcd;
  std::string cluster = "larder";
  uint64_t lease_us = 3'000'000;         // whole seconds: etcd counts in them
  uint64_t away_grace_us = 300'000'000;  // a member that is missing for so long loses its place
  NodeTable known;  // what this node kept of its last life: etcd may have been set up anew since
};

class EtcdMembership final : public Membership {
 public:
  static Result<std::unique_ptr<EtcdMembership>> Open(const EtcdMembershipOptions& options, Sink sink);
  ~EtcdMembership() override;

  Status Join(const NodeRecord& self, uint64_t budget_us) override;
  void SetOnBack(OnBack on_back) override { on_back_ = std::move(on_back); }
  void SetState(NodeState state) override;
  void Leave() override;
  Status Resign() override;
  MembershipStatus status() const override;

 private:
  EtcdMembership(const EtcdMembershipOptions& options, std::unique_ptr<EtcdClient> etcd, Sink sink);

  void Keep();    // thread
  void Follow();  // thread
  // One round of the keeper: lease, record, the absent.
  Status KeepOnce();
  Status Register();
  Status Restore(const ClusterState& seen, bool* done);
  Status TakeOut(const std::string& id);
  void StopKeeper();
  Status RemoveSelf();
  Status ReadAll(ClusterState* state, int64_t* revision);
  // A transaction that changes a member: `request` gets the comparison and the rise of the version.
  Status ChangeTable(const ClusterState& seen, etcdserverpb::TxnRequest* request, bool* done);
  void Publish();
  void Note(const Status& status);
  // False: stopping. for_state: a new state of this node ends it early.
  bool WaitFor(uint64_t us, bool for_state);

  const EtcdMembershipOptions options_;
  const std::unique_ptr<EtcdClient> etcd_;
  const Sink sink_;
  OnBack on_back_;

  mutable std::mutex mutex_;  // guards the next block
  std::condition_variable changed_;
  ClusterState state_;      // as the follower knows it
  NodeRecord self_;         // as it shall be in etcd
  bool state_set_ = false;  // self_.state differs from what was registered last
  bool joined_ = false;     // registered at least once
  bool came_new_ = false;   // it had no place when it registered first
  bool stopping_ = false;
  bool connected_ = false;
  Status last_;
  uint64_t epoch_published_ = 0;
  NodeTable known_;  // the last one published, or kept

  int64_t lease_ = 0;  // the keeper's; 0: none
  std::thread keeper_, follower_;
};

}  // namespace larder::node
