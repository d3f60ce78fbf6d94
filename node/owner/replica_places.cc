#include "node/owner/replica_places.h"

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

std::vector<uint16_t> ReplicaPlaces::Gained(std::span<const ReplicaPlaces> before, uint16_t slot,
                                            uint32_t replicas) const {
  std::vector<uint16_t> gained;
  for (const uint16_t node : Of(slot, replicas)) {
    const auto held = [&](const ReplicaPlaces& table) {
      return std::ranges::any_of(table.Of(slot, replicas), [&](uint16_t old) {
        return table.nodes()[old].id == nodes()[node].id &&
               table.nodes()[old].incarnation == nodes()[node].incarnation;
      });
    };
    if (!std::ranges::all_of(before, held)) gained.push_back(node);
  }
  return gained;
}

std::vector<std::string> ReplicaPlaces::Restorers(std::span<const ReplicaPlaces> before, uint16_t slot,
                                                  uint32_t replicas) const {
  const std::vector<uint16_t> gained = Gained(before, slot, replicas);
  std::vector<std::string> ids;
  for (const uint16_t node : Of(slot, replicas)) {
    if (std::ranges::find(gained, node) == gained.end()) ids.push_back(nodes()[node].id);
  }
  return ids;
}

bool ReplicaPlaces::Has(uint16_t slot, uint32_t replicas, const std::string& id) const {
  return std::ranges::any_of(Of(slot, replicas), [&](uint16_t node) { return nodes()[node].id == id; });
}

bool GainedSlots(std::span<const ReplicaPlaces> before, const ReplicaPlaces& now, SlotSets* slots) {
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
