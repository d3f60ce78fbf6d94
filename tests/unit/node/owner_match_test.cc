#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint32_t kPayload = 64 * 1024;
constexpr Rectangle kOne{0, 1, 0, 1};

struct MatchTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 4 << 20;
    options.pinned_bytes_per_tenant_max = 10 * kPayload;
    options.pin_us_max = 2'000'000;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect(), b = node.Connect();
  uint32_t n = node.OpenIdentity(a, OpaqueIdentity(), "t"), n_b = node.OpenIdentity(b, OpaqueIdentity(), "t");
  static Spec Block(uint64_t key) { return {key, kPayload, kOne}; }
  void TearDown() override { node.Check(); }
  void Fill(uint64_t from, uint64_t count) {
    for (uint64_t key = from; key < from + count; ++key) {
      node.now_us += 10;
      ASSERT_EQ(node.Put(a, n, Block(key)), PutState::kStored);
    }
  }
};

TEST_F(MatchTest, AnswersOneByteAKeyAndGroup) {
  ASSERT_EQ(node.Put(a, n, {1, kPayload, kOne, 0, 3}), PutState::kStored);
  ASSERT_EQ(node.Put(a, n, {2, kPayload, kOne, 0, 5}), PutState::kStored);
  Match match;
  match.number = n;
  match.groups = {3, 5};
  match.hashes = {HashOf(1), HashOf(2), HashOf(3)};
  const auto reply = node.Ask<MatchReply>(a, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  const auto never = static_cast<uint8_t>(Presence::kNeverStored);
  EXPECT_EQ(reply.value().presence, (std::vector<uint8_t>{0, never, never, 0, never, never}));
  EXPECT_EQ(reply.value().pin_handle, 0u);
  ASSERT_EQ(reply.value().estimates.size(), 1u);
  EXPECT_EQ(reply.value().estimates[0].count, 3u);
  EXPECT_EQ(node.owner->stats().match_hits, 2u);
}

TEST_F(MatchTest, AChainLongerThanABatchIsAnsweredInOrder) {
  Fill(0, 20);
  Match match;
  match.number = n;
  match.groups = {0};
  for (uint64_t i = 0; i < 1000; ++i) match.hashes.push_back(HashOf(i % 40));
  const auto reply = node.Ask<MatchReply>(a, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(IsHit(static_cast<Presence>(reply.value().presence[i])), i % 40 < 20) << i;
  }
}

TEST_F(MatchTest, APinKeepsBlocksFromEvictionUntilReleased) {
  Fill(0, 3);
  uint64_t handle = 0;
  EXPECT_EQ(node.MatchOne(b, n_b, Block(0), &handle, 1'000'000), Presence::kRam);
  ASSERT_NE(handle, 0u);
  EXPECT_EQ(node.owner->stats().soft_pins, 1u);
  EXPECT_EQ(node.owner->stats().soft_pinned_bytes, kPayload);
  Fill(100, 100);  // more than the memory
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kRam);
  EXPECT_EQ(node.MatchOne(a, n, Block(1)), Presence::kEvicted);
  node.Release(b, handle);
  EXPECT_EQ(node.owner->stats().soft_pinned_bytes, 0u);
  Fill(300, 100);
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kEvicted);
}

