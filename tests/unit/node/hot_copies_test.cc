// Hot blocks are copied, read and taken back over sockets.
#include "node/cluster/hot_copies.h"

#include <algorithm>
#include <thread>

#include "node/cluster/hand_over.h"
#include "tests/unit/node/node_rig.h"

namespace larder::node {
namespace {

constexpr size_t kHotBlockBytes = 8192;
constexpr int kManyReads = 100;

// Four nodes under one table, each copying what is hot, and one block.
struct HotNodes {
  explicit HotNodes(const std::vector<Credential>& credentials = {}, uint64_t bytes_per_second = 0)
      : token(credentials.empty() ? "" : credentials[0].token) {
    table.epoch = 2;
    for (const char* id : {"a", "b", "c", "d"}) {
      NodeOptions options = NamedNode(id, credentials);
      options.owner.hot_copies_max = 63;
      nodes.push_back(std::make_unique<NodeRig>(options));
      table.nodes.push_back(nodes.back()->node->info().record);
    }
    table.Normalize();
    for (const auto& node : nodes) node->node->SetTable(table);
    for (const auto& node : nodes) {
      copies.push_back(
          std::make_unique<HotCopies>(node->node.get(), HotCopiesOptions{bytes_per_second, credentials}));
    }
    for (const uint16_t node : OrderOf(table, SlotOf(TestHash(1)), 4)) order.push_back(node);
  }
  ~HotNodes() { copies.clear(); }

  NodeRig& At(size_t position) { return *nodes[order[position]]; }
  std::unique_ptr<RawClient> ClientOf(size_t position) {
    auto client = std::make_unique<RawClient>(At(position).address());
    client->Begin(2, token);
    return client;
  }
  void PutAndRead() {
    const auto home = ClientOf(0);
    const std::vector<Bytes> payloads = {TestBytes(1, kHotBlockBytes)};
    ASSERT_EQ(home->PutBlocks({TestHash(1)}, payloads, kHotBlockBytes / 2), std::vector{PutState::kStored});
    for (int i = 0; i < kManyReads; ++i) {
      GetReply reply;
      ASSERT_TRUE(home->GetBlocks({TestHash(1)}, &reply).has_value());
    }
    for (size_t i = 1; i < 4; ++i) {
      ASSERT_TRUE(At(i).Until([](const OwnerStats& stats) { return stats.leased_pieces == 1; })) << i;
    }
    ASSERT_TRUE(At(0).Until([](const OwnerStats& stats) { return stats.hot_copies == 3; }));
  }
  Presence Read(size_t position) {
    GetReply reply;
    const auto message = ClientOf(position)->GetBlocks({TestHash(1)}, &reply);  // checks the checksums
    EXPECT_TRUE(message.has_value());
    if (!message || reply.blocks.size() != 1) return Presence::kBusy;
    if (IsHit(reply.blocks[0].presence)) {
      EXPECT_EQ(message->segments, std::vector<Bytes>{TestBytes(1, kHotBlockBytes)});
    }
    if (position == 0 && !reply.places.empty()) places = reply.places[0].mask;
    return reply.blocks[0].presence;
  }

  const std::string token;
  NodeTable table;
  std::vector<std::unique_ptr<NodeRig>> nodes;
  std::vector<std::unique_ptr<HotCopies>> copies;
  std::vector<size_t> order;
  uint64_t places = 0;  // as the home said last
};

TEST(HotCopies, ABlockThatIsReadMuchIsReadElsewhereToo) {
  HotNodes cluster;
  cluster.PutAndRead();
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(cluster.Read(i), Presence::kRam) << i;
  EXPECT_EQ(cluster.places, 0b1111u);
  EXPECT_EQ(cluster.At(0).Stats().hot_copied, 3u);
  EXPECT_EQ(cluster.At(1).Stats().copy_reads, 1u);
  EXPECT_TRUE(cluster.At(0).UntilIdle());
  const std::vector<HotInfo> list = cluster.At(0).node->HotList();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].hash, TestHash(1));
  EXPECT_EQ(list[0].copies, 3u);
  EXPECT_TRUE(cluster.At(1).node->HotList().empty());
}

