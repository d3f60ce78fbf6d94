// A cluster without a master, as one of its nodes sees it: what it tells and hears, who shows themselves,
// what follows. Pure: no clock, no thread, no socket, so that a test runs many of them from a seed.
//
// A round asks others who they are and what they know. A member that neither answers nor asks, and of whom
// none of those who answer has just heard, is missing; absence.h says when it loses its place.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "node/membership/roster.h"
#include "proto/control.pb.h"
#include "proto/status.h"

namespace larder::node {

struct GossipOptions {
  std::string cluster = "larder";
  uint64_t away_grace_us = 300'000'000;
  uint64_t period_us = 5'000'000;  // about that between rounds
  uint64_t probe_us = 1'000'000;
};

class Gossip {
 public:
  using Request = control::v1::ExchangeRequest;
  using Response = control::v1::ExchangeResponse;
  static constexpr size_t kFactsAMessage = 512;

  Gossip(GossipOptions options, NodeRecord self, Roster known);

  // What another asks. kUnsupported: it is of another cluster; kInvalid: it makes no sense.
  Status Answer(const Request& request, uint64_t now_us, Response* response);

  // A round: the question, the same for all; their answers; the end.
  Request BeginRound();
  // False: whoever answers there is none of ours.
  bool TakeAnswer(const std::string& address, const Response& response, uint64_t now_us);
  void EndRound(uint64_t now_us);
  // Those who had not heard all of it in the round that ended, and what to tell them.
  std::vector<std::string> Behind() const;
  std::vector<Request> Tell() const;

  // This node becomes a member. The first one of all founds the cluster.
  void Enter(uint64_t unix_minutes);
  void SetState(NodeState state);
  void Resign();
  // What others say of this node is put right.
  void Defend();

  struct Namesake {
    uint64_t incarnation = 0;
    std::string address;
    bool joined = false;
    uint64_t first_us = 0, last_us = 0;  // when it was heard
  };
  // Another live node of this id, that came before this one.
  const Namesake* Elder(uint64_t now_us) const;

  // Others went on without this node, which says otherwise in the end of the round.
  bool SaidGone() const;

  const NodeRecord& self() const { return self_; }
  const Roster& roster() const { return roster_; }
  bool joined() const { return joined_; }
  bool came_new() const { return came_new_; }
  uint32_t live() const;

 private:
  struct Other {
    uint64_t heard_us = 0;    // by itself
    uint64_t missing_us = 0;  // 0: it is not
    bool direct = false;      // heard by itself in the last round
    bool live = false;        // or at least vouched for
  };
  struct Answered {
    std::string address, digest;
  };

  uint64_t FreshUs() const { return 3 * options_.period_us + options_.probe_us; }
  void Hear(const control::v1::Speaker& speaker, uint64_t now_us);
  void FillSelf(control::v1::Speaker* speaker) const;
  const std::string& DigestText() const;
  void State();
  void MarkAbsent();

  const GossipOptions options_;
  NodeRecord self_;
  Roster roster_;
  mutable std::string digest_;  // of roster_; empty: it has changed
  uint64_t version_ = 0;        // of what this node says of itself
  bool joined_ = false, came_new_ = false, resigned_ = false;
  std::map<std::string, Other> others_;  // members in force
  std::set<std::string> vouched_;        // this round, by others
  std::vector<Answered> answered_;       // this round
  uint64_t round_us_ = 0;                // end of the last one
  std::optional<Namesake> namesake_;
};

}  // namespace larder::node
