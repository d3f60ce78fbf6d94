#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct PutTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 64 << 20;
    options.tickets_per_session_max = 8;
    options.tickets_max = 12;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect(), b = node.Connect();
  uint32_t kv = node.OpenIdentity(a, KvIdentity(4, 2)), kv_b = node.OpenIdentity(b, KvIdentity(4, 2));
  Spec whole{1, 4096, {0, 4, 0, 2}};
  void TearDown() override { node.Check(); }
};

TEST_F(PutTest, APieceIsInvisibleUntilItIsCommitted) {
  const auto reserved = node.ReserveOne(a, kv, whole);
  ASSERT_EQ(reserved.state, PutState::kTicket);
  const Grant& grant = node.outbox.grants.at(reserved.ticket);
  EXPECT_EQ(grant.slot.bytes, 8u * 4096);
  ASSERT_EQ(grant.parts.size(), 1u);
  EXPECT_EQ(node.MatchOne(b, kv_b, whole), Presence::kWriting);
  EXPECT_EQ(node.GetOne(b, kv_b, whole).presence, Presence::kWriting);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole), PutState::kStored);
  EXPECT_EQ(node.MatchOne(b, kv_b, whole), Presence::kRam);
  const Pulled pulled = node.GetOne(b, kv_b, whole);
  EXPECT_EQ(pulled.presence, Presence::kRam);
  EXPECT_TRUE(pulled.checksums_good);
  EXPECT_EQ(pulled.sources.at(0).writer[0], static_cast<std::byte>(a));
  EXPECT_EQ(pulled.sources.at(0).created_ms, node.now_us / 1000);
}

TEST_F(PutTest, OfSeveralWritersTheFirstWholeOneWins) {
  const auto first = node.ReserveOne(a, kv, whole), second = node.ReserveOne(b, kv_b, whole);
  Spec other = whole;
  other.content = 1;
  const auto third = node.ReserveOne(b, kv_b, other);
  EXPECT_EQ(node.CommitOne(b, second.ticket, whole), PutState::kStored);
  EXPECT_EQ(node.CommitOne(a, first.ticket, whole), PutState::kExists);
  EXPECT_EQ(node.CommitOne(b, third.ticket, other), PutState::kDiffers);
  EXPECT_EQ(node.owner->stats().put_differs, 1u);
  EXPECT_EQ(node.owner->stats().pieces, 1u);
  EXPECT_EQ(node.owner->stats().slot_bytes, 8u * 4096);  // the losers' slots are free again
  EXPECT_EQ(node.GetOne(a, kv, whole).sources.at(0).writer[0], static_cast<std::byte>(b));
}

TEST_F(PutTest, WhatIsCoveredAlreadyExists) {
  ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 4, 0, 1}}), PutState::kStored);
  EXPECT_EQ(node.ReserveOne(b, kv_b, {1, 4096, {1, 3, 0, 1}}).state, PutState::kExists);
  EXPECT_EQ(node.ReserveOne(b, kv_b, whole).state, PutState::kTicket);
  ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 4, 1, 2}}), PutState::kStored);
  EXPECT_EQ(node.ReserveOne(b, kv_b, whole).state, PutState::kExists);  // by two pieces together
}

TEST_F(PutTest, AWriterIsComparedPartByPartWithSeveralPieces) {
  const auto same = node.ReserveOne(b, kv_b, whole);
  Spec changed = whole;
  changed.content = 5;
  const auto differs = node.ReserveOne(b, kv_b, changed);
  ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 4, 0, 1}}), PutState::kStored);
  ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 4, 1, 2}}), PutState::kStored);
  EXPECT_EQ(node.CommitOne(b, same.ticket, whole), PutState::kExists);
  EXPECT_EQ(node.CommitOne(b, differs.ticket, changed), PutState::kDiffers);
}

TEST_F(PutTest, WhatDidNotLandOrVerifyIsCorruptAndFreesItsSlot) {
  auto reserved = node.ReserveOne(a, kv, whole);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole, false, false), PutState::kCorrupt);
  reserved = node.ReserveOne(a, kv, whole);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole, true, false), PutState::kCorrupt);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  EXPECT_EQ(node.owner->stats().put_corrupt, 2u);
  EXPECT_EQ(node.MatchOne(a, kv, whole), Presence::kNeverStored);
}

TEST_F(PutTest, AnUnknownOrForeignTicketIsExpired) {
  EXPECT_EQ(node.CommitOne(a, 12345, whole), PutState::kExpired);
  const auto reserved = node.ReserveOne(a, kv, whole);
  EXPECT_EQ(node.CommitOne(b, reserved.ticket, whole), PutState::kExpired);
  EXPECT_EQ(node.MatchOne(a, kv, whole), Presence::kWriting);  // still the first session's
}

TEST_F(PutTest, TicketsDieWithTheirSession) {
  node.ReserveOne(a, kv, whole);
  node.Give(a, Closed{});
  EXPECT_EQ(node.owner->stats().tickets, 0u);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  EXPECT_EQ(node.MatchOne(b, kv_b, whole), Presence::kNeverStored);
  EXPECT_TRUE(node.owner->Idle());
}

