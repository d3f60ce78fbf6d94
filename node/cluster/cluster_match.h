// Match for routers: any node answers for the cluster. It asks the homes of the blocks, each about its own,
// all at the same time over their control ports and with the caller's credential, and puts the answers
// together. A home that does not answer in time makes its blocks unreachable, not the whole answer late.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node/node.h"
#include "proto/control.grpc.pb.h"

namespace larder::node {

// What a MatchRequest asks, checked.
struct RouterMatch {
  Namespace name_space;
  std::vector<ChainHash> hashes;
  std::vector<uint16_t> groups;
  uint64_t timeout_us = 0;

  static Result<RouterMatch> Of(const control::v1::MatchRequest& request);
};

// Thread-safe.
class ClusterMatch {
 public:
  // So many answers for the cluster at a time: the threads that others' questions need stay free.
  static constexpr uint32_t kAtATime = 16;

  // Fills the presence that this node knows of by itself.
  static Status AnswerLocally(Node* node, const RouterMatch& match, control::v1::MatchResponse* out);
  // kBusy beyond kAtATime. `token` is the caller's; the answer is there by `deadline`.
  Status Answer(Node* node, const RouterMatch& match, const std::string& token,
                std::chrono::system_clock::time_point deadline, control::v1::MatchResponse* out);

 private:
  struct Part;
  std::shared_ptr<const Placement> PlacementOf(const NodeTable& table);
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address);
  Status Split(const NodeInfo& info, const RouterMatch& match, std::vector<std::unique_ptr<Part>>* parts,
               control::v1::MatchResponse* out);
  static void Merge(const std::vector<std::unique_ptr<Part>>& parts, size_t groups,
                    control::v1::MatchResponse* out);
  static void AskAll(std::vector<std::unique_ptr<Part>>* parts);

  std::atomic<uint32_t> answering_{0};
  std::mutex mutex_;
  uint64_t placed_epoch_ = 0;
  std::shared_ptr<const Placement> placement_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace larder::node
