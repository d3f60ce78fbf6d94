// Blocks of tenants with a ttl: gone when it is over, on both tiers, whatever the machine's clock does.
#include <random>

#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace ttl {
namespace {

constexpr uint64_t kSecondUs = 1'000'000;
constexpr uint32_t kPartBytes = 64 << 10;

OwnerOptions Options(uint64_t memory_bytes) {
  OwnerOptions options;
  options.memory_bytes = memory_bytes;
  options.tenants = {{"brief", 60 * kSecondUs}};
  return options;
}

Spec Block(uint64_t key, uint32_t part_bytes = 4096) {
  return {key, part_bytes, {}};
}

struct Ttl : ::testing::Test {
  Ttl() : node(Options(16 << 20)) {  // a slab for each tenant
    node.unix_ahead_ms = 1'700'000'000'000;
    session = node.Connect();
    brief = node.OpenIdentity(session, OpaqueIdentity(), "brief");
    lasting = node.OpenIdentity(session, OpaqueIdentity(), "lasting");
  }
  void Pass(uint64_t seconds) { node.now_us += seconds * kSecondUs; }
  Presence Get(uint64_t key) { return node.GetOne(session, brief, Block(key)).presence; }

  TestOwner node;
  SessionId session = 0;
  uint32_t brief = 0, lasting = 0;
};

TEST_F(Ttl, ABlockIsGoneWhenItsTimeIsOver) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  ASSERT_EQ(node.Put(session, lasting, Block(1)), PutState::kStored);
  Pass(58);
  EXPECT_EQ(Get(1), Presence::kRam);
  EXPECT_EQ(node.MatchOne(session, brief, Block(1)), Presence::kRam);
  Pass(2);
  EXPECT_EQ(node.MatchOne(session, brief, Block(1)), Presence::kExpired);
  EXPECT_EQ(Get(1), Presence::kExpired);
  EXPECT_EQ(node.GetOne(session, lasting, Block(1)).presence, Presence::kRam);
  EXPECT_EQ(node.owner->stats().expired, 1u);
  EXPECT_EQ(node.owner->stats().expired_bytes, 4096u);
  EXPECT_EQ(node.owner->stats().miss_by_reason[static_cast<uint8_t>(Presence::kExpired)], 2u);
  EXPECT_EQ(node.owner->stats().pieces, 1u);
  node.Check();
}

TEST_F(Ttl, APutAfterItIsANewBlockWithANewTime) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(50);
  EXPECT_EQ(node.Put(session, brief, Block(1)), PutState::kExists);  // writes nothing, so it adds no time
  Pass(10);
  EXPECT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(50);
  EXPECT_EQ(Get(1), Presence::kRam);
  node.Check();
}

TEST_F(Ttl, UsesAndPinsAddNoTime) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(55);
  uint64_t handle = 0;
  EXPECT_EQ(node.MatchOne(session, brief, Block(1), &handle, 30 * kSecondUs), Presence::kRam);
  EXPECT_NE(handle, 0u);
  node.TouchOne(session, brief, Block(1));
  node.GetOne(session, brief, Block(1), false);
  const uint64_t under_way = node.last_token;
  Pass(5);
  EXPECT_EQ(Get(1), Presence::kExpired);
  node.Check();
  node.Give(session, Sent{under_way});  // what was on its way has left before
  node.Release(session, handle);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  node.Check();
}

TEST_F(Ttl, ABlockTwiceInOneQuestion) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(60);
  Match match;
  match.number = brief;
  match.groups = {0};
  match.hashes = {HashOf(1), HashOf(2), HashOf(1)};
  match.hash_count = 3;
  const auto reply = node.Ask<MatchReply>(session, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  const auto expired = static_cast<uint8_t>(Presence::kExpired);
  const auto never = static_cast<uint8_t>(Presence::kNeverStored);
  EXPECT_EQ(reply.value().presence, (std::vector<uint8_t>{expired, never, expired}));
  node.Check();
}

TEST_F(Ttl, ExplainSaysIt) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(60);
  Namespace name;
  for (const NamespaceInfo& each : node.owner->Namespaces()) {
    if (each.tenant == "brief") name = each.name_space;
  }
  EXPECT_EQ(Get(2), Presence::kNeverStored);  // the clock comes with it
  const auto stories = node.owner->Explain(name, {{HashOf(1), 0}});
  ASSERT_TRUE(stories.ok());
  EXPECT_EQ(stories.value()[0].presence, Presence::kExpired);
  EXPECT_NE(stories.value()[0].left_s, 0u);
  EXPECT_TRUE(stories.value()[0].pieces.empty());
}

