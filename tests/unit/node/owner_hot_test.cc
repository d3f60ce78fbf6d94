// Hot blocks at both ends: the home that counts, plans and revokes; the node that keeps a copy by lease.
#include <algorithm>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kSecond = 1'000'000;
constexpr Digest kNobody{};

// A node that has a copy of somebody's block.
struct Lender : ::testing::Test {
  explicit Lender(const OwnerOptions& options = {.memory_bytes = 8 << 20, .hot_copies_max = 63})
      : node(options) {
    node.now_us = 1000 * kSecond;
    session = node.Connect();
    number = node.OpenIdentity(session, OpaqueIdentity(), "tenant");
  }
  PutState PutCopy(uint64_t key, uint64_t since_us, uint64_t lease_us) {
    const Spec spec{key, 4096, {}};
    Reserve reserve{number, {node.BlockOf(spec)}, since_us, lease_us};
    const auto reply = node.Ask<ReserveReply>(session, Verb::kReserve, std::move(reserve));
    if (!reply.ok()) return PutState::kInvalid;
    const ReserveReply::Block& block = reply->blocks[0];
    return block.state == PutState::kTicket ? node.CommitOne(session, block.ticket, spec) : block.state;
  }
  // As a home asks for it.
  uint64_t Clock() {
    return node.Ask<LeaseReply>(session, Verb::kLease, Lease{number, 0, kHotLeaseUs, {}})->now_us;
  }
  LeaseReply::Block Renew(uint64_t key, uint64_t since_us, uint64_t lease_us = kHotLeaseUs) {
    const BlockRef ref = node.BlockOf({key, 4096, {}}).ref;
    return node.Ask<LeaseReply>(session, Verb::kLease, Lease{number, since_us, lease_us, {ref}})
        ->blocks.at(0);
  }
  Presence Get(uint64_t key) { return node.GetOne(session, number, {key, 4096, {}}).presence; }

  TestOwner node;
  SessionId session = 0;
  uint32_t number = 0;
};

TEST_F(Lender, ACopyIsServedUntilItsLeaseEnds) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  node.Check();
  EXPECT_EQ(Get(1), Presence::kRam);
  EXPECT_EQ(node.owner->stats().leased_pieces, 1u);
  node.Advance(59 * kSecond);
  EXPECT_EQ(Get(1), Presence::kRam);
  node.Advance(2 * kSecond);
  EXPECT_EQ(Get(1), Presence::kExpired);
  EXPECT_EQ(node.owner->stats().leases_ended, 1u);
  EXPECT_EQ(node.owner->stats().pieces, 0u);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  node.Check();
}

// The timer may come late: what has no lease any more is served by nobody.
TEST_F(Lender, AnEndedLeaseCountsBeforeTheTimerHasSeenIt) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  node.now_us += 61 * kSecond;
  EXPECT_EQ(Get(1), Presence::kExpired);
  node.Check();
}

TEST_F(Lender, ARenewalTellsTheReadsAndCountsFromWhenTheHomeHeardTheClock) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  for (int i = 0; i < 5; ++i) Get(1);
  const uint64_t heard_us = Clock();
  node.Advance(10 * kSecond);
  EXPECT_EQ(Renew(1, heard_us + 10 * kSecond), (LeaseReply::Block{LeaseState::kRenewed, 5}));
  EXPECT_EQ(Renew(1, heard_us), (LeaseReply::Block{LeaseState::kRenewed, 0}));  // gives no less
  node.Advance(55 * kSecond);
  EXPECT_EQ(Get(1), Presence::kRam);
  node.Advance(6 * kSecond);
  EXPECT_EQ(Renew(1, Clock()).state, LeaseState::kGone);
}

