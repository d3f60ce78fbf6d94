#include "node/replica_places.h"

#include <algorithm>

namespace larder::node {

ReplicaPlaces::ReplicaPlaces(const NodeTable& table) : table_(table) {
  std::erase_if(table_.nodes,
                [](const NodeRecord& node) { return node.state != NodeState::kActive || node.weight == 0; });
  placement_ = Placement(table_, kReplicasMax);
}

std::span<const uint16_t> ReplicaPlaces::Of(uint16_t slot, uint32_t replicas) const {
  const std::span<const uint16_t> order = placement_.Order(slot);
  return order.first(std::min<size_t>(order.size(), replicas));
}

const NodeRecord* ReplicaPlaces::Find(const NodeRecord& life) const {
  const auto found = std::ranges::find(table_.nodes, life.id, &NodeRecord::id);
  return found != table_.nodes.end() && found->incarnation == life.incarnation ? &*found : nullptr;
}

std::vector<uint16_t> ReplicaPlaces::Gained(const ReplicaPlaces& before, uint16_t slot,
                                            uint32_t replicas) const {
  std::vector<uint16_t> gained;
  for (const uint16_t node : Of(slot, replicas)) {
    const auto held = [&](uint16_t old) {
      return before.nodes()[old].id == nodes()[node].id &&
             before.nodes()[old].incarnation == nodes()[node].incarnation;
    };
    if (std::ranges::none_of(before.Of(slot, replicas), held)) gained.push_back(node);
  }
  return gained;
}

bool ReplicaPlaces::Restores(const ReplicaPlaces& before, uint16_t slot, uint32_t replicas,
                             const std::string& id) const {
  for (const uint16_t old : before.Of(slot, replicas)) {
    const NodeRecord* node = Find(before.nodes()[old]);
    if (node != nullptr) return node->id == id;
  }
  return true;
}

bool GainedSlots(const ReplicaPlaces& before, const ReplicaPlaces& now, SlotSets* slots) {
  bool any = false;
  for (uint32_t replicas = 2; replicas <= kReplicasMax; ++replicas) {
    (*slots)[replicas].assign(kSlots, false);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const bool gained = !now.Gained(before, static_cast<uint16_t>(slot), replicas).empty();
      (*slots)[replicas][slot] = gained;
      any = any || gained;
    }
  }
  return any;
}

}  // namespace larder::node