TEST_F(Ttl, WhatNobodyAsksForIsFreedByAndBy) {
  for (uint64_t key = 1; key <= 500; ++key) {
    ASSERT_EQ(node.Put(session, brief, Block(key)), PutState::kStored);
  }
  for (uint64_t key = 1; key <= 10; ++key) {
    ASSERT_EQ(node.Put(session, lasting, Block(key)), PutState::kStored);
  }
  node.Advance(59 * kSecondUs);
  EXPECT_EQ(node.owner->stats().pieces, 510u);
  node.Advance(60 * kSecondUs / 16);
  EXPECT_LT(node.owner->stats().pieces, 510u);
  EXPECT_GT(node.owner->stats().pieces, 10u + 500u / 2);  // a bounded step at a time
  for (int i = 0; i < 10; ++i) node.Advance(10'000);
  EXPECT_EQ(node.owner->stats().pieces, 10u);
  EXPECT_EQ(node.owner->stats().expired, 500u);
  node.Check();
}

TEST_F(Ttl, AClockSetBackAddsNoTimeAndOneSetForwardTakesIt) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  node.unix_ahead_ms -= 3'600'000;
  Pass(30);
  ASSERT_EQ(node.Put(session, brief, Block(2)), PutState::kStored);
  Pass(30);
  EXPECT_EQ(Get(1), Presence::kExpired);
  EXPECT_EQ(Get(2), Presence::kRam);
  Pass(30);
  EXPECT_EQ(Get(2), Presence::kExpired);
  ASSERT_EQ(node.Put(session, brief, Block(3)), PutState::kStored);
  node.unix_ahead_ms += 2 * 3'600'000;  // or the machine slept
  EXPECT_EQ(Get(3), Presence::kExpired);
  node.Check();
}

TEST_F(Ttl, WaitsCountOnlyWhatHasTimeLeft) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  Pass(60);
  Wait wait;
  wait.number = brief;
  wait.groups = {0};
  wait.hashes = {HashOf(1)};
  wait.hash_count = 1;
  const uint64_t id = node.Send(session, Verb::kWait, wait, 10'000'000);
  EXPECT_FALSE(node.Answered(session, id));
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  EXPECT_TRUE(node.Answered(session, id));
}

TEST_F(Ttl, ItIsNotHandedToOtherNodes) {
  ASSERT_EQ(node.Put(session, brief, Block(1)), PutState::kStored);
  ASSERT_EQ(node.Put(session, lasting, Block(2)), PutState::kStored);
  uint32_t from = 0;
  EXPECT_EQ(node.owner->ListWarm(&from).size(), 1u);
}

struct TtlSsd : ::testing::Test {
  TtlSsd() : media(1 << 20, 64) { Start(); }
  void Start() {  // a new life over the same disk
    const uint64_t now_us = node == nullptr ? 1 * kSecondUs : node->now_us;
    const uint64_t ahead_ms = node == nullptr ? 1'700'000'000'000 : node->unix_ahead_ms;
    node.reset();
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::make_unique<testing::SimDisk>(&media, ++seed, false));
    ssd::TierOptions tier;
    tier.append_bytes = 256 << 10;
    node =
        std::make_unique<TestOwner>(Options(4 << 20), std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    node->now_us = now_us;
    node->unix_ahead_ms = ahead_ms;
    node->RunDisks(100);
    session = node->Connect();
    brief = node->OpenIdentity(session, OpaqueIdentity(), "brief");
  }
  void Put(uint64_t first, uint64_t count) {
    for (uint64_t key = first; key < first + count; ++key) {
      ASSERT_EQ(node->Put(session, brief, Block(key, kPartBytes)), PutState::kStored) << key;
      node->RunDisks(3);
    }
    node->RunDisks();
  }
  Presence Get(uint64_t key) { return node->GetOne(session, brief, Block(key, kPartBytes)).presence; }

  testing::SimMedia media;
  uint64_t seed = 70;
  std::unique_ptr<TestOwner> node;
  SessionId session = 0;
  uint32_t brief = 0;
};

TEST_F(TtlSsd, ItReachesSsd) {
  Put(1, 200);  // memory holds about 60
  ASSERT_EQ(Get(1), Presence::kSsd);
  node->now_us += 60 * kSecondUs;
  EXPECT_EQ(node->MatchOne(session, brief, Block(2, kPartBytes)), Presence::kExpired);
  for (uint64_t key = 1; key <= 200; ++key) EXPECT_EQ(Get(key), Presence::kExpired) << key;
  EXPECT_EQ(node->owner->stats().ssd.pieces, 0u);
  EXPECT_EQ(node->Put(session, brief, Block(1, kPartBytes)), PutState::kStored);
  node->RunDisks();
  node->Check();
}

