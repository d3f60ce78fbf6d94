#include "node/membership/cluster_state.h"

#include <algorithm>
#include <charconv>

#include "node/membership/absence.h"

namespace larder::node {

namespace {
constexpr std::string_view kMembers = "members/";
constexpr std::string_view kLive = "live/";
}  // namespace

bool InForce(const NodeRecord& record) {
  return record.state == NodeState::kActive || record.state == NodeState::kDraining;
}

ClusterState::ClusterState(const std::string& cluster) : prefix_("/larder/" + cluster + "/") {}

void ClusterState::BeginSync() {
  members_.clear();
  live_.clear();
  epoch_ = 0;
  epoch_revision_ = 0;
}

void ClusterState::EndSync(uint64_t now_us) {
  for (auto& [id, member] : members_) {
    if (member.live.empty()) member.missing_since = now_us;
  }
}

void ClusterState::Put(std::string_view key, std::string_view value, int64_t mod_revision, uint64_t now_us) {
  if (key.substr(0, prefix_.size()) != prefix_) return;
  key.remove_prefix(prefix_.size());
  if (key == "epoch") {
    uint64_t epoch = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), epoch);
    if (error == std::errc() && end == value.data() + value.size()) epoch_ = epoch;
    epoch_revision_ = mod_revision;
  } else if (key.substr(0, kLive.size()) == kLive) {
    const std::string id(key.substr(kLive.size()));
    if (live_.count(id) == 0 && live_.size() >= kNodesMax) return;
    live_[id] = value;
    if (const auto found = members_.find(id); found != members_.end()) found->second.live = value;
  } else if (key.substr(0, kMembers.size()) == kMembers) {
    const std::string id(key.substr(kMembers.size()));
    Result<NodeRecord> record = DecodeMember(value);
    if (!record.ok() || record->id != id) {
      members_.erase(id);  // of a later version, or not ours: nobody that we could reach
      return;
    }
    if (members_.count(id) == 0 && members_.size() >= kNodesMax) return;
    Member& member = members_[id];
    member.record = std::move(record).value();
    member.mod_revision = mod_revision;
    const auto live = live_.find(id);
    member.live = live == live_.end() ? "" : live->second;
    if (member.live.empty() && member.missing_since == 0) member.missing_since = now_us;
  }
}

void ClusterState::Delete(std::string_view key, uint64_t now_us) {
  if (key.substr(0, prefix_.size()) != prefix_) return;
  key.remove_prefix(prefix_.size());
  if (key == "epoch") {
    epoch_revision_ = 0;
  } else if (key.substr(0, kLive.size()) == kLive) {
    const std::string id(key.substr(kLive.size()));
    live_.erase(id);
    if (const auto found = members_.find(id); found != members_.end()) {
      found->second.live.clear();
      found->second.missing_since = now_us;
    }
  } else if (key.substr(0, kMembers.size()) == kMembers) {
    members_.erase(std::string(key.substr(kMembers.size())));
  }
}

const ClusterState::Member* ClusterState::Find(std::string_view id) const {
  const auto found = members_.find(std::string(id));
  return found == members_.end() ? nullptr : &found->second;
}

uint32_t ClusterState::live() const {
  return static_cast<uint32_t>(std::count_if(members_.begin(), members_.end(),
                                             [](const auto& entry) { return !entry.second.live.empty(); }));
}

NodeTable ClusterState::Table() const {
  NodeTable table;
  table.epoch = epoch_;
  for (const auto& [id, member] : members_) table.nodes.push_back(member.record);
  table.Normalize();
  return table;
}

std::vector<std::string> ClusterState::Absent(uint64_t now_us, uint64_t grace_us) const {
  std::vector<Standing> standing;
  for (const auto& [id, member] : members_) {
    if (!InForce(member.record)) continue;
    const bool live = !member.live.empty();
    standing.push_back({id, live, live ? 0 : now_us - member.missing_since});
  }
  return BeyondGrace(standing, grace_us);
}

std::string EncodeMember(const NodeRecord& record) {
  NodeTable alone;
  alone.epoch = 1;
  alone.nodes = {record};
  Bytes bytes;
  EncodeTable(alone, &bytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<NodeRecord> DecodeMember(std::string_view value) {
  Result<NodeTable> table = DecodeTable({reinterpret_cast<const std::byte*>(value.data()), value.size()});
  if (!table.ok()) return table.status();
  if (table->nodes.size() != 1) return Status(Code::kCorrupt, "a member's value holds several records");
  return std::move(table->nodes[0]);
}

}  // namespace larder::node
