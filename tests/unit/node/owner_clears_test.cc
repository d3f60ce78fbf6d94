// Clears that a node missed: heard from another, done once, kept only when the disk can't bring anything
// back.
#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace clears {
namespace {

Namespace NameOf(uint8_t byte) {
  Namespace name;
  name.bytes.fill(std::byte{byte});
  return name;
}

TEST(Clears, AStampOnlyRisesAndTheSameClearIsOne) {
  Clears here;
  here.Note(NameOf(1), 1000);
  here.Note(NameOf(1), 1000);
  EXPECT_EQ(here.Of(NameOf(1)), 1000u);
  here.Note(NameOf(1), 400);
  EXPECT_EQ(here.Of(NameOf(1)), 1001u) << "another clear, by a clock that is behind";
  EXPECT_FALSE(here.Take(NameOf(1), 1001));
  EXPECT_TRUE(here.Take(NameOf(1), 1002));
  EXPECT_EQ(here.Of(NameOf(2)), 0u);
}

TEST(Clears, OfTooManyTheOldestIsForgottenAndThatIsKnown) {
  Clears full, late, lacking;
  Namespace name;
  for (uint64_t i = 0; i <= Clears::kMost; ++i) {
    std::memcpy(name.bytes.data(), &i, sizeof i);
    full.Note(name, 1000 + i);
  }
  EXPECT_EQ(full.stamps().size(), Clears::kMost);
  EXPECT_EQ(full.forgotten_ms(), 1000u);
  EXPECT_TRUE(lacking.MayLack(full));
  late.Note(NameOf(1), 1000);
  EXPECT_FALSE(late.MayLack(full)) << "it has heard of all until then";
}

TEST(Clears, TheTextComesBackAndNonsenseDoesNot) {
  Clears here;
  here.Note(NameOf(1), 1000);
  here.Note(NameOf(255), UINT64_MAX);
  here.Forget(7);
  const Result<Clears> back = Clears::Parse(here.Text());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->stamps(), here.stamps());
  EXPECT_EQ(back->forgotten_ms(), 7u);
  for (const char* text :
       {"", "larder-clears 2\n", "larder-clears 1\ncleared 00 1\n", "larder-clears 1\nforgotten\n",
        "larder-clears 1\nforgotten 1 2\n", "larder-clears 1\nhello\n"}) {
    EXPECT_FALSE(Clears::Parse(text).ok()) << text;
  }
}

struct Rig {
  Rig() : media(1 << 20, 64) { Start(); }
  void Start() {
    test.reset();
    auto made = std::make_unique<testing::SimDisk>(&media, ++seed, false);
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::move(made));
    test = std::make_unique<TestOwner>(OwnerOptions{.memory_bytes = 16 << 20},
                                       std::make_unique<ssd::SsdTier>(ssd::TierOptions{}, std::move(disks)));
    test->unix_ahead_ms = 1'700'000'000'000;
    test->RunDisks(100);
    session = test->Connect();
  }
  void Open() {
    number = test->OpenIdentity(session, OpaqueIdentity("one"));
    other = test->OpenIdentity(session, OpaqueIdentity("two"));
  }
  void PutAndSave() {
    Open();
    for (const uint32_t each : {number, other}) {
      ASSERT_EQ(test->Put(session, each, Block()), PutState::kStored);
    }
    one = NameOfOpen(OpaqueIdentity("one"));
    test->owner->Drain();
    test->RunDisks(200);
    ASSERT_EQ(test->owner->stats().ssd.pieces, 2u);
  }
  Namespace NameOfOpen(const std::string& identity) const {
    for (const NamespaceInfo& each : test->owner->Namespaces()) {
      if (each.identity == identity) return each.name_space;
    }
    ADD_FAILURE() << "not open";
    return {};
  }
  static Spec Block() { return {1, 64 << 10, {}}; }
  Presence Match(uint32_t which) { return test->MatchOne(session, which, Block()); }
  size_t Hear(uint64_t stamp_ms) {
    Clears heard;
    heard.Note(one, stamp_ms);
    return test->owner->HearClears(heard);
  }

  testing::SimMedia media;
  uint64_t seed = 90;
  std::unique_ptr<TestOwner> test;
  SessionId session = 0;
  uint32_t number = 0, other = 0;
  Namespace one;
};

TEST(Clears, AStampOfTheFarFutureDoesNotHideLaterClears) {
  constexpr uint64_t kNowMs = 1'000'000'000;
  Clears clears;
  clears.Note(Namespace{}, Clears::Bounded(UINT64_MAX, kNowMs));
  EXPECT_EQ(clears.Of(Namespace{}), kNowMs + Clears::kAheadMs);
  clears.Note(Namespace{}, Clears::Bounded(kNowMs + 5, kNowMs));
  EXPECT_GT(clears.Of(Namespace{}), kNowMs + Clears::kAheadMs);
}

