#include "proto/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::TableOf;

std::vector<std::string> IdsOf(const NodeTable& table, std::span<const uint16_t> order) {
  std::vector<std::string> ids;
  for (uint16_t index : order) ids.push_back(table.nodes[index].id);
  return ids;
}

// The definition, word for word: sort all nodes by cost / weight, ties by id.
std::vector<uint16_t> ReferenceOrder(const NodeTable& table, uint16_t slot, size_t length) {
  std::vector<uint16_t> order;
  std::vector<uint64_t> costs;
  for (size_t i = 0; i < table.nodes.size(); ++i) {
    const NodeState state = table.nodes[i].state;
    costs.push_back(RendezvousCost(slot, table.nodes[i].id));
    if (state == NodeState::kActive || state == NodeState::kDraining)
      order.push_back(static_cast<uint16_t>(i));
  }
  std::ranges::sort(order, [&](uint16_t a, uint16_t b) {
    const uint64_t left = costs[a] * table.nodes[b].weight;
    const uint64_t right = costs[b] * table.nodes[a].weight;
    return left != right ? left < right : table.nodes[a].id < table.nodes[b].id;
  });
  order.resize(std::min(order.size(), length));
  return order;
}

TEST(Placement, FollowsItsDefinition) {
  std::mt19937 random(1);
  for (uint32_t nodes : {1u, 2u, 3u, 5u, 40u, 100u}) {
    NodeTable table = TableOf(nodes);
    for (NodeRecord& node : table.nodes) {
      node.weight = static_cast<uint32_t>(random() % 3 == 0 ? 1 : 1 + random() % kWeightMax);
      node.state = static_cast<NodeState>(random() % 8 < 6 ? 1 : random() % 4);
    }
    for (uint32_t length : {1u, 4u, 9u}) {
      const Placement placement(table, length);
      for (uint64_t slot = random() % 64; slot < kSlots; slot += 1 + random() % 512) {
        const auto order = placement.Order(static_cast<uint16_t>(slot));
        ASSERT_EQ(std::vector(order.begin(), order.end()),
                  ReferenceOrder(table, static_cast<uint16_t>(slot), length))
            << nodes << " nodes, slot " << slot;
      }
    }
  }
}

TEST(Placement, CostIsTheLogarithm) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const auto slot = static_cast<uint16_t>(random());
    const std::string id = "n" + std::to_string(random());
    const double share = std::exp2(-static_cast<double>(RendezvousCost(slot, id)) / 4294967296.0);
    ASSERT_GT(share, 0.0);
    ASSERT_LE(share, 1.0);
  }
  // -log2 of a uniform number has the mean 1 / ln 2.
  double sum = 0;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    sum += static_cast<double>(RendezvousCost(static_cast<uint16_t>(slot), "node")) / 4294967296.0;
  }
  EXPECT_NEAR(sum / kSlots, 1 / std::log(2.0), 0.03);
}

TEST(Placement, AddingANodeMovesItsShareAndNothingElse) {
  for (uint32_t nodes : {1u, 3u, 10u, 63u}) {
    const NodeTable before = TableOf(nodes);
    NodeTable after = before;
    NodeRecord added = before.nodes[0];
    added.id = "m-new";  // sorts before the others: their indices change, their names don't
    after.nodes.push_back(added);
    after.Normalize();
    const Placement old_placement(before), new_placement(after);
    uint32_t moved = 0;
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const auto old_ids = IdsOf(before, old_placement.Order(static_cast<uint16_t>(slot)));
      auto new_ids = IdsOf(after, new_placement.Order(static_cast<uint16_t>(slot)));
      if (new_ids[0] == added.id) ++moved;
      std::erase(new_ids, added.id);  // without the new node the order is as before
      new_ids.resize(std::min(new_ids.size(), old_ids.size()));
      ASSERT_TRUE(std::equal(new_ids.begin(), new_ids.end(), old_ids.begin())) << slot;
    }
    const double share = 1.0 / (nodes + 1);
    EXPECT_NEAR(moved, kSlots * share, 4 * std::sqrt(kSlots * share * (1 - share))) << nodes;
  }
}

