#include "node/membership/roster.h"

#include <algorithm>

#include "node/membership/cluster_state.h"

namespace larder::node {

namespace {

// Grows with every later fact of an id, by its version and by being away.
uint64_t Weight(const Fact& fact) {
  return 2 * fact.version + (fact.away() ? 1 : 0);
}

std::string Content(const Fact& fact) {
  return (fact.gone ? "-" : "+") + EncodeMember(fact.record);
}

}  // namespace

bool Later(const Fact& a, const Fact& b) {
  if (Weight(a) != Weight(b)) return Weight(a) > Weight(b);
  // Two nodes of one id, or one that forgot its last life. Either will raise the version; until then all
  // nodes choose alike.
  if (a.record.incarnation != b.record.incarnation) return a.record.incarnation > b.record.incarnation;
  return Content(a) > Content(b);
}

bool Roster::Merge(const Fact& fact) {
  const auto found = facts_.find(fact.record.id);
  if (found == facts_.end()) {
    if (facts_.size() >= kNodesMax) return false;
    facts_.emplace(fact.record.id, fact);
    sum_ += Weight(fact);
    return true;
  }
  if (!Later(fact, found->second)) return false;
  sum_ += Weight(fact) - Weight(found->second);
  found->second = fact;
  return true;
}

bool Roster::MergeFounded(uint64_t minutes) {
  if (minutes <= founded_minutes_) return false;
  founded_minutes_ = minutes;
  return true;
}

const Fact* Roster::Find(std::string_view id) const {
  const auto found = facts_.find(std::string(id));
  return found == facts_.end() ? nullptr : &found->second;
}

uint64_t Roster::epoch() const {
  return founded_minutes_ * kEpochsAMinute + sum_;
}

NodeTable Roster::Table() const {
  NodeTable table;
  table.epoch = epoch();
  for (const auto& [id, fact] : facts_) {
    if (!fact.gone) table.nodes.push_back(fact.record);
  }
  table.Normalize();
  return table;
}

Digest Roster::digest() const {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U64(founded_minutes_);
  for (const auto& [id, fact] : facts_) {
    writer.U64(fact.version);
    const std::string content = Content(fact);
    writer.U32(static_cast<uint32_t>(content.size()));
    writer.View({reinterpret_cast<const std::byte*>(content.data()), content.size()});
  }
  return Sha256(bytes);
}

}  // namespace larder::node
