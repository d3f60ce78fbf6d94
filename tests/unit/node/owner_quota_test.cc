// Quotas: a tenant that needs more gives up its own coldest, and what does not fit is refused with its
// reason.
#include <random>

#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace quota {
namespace {

constexpr uint32_t kSlot = 64 << 10;
constexpr uint64_t kQuota = 16 * kSlot;

OwnerOptions Options() {
  OwnerOptions options;
  options.memory_bytes = 64 << 20;
  options.eviction_policy = PolicyKind::kLru;
  options.tenants = {
      {.name = "small", .quota_bytes = kQuota},
      {.name = "none", .quota_bytes = 0},
      {.name = "few", .quota_bytes = kQuota, .pin_us_max = 2'000'000, .pinned_bytes_max = 3 * kSlot},
      {.name = "pinless", .pin_us_max = 0},
      {.name = "shallow", .quota_bytes = kQuota, .ssd_quota_bytes = 20 * kSlot},
      {.name = "dry", .quota_bytes = kQuota, .ssd_quota_bytes = 0},
      {.name = "*", .quota_bytes = 8 << 20}};
  return options;
}

Spec Block(uint64_t key, uint32_t bytes = kSlot) {
  return {key, bytes, {}, static_cast<uint32_t>(key)};
}

struct Quota : ::testing::Test {
  Quota() : node(Options()) {
    session = node.Connect();
    small = Open("small");
    none = Open("none");
    other = Open("other");
  }
  uint32_t Open(const std::string& tenant, const std::string& model = "test") {
    return node.OpenIdentity(session, OpaqueIdentity(model), tenant);
  }
  PutState Put(uint32_t number, uint64_t key, uint32_t bytes = kSlot) {
    node.now_us += 1000;
    return node.Put(session, number, Block(key, bytes));
  }
  Presence Match(uint32_t number, uint64_t key) { return node.MatchOne(session, number, Block(key)); }
  OwnerStats stats() const { return node.owner->stats(); }

