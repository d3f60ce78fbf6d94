#include <random>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kMiB = 1 << 20;

struct EvictTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 32 * kMiB;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect();
  uint32_t n = node.OpenIdentity(a, OpaqueIdentity(), "t");
  uint64_t next_key = 0;
  void TearDown() override { node.Check(); }

  PutState PutBytes(uint32_t number, uint64_t key, uint32_t bytes) {
    ++node.now_us;
    return node.Put(a, number, {key, bytes, {}});
  }
  // Puts until so many were evicted.
  void Fill(uint32_t number, uint32_t bytes, uint64_t evictions) {
    const uint64_t target = node.owner->stats().evicted + evictions;
    while (node.owner->stats().evicted < target) {
      ASSERT_EQ(PutBytes(number, next_key++, bytes), PutState::kStored);
    }
  }
};

TEST_F(EvictTest, AFullArenaEvictsItsColdest) {
  Fill(n, 64 << 10, 3);
  EXPECT_EQ(node.MatchOne(a, n, {0, 64 << 10, {}}), Presence::kEvicted);
  EXPECT_EQ(node.MatchOne(a, n, {2, 64 << 10, {}}), Presence::kEvicted);
  EXPECT_EQ(node.MatchOne(a, n, {3, 64 << 10, {}}), Presence::kRam);
  EXPECT_EQ(node.owner->stats().evicted_bytes, 3u * (64 << 10));
}

