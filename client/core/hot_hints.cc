#include "client/core/hot_hints.h"

namespace larder::client {

void HotHints::Note(const Key& key, uint64_t mask, const NodeTable& table) {
  if ((mask & 1) == 0 || mask == 1) return Forget(key);
  const auto found = hints_.find(key);
  if (found != hints_.end() && found->second.mask == mask && found->second.epoch == table.epoch) return;
  const std::vector<uint16_t> order = OrderOf(table, SlotOf(key.hash), kPlacesMax);
  std::vector<uint16_t> nodes;
  for (size_t i = 0; i < order.size(); ++i) {
    if ((mask >> i & 1) != 0) nodes.push_back(order[i]);
  }
  if (nodes.size() < 2) return Forget(key);
  if (found == hints_.end() && hints_.size() >= kHintsMax) hints_.erase(hints_.begin());
  Hint& hint = hints_[key];
  if (hint.nodes.empty()) hint.turn = next_turn_++;
  hint.mask = mask;
  hint.epoch = table.epoch;
  hint.nodes = std::move(nodes);
}

std::vector<uint16_t> HotHints::Turn(const Key& key, uint64_t epoch) {
  const auto found = hints_.find(key);
  if (found == hints_.end()) return {};
  Hint& hint = found->second;
  if (hint.epoch != epoch) {
    hints_.erase(found);
    return {};
  }
  const size_t first = hint.turn++ % hint.nodes.size();
  std::vector<uint16_t> nodes(hint.nodes.begin() + static_cast<ptrdiff_t>(first), hint.nodes.end());
  nodes.insert(nodes.end(), hint.nodes.begin(), hint.nodes.begin() + static_cast<ptrdiff_t>(first));
  return nodes;
}

}  // namespace larder::client
