// Near copies at both ends: the home that counts the reads of one host, and the node of that host.
#include <algorithm>

#include "node/owner/hot_round.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kNearSecond = 1'000'000;
constexpr size_t kNearBytes = 4096;

struct Near : ::testing::Test {
  explicit Near(uint32_t share = 20) : node({.memory_bytes = 8 << 20, .near_share_percent = share}) {
    node.now_us = 1000 * kNearSecond;
    session = node.Connect();
    number = node.OpenIdentity(session, OpaqueIdentity(), "tenant");
  }
  PutState Put(uint64_t key) { return node.Put(session, number, {key, kNearBytes, {}}); }
  PutState PutCopy(uint64_t key) {
    const Spec spec{key, kNearBytes, {}};
    Reserve reserve{number, {node.BlockOf(spec)}, Clock(), kHotLeaseUs};
    const auto reply = node.Ask<ReserveReply>(session, Verb::kReserve, std::move(reserve));
    const ReserveReply::Block& block = reply->blocks.at(0);
    return block.state == PutState::kTicket ? node.CommitOne(session, block.ticket, spec) : block.state;
  }
  uint64_t Clock() {
    return node.Ask<LeaseReply>(session, Verb::kLease, Lease{number, 0, kHotLeaseUs, {}})->now_us;
  }
  Presence Get(uint64_t key, bool asks_near, const std::string& near) {
    larder::Get get{number, 0, {node.BlockOf({key, kNearBytes, {}}).ref}, asks_near, near};
    const uint64_t request = node.Send(session, Verb::kGet, std::move(get));
    const uint64_t token = node.outbox.replies.at({session, request}).token;
    const auto reply = node.Take<GetReply>(session, request);
    EXPECT_TRUE(reply.ok());
    if (token != 0) node.Give(session, Sent{token});
    return reply.ok() ? reply->blocks.at(0).presence : Presence::kBusy;
  }
  Presence ReadFrom(const std::string& host, uint64_t key = 1) { return Get(key, false, host); }
  Presence AskNear(uint64_t key) { return Get(key, true, ""); }
  std::vector<HotBlock> Plan() { return node.owner->PlanHot(node.now_us); }

  TestOwner node;
  SessionId session = 0;
  uint32_t number = 0;
};

TEST_F(Near, TheSecondReadOfAHostMakesAWishAndOthersHearNothingOfIt) {
  ASSERT_EQ(Put(1), PutState::kStored);
  EXPECT_EQ(ReadFrom("a"), Presence::kRam);
  EXPECT_EQ(ReadFrom("b"), Presence::kRam);
  EXPECT_EQ(ReadFrom(""), Presence::kRam);
  EXPECT_EQ(ReadFrom(""), Presence::kRam);
  EXPECT_TRUE(Plan().empty());
  EXPECT_EQ(ReadFrom("b"), Presence::kRam);
  const std::vector<HotBlock> plan = Plan();
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].places, 1u);
  EXPECT_EQ(plan[0].pieces.size(), 1u);
  ASSERT_EQ(plan[0].holders.size(), 1u);
  EXPECT_EQ(plan[0].holders[0].node, "b");
  EXPECT_TRUE(node.owner->HotList(node.now_us).empty());
  node.Check();
  node.Advance(30 * kNearSecond);  // nobody came to it
  EXPECT_TRUE(Plan().empty());
  EXPECT_EQ(node.owner->stats().hot_blocks, 0u);
}

TEST_F(Near, AMissAndAFullTableMakeNoWish) {
  EXPECT_FALSE(IsHit(ReadFrom("a", 7)));
  EXPECT_FALSE(IsHit(ReadFrom("a", 7)));
  EXPECT_TRUE(Plan().empty());
  HotBlocks hot(0, 10, 1, true);
  for (uint64_t key = 1; key <= HotBlocks::kNearMax + 50; ++key) {
    for (int i = 0; i < 2; ++i) hot.NearRead({{0, 1}, HashOf(key), 0}, key << 20, "a", 5);
  }
  EXPECT_LE(hot.copied().size(), HotBlocks::kNearMax);
  EXPECT_GE(hot.copied().size(), HotBlocks::kNearMax - 10);
  for (uint64_t host = 0; host < 2 * HotBlocks::kNearHoldersMax; ++host) {
    for (int i = 0; i < 2; ++i) hot.NearRead({{0, 1}, HashOf(1), 0}, 1 << 20, std::to_string(host), 5);
  }
  EXPECT_EQ(hot.Find({{0, 1}, HashOf(1), 0})->holders.size(), HotBlocks::kNearHoldersMax);
}