TEST(HotCopies, WhatIsRemovedIsGoneEverywhereWhenThatIsAnswered) {
  HotNodes cluster;
  cluster.PutAndRead();
  const auto home = cluster.ClientOf(0);
  EXPECT_EQ(home->Call<RemoveReply>(Verb::kRemove, Remove{home->number, {0}, {TestHash(1)}}).removed, 1u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(cluster.Read(i), Presence::kRemoved) << i;
}

TEST(HotCopies, WhatIsClearedIsGoneEverywhereWhenThatIsAnswered) {
  HotNodes cluster;
  cluster.PutAndRead();
  const Namespace space = cluster.At(0).node->Namespaces().value().at(0).name_space;
  EXPECT_EQ(cluster.At(0).node->Clear(space).value(), 1u);
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(IsHit(cluster.Read(i))) << i;
}

TEST(HotCopies, ACopyIsFiledUnderItsWriter) {
  HotNodes cluster(kTwoCredentials);
  cluster.PutAndRead();
  const Digest writer = Sha256(AsBytes(kTwoCredentials[0].name));
  GetReply reply;
  ASSERT_TRUE(cluster.ClientOf(2)->GetBlocks({TestHash(1)}, &reply).has_value());
  EXPECT_EQ(reply.blocks[0].sources[0].writer, writer);
  ASSERT_TRUE(cluster.At(2).node->AddQuarantine(writer, 0, false).ok());
  EXPECT_EQ(cluster.Read(2), Presence::kQuarantined);
  // What its home rules out is taken back elsewhere.
  ASSERT_TRUE(cluster.At(0).node->AddQuarantine(writer, 0, false).ok());
  EXPECT_TRUE(cluster.At(1).Until([](const OwnerStats& stats) { return stats.leased_pieces == 0; }));
  EXPECT_TRUE(cluster.At(3).Until([](const OwnerStats& stats) { return stats.leased_pieces == 0; }));
}

// Nobody can be asked for it, so nobody is, and a remove waits for nobody.
TEST(HotCopies, ABlockWhoseWriterIsUnknownHereHasNoCopies) {
  HotNodes cluster(kTwoCredentials);
  for (size_t i = 0; i < 4; ++i) {
    cluster.copies[i] = nullptr;
    cluster.copies[i] =
        std::make_unique<HotCopies>(cluster.nodes[i]->node.get(), HotCopiesOptions{0, {kTwoCredentials[1]}});
  }
  const auto home = cluster.ClientOf(0);
  const std::vector<Bytes> payloads = {TestBytes(1, kHotBlockBytes)};
  ASSERT_EQ(home->PutBlocks({TestHash(1)}, payloads, kHotBlockBytes / 2), std::vector{PutState::kStored});
  for (int i = 0; i < kManyReads; ++i) ASSERT_EQ(cluster.Read(0), Presence::kRam);
  ASSERT_TRUE(cluster.At(0).Until([](const OwnerStats& stats) { return stats.hot_blocks == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // it looks once a second
  EXPECT_EQ(home->Call<RemoveReply>(Verb::kRemove, Remove{home->number, {0}, {TestHash(1)}}).removed, 1u);
  EXPECT_EQ(cluster.At(0).Stats().hot_copied, 0u);
}

// Its copy is the block now, and stays without a lease.
TEST(HotCopies, ANodeThatLeavesHandsTheBlockToOneThatHasACopy) {
  HotNodes cluster;
  cluster.PutAndRead();
  cluster.At(0).node->BeginDrain(false);
  HandOver hand_over(cluster.At(0).node.get(), {.budget_us = 30'000'000});
  hand_over.Wait();
  EXPECT_EQ(cluster.At(0).node->info().hand_over.handed_blocks, 1u);
  EXPECT_EQ(cluster.At(1).Stats().leased_pieces, 0u);
  EXPECT_EQ(cluster.At(1).Stats().pieces, 1u);
  EXPECT_EQ(cluster.At(2).Stats().leased_pieces, 1u);
}

TEST(HotCopies, AnotherTableMovesThemAndADeadHoldersLeaseIsWaitedFor) {
  HotNodes cluster;
  cluster.PutAndRead();
  cluster.copies[cluster.order[1]].reset();
  cluster.nodes[cluster.order[1]]->node.reset();
  NodeTable without = cluster.table;
  ++without.epoch;
  std::erase_if(without.nodes,
                [&](const NodeRecord& node) { return node.id == cluster.table.nodes[cluster.order[1]].id; });
  for (const auto& node : cluster.nodes) {
    if (node->node != nullptr) node->node->SetTable(without);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    EXPECT_EQ(cluster.Read(0), Presence::kRam);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  } while (cluster.places != 0b111 && std::chrono::steady_clock::now() < end);
  EXPECT_EQ(cluster.places, 0b111u);  // of three
  // It might still serve it to somebody, for all that is known here: the answer waits for its lease. The
  // others hear at once.
  const auto home = cluster.ClientOf(0);
  Envelope envelope{.verb = Verb::kRemove, .request_id = ++home->last_request};
  ASSERT_TRUE(home->SendMessage(Encode(envelope, Remove{home->number, {0}, {TestHash(1)}})));
  const auto told = [&] {
    const std::vector<HotRevoke> revokes = cluster.At(0).node->Revokes();
    return revokes.size() == 1 && revokes[0].holders.size() == 1;
  };
  while (!told() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(told());
  EXPECT_EQ(cluster.Read(2), Presence::kRemoved);
  EXPECT_EQ(cluster.Read(3), Presence::kRemoved);
}

}  // namespace
}  // namespace larder::node
