#include "node/cluster/cluster_match.h"

#include <algorithm>
#include <cstring>

#include "node/membership/control_calls.h"

namespace larder::node {

namespace {

namespace api = larder::control::v1;

constexpr int kRouterHashesMax = 16384;
constexpr uint32_t kTimeoutMs = 500, kTimeoutMsMax = 10'000;

// Counts the hashes from the first on that are there in all groups.
uint32_t LeadingOf(const std::string& presence, size_t groups) {
  const auto miss = std::find_if(presence.begin(), presence.end(), [](char cell) {
    return !IsHit(static_cast<Presence>(static_cast<uint8_t>(cell)));
  });
  return static_cast<uint32_t>(static_cast<size_t>(miss - presence.begin()) / groups);
}

}  // namespace

Result<RouterMatch> RouterMatch::Of(const api::MatchRequest& request) {
  RouterMatch match;
  LARDER_RETURN_IF_ERROR(FromHex(request.hex(), &match.name_space.bytes));
  constexpr size_t kHashBytes = sizeof(ChainHash);
  const size_t hashes = request.hashes().size() / kHashBytes;
  if (request.hashes().size() % kHashBytes != 0 || hashes == 0 || hashes > kRouterHashesMax) {
    return Invalid("a match has 1 to " + std::to_string(kRouterHashesMax) + " hashes of 32 bytes each");
  }
  match.hashes.resize(hashes);
  std::memcpy(match.hashes.data(), request.hashes().data(), request.hashes().size());
  for (const uint32_t group : request.groups()) {
    if (group > UINT16_MAX || match.groups.size() == kGroupsMax) {
      return Invalid("at most " + std::to_string(kGroupsMax) + " groups, each a 16-bit number");
    }
    match.groups.push_back(static_cast<uint16_t>(group));
  }
  if (match.groups.empty()) match.groups = {0};
  const uint32_t timeout_ms = request.timeout_ms() == 0 ? kTimeoutMs : request.timeout_ms();
  match.timeout_us = uint64_t{std::min(timeout_ms, kTimeoutMsMax)} * 1000;
  return match;
}

// One home and its share of the blocks.
struct ClusterMatch::Part {
  size_t node = 0;              // in the answer
  std::vector<uint32_t> items;  // of the question
  std::string error;            // why it is not known
  std::string presence;

  bool here = false;  // this node itself
  std::shared_ptr<grpc::Channel> channel;
  grpc::ClientContext context;
  api::MatchRequest request;
  api::MatchResponse response;
  grpc::Status status;
};

Status ClusterMatch::AnswerLocally(Node* node, const RouterMatch& match, api::MatchResponse* out) {
  const Result<std::vector<uint8_t>> presence = node->Presences(match.name_space, match.hashes, match.groups);
  if (!presence.ok()) return presence.status();
  out->set_presence(presence->data(), presence->size());
  out->set_leading(LeadingOf(out->presence(), match.groups.size()));
  return Status::Ok();
}

std::shared_ptr<const Placement> ClusterMatch::PlacementOf(const NodeTable& table) {
  const std::lock_guard lock(mutex_);
  if (placement_ == nullptr || placed_epoch_ != table.epoch) {
    placement_ = std::make_shared<const Placement>(table, 1);
    placed_epoch_ = table.epoch;
  }
  return placement_;
}

std::shared_ptr<grpc::Channel> ClusterMatch::ChannelTo(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (channels_.size() >= kNodesMax) channels_.clear();
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) channel = ConnectToNode(address);
  return channel;
}

void ClusterMatch::AskAll(std::vector<std::unique_ptr<Part>>* parts) {
  std::vector<std::unique_ptr<api::Control::Stub>> stubs;
  std::vector<std::unique_ptr<grpc::ClientAsyncResponseReader<api::MatchResponse>>> readers;
  CallQueue queue;
  for (const auto& part : *parts) {
    if (part->channel == nullptr) continue;
    stubs.push_back(api::Control::NewStub(part->channel));
    readers.push_back(stubs.back()->AsyncMatch(&part->context, part->request, queue.get()));
    readers.back()->Finish(&part->response, &part->status, part.get());
  }
  queue.Await();
  for (const auto& part : *parts) {
    if (part->channel == nullptr) continue;
    if (part->status.ok()) {
      part->presence = part->response.presence();
      continue;
    }
    part->error = part->status.error_message();
    if (part->error.empty()) part->error = "it does not answer";
  }
}