// A node was stopped while a renewal lay in its socket; its home removed the block meanwhile.
TEST_F(Lender, ARenewalThatWasUnderWayForLongRenewsNothing) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  const uint64_t heard_us = Clock();
  node.now_us += 59 * kSecond;
  EXPECT_EQ(Renew(1, heard_us).state, LeaseState::kRenewed);
  EXPECT_EQ(Renew(1, heard_us, 3600 * kSecond).state, LeaseState::kRenewed);  // a minute is the most
  EXPECT_EQ(Renew(1, Clock() + 5 * kSecond).state, LeaseState::kRenewed);     // no clock of this node's
  node.Advance(2 * kSecond);
  EXPECT_EQ(Get(1), Presence::kExpired);
  EXPECT_EQ(PutCopy(2, heard_us, kHotLeaseUs), PutState::kExpired);
  EXPECT_EQ(PutCopy(2, Clock() + 1, kHotLeaseUs), PutState::kExpired);
  node.Check();
}

// The node's machine was asleep: its steady clock stood still, the other one did not.
TEST_F(Lender, TimeThatTheNodeSleptThroughCounts) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  node.unix_ahead_ms += 61'000;
  EXPECT_EQ(Get(1), Presence::kExpired);
  node.Check();
  ASSERT_EQ(PutCopy(2, Clock(), kHotLeaseUs), PutState::kStored);
  node.unix_ahead_ms -= 50'000;  // set back: nothing changes
  node.Advance(59 * kSecond);
  EXPECT_EQ(Get(2), Presence::kRam);
  node.Advance(2 * kSecond);
  EXPECT_EQ(Get(2), Presence::kExpired);
}

TEST_F(Lender, ACommitThatComesAfterTheLeaseStoresNothing) {
  const Spec spec{1, 4096, {}};
  const auto reserved = node.Ask<ReserveReply>(session, Verb::kReserve,
                                               Reserve{number, {node.BlockOf(spec)}, Clock(), 4 * kSecond});
  node.now_us += 4 * kSecond;
  EXPECT_EQ(node.CommitOne(session, reserved->blocks[0].ticket, spec), PutState::kExpired);
  EXPECT_EQ(Get(1), Presence::kNeverStored);
  node.Check();
}

// Its home gave up the connection of the copy and told the remove over another.
TEST_F(Lender, ACommitThatComesAfterARemoveStoresNothing) {
  const Spec spec{1, 4096, {}};
  const auto reserved = node.Ask<ReserveReply>(session, Verb::kReserve,
                                               Reserve{number, {node.BlockOf(spec)}, Clock(), kHotLeaseUs});
  ASSERT_TRUE(
      node.Ask<RemoveReply>(session, Verb::kRemove, Remove{number, {0}, {HashOf(2), HashOf(1)}}).ok());
  EXPECT_EQ(node.CommitOne(session, reserved->blocks[0].ticket, spec), PutState::kExpired);
  EXPECT_EQ(Get(1), Presence::kNeverStored);
  node.Check();
}

TEST_F(Lender, WhatSomebodyPutsHereAsItsOwnStays) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  EXPECT_EQ(node.Put(session, number, {1, 4096, {}}), PutState::kExists);
  EXPECT_EQ(Renew(1, Clock()).state, LeaseState::kOwn);
  node.Advance(100 * kSecond);
  EXPECT_EQ(Get(1), Presence::kRam);
  EXPECT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kExists);
  node.Advance(100 * kSecond);
  EXPECT_EQ(Get(1), Presence::kRam);
  node.Check();
}

TEST_F(Lender, ACopyIsNotThisNodesToGive) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  uint32_t from = 0;
  EXPECT_TRUE(node.owner->ListWarm(&from).empty());
  const BlockRef ref = node.BlockOf({1, 4096, {}}).ref;
  const auto moved = node.Ask<MoveReply>(session, Verb::kMove, Move{number, 1 << 20, {ref}});
  EXPECT_FALSE(IsHit(moved->blocks[0].presence));
  EXPECT_TRUE(node.owner->PlanHot(node.now_us).empty());
  for (uint32_t i = 0; i < 10 * HotBlocks::kReadsMin; ++i) Get(1);
  EXPECT_TRUE(node.owner->PlanHot(node.now_us).empty()) << "a copy of a copy";
  EXPECT_EQ(node.owner->stats().copy_reads, 10 * HotBlocks::kReadsMin);
  node.Check();
}