TEST_F(Near, AMissOfANearCopyCountsAsNone) {
  EXPECT_FALSE(IsHit(AskNear(1)));
  EXPECT_EQ(node.owner->stats().get_blocks, 0u);
  EXPECT_EQ(node.owner->stats().miss_by_reason[static_cast<size_t>(Presence::kNeverStored)], 0u);
  ASSERT_EQ(PutCopy(1), PutState::kStored);
  EXPECT_EQ(AskNear(1), Presence::kRam);
  const OwnerStats stats = node.owner->stats();
  EXPECT_EQ(stats.near_asked, 2u);
  EXPECT_EQ(stats.near_hits, 1u);
  EXPECT_EQ(stats.get_hits, 1u);
  EXPECT_EQ(stats.copy_reads, 1u);
  node.Advance(61 * kNearSecond);
  EXPECT_FALSE(IsHit(AskNear(1)));
  EXPECT_EQ(node.owner->stats().leased_bytes, 0u);
  node.Check();
}

// It was home to the block once, perhaps, and has not heard that it was removed.
TEST_F(Near, WhatIsANodesOwnIsNoNearCopy) {
  ASSERT_EQ(Put(1), PutState::kStored);
  EXPECT_FALSE(IsHit(AskNear(1)));
  ASSERT_EQ(PutCopy(2), PutState::kStored);
  ASSERT_EQ(AskNear(2), Presence::kRam);
  ASSERT_EQ(Put(2), PutState::kExists);  // it is home to it now
  EXPECT_FALSE(IsHit(AskNear(2)));
  EXPECT_EQ(ReadFrom("", 2), Presence::kRam);
}

// 20 % of 8 MiB.
TEST_F(Near, TheColdestCopyLeavesWhenTheirShareIsFull) {
  ASSERT_EQ(Put(1), PutState::kStored);
  for (uint64_t key = 1000; key < 2000; ++key) {
    node.now_us += 1000;
    ASSERT_EQ(PutCopy(key), PutState::kStored);
    ASSERT_EQ(AskNear(1000), Presence::kRam) << key;
    node.Check();
  }
  const OwnerStats stats = node.owner->stats();
  EXPECT_LE(stats.leased_bytes, (8u << 20) / 5);
  EXPECT_GT(stats.leased_bytes, (8u << 20) / 5 - 2 * kNearBytes);
  EXPECT_FALSE(IsHit(AskNear(1001)));
  EXPECT_EQ(AskNear(1999), Presence::kRam);
  EXPECT_EQ(node.Put(session, number, {5000, 2 << 20, {}}), PutState::kStored);
  const Spec large{5001, 2 << 20, {}};
  const auto reply = node.Ask<ReserveReply>(session, Verb::kReserve,
                                            Reserve{number, {node.BlockOf(large)}, Clock(), kHotLeaseUs});
  EXPECT_EQ(reply->blocks.at(0).state, PutState::kFull);
  node.Check();
}

struct NoNear : Near {
  NoNear() : Near(0) {}
};

TEST_F(NoNear, SwitchedOffNobodyIsCounted) {
  ASSERT_EQ(Put(1), PutState::kStored);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(ReadFrom("a"), Presence::kRam);
  EXPECT_TRUE(Plan().empty());
}

// Rounds of a home "a" over one block, with a node "b" that keeps what it is told to.
struct NearRounds : Near {
  struct Carrier {
    NearRounds* test;
    bool Goes() const { return true; }
    uint64_t NowUs() const { return test->node.now_us; }
    bool Carries(const Digest&) const { return true; }
    CopyAnswer Copy(const NodeRecord& place, const Digest&, const Namespace&,
                    const std::vector<const OutgoingPiece*>& pieces, uint64_t lease_us, bool puts_nothing) {
      EXPECT_EQ(place.id, "b");
      ++test->asked;
      CopyAnswer answer{test->has, NowUs() + lease_us, std::exchange(test->reads, 0), 0};
      if (!test->has && !puts_nothing && test->takes) {
        test->has = answer.made = true;
        for (const OutgoingPiece* piece : pieces) answer.put_bytes += piece->payload.bytes;
      }
      return answer;
    }
  };
  struct Side {
    TestOwner* node;
    std::vector<HotBlock> PlanHot() { return node->owner->PlanHot(node->now_us); }
    void DropHot(const BlockName& name) { node->owner->DropHot(name); }
    OutgoingPage TakeOut(std::span<const WarmPiece> list) { return node->owner->TakeOut(list, {}, true); }
    void LetGo(std::span<const uint32_t> entries) { (void)node->owner->LetGo(entries); }
    bool BeginCopy(const BlockName& name, const HotHolder& holder) {
      return node->owner->BeginCopy(name, holder);
    }
    void EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads_told, uint64_t put_bytes) {
      node->owner->EndCopy(name, holder, reads_told, put_bytes);
    }
  };
  NearRounds() {
    table.epoch = 1;
    for (const char* id : {"a", "b"}) {
      NodeRecord record;
      record.id = id;
      record.state = NodeState::kActive;
      table.nodes.push_back(record);
    }
    table.Normalize();
    while (table.nodes[OrderOf(table, SlotOf(HashOf(key)), 1)[0]].id != "a") ++key;
  }
  void Round() {
    Side side{&node};
    Carrier carrier{this};
    HotRound(&side, &carrier, &table, self).Run();
    node.Check();
  }
  void Wish() {
    ASSERT_EQ(Put(key), PutState::kStored);
    for (int i = 0; i < 2; ++i) ASSERT_EQ(ReadFrom("b", key), Presence::kRam);
    Round();
    ASSERT_TRUE(has);
    ASSERT_EQ(node.owner->stats().near_copies, 1u);
  }

  NodeTable table;
  const std::string self = "a";
  uint64_t key = 1;
  bool has = false, takes = true;
  int asked = 0;
  uint32_t reads = 0;
};

