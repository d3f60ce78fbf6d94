// Places that are lost and come back: nothing from before is served, on either tier, in this life or the
// next.
#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace places {
namespace {

constexpr uint64_t kSecondUs = 1'000'000;
constexpr uint32_t kPartBytes = 64 << 10;
constexpr auto kLost = static_cast<uint8_t>(Presence::kPlaceLost);

NodeTable TableOf(const std::vector<std::string>& ids, NodeState of_b = NodeState::kActive) {
  NodeTable table;
  table.epoch = 1;
  for (const std::string& id : ids) {
    NodeRecord& node = table.nodes.emplace_back();
    node.id = id;
    node.incarnation = 1;
    node.data_address = "127.0.0.1:7400";
    if (id == "b") node.state = of_b;
  }
  table.Normalize();
  return table;
}

SlotSets Alone() {
  return PlaceTimes::Under(TableOf({"a"}), "a");
}
SlotSets WithB(NodeState of_b = NodeState::kActive) {
  return PlaceTimes::Under(TableOf({"a", "b"}, of_b), "a");
}

// A block whose slot b would take from a, or not.
uint64_t KeyThat(bool moves, uint64_t from = 0) {
  const SlotSets held = WithB();
  for (uint64_t key = from + 1;; ++key) {
    if (held[1][SlotOf(HashOf(key))] != moves) return key;
  }
}

Spec Block(uint64_t key) {
  return {key, kPartBytes, {}};
}

TEST(PlaceTimes, WhatWasPutBeforeALossIsOldOnceThePlaceIsBack) {
  PlaceTimes times;
  EXPECT_FALSE(times.Old(1, 7, 0));
  times.Follow(Alone(), 1000);
  EXPECT_FALSE(times.any()) << "the first table takes nothing";
  const auto moves = SlotOf(HashOf(KeyThat(true))), stays = SlotOf(HashOf(KeyThat(false)));
  EXPECT_TRUE(times.Follow(WithB(), 2000));
  EXPECT_FALSE(times.Follow(WithB(), 2001)) << "nothing has changed";
  EXPECT_FALSE(times.Old(1, moves, 1500)) << "whoever has the place now may be given it";
  EXPECT_TRUE(times.Follow(Alone(), 3000));
  for (const uint32_t born_s : {0u, 1500u, 2000u, 2000 + PlaceTimes::kSettleS}) {
    EXPECT_TRUE(times.Old(1, moves, born_s)) << born_s;
    EXPECT_FALSE(times.Old(1, stays, born_s));
    EXPECT_FALSE(times.Old(2, moves, born_s)) << "with two copies it had a place all the time";
  }
  EXPECT_FALSE(times.Old(1, moves, 2900)) << "given to it by b, which left, before it knew";
  EXPECT_FALSE(times.Old(1, moves, 3001));
}

TEST(PlaceTimes, APlaceThatIsBackAtOnceHasNothingFromBefore) {
  PlaceTimes times;
  times.Follow(Alone(), 1000);
  times.Follow(WithB(), 2000);
  times.Follow(Alone(), 2001);
  const auto moves = SlotOf(HashOf(KeyThat(true)));
  EXPECT_TRUE(times.Old(1, moves, 2001));
  EXPECT_FALSE(times.Old(1, moves, 2002));
}

TEST(PlaceTimes, OfANodeThatDrainsTheNextHasThePlaceAlready) {
  PlaceTimes times;
  times.Follow(WithB(), 1000);
  times.Follow(WithB(NodeState::kDraining), 2000);
  times.Follow(Alone(), 2030);
  EXPECT_FALSE(times.any()) << "nothing that b handed over is old";
}

TEST(PlaceTimes, APlaceThatIsExpectedIsAsIfItWereBack) {
  PlaceTimes times;
  times.Follow(Alone(), 1000);
  times.Follow(WithB(), 2000);
  const auto moves = SlotOf(HashOf(KeyThat(true))), stays = SlotOf(HashOf(KeyThat(false)));
  EXPECT_TRUE(times.Expect(1, moves, 2001));
  EXPECT_FALSE(times.Expect(1, moves, 2005));
  EXPECT_FALSE(times.Expect(1, stays, 2001));
  EXPECT_TRUE(times.Old(1, moves, 2001));
  times.Follow(Alone(), 2030);
  EXPECT_FALSE(times.Old(1, moves, 2002)) << "what came in between stays";
}

TEST(PlaceTimes, AreKeptAsTheyAreAndDamagedOnesAreNone) {
  PlaceTimes times;
  times.Follow(Alone(), 1000);
  times.Follow(WithB(), 2000);
  const std::string text = times.Text();
  std::optional<PlaceTimes> back = PlaceTimes::Parse(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->Text(), text);
  back->Follow(Alone(), 3000);
  EXPECT_TRUE(back->Old(1, SlotOf(HashOf(KeyThat(true))), 1999));
  ASSERT_TRUE(PlaceTimes::Parse(PlaceTimes().Text()).has_value());
  EXPECT_FALSE(PlaceTimes::Parse(PlaceTimes().Text())->followed());
  for (const size_t at : {size_t{0}, size_t{20}, text.size() / 2, text.size() - 1}) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(PlaceTimes::Parse(damaged).has_value()) << at;
  }
  EXPECT_FALSE(PlaceTimes::Parse(text.substr(0, 1000)).has_value());
  EXPECT_FALSE(PlaceTimes::Parse("").has_value());
}