TEST_F(Lender, ACopyThatIsReadOutlivesWhatIsNot) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  for (uint64_t key = 100; key < 6000; ++key) {
    node.now_us += 1000;
    if (key % 100 == 0) {
      ASSERT_EQ(Get(1), Presence::kRam) << key;
    }
    ASSERT_EQ(node.Put(session, number, {key, 4096, {}}), PutState::kStored);
  }
  EXPECT_GT(node.owner->stats().evicted, 0u);
  node.Check();
}

TEST_F(Lender, ARemoveAClearAndAnEvictionEndTheLease) {
  ASSERT_EQ(PutCopy(1, Clock(), kHotLeaseUs), PutState::kStored);
  ASSERT_TRUE(node.Ask<RemoveReply>(session, Verb::kRemove, Remove{number, {0}, {HashOf(1)}}).ok());
  EXPECT_EQ(Get(1), Presence::kRemoved);
  node.Check();
  ASSERT_EQ(PutCopy(2, Clock(), kHotLeaseUs), PutState::kStored);
  ASSERT_TRUE(node.Ask<ClearReply>(session, Verb::kClear, Clear{number}).ok());
  EXPECT_EQ(Get(2), Presence::kCleared);
  node.Check();
  ASSERT_EQ(PutCopy(3, Clock(), kHotLeaseUs), PutState::kStored);
  for (uint64_t key = 100; key < 6000; ++key) (void)node.Put(session, number, {key, 4096, {}});
  EXPECT_EQ(node.owner->stats().leased_pieces, 0u);
  node.Advance(100 * kSecond);
  node.Check();
}

// A home with a block that is read.
struct Home : Lender {
  using Lender::Lender;
  void MakeHot(uint64_t key, int reads = 200) {
    ASSERT_EQ(node.Put(session, number, {key, 4096, {}}), PutState::kStored);
    for (int i = 0; i < reads; ++i) ASSERT_EQ(Get(key), Presence::kRam);
  }
  // As whoever carries does: the copy is there for a minute.
  void CopyTo(const HotBlock& block, uint32_t position, const std::string& id) {
    HotHolder holder{position, id, kNobody, node.now_us + 80 * kSecond, 0, false};
    ASSERT_TRUE(node.owner->BeginCopy(block.name, holder));
    holder.made = true;
    holder.end_us = node.now_us + kHotLeaseUs;
    holder.next_us = node.now_us + kHotRenewUs;
    node.owner->EndCopy(block.name, holder, 0, 4096);
  }
  std::vector<GetReply::Places> PlacesTold(std::vector<uint64_t> keys) {
    larder::Get get{number, 0, {}};
    for (const uint64_t key : keys) get.blocks.push_back(node.BlockOf({key, 4096, {}}).ref);
    const auto reply = node.Ask<GetReply>(session, Verb::kGet, std::move(get));
    EXPECT_TRUE(reply.ok());
    return reply.ok() ? reply->places : std::vector<GetReply::Places>();
  }
  uint64_t RemoveLater(uint64_t key) {
    return node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(key)}});
  }
};

TEST_F(Home, WhatIsReadMuchIsPlannedAndWhatIsNotIsNot) {
  MakeHot(1);
  ASSERT_EQ(node.Put(session, number, {2, 4096, {}}), PutState::kStored);
  Get(2);
  const std::vector<HotBlock> plan = node.owner->PlanHot(node.now_us);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].name.hash, HashOf(1));
  EXPECT_EQ(plan[0].places, 16u);  // all of what is served: ten times its share
  EXPECT_EQ(plan[0].lease_us, kHotLeaseUs);
  ASSERT_EQ(plan[0].pieces.size(), 1u);
  EXPECT_TRUE(PlacesTold({1}).empty());
}