TEST_F(MatchTest, APinEndsByItselfAndNoLaterThanTheNodeAllows) {
  Fill(0, 2);
  uint64_t handle = 0;
  node.MatchOne(a, n, Block(0), &handle, 500'000);
  node.MatchOne(a, n, Block(1), &handle, 600'000'000);  // capped at pin_us_max
  node.Advance(499'999);
  EXPECT_EQ(node.owner->stats().soft_pins, 2u);
  node.Advance(1);
  EXPECT_EQ(node.owner->stats().soft_pins, 1u);
  node.Advance(1'500'000);
  EXPECT_EQ(node.owner->stats().soft_pins, 0u);
  EXPECT_EQ(node.owner->stats().pins_expired, 2u);
  EXPECT_EQ(node.owner->NextTimerUs(), UINT64_MAX);
}

TEST_F(MatchTest, APinEndsWithItsSession) {
  Fill(0, 1);
  node.MatchOne(b, n_b, Block(0), nullptr, 1'000'000);
  node.Give(b, Closed{});
  EXPECT_EQ(node.owner->stats().soft_pins, 0u);
  EXPECT_EQ(node.owner->stats().soft_pinned_bytes, 0u);
}

TEST_F(MatchTest, AForeignHandleReleasesNothing) {
  Fill(0, 1);
  uint64_t handle = 0;
  node.MatchOne(a, n, Block(0), &handle, 1'000'000);
  node.Release(b, handle);
  node.Release(a, handle + 1);
  EXPECT_EQ(node.owner->stats().soft_pins, 1u);
}

TEST_F(MatchTest, BeyondTheTenantsCapHitsAreAnsweredWithoutAPin) {
  Fill(0, 20);
  Match match;
  match.number = n;
  match.groups = {0};
  match.pin_us = 1'000'000;
  for (uint64_t i = 0; i < 20; ++i) match.hashes.push_back(HashOf(i));
  const auto reply = node.Ask<MatchReply>(a, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  for (const uint8_t presence : reply.value().presence) EXPECT_EQ(presence, 0);
  EXPECT_EQ(reply.value().pinned_bytes, 10u * kPayload);
  uint64_t handle = 7;
  EXPECT_EQ(node.MatchOne(b, n_b, Block(0), &handle, 1'000'000),
            Presence::kRam);  // same tenant, other session
  EXPECT_EQ(handle, 0u);
}

TEST_F(MatchTest, ATenantsCapIsItsOwn) {
  OwnerOptions options = Options();
  options.memory_bytes = 16 << 20;
  options.pinned_bytes_per_tenant_max = kPayload;
  TestOwner two(options);
  const SessionId s = two.Connect();
  const uint32_t t = two.OpenIdentity(s, OpaqueIdentity(), "t"),
                 u = two.OpenIdentity(s, OpaqueIdentity(), "u");
  uint64_t handle = 0;
  for (const uint32_t number : {t, u}) {
    ASSERT_EQ(two.Put(s, number, Block(1)), PutState::kStored);
    two.MatchOne(s, number, Block(1), &handle, 1'000'000);
    EXPECT_NE(handle, 0u);
    two.MatchOne(s, number, Block(1), &handle, 1'000'000);
    EXPECT_EQ(handle, 0u);
  }
  two.Check();
}

TEST_F(MatchTest, PinsNeverStopTheEvictionOfOthers) {
  OwnerOptions options = Options();
  options.memory_bytes = 32 << 20;
  options.pinned_bytes_per_tenant_max = 16 << 20;
  TestOwner big(options);
  const SessionId s = big.Connect();
  const uint32_t number = big.OpenIdentity(s, OpaqueIdentity());
  for (uint64_t key = 0; key < 600; ++key) {
    ++big.now_us;
    ASSERT_EQ(big.Put(s, number, {key, kPayload, kOne}), PutState::kStored);
  }
  // Pin more of the coldest end than one search for a victim looks at.
  Match match;
  match.number = number;
  match.groups = {0};
  match.pin_us = 1'000'000;
  for (uint64_t key = 0; key < 350; ++key) match.hashes.push_back(HashOf(key));
  ASSERT_TRUE(big.Ask<MatchReply>(s, Verb::kMatch, match).ok());
  ASSERT_GT(big.owner->stats().soft_pinned_bytes, 100u * kPayload);
  for (uint64_t key = 1000; key < 1100; ++key) {
    ++big.now_us;
    ASSERT_EQ(big.Put(s, number, {key, kPayload, kOne}), PutState::kStored);
  }
  big.Check();
}

TEST_F(MatchTest, MatchAndGetDoNotTouch) {
  Fill(0, 3);
  node.now_us += 10;
  node.MatchOne(a, n, Block(0));
  node.GetOne(a, n, Block(0));
  while (node.owner->stats().evicted == 0) Fill(1000 + node.now_us, 1);
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kEvicted);
}

TEST_F(MatchTest, ATouchedBlockOutlivesAnUntouchedOne) {
  Fill(0, 3);
  node.now_us += 10;
  node.TouchOne(a, n, Block(0));
  while (node.owner->stats().evicted == 0) Fill(1000 + node.now_us, 1);
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kRam);
  EXPECT_EQ(node.MatchOne(a, n, Block(1)), Presence::kEvicted);
}

TEST_F(MatchTest, OfATouchedChainTheLeafLeavesBeforeTheRoot) {
  Fill(0, 10);
  node.now_us += 10;
  Touch touch;
  touch.number = n;
  touch.groups = {0};
  for (uint64_t i = 0; i < 10; ++i) {
    touch.hashes.push_back(HashOf(i));
    touch.depths.push_back(static_cast<uint32_t>(i));
  }
  node.Send(a, Verb::kTouch, touch);
  while (node.owner->stats().evicted == 0) Fill(1000 + node.now_us, 1);
  EXPECT_EQ(node.MatchOne(a, n, Block(9)), Presence::kEvicted);
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kRam);
}

