// Which slots a change of the table moves to a node, and from whom.
#include "node/owner/moved_slots.h"

#include <gtest/gtest.h>

#include <cstring>

namespace larder::node {
namespace {

NodeTable MovesTable(const std::vector<std::string>& ids) {
  NodeTable table;
  table.epoch = 1;
  for (const std::string& id : ids) {
    NodeRecord& node = table.nodes.emplace_back();
    node.id = id;
    node.data_address = "127.0.0.1:7400";
  }
  table.Normalize();
  return table;
}

NodeRecord* FindIn(NodeTable* table, const std::string& id) {
  for (NodeRecord& node : table->nodes) {
    if (node.id == id) return &node;
  }
  return nullptr;
}

// A hash of every slot.
const std::vector<ChainHash>& OneOfEachSlot() {
  static const std::vector<ChainHash> hashes = [] {
    std::vector<ChainHash> out(kSlots);
    std::vector<bool> seen(kSlots);
    uint64_t number = 0;
    for (uint32_t found = 0; found < kSlots; ++number) {
      ChainHash hash;
      std::memcpy(hash.bytes.data(), &number, sizeof number);
      const uint16_t slot = SlotOf(hash);
      if (seen[slot]) continue;
      seen[slot] = true;
      out[slot] = hash;
      ++found;
    }
    return out;
  }();
  return hashes;
}

std::string HomeOf(const NodeTable& table, const Placement& placement, uint32_t slot) {
  return table.nodes[placement.Order(static_cast<uint16_t>(slot))[0]].id;
}

TEST(MovedSlots, WhoJoinsAsksForEachOfItsSlotsWhoeverHadIt) {
  const NodeTable before = MovesTable({"a", "b"}), after = MovesTable({"a", "b", "c"});
  const MovedSlots moved({}, before, after, "c");
  const Placement old_homes(before, 1), homes(after, 1);
  uint32_t own = 0;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::string* previous = moved.PreviousHome(OneOfEachSlot()[slot]);
    if (HomeOf(after, homes, slot) != "c") {
      ASSERT_EQ(previous, nullptr);
      continue;
    }
    ++own;
    ASSERT_NE(previous, nullptr);
    ASSERT_EQ(*previous, HomeOf(before, old_homes, slot));
  }
  EXPECT_EQ(moved.slots(), own);
  EXPECT_GT(own, kSlots / 4);
}

TEST(MovedSlots, TheOthersHaveNothingToAsk) {
  const NodeTable before = MovesTable({"a", "b"}), after = MovesTable({"a", "b", "c"});
  EXPECT_TRUE(MovedSlots({}, before, after, "a").empty());
  EXPECT_TRUE(MovedSlots({}, before, before, "a").empty());
  EXPECT_TRUE(MovedSlots({}, {}, MovesTable({"a"}), "a").empty());
}

TEST(MovedSlots, NobodyAsksWhoIsGoneOrAway) {
  const NodeTable before = MovesTable({"a", "b", "c"});
  EXPECT_TRUE(MovedSlots({}, before, MovesTable({"a", "b"}), "a").empty());
  NodeTable away = before;
  FindIn(&away, "c")->state = NodeState::kAway;
  EXPECT_TRUE(MovedSlots({}, before, away, "a").empty());
  NodeTable lighter = before;
  FindIn(&lighter, "a")->weight = 3;
  const MovedSlots grown({}, before, lighter, "a");
  EXPECT_GT(grown.slots(), 0u);
}

TEST(MovedSlots, ADrainingNodeIsAskedStill) {
  NodeTable after = MovesTable({"a", "b"});
  FindIn(&after, "a")->state = NodeState::kDraining;
  const MovedSlots moved({}, TableWithout(after, "b"), after, "b");
  EXPECT_GT(moved.slots(), kSlots / 4);
}

TEST(MovedSlots, WhatHadMovedStaysKnownAsLongAsItIsOurs) {
  const NodeTable one = MovesTable({"a", "b"}), two = MovesTable({"a", "b", "c"}),
                  three = MovesTable({"a", "b", "c", "d"});
  const MovedSlots first({}, one, two, "c");
  const MovedSlots second(first, two, three, "c");  // d took some of them
  const Placement homes(three, 1);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::string* before = first.PreviousHome(OneOfEachSlot()[slot]);
    const std::string* now = second.PreviousHome(OneOfEachSlot()[slot]);
    if (HomeOf(three, homes, slot) != "c") {
      ASSERT_EQ(now, nullptr);
    } else {
      ASSERT_EQ(*now, *before);
    }
  }
  const MovedSlots third(first, two, MovesTable({"b", "c"}), "c");  // a is gone
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const std::string* now = third.PreviousHome(OneOfEachSlot()[slot]);
    ASSERT_TRUE(now == nullptr || *now == "b");
  }
}

}  // namespace
}  // namespace larder::node
