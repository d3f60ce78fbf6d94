// Membership without a master: DNS says where nodes may be, they themselves say who they are, and tell each
// other what they know (gossip.h has the rules).
//
// Two threads: one asks DNS, one asks the nodes. DNS gone, or without an answer: those who are known are
// asked by their own addresses, and the last table stays in force.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "node/membership/gossip.h"
#include "node/membership/membership.h"
#include "node/membership/resolver.h"

namespace larder::node {

class PeerCalls;

struct DnsMembershipOptions {
  ResolverOptions names;
  uint64_t period_us = 5'000'000;  // between rounds, and between questions to DNS; a quarter more or less
  uint64_t probe_us = 1'000'000;   // a node has so long to answer
  std::string cluster = "larder";
  uint64_t away_grace_us = 300'000'000;
  std::string token;  // an operator's, where nodes want one
  Roster known;       // of the last life
  // What is known, for the next life; before each table. The membership's own thread.
  std::function<void(const Roster&)> keep;
};

class DnsMembership final : public Membership {
 public:
  static Result<std::unique_ptr<DnsMembership>> Open(const DnsMembershipOptions& options, Sink sink);
  ~DnsMembership() override;

  Status Join(const NodeRecord& self, uint64_t budget_us) override;
  void SetOnBack(OnBack on_back) override { on_back_ = std::move(on_back); }
  void SetState(NodeState state) override;
  void Leave() override;
  Status Resign() override;
  MembershipStatus status() const override;
  // What another node asks; from any thread.
  Status Answer(const Gossip::Request& request, Gossip::Response* response);

 private:
  DnsMembership(const DnsMembershipOptions& options, Sink sink);

  void Follow();  // thread: DNS
  void Keep();    // thread: the nodes
  void Round();
  std::set<std::string> Targets();
  void MayEnter();
  void DefendPlace(std::unique_lock<std::mutex>* lock);
  void TellBehind();
  void Publish();
  void StopKeeper();
  bool WaitForNews(uint64_t us);  // false: stopping

  const DnsMembershipOptions options_;
  const Sink sink_;
  OnBack on_back_;
  Resolver resolver_;
  const std::unique_ptr<PeerCalls> calls_;

  mutable std::mutex mutex_;  // guards the next block
  std::condition_variable changed_;
  std::optional<Gossip> gossip_;  // from Join on
  std::vector<std::string> addresses_;
  bool dns_answered_ = false;  // once, at least
  Status dns_;                 // the last time
  std::string remark_;         // of the last round
  Status join_;                // why not yet
  size_t silent_ = 0;          // of the last round
  bool urgent_ = false;        // the next round is due at once
  bool news_ = false;          // another told something
  bool stopping_ = false, left_ = false;
  uint64_t epoch_published_ = 0;

  uint64_t begun_us_ = 0, rounds_ = 0;  // the keeper's
  std::thread keeper_, follower_;
};

}  // namespace larder::node
