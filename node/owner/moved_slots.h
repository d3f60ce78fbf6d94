// Which slots this node has become home to, and who was before it: what a node that joins, or whose share has
// grown, may ask for blocks. Computed from two tables, then immutable.
#pragma once

#include <string>
#include <vector>

#include "proto/placement.h"

namespace larder::node {

class MovedSlots {
 public:
  MovedSlots() = default;
  // What `self` is home to under `after` and another node was under `before`. Of the other slots of `self` it
  // stays as `known` says. A previous home counts only while it stands in `after` and serves.
  MovedSlots(const MovedSlots& known, const NodeTable& before, const NodeTable& after,
             const std::string& self);

  bool empty() const { return nodes_.empty(); }
  uint32_t slots() const;
  // nullptr: the slot of this block has not moved.
  const std::string* PreviousHome(const ChainHash& hash) const {
    if (nodes_.empty()) return nullptr;
    const uint16_t node = previous_[SlotOf(hash)];
    return node == kNobody ? nullptr : &nodes_[node];
  }

 private:
  static constexpr uint16_t kNobody = UINT16_MAX;
  std::vector<std::string> nodes_;
  std::vector<uint16_t> previous_;  // one a slot; none while nothing has moved
};

// The table as it was before `id` came.
NodeTable TableWithout(const NodeTable& table, const std::string& id);

}  // namespace larder::node
