// The walk that finds bytes gone bad before a reader does.
#include <random>

#include "node/owner/part_checksums.h"
#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct Scrub : ::testing::Test {
  static constexpr uint32_t kPartBytes = 64 << 10;
  static constexpr uint64_t kSecondUs = 1'000'000;

  static OwnerOptions Options(uint64_t bytes_per_s) {
    OwnerOptions options;
    options.memory_bytes = 4 << 20;
    options.scrub_bytes_per_s = bytes_per_s;
    return options;
  }
  static Spec Block(uint64_t key) { return {key, kPartBytes, {}, static_cast<uint32_t>(key)}; }
  // What a background thread does with Verify; how many there were.
  static size_t VerifyAll(TestOwner* test) {
    const auto verifies = std::move(test->outbox.verifies);
    test->outbox.verifies.clear();
    for (const auto& [session, verify] : verifies) {
      const bool good = PartsVerify({verify.payload.data, verify.payload.bytes}, verify.parts);
      test->Give(session, Verified{verify.token, good});
    }
    return verifies.size();
  }

  void Fill(TestOwner* test, uint64_t blocks) {
    session = test->Connect();
    number = test->OpenIdentity(session, OpaqueIdentity());
    for (uint64_t key = 1; key <= blocks; ++key) {
      const auto reserved = test->ReserveOne(session, number, Block(key));
      payloads.push_back(test->outbox.grants.at(reserved.ticket).slot.data);
      ASSERT_EQ(test->CommitOne(session, reserved.ticket, Block(key)), PutState::kStored);
    }
  }
  SessionId session = 0;
  uint32_t number = 0;
  std::vector<std::byte*> payloads;
};

TEST_F(Scrub, FindsAFlippedBitInMemoryThoughNobodyIsConnected) {
  TestOwner test(Options(1 << 20));
  Fill(&test, 20);
  payloads[7][12'345] ^= std::byte{4};
  test.Give(session, Closed{});
  for (int second = 0; second < 10; ++second) {
    test.Advance(kSecondUs);
    VerifyAll(&test);
    test.Check();
  }
  EXPECT_GE(test.owner->stats().scrubbed, 20u);
  EXPECT_EQ(test.owner->stats().scrub_dropped, 1u);
  EXPECT_EQ(test.owner->stats().reports_dropped, 0u);
  session = test.Connect();
  number = test.OpenIdentity(session, OpaqueIdentity());
  for (uint64_t key = 1; key <= 20; ++key) {
    EXPECT_EQ(test.MatchOne(session, number, Block(key)), key == 8 ? Presence::kCorrupt : Presence::kRam);
  }
  EXPECT_TRUE(test.owner->Idle());
}

TEST_F(Scrub, KeepsItsRateAndWaitsForWhoIsSlow) {
  constexpr uint64_t kRate = 1 << 20;
  TestOwner test(Options(kRate));
  Fill(&test, 30);
  for (int step = 0; step < 2000; ++step) {
    test.Advance(kSecondUs / 100);
    VerifyAll(&test);
  }
  const uint64_t bytes = test.owner->stats().scrubbed_bytes;
  EXPECT_LE(bytes, 20 * kRate + kRate / 5 + kPartBytes);
  EXPECT_GE(bytes, 15 * kRate);
  test.Advance(kSecondUs);
  const size_t open = test.outbox.verifies.size();
  EXPECT_GE(open, 1u);
  for (int second = 0; second < 60; ++second) test.Advance(kSecondUs);
  EXPECT_EQ(test.outbox.verifies.size(), open) << "nobody answered";
  VerifyAll(&test);
  test.Check();
}

TEST_F(Scrub, LeavesTheOrderOfEvictionAlone) {
  TestOwner test(Options(64 << 20)), other(Options(0));
  std::vector<Presence> left[2];
  for (TestOwner* each : {&test, &other}) {
    Fill(each, 40);
    for (int second = 0; second < 5; ++second) {
      each->Advance(kSecondUs);
      VerifyAll(each);
    }
    for (uint64_t key = 100; key < 140; ++key) each->Put(session, number, Block(key));
    for (uint64_t key = 1; key < 140; ++key) {
      left[each == &other].push_back(each->MatchOne(session, number, Block(key)));
    }
  }
  EXPECT_GT(test.owner->stats().scrubbed, 40u);
  EXPECT_EQ(left[0], left[1]);
}

TEST_F(Scrub, StopsWhereTheNodeLeaves) {
  TestOwner test(Options(1 << 20));
  Fill(&test, 20);
  test.owner->Drain();
  for (int second = 0; second < 5; ++second) test.Advance(kSecondUs);
  EXPECT_EQ(test.owner->stats().scrubbed, 0u);
  EXPECT_TRUE(test.owner->Idle());
}

TEST_F(Scrub, FindsRottenBitsOnSsd) {
  uint64_t corrupt = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    testing::SimMedia media(1 << 20, 64);
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::make_unique<testing::SimDisk>(&media, seed, false));
    ssd::TierOptions tier;
    tier.append_bytes = 256 << 10;
    TestOwner test(Options(64 << 20), std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    test.RunDisks(100);
    session = test.Connect();
    number = test.OpenIdentity(session, OpaqueIdentity());
    for (uint64_t key = 1; key <= 200; ++key) {
      ASSERT_EQ(test.Put(session, number, Block(key)), PutState::kStored);
      test.RunDisks(3);
    }
    test.RunDisks();
    const uint64_t pieces = test.owner->stats().ssd.pieces;
    ASSERT_GT(pieces, 100u);
    for (int i = 0; i < 20; ++i) media.FlipBit(&random);
    for (int second = 0; second < 20; ++second) {
      test.Advance(kSecondUs);
      VerifyAll(&test);
      test.RunDisks();
    }
    const ssd::TierStats found = test.owner->stats().ssd;
    EXPECT_GE(found.scrubbed, pieces);
    EXPECT_EQ(found.reads, 0u) << "these are nobody's reads";
    corrupt += found.corrupt;
    // Readers meet none of them any more.
    for (uint64_t key = 1; key <= 200; ++key) {
      const Pulled pulled = test.GetOne(session, number, Block(key));
      if (IsHit(pulled.presence)) {
        EXPECT_EQ(pulled.payload, PartBytes(Block(key), 0, 0)) << key;
      }
    }
    EXPECT_EQ(test.owner->stats().ssd.corrupt, found.corrupt) << "seed " << seed;
    test.Check();
  }
  EXPECT_GT(corrupt, 20u);
}

}  // namespace
}  // namespace larder::node