TEST_F(Home, ReadersAreToldOfCopiesThatAreThere) {
  MakeHot(1);
  ASSERT_EQ(node.Put(session, number, {2, 4096, {}}), PutState::kStored);
  const HotBlock block = node.owner->PlanHot(node.now_us).at(0);
  ASSERT_TRUE(node.owner->BeginCopy(block.name, {3, "d", kNobody, node.now_us + 80 * kSecond, 0, false}));
  CopyTo(block, 1, "b");
  EXPECT_EQ(PlacesTold({2, 1}), (std::vector<GetReply::Places>{{1, 0b11}}));
  CopyTo(block, 3, "d");
  EXPECT_EQ(PlacesTold({1}), (std::vector<GetReply::Places>{{0, 0b1011}}));
  const std::vector<HotInfo> list = node.owner->HotList(node.now_us);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].copies, 2u);
  EXPECT_GT(list[0].reads, 100u);
  node.owner->DistrustCopies();
  EXPECT_TRUE(PlacesTold({1}).empty());
  CopyTo(block, 2, "b");  // by a new table
  EXPECT_EQ(PlacesTold({1}), (std::vector<GetReply::Places>{{0, 0b101}}));
  node.Advance(61 * kSecond);  // nobody has renewed it
  EXPECT_TRUE(PlacesTold({1}).empty());
}

TEST_F(Home, WhatHasCooledLosesItsCopies) {
  MakeHot(1, 400);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  ASSERT_EQ(node.Put(session, number, {2, 4096, {}}), PutState::kStored);
  size_t planned = 1;
  for (int minute = 0; minute < 12 && planned != 0; ++minute) {
    node.Advance(60 * kSecond);
    for (int i = 0; i < 50; ++i) Get(2);
    planned = 0;
    for (const HotBlock& block : node.owner->PlanHot(node.now_us)) planned += block.name.hash == HashOf(1);
  }
  EXPECT_EQ(planned, 0u);
}

TEST_F(Home, ARemoveIsAnsweredOnceTheHoldersHaveHeardIt) {
  MakeHot(1);
  const HotBlock block = node.owner->PlanHot(node.now_us).at(0);
  CopyTo(block, 1, "b");
  CopyTo(block, 2, "c");
  const uint64_t remove = RemoveLater(1);
  EXPECT_EQ(Get(1), Presence::kRemoved);  // here at once
  EXPECT_FALSE(node.Answered(session, remove));
  EXPECT_FALSE(node.owner->Idle());
  const uint64_t other = RemoveLater(77);  // nobody has a copy of that one
  EXPECT_TRUE(node.Answered(session, other));
  const std::vector<HotRevoke> revokes = node.owner->Revokes();
  ASSERT_EQ(revokes.size(), 1u);
  EXPECT_EQ(revokes[0].hashes, std::vector{HashOf(1)});
  ASSERT_EQ(revokes[0].holders.size(), 2u);
  node.owner->Revoked(revokes[0].token, "b");
  EXPECT_FALSE(node.Answered(session, remove));
  node.owner->Revoked(revokes[0].token, "nobody");
  node.owner->Revoked(revokes[0].token, "c");
  EXPECT_TRUE(node.Answered(session, remove));
  EXPECT_TRUE(node.owner->Idle());
  EXPECT_EQ(node.owner->stats().hot_revoked, 1u);
  node.Check();
}

TEST_F(Home, ARemoveIsAnsweredOnceTheLeasesHaveEnded) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  const uint64_t remove = RemoveLater(1);
  node.Advance(30 * kSecond);
  const uint64_t again = RemoveLater(1);  // whoever asks again waits for the same
  node.Advance(29 * kSecond);
  EXPECT_FALSE(node.Answered(session, remove));
  EXPECT_FALSE(node.Answered(session, again));
  EXPECT_EQ(node.owner->Revokes().size(), 1u);
  node.Check();
  node.Advance(2 * kSecond);
  EXPECT_TRUE(node.Answered(session, remove));
  EXPECT_TRUE(node.Answered(session, again));
  EXPECT_TRUE(node.owner->Revokes().empty());
}

