#include "node/owner/moved_slots.h"

#include <algorithm>
#include <map>

namespace larder::node {

namespace {

// The index of each slot's home in table.nodes; UINT16_MAX: it has none.
std::vector<uint16_t> HomesOf(const NodeTable& table) {
  const Placement placement(table, 1);
  std::vector<uint16_t> homes(kSlots, UINT16_MAX);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const auto order = placement.Order(static_cast<uint16_t>(slot));
    if (!order.empty()) homes[slot] = order[0];
  }
  return homes;
}

bool Serves(const NodeRecord& node) {
  return node.state == NodeState::kActive || node.state == NodeState::kDraining;
}

}  // namespace

MovedSlots::MovedSlots(const MovedSlots& known, const NodeTable& before, const NodeTable& after,
                       const std::string& self) {
  std::map<std::string, uint16_t> numbers;  // of the others that serve
  for (const NodeRecord& node : after.nodes) {
    if (node.id == self || !Serves(node)) continue;
    numbers.emplace(node.id, static_cast<uint16_t>(numbers.size()));
  }
  if (numbers.empty()) return;
  std::vector<std::string> ids(numbers.size());
  for (const auto& [id, number] : numbers) ids[number] = id;
  const auto number_of = [&](const std::string& id) {
    const auto found = numbers.find(id);
    return found == numbers.end() ? kNobody : found->second;
  };
  const std::vector<uint16_t> old_homes = HomesOf(before), homes = HomesOf(after);
  std::vector<uint16_t> previous(kSlots, kNobody);
  bool any = false;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (homes[slot] == UINT16_MAX || after.nodes[homes[slot]].id != self) continue;
    const std::string* old = old_homes[slot] == UINT16_MAX ? nullptr : &before.nodes[old_homes[slot]].id;
    if (old != nullptr && *old != self) {
      previous[slot] = number_of(*old);
    } else if (!known.empty() && known.previous_[slot] != kNobody) {
      previous[slot] = number_of(known.nodes_[known.previous_[slot]]);
    }
    any = any || previous[slot] != kNobody;
  }
  if (!any) return;
  nodes_ = std::move(ids);
  previous_ = std::move(previous);
}

uint32_t MovedSlots::slots() const {
  return static_cast<uint32_t>(
      std::count_if(previous_.begin(), previous_.end(), [](uint16_t node) { return node != kNobody; }));
}

NodeTable TableWithout(const NodeTable& table, const std::string& id) {
  NodeTable out = table;
  std::erase_if(out.nodes, [&](const NodeRecord& node) { return node.id == id; });
  return out;
}

}  // namespace larder::node