  TestOwner node;
  SessionId session = 0;
  uint32_t small = 0, none = 0, other = 0;
};

TEST_F(Quota, ATenantGivesUpItsOwnColdestFirst) {
  for (uint64_t key = 1; key <= 20; ++key)
    ASSERT_EQ(Put(other, key), PutState::kStored);  // the coldest of all
  for (uint64_t key = 1; key <= 16; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  node.now_us += 20'000'000;
  node.TouchOne(session, small, Block(1));
  EXPECT_EQ(stats().evicted, 0u);
  ASSERT_EQ(Put(small, 17), PutState::kStored);
  ASSERT_EQ(Put(small, 18), PutState::kStored);
  node.Check();
  EXPECT_EQ(stats().evicted, 2u);
  EXPECT_EQ(stats().evicted_for_quota, 2u);
  EXPECT_EQ(Match(small, 1), Presence::kRam);
  EXPECT_EQ(node.GetOne(session, small, Block(2)).presence, Presence::kOverQuota);
  EXPECT_EQ(Match(small, 3), Presence::kOverQuota);
  EXPECT_EQ(stats().miss_by_reason[static_cast<uint8_t>(Presence::kOverQuota)], 2u);
  for (uint64_t key = 1; key <= 20; ++key) EXPECT_EQ(Match(other, key), Presence::kRam) << key;
}

TEST_F(Quota, ItsQuotaHoldsOverItsNamespacesAndSizes) {
  const uint32_t second = Open("small", "second");
  for (uint64_t key = 1; key <= 16; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  for (uint64_t key = 1; key <= 8; ++key) ASSERT_EQ(Put(second, key, 2 * kSlot), PutState::kStored);
  node.Check();
  for (uint64_t key = 1; key <= 16; ++key) EXPECT_EQ(Match(small, key), Presence::kOverQuota) << key;
  for (uint64_t key = 1; key <= 8; ++key) {
    EXPECT_EQ(node.MatchOne(session, second, Block(key, 2 * kSlot)), Presence::kRam) << key;
  }
}

TEST_F(Quota, ABlockLargerThanTheQuotaIsRefused) {
  ASSERT_EQ(Put(small, 1), PutState::kStored);
  EXPECT_EQ(Put(small, 2, kQuota + 1), PutState::kOverQuota);
  EXPECT_EQ(Match(small, 1), Presence::kRam);  // nothing left for it in vain
  EXPECT_EQ(Match(small, 2), Presence::kOverQuota);
  EXPECT_EQ(stats().put_over_quota, 1u);
  EXPECT_EQ(Put(small, 3, kQuota), PutState::kStored);
  node.Check();
}

TEST_F(Quota, AQuotaOfZeroTakesNothing) {
  EXPECT_EQ(Put(none, 1), PutState::kOverQuota);
  EXPECT_EQ(Put(none, 2, 64), PutState::kOverQuota);
  EXPECT_EQ(Match(none, 1), Presence::kOverQuota);
  EXPECT_EQ(node.GetOne(session, none, Block(1)).presence, Presence::kOverQuota);
  EXPECT_EQ(Match(none, 3), Presence::kNeverStored);
  EXPECT_EQ(stats().pieces, 0u);
  EXPECT_EQ(Put(other, 1), PutState::kStored);
  node.Check();
}

TEST_F(Quota, WhatIsPinnedOrUnderWayLeavesNoRoom) {
  for (uint64_t key = 1; key <= 15; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  std::vector<uint64_t> tokens(16);
  for (uint64_t key = 1; key <= 15; ++key) {
    node.GetOne(session, small, Block(key), false);
    tokens[key] = node.last_token;
  }
  const ReserveReply::Block ticket = node.ReserveOne(session, small, Block(16));
  ASSERT_EQ(ticket.state, PutState::kTicket);
  EXPECT_EQ(Put(small, 17), PutState::kBusy) << "there will be room";
  EXPECT_EQ(Put(other, 17), PutState::kStored);
  node.Check();
  EXPECT_EQ(node.CommitOne(session, ticket.ticket, Block(16)), PutState::kStored);
  node.Give(session, Sent{tokens[7]});
  EXPECT_EQ(Put(small, 17), PutState::kStored);
  EXPECT_EQ(Put(small, 18), PutState::kStored);
  EXPECT_EQ(Put(small, 19), PutState::kStored);
  for (uint64_t key = 1; key <= 15; ++key) {
    if (key == 7) continue;
    EXPECT_EQ(Match(small, key), Presence::kRam) << key;
  }
  node.Check();
}

// larderctl put was refused for good while the scrub read the tenant's only other block.
TEST_F(Quota, WhatOneReadHoldsIsBusyAndNotOver) {
  ASSERT_EQ(Put(small, 1, kQuota), PutState::kStored);
  node.GetOne(session, small, Block(1, kQuota), false);
  EXPECT_EQ(Put(small, 2), PutState::kBusy);
  node.Give(session, Sent{node.last_token});
  EXPECT_EQ(Put(small, 2), PutState::kStored);
  node.Check();
}

TEST_F(Quota, PinsHaveAShareOfItAndAnEnd) {
  const uint32_t few = Open("few");
  for (const uint32_t number : {small, few}) {
    for (uint64_t key = 1; key <= 16; ++key) ASSERT_EQ(Put(number, key), PutState::kStored);
  }
  larder::Match match;
  match.number = small;
  match.groups = {0};
  for (uint64_t key = 1; key <= 16; ++key) match.hashes.push_back(HashOf(key));
  match.hash_count = 16;
  match.pin_us = 60'000'000;
  EXPECT_EQ(node.Ask<MatchReply>(session, Verb::kMatch, match).value().pinned_bytes, kQuota / 2);
  match.number = few;
  EXPECT_EQ(node.Ask<MatchReply>(session, Verb::kMatch, match).value().pinned_bytes, 3 * kSlot);
  EXPECT_EQ(stats().soft_pinned_bytes, kQuota / 2 + 3 * kSlot);
  // The rest is there for puts, pinned or not.
  for (uint64_t key = 21; key <= 50; ++key) ASSERT_EQ(Put(few, key), PutState::kStored);
  for (uint64_t key = 1; key <= 3; ++key) EXPECT_EQ(this->Match(few, key), Presence::kRam) << key;
  node.Advance(2'000'000);
  EXPECT_EQ(stats().soft_pinned_bytes, kQuota / 2);  // few's are over, whatever was asked for
  for (uint64_t key = 51; key <= 66; ++key) ASSERT_EQ(Put(few, key), PutState::kStored);
  for (uint64_t key = 1; key <= 3; ++key) EXPECT_EQ(this->Match(few, key), Presence::kOverQuota) << key;
  node.Check();
}

TEST_F(Quota, ATenantMayHaveNoPins) {
  const uint32_t pinless = Open("pinless");
  ASSERT_EQ(Put(pinless, 1), PutState::kStored);
  uint64_t handle = 1;
  EXPECT_EQ(node.MatchOne(session, pinless, Block(1), &handle, 1'000'000), Presence::kRam);
  EXPECT_EQ(handle, 0u);
}

TEST_F(Quota, APieceThatLeftCountsAsLongAsAPinHoldsItsMemory) {
  for (uint64_t key = 1; key <= 16; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  Remove all;
  all.number = small;
  all.groups = {0};
  for (uint64_t key = 1; key <= 16; ++key) {
    node.GetOne(session, small, Block(key), false);
    all.hashes.push_back(HashOf(key));
  }
  node.Send(session, Verb::kRemove, all);
  EXPECT_EQ(stats().pieces, 0u);
  EXPECT_EQ(Put(small, 20), PutState::kBusy);
  node.Check();
  node.Give(session, Sent{node.last_token});
  EXPECT_EQ(Put(small, 20), PutState::kStored);
  node.Check();
}

TEST_F(Quota, AClearGivesItsQuotaBack) {
  for (uint64_t key = 1; key <= 16; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  node.Send(session, Verb::kClear, Clear{small});
  for (uint64_t key = 21; key <= 36; ++key) ASSERT_EQ(Put(small, key), PutState::kStored);
  EXPECT_EQ(stats().evicted, 0u);
  node.Check();
}

TEST_F(Quota, ATenantThatNobodyKnowsAnyMoreIsCountedOnWhenItComesBack) {
  OwnerOptions options = Options();
  options.namespaces_max = 1;
  TestOwner one(options);
  const SessionId first = one.Connect();
  const uint32_t number = one.OpenIdentity(first, OpaqueIdentity(), "other");
  for (uint64_t key = 1; key <= 700; ++key) {
    ASSERT_EQ(one.Put(first, number, Block(key, 4096)), PutState::kStored);
  }
  one.Send(first, Verb::kClear, Clear{number});  // frees some of them, the timer the rest
  EXPECT_GT(one.owner->stats().slot_bytes, 0u);
  one.Give(first, Closed{});
  const SessionId second = one.Connect();
  EXPECT_NE(one.OpenIdentity(second, OpaqueIdentity(), "small"), 0u);
  one.Check();
  one.Give(second, Closed{});
  const SessionId third = one.Connect();
  EXPECT_NE(one.OpenIdentity(third, OpaqueIdentity(), "other"), 0u);
  one.Check();
  one.Give(third, Closed{});
  EXPECT_NE(one.OpenIdentity(one.Connect(), OpaqueIdentity(), "small"), 0u);
  one.Advance(1);
  EXPECT_EQ(one.owner->stats().slot_bytes, 0u);
  one.Check();
}

// Puts, gets, pins, removes and clears of three tenants at random: the counts agree and no quota is passed
// (CheckInvariants says so), and nobody's blocks leave for another's quota.
TEST_F(Quota, AtRandom) {
  std::mt19937_64 random(11);
  std::vector<uint64_t> handles;
  for (int step = 0; step < 6000; ++step) {
    const uint64_t key = random() % 60;
    const uint32_t number = random() % 3 == 0 ? other : small;
    const uint32_t bytes = key % 4 == 0 ? 3 * kSlot : kSlot;
    const uint64_t chance = random() % 100;
    uint64_t handle = 0;
    if (chance < 50) {
      Put(number, key, bytes);
    } else if (chance < 60) {
      node.GetOne(session, number, Block(key, bytes));
    } else if (chance < 70) {
      node.MatchOne(session, number, Block(key, bytes), &handle, 50'000);
      if (handle != 0) handles.push_back(handle);
    } else if (chance < 80 && !handles.empty()) {
      node.Release(session, handles[random() % handles.size()]);
    } else if (chance < 85) {
      node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(key)}});
    } else if (chance < 86) {
      node.Send(session, Verb::kClear, Clear{number});
    } else if (chance < 92) {
      node.ReserveOne(session, number, Block(1000 + key, bytes));  // never written: it stalls
    } else {
      node.Advance(random() % 200'000);
      for (const auto& [owner, ticket] : std::exchange(node.outbox.revokes, {}))
        node.Give(session, Stopped{ticket});
    }
    if (step % 20 == 0) node.Check();
  }
  EXPECT_GT(stats().evicted_for_quota, 100u);
  EXPECT_EQ(stats().evicted, stats().evicted_for_quota);
  node.Check();
}

struct QuotaSsd : ::testing::Test {
  QuotaSsd() : media(1 << 20, 64) {
    auto made = std::make_unique<testing::SimDisk>(&media, 90, false);
    disk = made.get();
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::move(made));
    ssd::TierOptions tier;
    tier.append_bytes = 256 << 10;
    node = std::make_unique<TestOwner>(Options(), std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    node->RunDisks(100);
    session = node->Connect();
    small = node->OpenIdentity(session, OpaqueIdentity(), "small");
  }
  PutState Put(uint64_t key, int polls = 5) {
    node->now_us += 1000;
    const PutState state = node->Put(session, small, Block(key));
    node->RunDisks(polls);
    return state;
  }

  testing::SimMedia media;
  testing::SimDisk* disk = nullptr;
  std::unique_ptr<TestOwner> node;
  SessionId session = 0;
  uint32_t small = 0;
};

TEST_F(QuotaSsd, WhatAQuotaHasNoRoomForGoesDown) {
  for (uint64_t key = 1; key <= 200; ++key) ASSERT_EQ(Put(key), PutState::kStored) << key;
  node->RunDisks();
  node->Check();
  EXPECT_EQ(node->owner->stats().evicted_for_quota, 0u);
  EXPECT_LE(node->owner->stats().pieces, 16u);
  for (uint64_t key = 1; key <= 200; ++key) {
    const Pulled pulled = node->GetOne(session, small, Block(key));
    EXPECT_TRUE(IsHit(pulled.presence)) << key << PresenceName(pulled.presence);
    EXPECT_TRUE(pulled.checksums_good);
  }
  node->Check();
}

TEST_F(QuotaSsd, OnSsdATenantGivesUpItsOwnColdest) {
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_EQ(Put(key), PutState::kStored) << key;
  node->RunDisks();
  const uint64_t smalls = node->owner->stats().ssd.pieces;
  EXPECT_GE(smalls, 84u);
  const uint32_t shallow = node->OpenIdentity(session, OpaqueIdentity(), "shallow");
  for (uint64_t key = 1; key <= 200; ++key) {
    node->now_us += 1'000'000;  // records are told apart by the second
    ASSERT_EQ(node->Put(session, shallow, Block(key)), PutState::kStored) << key;
    node->RunDisks(5);
    EXPECT_LE(node->owner->stats().ssd.pieces, smalls + 20);
  }
  node->RunDisks();
  node->Check();
  EXPECT_GT(node->owner->stats().ssd_evicted_for_quota, 100u);
  EXPECT_EQ(node->GetOne(session, shallow, Block(1)).presence, Presence::kOverQuota);
  int kept = 0;
  for (uint64_t key = 160; key <= 200; ++key) {
    kept += IsHit(node->MatchOne(session, shallow, Block(key))) ? 1 : 0;
  }
  EXPECT_GT(kept, 25);  // the sample finds cold ones, not the coldest
  for (uint64_t key = 1; key <= 100; ++key) {
    EXPECT_TRUE(IsHit(node->MatchOne(session, small, Block(key)))) << key;  // nobody else's
  }
}

TEST_F(QuotaSsd, AQuotaOfZeroOnSsdLeavesMemoryAlone) {
  const uint32_t dry = node->OpenIdentity(session, OpaqueIdentity(), "dry");
  for (uint64_t key = 1; key <= 40; ++key) {
    node->now_us += 1000;
    ASSERT_EQ(node->Put(session, dry, Block(key)), PutState::kStored) << key;
    node->RunDisks(5);
  }
  EXPECT_EQ(node->owner->stats().ssd.pieces, 0u);
  EXPECT_EQ(node->MatchOne(session, dry, Block(40)), Presence::kRam);
  EXPECT_EQ(node->MatchOne(session, dry, Block(1)), Presence::kOverQuota);
  node->Check();
}

TEST_F(QuotaSsd, WhatComesUpStaysWithinTheQuota) {
  for (uint64_t key = 1; key <= 100; ++key) ASSERT_EQ(Put(key), PutState::kStored) << key;
  for (int round = 0; round < 3; ++round) {
    for (uint64_t key = 1; key <= 50; ++key) {
      EXPECT_TRUE(IsHit(node->GetOne(session, small, Block(key)).presence)) << key;
      node->RunDisks(2);
    }
    node->Check();
  }
  EXPECT_GT(node->owner->stats().promoted, 30u);
}

TEST_F(QuotaSsd, WithADiskThatIsBehindTheColdestLeaveAndSayWhy) {
  disk->faults.done_percent = 0;
  int stored = 0;
  for (uint64_t key = 1; key <= 60; ++key) {
    const PutState state = Put(key, 1);
    stored += state == PutState::kStored ? 1 : 0;
    EXPECT_TRUE(state == PutState::kStored || state == PutState::kBusy) << PutStateName(state);
  }
  EXPECT_GE(stored, 16);
  node->Check();
  disk->faults.done_percent = 60;
  node->RunDisks(200);
  EXPECT_EQ(Put(100), PutState::kStored);
  node->Check();
}

}  // namespace
}  // namespace quota
}  // namespace larder::node
