// Copies that are lost with a node come back on the others, over sockets.
#include "node/cluster/repair.h"

#include <thread>

#include "tests/unit/node/node_rig.h"

namespace larder::node {
namespace {

constexpr size_t kCopyBytes = 8192;

NodeOptions Copying(const std::string& id, uint32_t replicas) {
  NodeOptions options = NamedNode(id);
  TenantLimits all;
  all.name = std::string(kOtherTenants);
  all.replicas = replicas;
  options.owner.tenants = {all};
  return options;
}

// Three nodes, each with its repair, under one table.
struct Copies {
  explicit Copies(uint32_t replica_count = 2) : replicas(replica_count) {
    table.epoch = 1;  // as theirs
    for (const char* id : {"a", "b", "c"}) nodes.push_back(std::make_unique<NodeRig>(Copying(id, replicas)));
    Publish();
    for (size_t i = 0; i < nodes.size(); ++i) Begin(i);
  }
  ~Copies() { repairs.clear(); }

  void Begin(size_t i, uint64_t bytes_per_second = 0) {
    repairs.resize(nodes.size());
    repairs[i].reset();
    const RepairOptions options{.bytes_per_second = bytes_per_second, .settle_us = 0, .credentials = {}};
    repairs[i] = std::make_unique<Repair>(nodes[i]->node.get(), options);
  }
  // The nodes that are there, under a new epoch.
  void Publish() {
    ++table.epoch;
    table.nodes.clear();
    for (const auto& each : nodes) {
      if (each != nullptr) table.nodes.push_back(each->node->info().record);
    }
    table.Normalize();
    for (const auto& each : nodes) {
      if (each != nullptr) each->node->SetTable(table);
    }
  }
  void Lose(size_t i) {
    repairs[i].reset();
    nodes[i].reset();
  }
  size_t NodeOf(const std::string& id) const { return static_cast<size_t>(id[0] - 'a'); }
  // As a client does: to the first of the order.
  std::vector<ChainHash> Put(uint64_t first, uint64_t last) {
    const ReplicaPlaces places(table);
    std::vector<ChainHash> hashes;
    std::vector<std::vector<ChainHash>> of(nodes.size());
    std::vector<std::vector<Bytes>> payloads(nodes.size());
    for (uint64_t key = first; key <= last; ++key) {
      hashes.push_back(TestHash(key));
      for (const uint16_t place : places.Of(SlotOf(hashes.back()), replicas)) {
        const size_t i = NodeOf(places.nodes()[place].id);
        of[i].push_back(hashes.back());
        payloads[i].push_back(TestBytes(key, kCopyBytes));
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      RawClient client(nodes[i]->address());
      client.Begin();
      for (const PutState state : client.PutBlocks(of[i], payloads[i], kCopyBytes)) {
        EXPECT_EQ(state, PutState::kStored);
      }
    }
    return hashes;
  }
  size_t HeldBy(size_t i, const std::vector<ChainHash>& hashes) {
    RawClient client(nodes[i]->address());
    client.Begin();
    size_t held = 0;
    for (const uint8_t cell : client.MatchBlocks(hashes)) held += IsHit(static_cast<Presence>(cell)) ? 1 : 0;
    return held;
  }
  bool Until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  RepairProgress Progress(size_t i) const { return nodes[i]->node->info().repair; }

  const uint32_t replicas;
  NodeTable table;
  std::vector<std::unique_ptr<NodeRig>> nodes;
  std::vector<std::unique_ptr<Repair>> repairs;
};

TEST(Repair, CopiesOfANodeThatLeftComeBackOnTheOthers) {
  Copies copies;
  const std::vector<ChainHash> hashes = copies.Put(1, 120);
  const size_t missing = 240 - copies.HeldBy(0, hashes) - copies.HeldBy(1, hashes);
  ASSERT_GT(missing, 0u);
  copies.Lose(2);
  copies.Publish();
  EXPECT_TRUE(
      copies.Until([&] { return copies.HeldBy(0, hashes) == 120 && copies.HeldBy(1, hashes) == 120; }));
  EXPECT_TRUE(copies.Until([&] { return copies.Progress(0).pieces + copies.Progress(1).pieces == 0; }));
  EXPECT_EQ(copies.Progress(0).restored_pieces + copies.Progress(1).restored_pieces, missing);
  EXPECT_TRUE(copies.nodes[0]->UntilIdle());
}

TEST(Repair, ANodeThatComesBackEmptyIsFilledAgain) {
  Copies copies;
  const std::vector<ChainHash> hashes = copies.Put(1, 90);
  const size_t had = copies.HeldBy(1, hashes);
  ASSERT_GT(had, 0u);
  copies.Lose(1);
  copies.nodes[1] = std::make_unique<NodeRig>(Copying("b", 2));
  copies.Publish();
  EXPECT_TRUE(copies.Until([&] { return copies.HeldBy(1, hashes) == had; }));
}

TEST(Repair, ATenantWithOneCopyIsLeftAlone) {
  Copies copies(1);
  const std::vector<ChainHash> hashes = copies.Put(1, 60);
  const size_t a = copies.HeldBy(0, hashes), b = copies.HeldBy(1, hashes);
  copies.Lose(2);
  copies.Publish();
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // it looks every 200 ms
  EXPECT_EQ(copies.HeldBy(0, hashes), a);
  EXPECT_EQ(copies.HeldBy(1, hashes), b);
}

// Both nodes restore to each other, and both are asked at the same time: they once waited for each other.
TEST(Repair, WhatIsRemovedMeanwhileComesBackNowhere) {
  Copies copies;
  const std::vector<ChainHash> hashes = copies.Put(1, 120);
  for (const size_t i : {0u, 1u}) copies.Begin(i, 100'000);  // so that it takes seconds
  copies.Lose(2);
  copies.Publish();
  ASSERT_TRUE(copies.Until([&] { return copies.Progress(0).restored_pieces != 0; }));
  std::vector<std::thread> askers;
  for (const size_t i : {0u, 1u}) {
    askers.emplace_back([&copies, &hashes, i] {
      RawClient client(copies.nodes[i]->address());
      client.Begin();
      for (size_t first = 0; first < hashes.size(); first += 10) {
        const auto begin = hashes.begin() + static_cast<std::ptrdiff_t>(first);
        (void)client.Call<RemoveReply>(Verb::kRemove, Remove{client.number, {0}, {begin, begin + 10}});
      }
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_EQ(copies.HeldBy(0, hashes) + copies.HeldBy(1, hashes), 0u);
  EXPECT_TRUE(copies.Until([&] { return copies.Progress(0).pieces + copies.Progress(1).pieces == 0; }));
  EXPECT_EQ(copies.HeldBy(0, hashes) + copies.HeldBy(1, hashes), 0u);
}

TEST(Repair, APlaceThatHeardARemoveTakesTheBlockFromNobody) {
  Copies copies;
  const std::vector<ChainHash> hashes = copies.Put(1, 60);
  RawClient client(copies.nodes[1]->address());
  client.Begin();
  (void)client.Call<RemoveReply>(Verb::kRemove, Remove{client.number, {0}, hashes});  // a has not heard yet
  copies.Lose(2);
  copies.Publish();
  ASSERT_TRUE(copies.Until([&] { return copies.Progress(0).pieces != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // rounds are half a second apart
  EXPECT_EQ(copies.HeldBy(1, hashes), 0u);
}

TEST(Repair, ATableThatTakesTheGainBackLeavesNothingToRestore) {
  Copies copies;
  (void)copies.Put(1, 60);
  copies.Lose(2);
  for (NodeRecord& node : copies.table.nodes)
    node.incarnation += node.id == "c" ? 1 : 0;  // that nobody has met
  ++copies.table.epoch;
  copies.nodes[0]->node->SetTable(copies.table);
  ASSERT_TRUE(copies.Until([&] { return copies.Progress(0).pieces != 0; }));
  copies.table.nodes.erase(copies.table.nodes.begin() + 1,
                           copies.table.nodes.end());  // a alone: nowhere to put
  ++copies.table.epoch;
  copies.nodes[0]->node->SetTable(copies.table);
  EXPECT_TRUE(copies.Until([&] { return copies.Progress(0).pieces == 0; }));
}

// It heard of no remove since: what it has may be gone everywhere else.
TEST(Repair, ANodeThatLostAPlaceRestoresNothingOfIt) {
  Copies copies;
  std::vector<ChainHash> stale;
  const ReplicaPlaces with(copies.table);
  // Held by a alone, of slots that are not a's.
  for (uint64_t key = 1; stale.size() < 30; ++key) {
    if (!with.Has(SlotOf(TestHash(key)), 2, "a")) stale.push_back(TestHash(key));
  }
  RawClient client(copies.nodes[0]->address());
  client.Begin();
  const std::vector<Bytes> payloads(stale.size(), TestBytes(1, kCopyBytes));
  for (const PutState state : client.PutBlocks(stale, payloads, kCopyBytes))
    EXPECT_EQ(state, PutState::kStored);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // blocks are dated by the second
  copies.Lose(2);                                                // a gets the places now
  copies.Publish();
  ASSERT_TRUE(copies.Until([&] { return copies.nodes[0]->node->table_epoch() == copies.table.epoch; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // rounds are half a second apart
  copies.nodes[2] = std::make_unique<NodeRig>(Copying("d", 2));
  copies.Publish();  // and d, later, some of them
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(copies.HeldBy(1, stale) + copies.HeldBy(2, stale), 0u);
}

TEST(Repair, APlaceThatDoesNotAnswerStaysUnderReplicated) {
  Copies copies;
  const std::vector<ChainHash> hashes = copies.Put(1, 60);
  const NodeRecord lost = copies.nodes[2]->node->info().record;
  copies.Lose(2);
  ++copies.table.epoch;  // the table still has it, with a life that nobody has met
  for (NodeRecord& node : copies.table.nodes) node.incarnation += node.id == lost.id ? 1 : 0;
  for (const size_t i : {0u, 1u}) copies.nodes[i]->node->SetTable(copies.table);
  ASSERT_TRUE(copies.Until([&] { return copies.Progress(0).pieces != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_NE(copies.Progress(0).pieces, 0u);
  copies.Publish();  // now it has left
  EXPECT_TRUE(copies.Until([&] { return copies.HeldBy(0, hashes) == 60 && copies.HeldBy(1, hashes) == 60; }));
}

}  // namespace
}  // namespace larder::node