struct Rig {
  explicit Rig(uint64_t memory_bytes = 16 << 20) : media(1 << 20, 64) {
    options.memory_bytes = memory_bytes;
    Start();
  }
  void Start(uint64_t ahead_ms = 1'700'000'000'000) {
    StartOwner(ahead_ms);
    Serve();
  }
  void StartOwner(uint64_t ahead_ms = 1'700'000'000'000) {
    test.reset();
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::make_unique<testing::SimDisk>(&media, ++seed, false));
    ssd::TierOptions tier;
    tier.append_bytes = 256 << 10;
    test = std::make_unique<TestOwner>(options, std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    test->unix_ahead_ms = ahead_ms;
  }
  void Serve() {
    test->RunDisks(100);
    session = test->Connect();
  }
  void Open() { number = test->OpenIdentity(session, OpaqueIdentity()); }
  void Pass(uint64_t seconds) { test->now_us += seconds * kSecondUs; }
  std::optional<PlaceTimes> Follow(SlotSets held) {
    return test->owner->FollowPlaces(std::move(held), test->now_us,
                                     test->now_us / 1000 + test->unix_ahead_ms);
  }
  void Restore(const PlaceTimes& places) {
    test->owner->RestorePlaces(*PlaceTimes::Parse(places.Text()), test->now_us,
                               test->now_us / 1000 + test->unix_ahead_ms);
  }
  PlaceTimes Lose() {
    return test->owner->LosePlaces(test->now_us, test->now_us / 1000 + test->unix_ahead_ms);
  }
  void Put(uint64_t key) { ASSERT_EQ(test->Put(session, number, Block(key)), PutState::kStored) << key; }
  Presence Get(uint64_t key) { return test->GetOne(session, number, Block(key)).presence; }
  Presence Match(uint64_t key) { return test->MatchOne(session, number, Block(key)); }
  OwnerStats stats() const { return test->owner->stats(); }
  // Everything goes to SSD.
  void Save() {
    test->owner->Drain();
    test->RunDisks(400);
  }

  OwnerOptions options;
  testing::SimMedia media;
  uint64_t seed = 70;
  std::unique_ptr<TestOwner> test;
  SessionId session = 0;
  uint32_t number = 0;
};

TEST(OwnerPlaces, WhatWasHereBeforeAnotherHadThePlaceIsAMissInMemoryAndSays) {
  Rig rig;
  rig.Open();
  const uint64_t moves = KeyThat(true), also = KeyThat(true, moves), stays = KeyThat(false);
  rig.Follow(Alone());
  for (const uint64_t key : {moves, also, stays}) rig.Put(key);
  rig.Pass(10);
  EXPECT_TRUE(rig.Follow(WithB()).has_value());
  EXPECT_EQ(rig.Match(moves), Presence::kRam) << "b may ask for it, and clients that have not heard";
  rig.Pass(100);
  rig.Follow(Alone());
  EXPECT_EQ(rig.Match(moves), Presence::kPlaceLost);
  EXPECT_EQ(rig.Get(also), Presence::kPlaceLost);
  EXPECT_EQ(rig.Get(stays), Presence::kRam);
  EXPECT_EQ(rig.stats().place_lost, 2u);
  EXPECT_EQ(rig.stats().miss_by_reason[kLost], 2u);
  rig.Put(moves);
  EXPECT_EQ(rig.Get(moves), Presence::kRam) << "put anew it is there";
  rig.test->Advance(5 * kSecondUs);
  EXPECT_EQ(rig.Get(moves), Presence::kRam);
  rig.test->Check();
}

TEST(OwnerPlaces, WhatIsPutInTheSecondInWhichAPlaceComesBackStays) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  rig.Pass(10);
  rig.Follow(WithB());
  rig.Follow(Alone());
  const uint64_t moves = KeyThat(true);
  rig.Put(moves);
  EXPECT_EQ(rig.Get(moves), Presence::kRam);
  rig.test->Advance(5 * kSecondUs);
  EXPECT_EQ(rig.Get(moves), Presence::kRam);
}

// A node that drains begins to hand over when it knows that it drains; others may hear of it later.
TEST(OwnerPlaces, WhatALeavingNodeHandsOverBeforeTheTableSaysSoStaysAndTheOldGoes) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  const uint64_t moves = KeyThat(true);
  rig.Put(moves);
  rig.Pass(10);
  rig.Follow(WithB());
  Opened opened;
  opened.hands_over = true;
  constexpr SessionId kLeaving = 1000;
  rig.test->Give(kLeaving, opened);
  const uint32_t number = rig.test->OpenIdentity(kLeaving, OpaqueIdentity());
  EXPECT_EQ(rig.test->Put(kLeaving, number, Block(moves)), PutState::kStored)
      << "not `exists`: that one is old";
  EXPECT_EQ(rig.stats().place_lost, 1u);
  rig.Follow(WithB(NodeState::kDraining));
  rig.test->Advance(5 * kSecondUs);
  rig.Follow(Alone());
  rig.test->Advance(5 * kSecondUs);
  EXPECT_EQ(rig.Get(moves), Presence::kRam);
  rig.test->Check();
}