TEST_F(PutTest, AStalledTicketIsRevokedAndItsSlotFreedOnlyWhenTheMoverStopped) {
  const auto reserved = node.ReserveOne(a, kv, whole);
  node.Advance(node.options.ticket_stall_us - 1);
  EXPECT_TRUE(node.outbox.revokes.empty());
  node.Advance(1);
  ASSERT_EQ(node.outbox.revokes.size(), 1u);
  EXPECT_EQ(node.outbox.revokes[0].second, reserved.ticket);
  EXPECT_EQ(node.MatchOne(b, kv_b, whole), Presence::kNeverStored);  // nobody waits for a dead writer
  EXPECT_EQ(node.owner->stats().slot_bytes, 8u * 4096);
  node.Give(a, Stopped{reserved.ticket});
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole), PutState::kExpired);
  EXPECT_EQ(node.owner->stats().put_expired, 1u);
}

TEST_F(PutTest, ProgressKeepsATicketAlive) {
  const auto reserved = node.ReserveOne(a, kv, whole);
  const auto idle = node.ReserveOne(a, kv, {2, 4096, {0, 4, 0, 2}});
  for (int i = 0; i < 10; ++i) {
    node.Advance(1'000'000);
    node.Give(a, Progress{reserved.ticket});
  }
  ASSERT_EQ(node.outbox.revokes.size(), 1u);
  EXPECT_EQ(node.outbox.revokes[0].second, idle.ticket);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole), PutState::kStored);
}

TEST_F(PutTest, ACommitThatCrossesItsRevokeIsExpiredAndFreesTheSlot) {
  const auto reserved = node.ReserveOne(a, kv, whole);
  node.Advance(node.options.ticket_stall_us);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole), PutState::kExpired);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  node.Give(a, Stopped{reserved.ticket});  // arrives late
  node.Check();
}

TEST_F(PutTest, WhatWasClearedMeanwhileIsCleared) {
  const auto reserved = node.ReserveOne(a, kv, whole);
  ASSERT_TRUE(node.Ask<ClearReply>(b, Verb::kClear, Clear{kv_b}).ok());
  EXPECT_EQ(node.MatchOne(b, kv_b, whole), Presence::kNeverStored);
  EXPECT_EQ(node.CommitOne(a, reserved.ticket, whole), PutState::kCleared);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
}

TEST_F(PutTest, TicketsAreBoundedASessionAndANode) {
  for (uint64_t i = 0; i < 8; ++i)
    EXPECT_EQ(node.ReserveOne(a, kv, {i, 64, {0, 4, 0, 2}}).state, PutState::kTicket);
  EXPECT_EQ(node.ReserveOne(a, kv, {8, 64, {0, 4, 0, 2}}).state, PutState::kBusy);
  for (uint64_t i = 8; i < 12; ++i) {
    EXPECT_EQ(node.ReserveOne(b, kv_b, {i, 64, {0, 4, 0, 2}}).state, PutState::kTicket);
  }
  EXPECT_EQ(node.ReserveOne(b, kv_b, {12, 64, {0, 4, 0, 2}}).state, PutState::kBusy);
  EXPECT_EQ(node.owner->stats().tickets, 12u);
}

TEST_F(PutTest, WhatOpenTicketsKeepBesideTheirSlotsIsBounded) {
  OwnerOptions options;
  options.memory_bytes = 512 << 20;
  options.tickets_per_session_max = 4096;
  TestOwner big(options);
  const SessionId s = big.Connect();
  Reserve reserve;
  reserve.number = big.OpenIdentity(s, KvIdentity(4, 2));
  reserve.blocks.resize(1000, big.BlockOf(whole));
  for (auto& block : reserve.blocks) block.codec_data = Bytes(kCodecBytesMax);
  reserve.blocks[0].parts = {{8, 4096}};
  const uint64_t id = big.Send(s, Verb::kReserve, reserve);
  const auto first = big.Take<ReserveReply>(s, id);
  ASSERT_TRUE(first.ok());
  for (const auto& block : first.value().blocks) ASSERT_EQ(block.state, PutState::kTicket);
  const auto second = big.Ask<ReserveReply>(s, Verb::kReserve, reserve);
  EXPECT_EQ(second.value().blocks.back().state, PutState::kBusy);  // 64 MiB
  big.Check();
}