// Which home each block has; the homes are entered in the answer.
Status ClusterMatch::Split(const NodeInfo& info, const RouterMatch& match,
                           std::vector<std::unique_ptr<Part>>* parts, api::MatchResponse* out) {
  const std::shared_ptr<const Placement> placement = PlacementOf(info.table);
  std::map<uint16_t, Part*> part_of;
  for (uint32_t i = 0; i < match.hashes.size(); ++i) {
    const auto order = placement->Order(match.hashes[i]);
    if (order.empty()) return {Code::kUnavailable, "the table has no node that is active"};
    Part*& part = part_of[order[0]];
    if (part == nullptr) {
      const NodeRecord& home = info.table.nodes[order[0]];
      part = parts->emplace_back(std::make_unique<Part>()).get();
      part->node = parts->size() - 1;
      api::MatchResponse::Home* shown = out->add_nodes();
      shown->set_id(home.id);
      shown->set_data_address(home.data_address);
      if (home.id == info.record.id) {
        part->here = true;
      } else if (home.control_address.empty()) {
        part->error = "a static list does not know its control address";
      } else {
        part->channel = ChannelTo(home.control_address);
      }
    }
    part->items.push_back(i);
    out->add_homes(static_cast<uint32_t>(part->node));
  }
  return Status::Ok();
}

// Where a home has not answered, its blocks are unreachable.
void ClusterMatch::Merge(const std::vector<std::unique_ptr<Part>>& parts, size_t groups,
                         api::MatchResponse* out) {
  std::string& presence = *out->mutable_presence();
  presence.assign(static_cast<size_t>(out->homes_size()) * groups, static_cast<char>(Presence::kUnreachable));
  for (const auto& part : parts) {
    if (part->error.empty() && part->presence.size() != part->items.size() * groups) {
      part->error = "it answered for another number of blocks: update the older node";
    }
    out->mutable_nodes(static_cast<int>(part->node))->set_error(part->error);
    if (!part->error.empty()) continue;
    for (size_t i = 0; i < part->items.size(); ++i) {
      presence.replace(part->items[i] * groups, groups, part->presence, i * groups, groups);
    }
  }
  out->set_leading(LeadingOf(presence, groups));
}

Status ClusterMatch::Answer(Node* node, const RouterMatch& match, const std::string& token,
                            std::chrono::system_clock::time_point deadline, api::MatchResponse* out) {
  struct Turn {
    explicit Turn(std::atomic<uint32_t>* counted) : count(counted), mine(counted->fetch_add(1) < kAtATime) {}
    ~Turn() { count->fetch_sub(1); }
    std::atomic<uint32_t>* const count;
    const bool mine;
  } turn(&answering_);
  if (!turn.mine) {
    return {Code::kBusy, "too many matches for the cluster at a time; ask again, or another node"};
  }
  const NodeInfo info = node->info();
  std::vector<std::unique_ptr<Part>> parts;
  LARDER_RETURN_IF_ERROR(Split(info, match, &parts, out));
  for (const auto& part : parts) {
    if (part->here) {
      RouterMatch own = match;
      own.hashes.clear();
      for (const uint32_t item : part->items) own.hashes.push_back(match.hashes[item]);
      LARDER_RETURN_IF_ERROR(AnswerLocally(node, own, &part->response));
      part->presence = part->response.presence();
      continue;
    }
    part->request.set_hex(ToHex(match.name_space.bytes));
    part->request.set_local(true);
    for (const uint16_t group : match.groups) part->request.add_groups(group);
    std::string* hashes = part->request.mutable_hashes();
    for (const uint32_t item : part->items) {
      hashes->append(reinterpret_cast<const char*>(match.hashes[item].bytes.data()), sizeof(ChainHash));
    }
    part->context.set_deadline(deadline);
    if (!token.empty()) part->context.AddMetadata("authorization", "Bearer " + token);
  }
  AskAll(&parts);
  Merge(parts, match.groups.size(), out);
  out->set_table_epoch(info.table.epoch);
  return Status::Ok();
}

}  // namespace larder::node