// The remove came between the look at the block and the end of its copying.
TEST_F(Home, ACopyThatIsUnderWayIsRevokedToo) {
  MakeHot(1);
  const HotBlock block = node.owner->PlanHot(node.now_us).at(0);
  HotHolder holder{1, "b", kNobody, node.now_us + 80 * kSecond, 0, false};
  ASSERT_TRUE(node.owner->BeginCopy(block.name, holder));
  const uint64_t remove = RemoveLater(1);
  EXPECT_FALSE(node.Answered(session, remove));
  holder.made = true;
  node.owner->EndCopy(block.name, holder, 0, 4096);
  const std::vector<HotRevoke> revokes = node.owner->Revokes();
  ASSERT_EQ(revokes.size(), 1u);
  EXPECT_EQ(revokes[0].holders.at(0).node, "b");
  EXPECT_TRUE(node.owner->PlanHot(node.now_us).empty());
}

// Another block may have its slot by then, and what is put would have no holder whom a removal reaches.
TEST_F(Home, ABlockThatWasRemovedSinceThePlanIsNotCopied) {
  MakeHot(1);
  const HotBlock block = node.owner->PlanHot(node.now_us).at(0);
  EXPECT_TRUE(node.Answered(session, RemoveLater(1)));
  EXPECT_FALSE(node.owner->BeginCopy(block.name, {1, "b", kNobody, node.now_us + 80 * kSecond, 0, false}));
  EXPECT_TRUE(node.owner->Revokes().empty());
}

// A later remove takes the revoke over, and the operator still waits for what it took over.
TEST_F(Home, AnOperatorsClearWaitsForARevokeThatALaterRemoveTookOver) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  uint64_t durable = 0;
  ASSERT_TRUE(node.owner->ClearNamespace(node.owner->Namespaces()[0].name_space, 0, &durable).ok());
  RemoveLater(1);
  EXPECT_FALSE(node.owner->IsDurable(durable));
  ASSERT_EQ(node.owner->Revokes().size(), 1u);
  node.owner->Revoked(node.owner->Revokes()[0].token, "b");
  EXPECT_TRUE(node.owner->IsDurable(durable));
}

// A holder that is the heir as well: of what it could not be told as an heir no answer may come when its
// lease is over.
TEST_F(Home, ARemoveThatAnHeirDidNotHearIsNotAnsweredWhenItsLeaseEnds) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  node.owner->BeginHandOver();
  const uint64_t remove = RemoveLater(1);
  node.owner->Forwarded(node.owner->NextForward()->token, false);
  node.Advance(100 * kSecond);
  EXPECT_TRUE(node.owner->Revokes().empty());
  EXPECT_FALSE(node.Answered(session, remove));
  node.Check();
}

// It was evicted here, and its copies live on for a while.
TEST_F(Home, ARemoveOfWhatIsNoLongerHereReachesItsCopies) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  for (uint64_t key = 100; key < 6000; ++key) (void)node.Put(session, number, {key, 4096, {}});
  ASSERT_FALSE(IsHit(Get(1)));
  const uint64_t remove = RemoveLater(1);
  EXPECT_FALSE(node.Answered(session, remove));
  EXPECT_EQ(node.owner->Revokes().size(), 1u);
}