TEST_F(MatchTest, AReleaseTouchesWhatItNames) {
  Fill(0, 3);
  uint64_t handle = 0;
  node.MatchOne(a, n, Block(0), &handle, 1'000'000);
  node.now_us += 10;
  Touch release;
  release.number = n;
  release.pin_handle = handle;
  release.groups = {0};
  release.hashes = {HashOf(0)};
  release.depths = {0};
  const uint64_t id = node.Send(a, Verb::kRelease, release);
  EXPECT_FALSE(node.Answered(a, id));  // one-way
  EXPECT_EQ(node.owner->stats().soft_pins, 0u);
  while (node.owner->stats().evicted == 0) Fill(1000 + node.now_us, 1);
  EXPECT_EQ(node.MatchOne(a, n, Block(0)), Presence::kRam);
}

TEST_F(MatchTest, AReleaseIsHeardEvenAfterItsDeadline) {
  Fill(0, 1);
  uint64_t handle = 0;
  node.MatchOne(a, n, Block(0), &handle, 1'000'000);
  Touch release;
  release.pin_handle = handle;
  Request request;
  request.envelope = {Verb::kRelease, false, Priority::kInteractive, Code::kOk, 10, 5};
  request.arrived_us = node.now_us - 1000;
  request.body = release;
  node.Give(a, request);
  EXPECT_EQ(node.owner->stats().soft_pins, 0u);
}

TEST_F(MatchTest, TheEstimateFollowsHowLongGetsTook) {
  Fill(0, 1);
  EXPECT_EQ(node.owner->stats().gets, 0u);
  for (int i = 0; i < 20; ++i) {
    node.GetOne(a, n, Block(0), false);
    node.now_us += 1000;
    node.Give(a, Sent{node.last_token});
  }
  Match match;
  match.number = n;
  match.groups = {0};
  match.hashes = {HashOf(0)};
  EXPECT_EQ(node.Ask<MatchReply>(a, Verb::kMatch, match).value().estimates.at(0).us, 1000u);
}

// A key with a thousand pieces, asked for again and again: the answer comes, and says busy where it was too
// much.
TEST_F(MatchTest, CrowdedKeysDoNotStallTheOwner) {
  OwnerOptions options;
  options.memory_bytes = 16 << 20;
  TestOwner crowded(options);
  const SessionId s = crowded.Connect();
  const uint32_t kv = crowded.OpenIdentity(s, KvIdentity(64, 64));
  for (uint16_t i = 0; i < 1000; ++i) {
    const auto layer = static_cast<uint16_t>(i / 32 * 2), head = static_cast<uint16_t>(i % 32 * 2);
    const Rectangle one{layer, static_cast<uint16_t>(layer + 1), head, static_cast<uint16_t>(head + 1)};
    ASSERT_EQ(crowded.Put(s, kv, {1, 64, one}), PutState::kStored);
  }
  Match match;
  match.number = kv;
  match.groups = {0};
  match.rectangle = {0, 64, 0, 64};
  match.hashes = std::vector<ChainHash>(1000, HashOf(1));
  const auto reply = crowded.Ask<MatchReply>(s, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(static_cast<Presence>(reply.value().presence.front()), Presence::kUncovered);
  EXPECT_EQ(static_cast<Presence>(reply.value().presence.back()), Presence::kBusy);
  Touch touch;
  touch.number = kv;
  touch.groups = {0};
  touch.hashes = std::vector<ChainHash>(kHashesMax, HashOf(1));
  touch.depths = std::vector<uint32_t>(kHashesMax, 0);
  crowded.Send(s, Verb::kTouch, touch);  // ends
  crowded.Check();
}

TEST_F(MatchTest, TheLargestChainOfAllGroupsIsAnswered) {
  Match match;
  match.number = n;
  match.groups = std::vector<uint16_t>(kGroupsMax, 0);
  match.hashes.resize(kHashesMax);
  const auto reply = node.Ask<MatchReply>(a, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().presence.size(), size_t{kGroupsMax} * kHashesMax);
}

TEST_F(MatchTest, BadMatchesAreInvalid) {
  Match match;
  match.number = n;
  match.hashes.resize(kHashesMax);
  match.groups = {};
  EXPECT_EQ(node.Ask<MatchReply>(a, Verb::kMatch, match).status().code(), Code::kInvalid);
  match.groups = {0};
  match.hashes.resize(kHashesMax + 1);
  EXPECT_EQ(node.Ask<MatchReply>(a, Verb::kMatch, match).status().code(), Code::kInvalid);
  match.hashes.resize(1);
  match.rectangle = {0, 2, 0, 1};
  EXPECT_EQ(node.Ask<MatchReply>(a, Verb::kMatch, match).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder::node
