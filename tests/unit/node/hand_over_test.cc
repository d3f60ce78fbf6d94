// A node that leaves, and one that takes its blocks, over sockets.
#include "node/cluster/hand_over.h"

#include "tests/support/free_port.h"
#include "tests/unit/node/node_rig.h"

namespace larder::node {
namespace {

constexpr uint64_t kPatienceUs = 30'000'000;
constexpr size_t kBlockBytes = 8192;

NodeOptions Named(const std::string& id, const std::vector<Credential>& credentials = {},
                  const std::string& listen = "127.0.0.1:0") {
  NodeOptions options = NamedNode(id, credentials);
  options.data_listen = listen;
  return options;
}

struct Pair {
  explicit Pair(const std::vector<Credential>& credentials = {}, const std::string& listen = "127.0.0.1:0")
      : from(Named("a", credentials)), to(Named("b", credentials, listen)) {
    NodeTable table;
    table.epoch = 2;
    table.nodes = {from.node->info().record, to.node->info().record};
    from.node->SetTable(table);
  }
  // Blocks first..last of the test namespace, 8 KiB each.
  static std::vector<ChainHash> Put(RawClient* client, uint64_t first, uint64_t last) {
    std::vector<ChainHash> hashes;
    std::vector<Bytes> payloads;
    for (uint64_t key = first; key <= last; ++key) {
      hashes.push_back(TestHash(key));
      payloads.push_back(TestBytes(key, kBlockBytes));
    }
    for (const PutState state : client->PutBlocks(hashes, payloads, kBlockBytes)) {
      EXPECT_EQ(state, PutState::kStored);
    }
    return hashes;
  }
  HandOverProgress HandOverAll(HandOverOptions options = {}) {
    if (options.budget_us == 0) options.budget_us = kPatienceUs;
    from.node->BeginDrain(false);
    HandOver hand_over(from.node.get(), options);
    hand_over.Wait();
    return from.node->info().hand_over;
  }

