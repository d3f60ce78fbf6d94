// Quarantine, bypass, and the memory of readers.
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

template <typename Memory>
Readers ReadersOf(const Memory& memory, const Digest& writer, uint64_t since_ms) {
  const QuarantineRule rule{writer, since_ms, 0, writer};
  return memory.ReadersOf({&rule, 1})[0];
}

constexpr uint64_t kSecondUs = 1'000'000;

Digest WriterOf(SessionId session) {
  Digest writer{};
  writer[0] = static_cast<std::byte>(session);
  return writer;
}

Spec Block(uint64_t key) {
  return {key, 4096, {}};
}

struct Cluster : ::testing::Test {
  Cluster() : node(OwnerOptions{.memory_bytes = 4 << 20}) {
    node.now_us = 1000 * kSecondUs;
    for (SessionId* each : {&bad, &good, &third}) *each = node.Connect();
    for (const SessionId each : {bad, good, third}) number = node.OpenIdentity(each, OpaqueIdentity());
  }
  void Ban(SessionId writer, uint64_t since_ms, bool transitive = false) {
    const Quarantine now =
        node.owner->WithRule({WriterOf(writer), since_ms, node.now_us / 1000, WriterOf(writer)}, transitive)
            .value();
    node.owner->SetQuarantine(Quarantine::Parse(now.Text()).value());  // as a restart would have it
  }
  Presence Get(uint64_t key) { return node.GetOne(third, number, Block(key)).presence; }

  TestOwner node;
  SessionId bad = 0, good = 0, third = 0;
  uint32_t number = 0;
};

TEST_F(Cluster, WhatAWriterWroteFromThenOnIsGoneAtOnce) {
  ASSERT_EQ(node.Put(bad, number, Block(1)), PutState::kStored);
  node.now_us += 10 * kSecondUs;
  ASSERT_EQ(node.Put(bad, number, Block(2)), PutState::kStored);
  ASSERT_EQ(node.Put(good, number, Block(3)), PutState::kStored);
  Ban(bad, node.now_us / 1000 - 5000);
  EXPECT_EQ(node.MatchOne(third, number, Block(2)), Presence::kQuarantined);
  EXPECT_EQ(Get(2), Presence::kQuarantined);
  EXPECT_EQ(Get(1), Presence::kRam);
  EXPECT_EQ(Get(3), Presence::kRam);
  EXPECT_EQ(node.owner->stats().quarantined, 1u);
  EXPECT_EQ(node.owner->stats().quarantine_rules, 1u);
  Reserve again;
  again.number = number;
  again.blocks = {node.BlockOf(Block(4))};
  EXPECT_EQ(node.Ask<ReserveReply>(bad, Verb::kReserve, again).status().code(), Code::kDenied);
  EXPECT_EQ(node.Put(good, number, Block(2)), PutState::kStored);  // somebody else may compute it again
  EXPECT_EQ(Get(2), Presence::kRam);
  node.Check();
}

TEST_F(Cluster, ALiftedWriterMayWriteAgain) {
  Ban(bad, 0);
  Quarantine rules = node.owner->quarantine();
  EXPECT_FALSE(rules.Lift(WriterOf(good)));
  EXPECT_TRUE(rules.Lift(WriterOf(bad)));
  node.owner->SetQuarantine(rules);
  EXPECT_EQ(node.Put(bad, number, Block(1)), PutState::kStored);
}