TEST(OwnerPlaces, TheWalkFreesWhatNobodyLooksUpInBoundedSteps) {
  Rig rig(64 << 20);
  rig.Open();
  rig.Follow(Alone());
  for (uint64_t key = 1; key <= 800; ++key) rig.Put(key);
  rig.Pass(10);
  rig.Lose();
  rig.Follow(Alone());
  rig.test->owner->OnTimer(rig.test->now_us);
  EXPECT_EQ(rig.stats().pieces, 288u) << "512 a step";
  rig.test->Advance(kSecondUs);
  EXPECT_EQ(rig.stats().pieces, 0u);
  EXPECT_EQ(rig.stats().place_lost, 800u);
  rig.test->Check();
}

TEST(OwnerPlaces, APieceThatIsReadWhileItsPlaceComesBackIsFreedWhenItWasSent) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  rig.Put(1);
  EXPECT_EQ(rig.test->GetOne(rig.session, rig.number, Block(1), false).presence, Presence::kRam);
  rig.Pass(10);
  rig.Lose();
  rig.Follow(Alone());
  rig.test->Advance(kSecondUs);
  EXPECT_EQ(rig.Match(1), Presence::kPlaceLost);
  EXPECT_EQ(rig.stats().hard_pins, 1u);
  rig.test->Give(rig.session, Sent{rig.test->last_token});
  EXPECT_EQ(rig.stats().slot_bytes, 0u);
  rig.test->Check();
}

TEST(OwnerPlaces, OnSsdTooAndAlsoOfNamespacesThatNobodyHasOpened) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  for (uint64_t key = 1; key <= 20; ++key) rig.Put(key);
  rig.Save();
  ASSERT_EQ(rig.stats().ssd.pieces, 20u);
  rig.Start();
  rig.Pass(1000);
  rig.Lose();
  rig.Follow(Alone());
  rig.test->Advance(2 * kSecondUs);
  EXPECT_EQ(rig.stats().ssd.pieces, 0u);
  rig.Open();
  EXPECT_EQ(rig.Match(1), Presence::kNeverStored);
}

TEST(OwnerPlaces, ARestartKeepsWhatIsOldAndWhatIsNot) {
  Rig rig;
  rig.Open();
  const uint64_t moves = KeyThat(true), stays = KeyThat(false);
  rig.Follow(Alone());
  rig.Put(moves), rig.Put(stays);
  rig.Save();
  rig.Pass(100);
  const std::optional<PlaceTimes> kept = rig.Follow(WithB());
  ASSERT_TRUE(kept.has_value());
  // b came and left again while this node was down: its last table knows b.
  rig.Start();
  rig.Pass(200);
  rig.Restore(*kept);
  const std::optional<PlaceTimes> again = rig.Follow(Alone());
  rig.Open();
  EXPECT_EQ(rig.Match(moves), Presence::kPlaceLost);
  EXPECT_EQ(rig.Match(stays), Presence::kSsd);
  // And once more, before the walk has come to it.
  rig.Start();
  rig.Pass(300);
  rig.Restore(*again);
  EXPECT_FALSE(rig.Follow(Alone()).has_value());
  rig.Open();
  EXPECT_EQ(rig.Get(stays), Presence::kSsd);
  EXPECT_NE(rig.Get(moves), Presence::kSsd);
  rig.test->Check();
}

// What is put in the second of a loss is dated behind it, a second ahead: that is no clock that was set back.
TEST(OwnerPlaces, ARestartWithinASecondOfALossKeepsWhatWasPutAfterIt) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  const PlaceTimes places = rig.Lose();
  rig.Put(1);
  rig.Save();
  const uint64_t ended_us = rig.test->now_us;
  rig.StartOwner();
  rig.test->now_us = ended_us;
  rig.Restore(places);
  rig.Serve();
  rig.Open();
  EXPECT_EQ(rig.Match(1), Presence::kSsd);
}

TEST(OwnerPlaces, AClockThatWasSetBackWhileTheNodeWasDownKeepsNothing) {
  Rig rig;
  rig.Open();
  rig.Follow(Alone());
  rig.Put(1);
  rig.Save();
  // The machine's clock is years behind; the place is lost before the first disk is read.
  rig.StartOwner(1'600'000'000'000);
  rig.Lose();
  rig.Follow(Alone());
  rig.Serve();
  rig.Open();
  EXPECT_EQ(rig.Match(1), Presence::kPlaceLost);
  rig.Put(2);
  EXPECT_EQ(rig.Get(2), Presence::kRam);
}

}  // namespace
}  // namespace places
}  // namespace larder::node