TEST(OwnerClears, OneThatWasMissedIsDoneOnceBeforeAnybodyOpensTheNamespace) {
  Rig rig;
  rig.PutAndSave();
  rig.Start();
  EXPECT_EQ(rig.Hear(1'800'000'000'000), 1u);
  EXPECT_EQ(rig.Hear(1'800'000'000'000), 0u);
  rig.Open();
  EXPECT_FALSE(IsHit(rig.Match(rig.number)));
  EXPECT_EQ(rig.Match(rig.other), Presence::kSsd);
  ASSERT_EQ(rig.test->Put(rig.session, rig.number, Rig::Block()), PutState::kStored);
  EXPECT_EQ(rig.Hear(1'800'000'000'000), 0u);
  EXPECT_EQ(rig.Match(rig.number), Presence::kRam) << "it is put anew, and the clear was before";
  rig.test->RunDisks(200);
  rig.Start();
  rig.Open();
  EXPECT_FALSE(IsHit(rig.Match(rig.number)));
  EXPECT_EQ(rig.Match(rig.other), Presence::kSsd);
}

TEST(OwnerClears, OneThatIsOpenIsClearedInMemoryAndSaysSo) {
  Rig rig;
  rig.Open();
  ASSERT_EQ(rig.test->Put(rig.session, rig.number, Rig::Block()), PutState::kStored);
  rig.one = rig.NameOfOpen(OpaqueIdentity("one"));
  const uint64_t clear = rig.test->Send(rig.session, Verb::kClear, Clear{rig.other, 500});
  rig.test->RunDisks(50);
  ASSERT_TRUE(rig.test->Take<ClearReply>(rig.session, clear).ok());
  EXPECT_EQ(rig.test->owner->clears().Of(rig.NameOfOpen(OpaqueIdentity("two"))), 500u);
  EXPECT_EQ(rig.Hear(1000), 1u);
  EXPECT_EQ(rig.Match(rig.number), Presence::kCleared);
  rig.test->Check();
}

TEST(OwnerClears, WhatAnotherHasForgottenIsClearedToo) {
  Rig rig;
  rig.PutAndSave();
  rig.Start();
  Clears heard;
  heard.Note(rig.one, 2000);
  heard.Forget(1000);
  EXPECT_EQ(rig.test->owner->HearClears(heard), 2u);
  rig.Open();
  EXPECT_FALSE(IsHit(rig.Match(rig.number)));
  EXPECT_FALSE(IsHit(rig.Match(rig.other)));
  EXPECT_EQ(rig.test->owner->HearClears(heard), 0u);
}

// Of two nodes that answer, one knows an old clear of the namespace and missed the one that the other forgot.
TEST(OwnerClears, AnOldStampDoesNotHideAClearThatWasForgotten) {
  Rig rig;
  rig.PutAndSave();
  rig.Start();
  rig.Open();
  EXPECT_EQ(rig.Hear(500), 1u);
  ASSERT_EQ(rig.test->Put(rig.session, rig.number, Rig::Block()), PutState::kStored);
  Clears heard;
  heard.Note(rig.one, 500);
  heard.Forget(1000);
  EXPECT_EQ(rig.test->owner->HearClears(heard), 2u);
  EXPECT_FALSE(IsHit(rig.Match(rig.number)));
}

// A node that knew of a clear, and had lost on its disk that it made it, would serve what it hid.
TEST(OwnerClears, IsKeptOnceTheDiskHasItAndAnsweredOnceItIsKept) {
  Rig rig;
  rig.test->owner->RestoreClears({});
  rig.Open();
  const uint64_t clear = rig.test->Send(rig.session, Verb::kClear, Clear{rig.number, 1000});
  EXPECT_FALSE(rig.test->owner->TakeClears().has_value()) << "the disk does not have it yet";
  rig.test->RunDisks(200);
  EXPECT_FALSE(rig.test->Answered(rig.session, clear));
  const std::optional<ClearsToKeep> keep = rig.test->owner->TakeClears();
  ASSERT_TRUE(keep.has_value());
  EXPECT_EQ(keep->clears.Of(rig.NameOfOpen(OpaqueIdentity("one"))), 1000u);
  rig.test->owner->ClearsKept(keep->token);
  EXPECT_TRUE(rig.test->Answered(rig.session, clear));
  EXPECT_FALSE(rig.test->owner->TakeClears().has_value());
  rig.test->Check();
}

}  // namespace
}  // namespace clears
}  // namespace larder::node
