// Which nodes ought to hold the copies of a block, by the table: the first of its order that take blocks.
// Within the grace a node that does not answer keeps its place (the table does not call it away yet); one
// that joins has none yet, one that drains none any more. Immutable.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "proto/placement.h"

namespace larder::node {

inline constexpr uint32_t kReplicasMax = 4;

class ReplicaPlaces {
 public:
  ReplicaPlaces() = default;
  explicit ReplicaPlaces(const NodeTable& table);

  // Numbers in nodes(), best first.
  std::span<const uint16_t> Of(uint16_t slot, uint32_t replicas) const;
  const std::vector<NodeRecord>& nodes() const { return table_.nodes; }
  // Places that did not hold a copy all along: lives (id and incarnation) that lack it in any of the tables
  // `before`. What was in memory of an earlier life of the same node is lost.
  std::vector<uint16_t> Gained(std::span<const ReplicaPlaces> before, uint16_t slot, uint32_t replicas) const;
  // Who may restore a slot: the others, in order. Whoever has not held the place all along has not heard
  // every remove.
  std::vector<std::string> Restorers(std::span<const ReplicaPlaces> before, uint16_t slot,
                                     uint32_t replicas) const;
  bool Has(uint16_t slot, uint32_t replicas, const std::string& id) const;

 private:
  NodeTable table_;
  Placement placement_;
};

// The slots that gained a place, for each number of replicas; none for 0 and 1.
using SlotSets = std::array<std::vector<bool>, kReplicasMax + 1>;
// False: none gained any.
bool GainedSlots(std::span<const ReplicaPlaces> before, const ReplicaPlaces& now, SlotSets* slots);

}  // namespace larder::node