TEST_F(NearRounds, ACopyIsPutAndRenewedWhileItIsRead) {
  Wish();
  Round();
  EXPECT_EQ(asked, 1);
  for (int i = 0; i < 40; ++i) {
    reads = 1;
    node.Advance(kHotRenewUs);
    Round();
  }
  EXPECT_EQ(asked, 41);
  EXPECT_EQ(node.owner->stats().near_copies, 1u);
  EXPECT_TRUE(node.owner->HotList(node.now_us).empty());
  for (uint32_t i = 0; i < kNearIdleMax + 10; ++i) {  // nobody reads it any more
    node.Advance(kHotRenewUs);
    Round();
  }
  EXPECT_EQ(asked, 41 + static_cast<int>(kNearIdleMax));
  EXPECT_EQ(node.owner->stats().near_copies, 0u);
  EXPECT_EQ(node.owner->stats().hot_blocks, 0u);
}

// It was evicted there: only one who reads it again makes it come back.
TEST_F(NearRounds, WhatHasLeftIsNotPutAgainUntilItIsRead) {
  Wish();
  has = false;
  node.Advance(kHotRenewUs);
  Round();
  EXPECT_EQ(asked, 2);
  EXPECT_FALSE(has);
  node.Advance(kHotRenewUs);
  Round();
  EXPECT_EQ(asked, 2);
  ASSERT_EQ(ReadFrom("b", key), Presence::kRam);
  Round();
  EXPECT_TRUE(has);
  EXPECT_EQ(node.owner->stats().near_copies, 1u);
}

TEST_F(NearRounds, ANodeThatTakesNoneIsNotAskedAgainAndAgain) {
  takes = false;
  ASSERT_EQ(Put(key), PutState::kStored);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ReadFrom("b", key), Presence::kRam);
  for (int i = 0; i < 10; ++i) {
    Round();
    node.Advance(kNearSecond);
  }
  EXPECT_EQ(asked, 1);
}

TEST_F(NearRounds, ARemoveIsAnsweredWhenTheNearNodeHasHeardIt) {
  Wish();
  const uint64_t remove = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(key)}});
  EXPECT_FALSE(node.Answered(session, remove));
  const std::vector<HotRevoke> revokes = node.owner->Revokes();
  ASSERT_EQ(revokes.size(), 1u);
  ASSERT_EQ(revokes[0].holders.size(), 1u);
  EXPECT_EQ(revokes[0].holders[0].node, "b");
  node.owner->Revoked(revokes[0].token, "b");
  EXPECT_TRUE(node.Answered(session, remove));
}

// Nobody has been told yet that there is a copy to be.
TEST_F(NearRounds, ARemoveWaitsForNobodyWhileACopyIsOnlyWishedFor) {
  ASSERT_EQ(Put(key), PutState::kStored);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ReadFrom("b", key), Presence::kRam);
  const uint64_t remove = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(key)}});
  EXPECT_TRUE(node.Answered(session, remove));
  Round();
  EXPECT_EQ(asked, 0);
}

TEST_F(NearRounds, AnotherHomeRenewsItsOwn) {
  Wish();
  table.nodes[0].state = NodeState::kAway;
  node.Advance(kHotRenewUs);
  Round();
  EXPECT_EQ(asked, 1);
  node.Advance(kHotLeaseUs);
  Round();
  EXPECT_EQ(node.owner->stats().hot_blocks, 0u);
}

}  // namespace
}  // namespace larder::node