TEST_F(Home, AClearRevokesWhatIsOfItsNamespace) {
  MakeHot(1);
  const uint32_t other = node.OpenIdentity(session, OpaqueIdentity("other"), "tenant");
  ASSERT_EQ(node.Put(session, other, {9, 4096, {}}), PutState::kStored);
  for (int i = 0; i < 200; ++i) (void)node.GetOne(session, other, {9, 4096, {}});
  for (const HotBlock& block : node.owner->PlanHot(node.now_us)) CopyTo(block, 1, "b");
  ASSERT_EQ(node.owner->stats().hot_copies, 2u);
  const uint64_t clear = node.Send(session, Verb::kClear, Clear{number});
  EXPECT_FALSE(node.Answered(session, clear));
  const std::vector<HotRevoke> revokes = node.owner->Revokes();
  ASSERT_EQ(revokes.size(), 1u);
  EXPECT_EQ(revokes[0].hashes, std::vector{HashOf(1)});
  node.owner->Revoked(revokes[0].token, "b");
  EXPECT_TRUE(node.Answered(session, clear));
  EXPECT_EQ(node.owner->stats().hot_copies, 1u);
  node.Check();
}

TEST_F(Home, AnOperatorsClearWaitsForTheHolders) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  uint64_t durable = 0;
  ASSERT_TRUE(node.owner->ClearNamespace(node.owner->Namespaces()[0].name_space, 0, &durable).ok());
  EXPECT_FALSE(node.owner->IsDurable(durable));
  node.owner->Revoked(node.owner->Revokes().at(0).token, "b");
  EXPECT_TRUE(node.owner->IsDurable(durable));
}

TEST_F(Home, WhatIsRuledOutIsRevoked) {
  MakeHot(1);
  CopyTo(node.owner->PlanHot(node.now_us).at(0), 1, "b");
  Digest writer{};
  writer[0] = static_cast<std::byte>(session);
  node.owner->SetQuarantine(node.owner->WithRule({writer, 0, 1, writer}, false).value());
  ASSERT_EQ(node.owner->Revokes().size(), 1u);
  EXPECT_EQ(node.owner->Revokes()[0].hashes, std::vector{HashOf(1)});
}

TEST_F(Home, UnderBypassNothingIsCopied) {
  MakeHot(1);
  Quarantine rules;
  rules.bypass = true;
  node.owner->SetQuarantine(rules);
  for (const HotBlock& block : node.owner->PlanHot(node.now_us)) EXPECT_TRUE(block.pieces.empty());
}

struct TiredHome : Home {
  TiredHome() : Home(Options()) {}
  static OwnerOptions Options() {
    TenantLimits limits;
    limits.name = "tenant";
    limits.ttl_us = 90 * kSecond;
    return {.memory_bytes = 8 << 20, .hot_copies_max = 63, .tenants = {limits}};
  }
};

TEST_F(TiredHome, ALeaseEndsWithTheTimeToLive) {
  MakeHot(1);
  EXPECT_EQ(node.owner->PlanHot(node.now_us).at(0).lease_us, kHotLeaseUs);
  node.Advance(50 * kSecond);
  const HotBlock block = node.owner->PlanHot(node.now_us).at(0);
  EXPECT_LE(block.lease_us, 40 * kSecond);
  EXPECT_GE(block.lease_us, 38 * kSecond);
  EXPECT_EQ(node.owner->TakeOut(block.pieces, {}, true).pieces.size(), 1u);
  EXPECT_TRUE(node.owner->TakeOut(block.pieces, {}).pieces.empty());  // as hand-over has it
  node.owner->LetGo(std::vector{block.pieces[0].entry});
  node.Advance(39 * kSecond);
  for (const HotBlock& late : node.owner->PlanHot(node.now_us)) EXPECT_TRUE(late.pieces.empty());
}

struct CoolHome : Home {
  CoolHome() : Home({.memory_bytes = 8 << 20}) {}
};

TEST_F(CoolHome, SwitchedOffNothingIsCounted) {
  MakeHot(1);
  EXPECT_TRUE(node.owner->PlanHot(node.now_us).empty());
  EXPECT_TRUE(node.owner->HotList(node.now_us).empty());
}

}  // namespace
}  // namespace larder::node