  NodeRig from, to;
};

size_t HitsOf(RawClient* client, const std::vector<ChainHash>& hashes) {
  size_t hits = 0;
  for (const uint8_t cell : client->MatchBlocks(hashes)) hits += IsHit(static_cast<Presence>(cell)) ? 1 : 0;
  return hits;
}

TEST(HandOver, TheOtherNodeHasTheBlocksUnderTheirWriters) {
  Pair pair(kTwoCredentials);
  for (size_t i = 0; i < 2; ++i) {
    RawClient writer(pair.from.address());
    writer.Begin(1, kTwoCredentials[i].token);
    Pair::Put(&writer, i * 100 + 1, i * 100 + 50);
  }
  const HandOverProgress told = pair.HandOverAll({.credentials = kTwoCredentials});
  EXPECT_EQ(told.reason, "");
  EXPECT_EQ(told.handed_blocks, 100u);
  EXPECT_EQ(told.handed_bytes, 100 * kBlockBytes);
  EXPECT_EQ(told.left_blocks(), 0u);
  EXPECT_TRUE(pair.from.UntilIdle());
  const Namespace space = pair.to.node->Namespaces().value().at(0).name_space;
  EXPECT_EQ(space, pair.from.node->Namespaces().value().at(0).name_space);
  RawClient reader(pair.to.address());
  reader.Begin(1, kTwoCredentials[0].token);
  for (size_t i = 0; i < 2; ++i) {
    for (uint64_t key = i * 100 + 1; key <= i * 100 + 50; ++key) {
      GetReply reply;
      const auto message = reader.GetBlocks({TestHash(key)}, &reply);  // checks the checksums
      ASSERT_TRUE(message.has_value());
      ASSERT_EQ(message->segments, std::vector<Bytes>{TestBytes(key, kBlockBytes)});
      EXPECT_EQ(reply.blocks[0].sources[0].writer, Sha256(AsBytes(kTwoCredentials[i].name)));
    }
  }
}

TEST(HandOver, WhatIsOfferedInVainIsOfferedAgain) {
  const std::string listen = "127.0.0.1:" + std::to_string(testing::FreePort());
  Pair pair({}, listen);
  RawClient here(pair.from.address());
  here.Begin();
  Pair::Put(&here, 1, 10);
  pair.to.node.reset();  // restarts
  pair.from.node->BeginDrain(false);
  HandOver hand_over(pair.from.node.get(), {.budget_us = kPatienceUs, .patience_us = kPatienceUs});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(pair.from.node->info().hand_over.handed_blocks, 0u);
  const NodeRig again(Named("b", {}, listen));
  ASSERT_NE(again.node, nullptr);
  hand_over.Wait();
  EXPECT_EQ(pair.from.node->info().hand_over.handed_blocks, 10u);
  EXPECT_EQ(again.Stats().pieces, 10u);
}

TEST(HandOver, TheHottestGoesFirst) {
  Pair pair;
  RawClient here(pair.from.address());
  here.Begin();
  for (uint64_t key = 1; key <= 20; ++key) Pair::Put(&here, key, key);
  const std::vector<WarmPiece> list = pair.from.node->ListWarm().value();
  const OutgoingPage page = pair.from.node->TakeOut(list, {}).value();
  ASSERT_EQ(page.pieces.size(), 20u);
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(page.pieces[i].header.hash, TestHash(20 - i));
    pair.from.node->LetGo({&page.pieces[i].piece.entry, 1});
  }
}

TEST(HandOver, WhatIsThereAlreadyCountsAsHandedOver) {
  Pair pair;
  RawClient here(pair.from.address()), there(pair.to.address());
  here.Begin();
  there.Begin();
  Pair::Put(&here, 1, 20);
  Pair::Put(&there, 11, 30);
  EXPECT_EQ(pair.HandOverAll().handed_blocks, 20u);
  EXPECT_EQ(pair.to.Stats().pieces, 30u);
}

TEST(HandOver, DamagedBytesStayBehind) {
  Pair pair;
  RawClient here(pair.from.address());
  here.Begin();
  Pair::Put(&here, 1, 10);
  const std::vector<WarmPiece> list = pair.from.node->ListWarm().value();
  const OutgoingPage page = pair.from.node->TakeOut(std::span(list).first(1), {}).value();
  auto* rotten = const_cast<std::byte*>(page.pieces.at(0).payload.data);
  rotten[5000] ^= std::byte{1};
  pair.from.node->LetGo(std::vector{page.pieces[0].piece.entry});
  const HandOverProgress told = pair.HandOverAll();
  EXPECT_EQ(told.handed_blocks, 9u);
  EXPECT_EQ(told.stays_blocks, 1u);
  EXPECT_NE(told.reason.find("corrupt"), std::string::npos) << told.reason;
  RawClient there(pair.to.address());
  there.Begin();
  EXPECT_EQ(HitsOf(&there, {page.pieces[0].header.hash}), 0u);
  EXPECT_EQ(pair.to.Stats().pieces, 9u);
}

TEST(HandOver, NobodyIsGivenWhatHeCouldNotHaveWritten) {
  Pair pair(kTwoCredentials);
  RawClient one(pair.from.address()), two(pair.from.address());
  one.Begin(1, kTwoCredentials[0].token);
  two.Begin(1, kTwoCredentials[1].token);
  Pair::Put(&one, 1, 10);
  Pair::Put(&two, 11, 15);
  const HandOverProgress told = pair.HandOverAll({.credentials = {kTwoCredentials[0]}});
  EXPECT_EQ(told.handed_blocks, 10u);
  EXPECT_EQ(told.stays_blocks, 5u);
  EXPECT_NE(told.reason.find("credential of the writer"), std::string::npos) << told.reason;
}

TEST(HandOver, ATokenThatTheOthersDoNotKnowEndsIt) {
  Pair pair(kTwoCredentials);
  RawClient one(pair.from.address());
  one.Begin(1, kTwoCredentials[0].token);
  Pair::Put(&one, 1, 10);
  const HandOverProgress told =
      pair.HandOverAll({.patience_us = 1, .credentials = {{"one", "another token", ""}}});
  EXPECT_EQ(told.handed_blocks, 0u);
  EXPECT_EQ(told.left_blocks(), 10u);
  EXPECT_NE(told.reason.find("no such token"), std::string::npos) << told.reason;
}

TEST(HandOver, ANodeThatIsNotThereIsNamed) {
  Pair pair;
  RawClient here(pair.from.address());
  here.Begin();
  Pair::Put(&here, 1, 10);
  pair.to.node->Stop();
  const HandOverProgress told = pair.HandOverAll({.patience_us = 1});
  EXPECT_EQ(told.reason.rfind("the others take no more: b: ", 0), 0u) << told.reason;
  EXPECT_EQ(told.left_blocks(), 10u);
  EXPECT_TRUE(pair.from.UntilIdle());
}

// Answered means gone, also where the block had been handed to, or was just on its way to.
TEST(HandOver, WhatIsRemovedWhileANodeLeavesIsGoneEverywhere) {
  Pair pair;
  RawClient here(pair.from.address()), there(pair.to.address());
  here.Begin();
  there.Begin();
  const std::vector<ChainHash> hashes = Pair::Put(&here, 1, 200);
  pair.from.node->BeginDrain(false);
  HandOver hand_over(pair.from.node.get(), {.budget_us = kPatienceUs, .bytes_per_second = 1 << 20});
  for (size_t i = 0; i < hashes.size(); i += 4) {
    const Remove remove{here.number, {0}, {hashes[i]}};
    EXPECT_EQ(here.Call<RemoveReply>(Verb::kRemove, remove).removed, 1u);
    EXPECT_EQ(HitsOf(&there, {hashes[i]}), 0u) << i;
  }
  hand_over.Wait();
  const HandOverProgress told = pair.from.node->info().hand_over;
  EXPECT_EQ(told.left_blocks(), 0u);
  EXPECT_EQ(told.reason, "");
  EXPECT_EQ(HitsOf(&there, hashes), 150u);
  const Remove remove{here.number, {0}, {hashes[1]}};  // all is handed over, and still
  (void)here.Call<RemoveReply>(Verb::kRemove, remove);
  EXPECT_EQ(HitsOf(&there, {hashes[1]}), 0u);
  (void)here.Call<ClearReply>(Verb::kClear, Clear{here.number});
  EXPECT_EQ(HitsOf(&there, hashes), 0u);
  EXPECT_TRUE(pair.from.UntilIdle());
}

TEST(HandOver, ARemoveIsNotAnsweredWhileAReceiverCannotBeAsked) {
  Pair pair;
  RawClient here(pair.from.address());
  here.Begin();
  const std::vector<ChainHash> hashes = Pair::Put(&here, 1, 10);
  pair.from.node->BeginDrain(false);
  HandOver hand_over(pair.from.node.get(), {.budget_us = kPatienceUs});
  hand_over.Wait();
  pair.to.node->Stop();
  const Remove remove{here.number, {0}, {hashes[0]}};
  EXPECT_TRUE(
      here.SendMessage(Encode(Envelope{.verb = Verb::kRemove, .request_id = ++here.last_request}, remove)));
  EXPECT_FALSE(here.Receive(300).has_value());
}

TEST(HandOver, AClearThatCannotBeConfirmedEndsWithWhoWaitsForIt) {
  Pair pair;
  RawClient here(pair.from.address());
  here.Begin();
  const std::vector<ChainHash> hashes = Pair::Put(&here, 1, 10);
  const Namespace space = pair.from.node->Namespaces().value().at(0).name_space;
  pair.from.node->BeginDrain(false);
  HandOver hand_over(pair.from.node.get(), {.budget_us = kPatienceUs});
  hand_over.Wait();
  pair.to.node->Stop();
  int asked = 0;
  const Result<uint64_t> cleared = pair.from.node->Clear(space, 0, [&asked] { return ++asked == 3; });
  EXPECT_EQ(cleared.status().code(), Code::kTimedOut);
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(HitsOf(&here, hashes), 0u);
}

}  // namespace
}  // namespace larder::node