TEST_F(TtlSsd, AGetThatWaitsTooLongIsAMiss) {
  Put(1, 200);
  node->now_us += 59 * kSecondUs;
  larder::Get get;
  get.number = brief;
  get.blocks = {{HashOf(1), 0, {}}};
  const uint64_t id = node->Send(session, Verb::kGet, get);
  ASSERT_FALSE(node->Answered(session, id));
  node->now_us += kSecondUs;
  node->RunDisks();
  const auto reply = node->Take<GetReply>(session, id);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().blocks[0].presence, Presence::kExpired);
  node->Check();
}

TEST_F(TtlSsd, WhatComesUpKeepsItsTime) {
  Put(1, 200);
  node->now_us += 50 * kSecondUs;
  Get(1);
  Get(1);
  ASSERT_EQ(Get(1), Presence::kRam);
  node->now_us += 10 * kSecondUs;
  EXPECT_EQ(Get(1), Presence::kExpired);
}

TEST_F(TtlSsd, ItCountsOnOverARestart) {
  Put(1, 200);
  node->now_us += 30 * kSecondUs;
  Start();
  EXPECT_EQ(Get(1), Presence::kSsd);
  EXPECT_EQ(Get(2), Presence::kSsd);
  node->now_us += 30 * kSecondUs;
  EXPECT_EQ(Get(1), Presence::kExpired);
  Start();
  for (uint64_t key = 1; key <= 200; ++key) EXPECT_FALSE(IsHit(Get(key))) << key;
}

// The node can't know how long it was down, but no less than its youngest block is old.
TEST_F(TtlSsd, AClockSetBackWhileTheNodeIsDown) {
  Put(1, 100);
  node->now_us += 50 * kSecondUs;
  Put(201, 100);
  node->unix_ahead_ms -= 3'600'000;
  Start();
  EXPECT_EQ(Get(1), Presence::kSsd);
  node->now_us += 10 * kSecondUs;
  EXPECT_EQ(Get(1), Presence::kExpired);
  EXPECT_EQ(Get(201), Presence::kSsd);
  node->now_us += 50 * kSecondUs;
  EXPECT_EQ(Get(202), Presence::kExpired);
}

TEST_F(TtlSsd, ItsPlaceComesBackWithoutAnybodyAsking) {
  Put(1, 200);
  for (int i = 0; i < 400; ++i) {
    node->Advance(kSecondUs / 5);
    node->RunDisks(2);
  }
  EXPECT_EQ(node->owner->stats().ssd.pieces, 0u);
  EXPECT_EQ(node->owner->stats().pieces, 0u);
  EXPECT_EQ(node->owner->stats().expired, 200u);
  node->Check();
}

// Never longer than the ttl, whatever happens in between: puts, gets, restarts, clocks.
TEST_F(TtlSsd, NothingIsServedTooLate) {
  std::mt19937_64 random(5);
  std::map<uint64_t, uint64_t> put_us;
  uint64_t furthest_ms = node->unix_ahead_ms;
  const uint64_t ttl_us = 60 * kSecondUs;
  int hits = 0, expired = 0;
  for (int step = 0; step < 4000; ++step) {
    const uint64_t key = random() % 150;
    const uint64_t chance = random() % 100;
    if (chance < 40) {
      if (node->Put(session, brief, Block(key, kPartBytes)) == PutState::kStored) put_us[key] = node->now_us;
    } else if (chance < 90) {
      const Pulled pulled = node->GetOne(session, brief, Block(key, kPartBytes));
      const uint64_t age_us = put_us.count(key) == 0 ? 0 : node->now_us - put_us[key];
      if (IsHit(pulled.presence)) {
        ++hits;
        EXPECT_LT(age_us, ttl_us) << "step " << step;
        EXPECT_TRUE(pulled.checksums_good);
      }
      expired += pulled.presence == Presence::kExpired ? 1 : 0;
    } else if (chance < 98) {
      node->Advance(random() % (2 * kSecondUs));
    } else if (chance < 99) {
      node->unix_ahead_ms += random() % 2000;
      node->unix_ahead_ms -= 1000;
      furthest_ms = std::max(furthest_ms, node->unix_ahead_ms);
    } else if (step % 3 == 0) {
      node->unix_ahead_ms = furthest_ms;  // over a restart nothing but the machine's clock counts
      Start();
    }
    node->RunDisks(2);
    if (step % 100 == 0) node->Check();
  }
  EXPECT_GT(hits, 100);
  EXPECT_GT(expired, 10);
}

}  // namespace
}  // namespace ttl
}  // namespace larder::node
