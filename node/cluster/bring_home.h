// Bringing blocks home: takes the owner's questions about blocks whose slot has moved here, asks the nodes
// that were home before, and puts what they have into this node, verified like any put. It asks as a reader
// does, with the credential of whoever asked here, and files a block under the credential that wrote it; a
// writer whose credential is not among this node's own stays where it is.
//
// A thread of its own, that may wait: one node at a time, at most a second and what the bytes take. Whoever
// waits for a block is held up no longer than the owner lets him.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "node/cluster/job_wait.h"
#include "node/cluster/peer_link.h"
#include "node/node.h"

namespace larder::node {

class BringHome {
 public:
  // `credentials` are this node's own; empty: everybody is anonymous.
  BringHome(Node* node, const std::vector<Credential>& credentials);
  ~BringHome();  // no byte lands any more; before the node stops
  BringHome(const BringHome&) = delete;
  BringHome& operator=(const BringHome&) = delete;

 private:
  // Questions for one node about one namespace, asked by one credential.
  using Addressee = std::tuple<std::string, Digest, Namespace>;
  using LinkName = std::pair<std::string, Digest>;  // node, asker

  void Run();
  void AskAll(std::vector<Question>&& questions);
  void Ask(const Addressee& addressee, std::vector<Question> questions);
  Result<PeerLink*> LinkTo(const std::string& id, const Digest& asker);
  Result<PeerLink::Moved> Fetch(const Addressee& addressee, const std::vector<Question>& questions);
  std::vector<AnsweredQuestion> Settle(const PeerLink::Moved& moved, std::vector<Question>* questions);
  void Land(const PeerLink::Moved& moved, const std::vector<Question>& questions,
            std::vector<AnsweredQuestion>* answers);

  Node* const node_;
  const std::vector<Credential> credentials_;
  std::unique_ptr<transport::Transport> transport_;
  std::map<LinkName, std::unique_ptr<PeerLink>> links_;
  std::set<std::string> silent_;  // nodes that did not answer, among the questions at hand

  JobWait wait_;
  std::thread thread_;  // begins when all else is there
};

}  // namespace larder::node