TEST_F(PutTest, SizesThatMakeNoSenseForTheGridAreInvalid) {
  const auto state = [&](const Rectangle& rectangle, std::vector<PartRun> parts) {
    Reserve reserve;
    reserve.number = kv;
    reserve.blocks.emplace_back();
    reserve.blocks[0].ref = {HashOf(1), 0, rectangle};
    reserve.blocks[0].parts = std::move(parts);
    const auto reply = node.Ask<ReserveReply>(a, Verb::kReserve, reserve);
    return reply.ok() ? reply.value().blocks.at(0).state : PutState::kTicket;
  };
  EXPECT_EQ(state({0, 5, 0, 2}, {{10, 64}}), PutState::kInvalid);          // more layers than the grid
  EXPECT_EQ(state({0, 4, 0, 3}, {{12, 64}}), PutState::kInvalid);          // more head groups
  EXPECT_EQ(state({2, 2, 0, 2}, {{0, 64}}), PutState::kInvalid);           // empty
  EXPECT_EQ(state({0, 4, 0, 2}, {}), PutState::kInvalid);                  // no parts
  EXPECT_EQ(state({0, 4, 0, 2}, {{7, 64}}), PutState::kInvalid);           // too few
  EXPECT_EQ(state({0, 4, 0, 2}, {{7, 64}, {2, 64}}), PutState::kInvalid);  // too many
  EXPECT_EQ(state({0, 4, 0, 2}, {{UINT32_MAX, 64}}), PutState::kInvalid);
  EXPECT_EQ(state({0, 4, 0, 2}, {{8, 0}}), PutState::kInvalid);           // no bytes
  EXPECT_EQ(state({0, 4, 0, 2}, {{8, 128u << 20}}), PutState::kInvalid);  // over kPieceBytesMax
  EXPECT_EQ(node.owner->stats().put_invalid, 9u);
  EXPECT_EQ(state({0, 4, 0, 2}, {{2, 64}, {6, 128}}), PutState::kTicket);  // parts may differ in size
  EXPECT_EQ(state({0, 1, 0, 1}, {{1, 100u << 20}}), PutState::kFull);      // larger than the memory
}

TEST_F(PutTest, AnOpaqueBlockIsOnePartOfAnySize) {
  const uint32_t files = node.OpenIdentity(a, OpaqueIdentity());
  EXPECT_EQ(node.Put(a, files, {1, 777, {0, 1, 0, 1}}), PutState::kStored);
  EXPECT_EQ(node.Put(a, files, {2, 5'000'000, {0, 1, 0, 1}}), PutState::kStored);
  EXPECT_EQ(node.ReserveOne(a, files, {3, 777, {0, 2, 0, 1}}).state, PutState::kInvalid);
  EXPECT_TRUE(node.GetOne(a, files, {1, 777, {0, 1, 0, 1}}).checksums_good);
}

TEST_F(PutTest, ThePiecesOfAKeyAreBounded) {
  const std::string identity = KvIdentity(64, 64);
  const uint32_t grid = node.OpenIdentity(a, identity);
  uint32_t stored = 0;
  for (uint16_t layer = 0; layer < 64; ++layer) {
    for (uint16_t head = 0; head < 32 && stored < kPiecesPerKeyMax; ++head) {
      const Rectangle one{layer, static_cast<uint16_t>(layer + 1), head, static_cast<uint16_t>(head + 1)};
      ASSERT_EQ(node.Put(a, grid, {1, 64, one}), PutState::kStored);
      ++stored;
    }
  }
  EXPECT_EQ(node.ReserveOne(a, grid, {1, 64, {63, 64, 63, 64}}).state, PutState::kBusy);
  const Pulled pulled = node.GetOne(a, grid, {1, 64, {0, 32, 0, 32}});
  EXPECT_EQ(pulled.presence, Presence::kRam);
  EXPECT_EQ(pulled.sources.size(), 1024u);
  EXPECT_TRUE(pulled.checksums_good);
}

TEST_F(PutTest, TheHeaderCarriesCodecDataAndConstituents) {
  Reserve reserve;
  reserve.number = kv;
  reserve.blocks.push_back(node.BlockOf(whole));
  reserve.blocks[0].codec = 3;
  reserve.blocks[0].codec_data = Bytes(1000, std::byte{7});
  reserve.blocks[0].constituents = {HashOf(100), HashOf(101)};
  const auto reply = node.Ask<ReserveReply>(a, Verb::kReserve, reserve);
  ASSERT_EQ(reply.value().blocks.at(0).state, PutState::kTicket);
  EXPECT_EQ(node.CommitOne(a, reply.value().blocks[0].ticket, whole), PutState::kStored);
  EXPECT_TRUE(node.GetOne(a, kv, whole).checksums_good);  // the longer header fits its slot
}

TEST_F(PutTest, ADrainingNodeGivesNoTicketsAndServesOn) {
  ASSERT_EQ(node.Put(a, kv, whole), PutState::kStored);
  const auto open = node.ReserveOne(a, kv, {2, 4096, {0, 4, 0, 2}});
  node.owner->Drain();
  EXPECT_EQ(node.ReserveOne(a, kv, {3, 4096, {0, 4, 0, 2}}).state, PutState::kBusy);
  EXPECT_FALSE(node.owner->Idle());
  EXPECT_EQ(node.CommitOne(a, open.ticket, {2, 4096, {0, 4, 0, 2}}), PutState::kStored);
  EXPECT_EQ(node.GetOne(a, kv, whole).presence, Presence::kRam);
  EXPECT_TRUE(node.owner->Idle());
}

}  // namespace
}  // namespace larder::node