TEST_F(Cluster, ReadersAreKnownAndTransitiveRulesFollowThem) {
  ASSERT_EQ(node.Put(bad, number, Block(1)), PutState::kStored);
  ASSERT_EQ(node.Put(good, number, Block(2)), PutState::kStored);  // before it read anything
  node.now_us += 10 * kSecondUs;
  ASSERT_EQ(node.GetOne(good, number, Block(1)).presence, Presence::kRam);
  const uint64_t read_ms = node.now_us / 1000;
  node.now_us += 10 * kSecondUs;
  ASSERT_EQ(node.GetOne(good, number, Block(1)).presence, Presence::kRam);
  ASSERT_EQ(node.Put(good, number, Block(3)), PutState::kStored);
  ASSERT_EQ(node.GetOne(third, number, Block(3)).presence, Presence::kRam);
  ASSERT_EQ(node.Put(third, number, Block(4)), PutState::kStored);
  const auto readers = ReadersOf(*node.owner, WriterOf(bad), 0);
  ASSERT_EQ(readers.size(), 1u);
  EXPECT_EQ(readers.begin()->first, WriterOf(good));
  EXPECT_EQ(readers.begin()->second.first_ms, read_ms);
  EXPECT_EQ(readers.begin()->second.blocks, 1u);
  EXPECT_TRUE(ReadersOf(*node.owner, WriterOf(bad), read_ms + 1000).empty());
  Ban(bad, 0, true);
  EXPECT_EQ(node.owner->quarantine().rules().size(), 3u);
  EXPECT_EQ(Get(1), Presence::kQuarantined);
  EXPECT_EQ(Get(2), Presence::kRam);
  EXPECT_EQ(Get(3), Presence::kQuarantined);
  EXPECT_EQ(Get(4), Presence::kQuarantined);
}

TEST_F(Cluster, BypassMakesEverythingAMiss) {
  ASSERT_EQ(node.Put(good, number, Block(1)), PutState::kStored);
  Quarantine rules;
  rules.bypass = true;
  node.owner->SetQuarantine(rules);
  EXPECT_EQ(Get(1), Presence::kBypassed);
  EXPECT_EQ(node.MatchOne(third, number, Block(1)), Presence::kBypassed);
  EXPECT_EQ(node.MatchOne(third, number, Block(2)), Presence::kBypassed);
  node.owner->SetQuarantine(Quarantine());
  EXPECT_EQ(Get(1), Presence::kRam);
}

TEST(Quarantine, TextComesBackAndNonsenseIsRefused) {
  Quarantine rules;
  rules.bypass = true;
  ASSERT_TRUE(rules.Add({WriterOf(1), 5, 6, WriterOf(1)}).value());
  ASSERT_TRUE(rules.Add({WriterOf(2), 7, 8, WriterOf(1)}).value());
  EXPECT_FALSE(rules.Add({WriterOf(2), 9, 8, WriterOf(1)}).value());  // within what is there
  EXPECT_TRUE(rules.Add({WriterOf(2), 3, 8, WriterOf(1)}).value());
  const Result<Quarantine> again = Quarantine::Parse(rules.Text());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.value().rules(), rules.rules());
  EXPECT_TRUE(again.value().bypass);
  const std::string title = "larder-quarantine 1\n";
  for (const std::string& bad :
       {std::string(), std::string("larder-quarantine 2\n"), title + "rule\n", title + "\n",
        title + "bypass maybe\n", title + "rule 00 1 2 00\n", rules.Text() + "rule x"}) {
    EXPECT_FALSE(Quarantine::Parse(bad).ok()) << bad;
  }
  for (int i = 0; rules.rules().size() < Quarantine::kRulesMax; ++i) {
    Digest writer{};
    writer[1] = static_cast<std::byte>(i);
    writer[2] = std::byte{1};
    ASSERT_TRUE(rules.Add({writer, 1, 1, writer}).ok());
  }
  EXPECT_EQ(rules.Add({WriterOf(9), 1, 1, {}}).status().code(), Code::kBusy);
}

TEST(ReaderMemory, ForgetsTheOldestAndCountsIt) {
  ReaderMemory memory(4);
  for (uint64_t i = 1; i <= 6; ++i) memory.Remember(i, WriterOf(1), WriterOf(2), i * 1000);
  EXPECT_EQ(memory.forgotten(), 2u);
  const auto readers = ReadersOf(memory, WriterOf(1), 0);
  ASSERT_EQ(readers.size(), 1u);
  EXPECT_EQ(readers.begin()->second.blocks, 4u);
  EXPECT_EQ(readers.begin()->second.first_ms, 3000u);
  EXPECT_TRUE(ReadersOf(memory, WriterOf(2), 0).empty());
}

}  // namespace
}  // namespace larder::node