TEST_F(EvictTest, MemoryMovesFromAColdSizeToOneThatIsNeeded) {
  Fill(n, 64 << 10, 1);
  const uint64_t small = node.owner->stats().pieces;
  node.now_us += 1000;
  for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(PutBytes(n, 100'000 + i, kMiB), PutState::kStored);
  EXPECT_EQ(node.MatchOne(a, n, {100'059, static_cast<uint32_t>(kMiB), {}}), Presence::kRam);
  EXPECT_LT(node.owner->stats().pieces, small / 4);
  EXPECT_GT(node.owner->stats().payload_bytes, 28 * kMiB);
  EXPECT_LE(node.owner->stats().slab_bytes, 32 * kMiB);
}

TEST_F(EvictTest, AHotSizeKeepsItsMemory) {
  Fill(n, 64 << 10, 1);
  std::vector<uint64_t> hot;
  for (uint64_t key = 1; key < next_key; ++key) hot.push_back(key);
  // Others come, but what is here is touched all the time; one slab goes, for the size had nothing.
  for (uint64_t i = 0; i < 50; ++i) {
    ++node.now_us;
    for (const uint64_t key : hot) node.TouchOne(a, n, {key, 64 << 10, {}});
    ASSERT_EQ(PutBytes(n, 200'000 + i, kMiB), PutState::kStored);
  }
  uint64_t left = 0;
  for (const uint64_t key : hot) left += IsHit(node.MatchOne(a, n, {key, 64 << 10, {}})) ? 1 : 0;
  EXPECT_GT(left, hot.size() * 3 / 4);
}

TEST_F(EvictTest, TenantsNeverShareASlab) {
  const uint32_t other = node.OpenIdentity(a, OpaqueIdentity(), "u");
  Fill(n, 64 << 10, 1);
  node.now_us += 1000;
  Fill(other, 64 << 10, 700);
  EXPECT_GT(node.slabs.live.size(), 0u);
  uint64_t of_first = 0;
  for (const auto& info : node.owner->Namespaces()) of_first += info.tenant == "t" ? info.bytes : 0;
  EXPECT_LT(of_first, 8 * kMiB);  // slab by slab, each a new one
}

TEST_F(EvictTest, RetiredBytesCountUntilTheSlabIsGone) {
  const uint32_t other = node.OpenIdentity(a, OpaqueIdentity(), "u");
  node.slabs.gone_at_once = false;
  Fill(n, 64 << 10, 1);
  const uint64_t slabs = node.slabs.live.size();
  node.now_us += 1000;
  EXPECT_EQ(PutBytes(other, 1, 64 << 10), PutState::kBusy);
  EXPECT_EQ(node.slabs.retired.size(), 1u);
  EXPECT_EQ(PutBytes(other, 1, 64 << 10), PutState::kBusy);
  EXPECT_EQ(node.slabs.retired.size(), 1u);  // one is on its way: no second one is emptied
  node.Check();
  EXPECT_TRUE(node.slabs.LetOneGo());
  EXPECT_EQ(PutBytes(other, 1, 64 << 10), PutState::kStored);
  EXPECT_EQ(node.slabs.live.size(), slabs);
  // The first tenant goes on in what it has left.
  EXPECT_EQ(PutBytes(n, next_key++, 64 << 10), PutState::kStored);
}

TEST_F(EvictTest, EmptySlabsOfOthersAreUsedBeforeAnythingIsEvicted) {
  Fill(n, 64 << 10, 1);
  ASSERT_TRUE(node.Ask<ClearReply>(a, Verb::kClear, Clear{n}).ok());
  node.Advance(1);
  const uint64_t evicted = node.owner->stats().evicted;
  for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(PutBytes(n, 300'000 + i, kMiB), PutState::kStored);
  EXPECT_EQ(node.owner->stats().evicted, evicted);
}

TEST_F(EvictTest, NothingPinnedIsEvictedAndAllPinnedIsFull) {
  Fill(n, kMiB, 1);
  const uint64_t pieces = node.owner->stats().pieces;
  for (uint64_t key = 1; key < next_key; ++key)
    node.GetOne(a, n, {key, static_cast<uint32_t>(kMiB), {}}, false);
  EXPECT_EQ(node.owner->stats().hard_pins, pieces);
  EXPECT_EQ(PutBytes(n, next_key, kMiB), PutState::kFull);
  EXPECT_EQ(PutBytes(n, next_key, 2 * kMiB), PutState::kFull);
  EXPECT_EQ(node.owner->stats().pieces, pieces);
  node.Give(a, Sent{node.last_token});
  EXPECT_EQ(PutBytes(n, next_key, kMiB), PutState::kStored);
}

TEST_F(EvictTest, APieceLargerThanTheMemoryIsFull) {
  EXPECT_EQ(node.ReserveOne(a, n, {1, 33u << 20, {}}).state, PutState::kFull);
  EXPECT_EQ(node.ReserveOne(a, n, {1, 31u << 20, {}}).state, PutState::kTicket);
}

TEST_F(EvictTest, ALargePieceTakesAsManySlabsAsItNeeds) {
  Fill(n, 64 << 10, 1);
  node.now_us += 1000;
  EXPECT_EQ(PutBytes(n, 400'000, 20 << 20), PutState::kStored);
}

TEST_F(EvictTest, WithoutMemoryFromTheSystemWhatIsThereIsReused) {
  node.slabs.slabs_max = 2;
  Fill(n, 64 << 10, 5);
  EXPECT_EQ(node.slabs.live.size(), 2u);
}

// A tenant that uses every class of slots there may be must not lock out the others.
TEST(Evict, WhenAllClassesAreInUseTheColdestGivesWay) {
  OwnerOptions options;
  options.memory_bytes = 64 * kMiB;
  options.slab_bytes_target = 4096;
  TestOwner node(options);
  const SessionId a = node.Connect();
  const uint32_t hostile = node.OpenIdentity(a, OpaqueIdentity(), "hostile");
  // 16 head sizes x 64 payload sizes: one slab each.
  uint64_t key = 0;
  for (uint32_t codec = 0; codec < 16; ++codec) {
    for (uint32_t size = 1; size <= 64; ++size, ++key) {
      ++node.now_us;
      Reserve reserve;
      reserve.number = hostile;
      reserve.blocks.push_back(node.BlockOf({key, size * 64 - 1, {}}));
      reserve.blocks[0].codec_data = Bytes(codec * 64);
      const auto reply = node.Ask<ReserveReply>(a, Verb::kReserve, reserve);
      ASSERT_EQ(reply.value().blocks.at(0).state, PutState::kTicket) << key;
      ASSERT_EQ(node.CommitOne(a, reply.value().blocks[0].ticket, {key, size * 64 - 1, {}}),
                PutState::kStored);
    }
  }
  const uint32_t other = node.OpenIdentity(a, OpaqueIdentity(), "other");
  EXPECT_EQ(node.Put(a, other, {1, 4096, {}}), PutState::kStored);
  EXPECT_EQ(node.MatchOne(a, hostile, {0, 63, {}}), Presence::kEvicted);
  EXPECT_EQ(node.owner->stats().pieces, 1024u);
  node.Check();
}

TEST_F(EvictTest, WhatAClearLeftIsFreedBeforeAnythingIsEvicted) {
  const uint32_t other = node.OpenIdentity(a, OpaqueIdentity("other"), "t");
  for (uint64_t key = 0; key < 250; ++key) ASSERT_EQ(PutBytes(n, key, 64 << 10), PutState::kStored);
  next_key = 1000;
  while (PutBytes(other, next_key++, 4096) == PutState::kStored && node.owner->stats().evicted == 0) {
  }
  const uint64_t evicted = node.owner->stats().evicted;
  ASSERT_TRUE(
      node.Ask<ClearReply>(a, Verb::kClear, Clear{other}).ok());  // frees a part at once, the rest later
  for (uint64_t i = 0; i < 150; ++i) ASSERT_EQ(PutBytes(n, 500 + i, 64 << 10), PutState::kStored);
  EXPECT_EQ(node.owner->stats().evicted, evicted);
}

// More than 96 % of a full arena is payload, with a mix of sizes of 1 MiB and more that drifts.
TEST(Evict, AFullArenaOfMixedSizesIsNearlyAllPayload) {
  OwnerOptions options;
  options.memory_bytes = 512 * kMiB;
  TestOwner node(options);
  const SessionId a = node.Connect();
  const uint32_t n = node.OpenIdentity(a, KvIdentity(8, 4));
  std::mt19937_64 random(23);
  const uint32_t part_bytes[] = {32 << 10, 40'000, 52'224, 96 << 10};  // x 32 parts: 1, 1.2, 1.6, 3 MiB
  double worst = 1;
  for (uint64_t key = 0; key < 3000; ++key) {
    ++node.now_us;
    const size_t favourite = key / 1000;
    const uint32_t part = part_bytes[random() % 3 == 0 ? random() % 4 : favourite];
    const auto reserved = node.ReserveOne(a, n, {key, part, {0, 8, 0, 4}});
    ASSERT_EQ(reserved.state, PutState::kTicket) << key;
    Committed committed;  // the bytes don't matter here
    committed.blocks.push_back({reserved.ticket, true, true, std::vector<uint32_t>(32, 1)});
    node.Give(a, committed);
    node.outbox.replies.clear();
    node.outbox.grants.clear();
    const OwnerStats stats = node.owner->stats();
    if (key > 700 && key % 100 == 0) {
      worst =
          std::min(worst, static_cast<double>(stats.payload_bytes) / static_cast<double>(stats.memory_bytes));
    }
  }
  EXPECT_GT(worst, 0.96);
  node.Check();
}

}  // namespace
}  // namespace larder::node