TEST(Placement, WeightsAreRespected) {
  NodeTable table = TableOf(4);
  const uint32_t weights[] = {1, 2, 4, 9};
  for (size_t i = 0; i < 4; ++i) table.nodes[i].weight = weights[i];
  const Placement placement(table);
  uint32_t slots[4] = {};
  for (uint32_t slot = 0; slot < kSlots; ++slot) ++slots[placement.Order(static_cast<uint16_t>(slot))[0]];
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(slots[i], kSlots * weights[i] / 16.0, 400) << i;
}

TEST(Placement, OnlyTheRatioOfWeightsCounts) {
  NodeTable ones = TableOf(5);
  NodeTable many = ones;
  for (NodeRecord& node : many.nodes) node.weight = kWeightMax;
  const Placement a(ones), b(many);
  for (uint32_t slot = 0; slot < kSlots; slot += 7) {
    ASSERT_TRUE(
        std::ranges::equal(a.Order(static_cast<uint16_t>(slot)), b.Order(static_cast<uint16_t>(slot))));
  }
}

TEST(Placement, AwayAndJoiningNodesAreLeftOutDrainingOnesStay) {
  NodeTable table = TableOf(4);
  table.nodes[0].state = NodeState::kAway;
  table.nodes[1].state = NodeState::kJoining;
  table.nodes[2].state = NodeState::kDraining;
  const Placement placement(table);
  EXPECT_EQ(placement.order_length(), 2u);
  for (uint32_t slot = 0; slot < kSlots; slot += 13) {
    for (uint16_t index : placement.Order(static_cast<uint16_t>(slot))) ASSERT_GE(index, 2);
  }
}

TEST(Placement, TheOrderOfOneSlotIsTheSameAtAnyLength) {
  NodeTable table = TableOf(20);
  table.nodes[3].state = NodeState::kAway;
  table.nodes[5].weight = 7;
  const Placement placement(table);
  for (uint32_t i = 0; i < kSlots; i += 997) {
    const auto slot = static_cast<uint16_t>(i);
    const std::vector<uint16_t> all = OrderOf(table, slot, 64);
    ASSERT_EQ(all.size(), 19u);
    ASSERT_EQ(all, ReferenceOrder(table, slot, 64));
    const auto first = placement.Order(slot);
    ASSERT_TRUE(std::ranges::equal(first, std::span(all).first(first.size())));
  }
  EXPECT_TRUE(OrderOf(NodeTable(), 5, 4).empty());
}

TEST(Placement, WithoutNodesThereIsNoOrder) {
  EXPECT_TRUE(Placement().Order(uint16_t{5}).empty());
  EXPECT_TRUE(Placement(NodeTable()).Order(ChainHash()).empty());
  EXPECT_TRUE(Placement(TableOf(3), 0).Order(uint16_t{65535}).empty());
}

TEST(Placement, MostNodesAllowed) {
  const NodeTable table = TableOf(kNodesMax);
  const Placement placement(table);
  for (uint32_t slot = 5; slot < kSlots; slot += 9001) {
    const auto order = placement.Order(static_cast<uint16_t>(slot));
    ASSERT_EQ(std::vector(order.begin(), order.end()), ReferenceOrder(table, static_cast<uint16_t>(slot), 4));
  }
}

TEST(Placement, HashesSpreadEvenlyOverSlots) {
  std::vector<uint32_t> tokens(1 << 16);
  std::mt19937 random(3);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random());
  uint32_t buckets[16] = {};
  for (const ChainHash& hash : ChainHashes(tokens, 1)) ++buckets[SlotOf(hash) >> 12];
  for (uint32_t bucket : buckets) EXPECT_NEAR(bucket, 4096, 300);
}

}  // namespace
}  // namespace larder
