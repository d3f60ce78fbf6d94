// Which nodes ought to hold copies, and who restores them.
#include "node/owner/replica_places.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace larder::node {
namespace {

NodeTable PlacesTable(uint64_t epoch, const std::vector<std::string>& ids) {
  NodeTable table;
  table.epoch = epoch;
  for (const std::string& id : ids) {
    NodeRecord& node = table.nodes.emplace_back();
    node.id = id;
    node.incarnation = 1;
    node.data_address = "127.0.0.1:7400";
  }
  table.Normalize();
  return table;
}

std::span<const ReplicaPlaces> OnlyBefore(const ReplicaPlaces& places) {
  return {&places, 1};
}

std::vector<std::string> IdsOf(const ReplicaPlaces& places, std::span<const uint16_t> numbers) {
  std::vector<std::string> ids;
  for (const uint16_t number : numbers) ids.push_back(places.nodes()[number].id);
  return ids;
}

TEST(ReplicaPlaces, WhatLeftTheTableIsReplacedByTheNextAndRestoredByThoseThatStay) {
  const std::vector<std::string> all = {"a", "b", "c", "d"}, left = {"a", "c", "d"};
  const ReplicaPlaces before(PlacesTable(1, all)), now(PlacesTable(2, left));
  SlotSets slots;
  ASSERT_TRUE(GainedSlots(OnlyBefore(before), now, &slots));
  for (uint32_t replicas = 2; replicas <= 3; ++replicas) {
    size_t lost = 0;
    for (uint32_t i = 0; i < kSlots; ++i) {
      const auto slot = static_cast<uint16_t>(i);
      const auto old = IdsOf(before, before.Of(slot, replicas));
      const bool held = std::ranges::find(old, "b") != old.end();
      const auto gained = IdsOf(now, now.Gained(OnlyBefore(before), slot, replicas));
      ASSERT_EQ(slots[replicas][i], held);
      ASSERT_EQ(gained.size(), held ? 1u : 0u);
      if (!held) continue;
      ++lost;
      EXPECT_EQ(std::ranges::find(old, gained[0]), old.end());
      const auto restorers = now.Restorers(OnlyBefore(before), slot, replicas);
      ASSERT_EQ(restorers.size(), replicas - 1);
      for (const std::string& id : restorers) EXPECT_NE(std::ranges::find(old, id), old.end());
    }
    EXPECT_NEAR(double(lost), kSlots * replicas / 4.0, kSlots / 50.0);
  }
}

TEST(ReplicaPlaces, ANewLifeHoldsNothingYet) {
  NodeTable table = PlacesTable(1, {"a", "b", "c"});
  const ReplicaPlaces before(table);
  table.nodes[2].incarnation = 2;
  const ReplicaPlaces now(table);
  for (uint32_t i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<uint16_t>(i);
    const auto places = IdsOf(now, now.Of(slot, 2));
    const std::vector<std::string> wanted = std::ranges::find(places, "c") != places.end()
                                                ? std::vector<std::string>{"c"}
                                                : std::vector<std::string>{};
    ASSERT_EQ(IdsOf(now, now.Gained(OnlyBefore(before), slot, 2)), wanted);
  }
}

TEST(ReplicaPlaces, WhoJoinsHasNoPlaceYetAndWhoDrainsOrIsAwayNoneAnyMore) {
  NodeTable table = PlacesTable(1, {"a", "b", "c", "d"});
  table.nodes[3].state = NodeState::kAway;
  table.nodes[0].state = NodeState::kJoining;
  table.nodes[1].state = NodeState::kDraining;
  const ReplicaPlaces places(table);
  for (uint32_t i = 0; i < kSlots; ++i) {
    ASSERT_EQ(IdsOf(places, places.Of(static_cast<uint16_t>(i), 3)), std::vector<std::string>{"c"});
  }
}

TEST(ReplicaPlaces, ATableThatChangesNoPlaceGainsNothing) {
  NodeTable table = PlacesTable(1, {"a", "b", "c", "d"});
  const ReplicaPlaces before(table);
  ++table.epoch;
  table.nodes[1].data_address = "127.0.0.1:7500";
  SlotSets slots;
  EXPECT_FALSE(GainedSlots(OnlyBefore(before), ReplicaPlaces(table), &slots));
}

// What was put while c was a place has no other copy, though a and b were the places before it and after it.
TEST(ReplicaPlaces, WhoWasNoPlaceForAWhileHasGainedIt) {
  const std::vector<ReplicaPlaces> before = {ReplicaPlaces(PlacesTable(1, {"a", "b"})),
                                             ReplicaPlaces(PlacesTable(2, {"a", "b", "c"}))};
  const ReplicaPlaces now(PlacesTable(3, {"a", "b"}));
  for (uint32_t i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<uint16_t>(i);
    const auto gained = IdsOf(now, now.Gained(before, slot, 2));
    const auto stayed = now.Restorers(before, slot, 2);
    const bool moved = before[1].Has(slot, 2, "c");
    ASSERT_EQ(gained.size(), moved ? 1u : 0u);
    ASSERT_EQ(stayed.size(), moved ? 1u : 2u);
    ASSERT_FALSE(moved && before[1].Has(slot, 2, gained[0]));
  }
}

TEST(ReplicaPlaces, OneCopyIsNobodysToRestore) {
  SlotSets slots;
  const ReplicaPlaces before(PlacesTable(1, {"a", "b"}));
  ASSERT_TRUE(GainedSlots(OnlyBefore(before), ReplicaPlaces(PlacesTable(2, {"a", "c"})), &slots));
  EXPECT_TRUE(slots[0].empty());
  EXPECT_TRUE(slots[1].empty());
}

}  // namespace
}  // namespace larder::node
