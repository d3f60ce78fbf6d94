// Followers of events against the truth: what Explain finds, block by block, over random work.
#include <random>
#include <set>
#include <tuple>

#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node::events_test {
namespace {

// Namespace, group, hash, rectangle, tier.
using Piece = std::tuple<Namespace, uint16_t, ChainHash, std::array<uint16_t, 4>, Presence>;

std::array<uint16_t, 4> Corners(const Rectangle& r) {
  return {r.layer_begin, r.layer_end, r.head_begin, r.head_end};
}

class Follower {
 public:
  explicit Follower(std::string tenant = {}) : tenant_(std::move(tenant)) {}

  // One page; true when all has been told.
  bool Step(Owner* owner) {
    Result<EventPage> page = owner->ReadEvents(&cursor_, tenant_);
    EXPECT_TRUE(page.ok());
    if (!page.ok()) return true;
    if (page->reset) {
      ++resets;
      pieces.clear();
      sequence_ = 0;
    }
    for (const BlockEvent& event : page->events) {
      EXPECT_GT(event.sequence, sequence_);
      sequence_ = event.sequence;
      Apply(event, page->names.at(event.name).name_space);
      seen.push_back(event);
    }
    for (const BlockEvent& event : page->present) Apply(event, page->names.at(event.name).name_space);
    for (const EventName& name : page->names) EXPECT_TRUE(tenant_.empty() || name.tenant == tenant_);
    return page->complete;
  }
  void Follow(Owner* owner) {
    while (!Step(owner)) {
    }
  }

  std::set<Piece> pieces;
  std::vector<BlockEvent> seen;
  uint64_t resets = 0;

 private:
  void Apply(const BlockEvent& event, const Namespace& name_space) {
    const auto piece = [&](Presence tier) {
      return Piece{name_space, event.group, event.hash, Corners(event.rectangle), tier};
    };
    switch (event.kind) {
      case BlockEventKind::kStored:
        pieces.insert(piece(event.tier));
        return;
      case BlockEventKind::kMoved:
        pieces.insert(piece(event.tier));
        pieces.erase(piece(event.from));
        return;
      case BlockEventKind::kRemoved:
        pieces.erase(piece(event.from));
        return;
      case BlockEventKind::kCleared:
        std::erase_if(pieces, [&](const Piece& each) { return std::get<0>(each) == name_space; });
        return;
    }
  }

  const std::string tenant_;
  EventCursor cursor_;
  uint64_t sequence_ = 0;
};

constexpr uint64_t kKeys = 300;
constexpr const char* kTenants[] = {"t", "u"};
constexpr Rectangle kRectangles[] = {{0, 2, 0, 2}, {0, 2, 0, 2}, {0, 1, 0, 2}, {1, 2, 0, 2}, {0, 2, 0, 1}};

// Two tenants, memory for a tenth of their blocks, SSD for as much. All pieces have slots of one size, so
// that memory fills and spills.
class Work {
 public:
  explicit Work(uint64_t seed) : random_(seed), media_(64 << 10, 7) {
    OwnerOptions options;
    options.memory_bytes = 256 << 10;
    options.slab_bytes_target = 32 << 10;
    options.spill_below_percent = 30;
    options.spill_until_percent = 40;
    options.events_max = 96;
    options.seed = seed;
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::make_unique<larder::testing::SimDisk>(&media_, seed, false));
    ssd::TierOptions tier;
    tier.append_bytes = 32 << 10;
    node_ = std::make_unique<TestOwner>(options, std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    node_->RunDisks(100);
    session_ = node_->Connect();
    for (size_t i = 0; i < 2; ++i) {
      numbers_[i] = node_->OpenIdentity(session_, KvIdentity(2, 2), kTenants[i]);
    }
  }

  void Step() {
    node_->now_us += Below(3000);
    const uint64_t what = Below(100);
    const size_t tenant = Below(2);
    const Spec spec = AnySpec();
    if (what < 55) {
      node_->Put(session_, numbers_[tenant], spec);
    } else if (what < 75) {
      // Some blocks are asked for more often than others.
      Spec hot = spec;
      if (Below(2) == 0) hot.key = hot.key % 20 / 2 * 2 + hot.group;
      EXPECT_TRUE(node_->GetOne(session_, numbers_[tenant], hot).checksums_good);
    } else if (what < 82) {
      larder::Remove remove{numbers_[tenant], {spec.group}, {HashOf(spec.key)}};
      node_->Send(session_, Verb::kRemove, remove);
    } else if (what < 86) {
      node_->MatchOne(session_, numbers_[tenant], spec, nullptr, 20'000);
    } else if (what < 90) {
      node_->TouchOne(session_, numbers_[tenant], spec);
    } else if (what == 90 && Below(8) == 0) {
      node_->Send(session_, Verb::kClear, larder::Clear{numbers_[tenant]});
    } else if (what == 91 && Below(24) == 0) {
      Ban();
    } else if (what < 96) {
      node_->Advance(Below(30'000));
    }
    node_->RunDisks(static_cast<int>(Below(4)));
  }

  // What is there, found without the events.
  std::set<Piece> Truth(const std::string& of = {}) {
    Settle();
    std::set<Piece> out;
    for (const NamespaceInfo& info : node_->owner->Namespaces()) {
      if (!of.empty() && info.tenant != of) continue;
      std::vector<BlockAsked> asked;
      for (uint64_t key = 0; key < kKeys; ++key) {
        asked.push_back({HashOf(key), static_cast<uint16_t>(key % 2)});
      }
      const auto stories = node_->owner->Explain(info.name_space, asked);
      EXPECT_TRUE(stories.ok());
      for (size_t i = 0; i < asked.size(); ++i) {
        for (const PieceStory& piece : stories.value()[i].pieces) {
          out.insert({info.name_space, asked[i].group, asked[i].hash, Corners(piece.rectangle), piece.tier});
        }
      }
    }
    return out;
  }
  Owner* owner() { return node_->owner.get(); }
  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  // Until what SSD is about to drop has been dropped.
  void Settle() {
    node_->RunDisks(200);
    while (node_->owner->NextTimerUs() <= node_->now_us) node_->owner->OnTimer(node_->now_us);
  }
  Spec AnySpec() {
    const uint64_t key = Below(kKeys);
    return {key, 1024, kRectangles[Below(5)], static_cast<uint32_t>(key % 7), static_cast<uint16_t>(key % 2)};
  }
  // What this writer wrote until now; then somebody else goes on.
  void Ban() {
    QuarantineRule rule;
    rule.writer[0] = static_cast<std::byte>(session_);
    node_->owner->SetQuarantine(node_->owner->WithRule(rule, false).value());
    session_ = node_->Connect();
    for (size_t i = 0; i < 2; ++i) {
      numbers_[i] = node_->OpenIdentity(session_, KvIdentity(2, 2), kTenants[i]);
    }
  }

  std::mt19937_64 random_;
  larder::testing::SimMedia media_;
  std::unique_ptr<TestOwner> node_;
  SessionId session_ = 0;
  uint32_t numbers_[2] = {};
};

class OwnerEvents : public ::testing::TestWithParam<uint64_t> {};

TEST_P(OwnerEvents, WhoeverFollowsKnowsExactlyWhatIsThere) {
  Work work(GetParam());
  Follower near, lazy, tenant("u");
  auto late = std::make_unique<Follower>();
  for (int step = 1; step <= 20000 && !HasFailure(); ++step) {
    work.Step();
    near.Step(work.owner());  // a page a step: its first snapshot lies between many changes
    if (work.Below(300) == 0) late = std::make_unique<Follower>();
    if (work.Below(3) == 0) late->Step(work.owner());
    if (step % 100 != 0) continue;
    const std::set<Piece> truth = work.Truth();
    for (Follower* each : {&near, &lazy, late.get()}) {
      each->Follow(work.owner());
      EXPECT_EQ(each->pieces, truth) << "seed " << GetParam() << " step " << step;
    }
    tenant.Follow(work.owner());
    EXPECT_EQ(tenant.pieces, work.Truth("u")) << "seed " << GetParam() << " step " << step;
    ASSERT_EQ(work.owner()->CheckInvariants(), "");
  }
  const OwnerStats stats = work.owner()->stats();
  EXPECT_GT(near.resets, 0u);
  EXPECT_GT(lazy.resets, 1u) << "the ring never overflowed";
  EXPECT_GT(stats.event_gaps, 0u);
  EXPECT_GT(stats.ssd.evicted, 0u);
  EXPECT_GT(stats.ssd.carried, 0u);
  EXPECT_GT(stats.promoted, 0u);
  EXPECT_GT(stats.cleared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, OwnerEvents, ::testing::Range<uint64_t>(1, 13));

struct Rig {  // memory alone
  explicit Rig(OwnerOptions options = {}) : test(Sized(options)) {
    session = test.Connect();
    number = test.OpenIdentity(session, KvIdentity(2, 2), "t");
  }
  static OwnerOptions Sized(OwnerOptions options) {
    options.memory_bytes = 4 << 20;
    options.slab_bytes_target = 256 << 10;
    return options;
  }
  TestOwner test;
  SessionId session = 0;
  uint32_t number = 0;
  Follower follower;
};

TEST(OwnerEventsOf, APutARemoveAndAClearSayWhatHappened) {
  Rig rig;
  rig.follower.Follow(rig.test.owner.get());
  rig.test.Put(rig.session, rig.number, {1, 4096, {0, 2, 0, 2}});
  rig.test.Put(rig.session, rig.number, {2, 4096, {0, 1, 0, 2}, 0, 3});
  rig.test.Send(rig.session, Verb::kRemove, larder::Remove{rig.number, {0}, {HashOf(1)}});
  rig.test.Send(rig.session, Verb::kClear, larder::Clear{rig.number});
  rig.follower.Follow(rig.test.owner.get());
  const auto& seen = rig.follower.seen;
  ASSERT_EQ(seen.size(), 4u);  // a clear is one, whatever it hides
  EXPECT_EQ(seen[0].kind, BlockEventKind::kStored);
  EXPECT_TRUE(seen[0].whole);
  EXPECT_EQ(seen[0].hash, HashOf(1));
  EXPECT_FALSE(seen[1].whole);
  EXPECT_EQ(seen[1].group, 3);
  EXPECT_EQ(seen[2].kind, BlockEventKind::kRemoved);
  EXPECT_EQ(seen[2].reason, Presence::kRemoved);
  EXPECT_EQ(seen[3].kind, BlockEventKind::kCleared);
  EXPECT_EQ(seen[3].clear_epoch, 1u);
  EXPECT_EQ(rig.test.owner->stats().events, 4u);
  EXPECT_TRUE(rig.follower.pieces.empty());
}

TEST(OwnerEventsOf, TheEnginesOwnHashesAreTold) {
  Rig rig;
  rig.follower.Follow(rig.test.owner.get());
  const Spec spec{1, 4096, {0, 2, 0, 2}};
  Reserve reserve;
  reserve.number = rig.number;
  reserve.blocks.push_back(rig.test.BlockOf(spec));
  reserve.blocks[0].constituents = {HashOf(71), HashOf(72)};
  const auto reply = rig.test.Ask<ReserveReply>(rig.session, Verb::kReserve, reserve);
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(rig.test.CommitOne(rig.session, reply->blocks[0].ticket, spec), PutState::kStored);
  const std::vector<ChainHash> expected = {HashOf(71), HashOf(72)};
  rig.follower.Follow(rig.test.owner.get());
  ASSERT_EQ(rig.follower.seen.size(), 1u);
  EXPECT_EQ(rig.follower.seen[0].constituents, expected);
  EventCursor late;
  const Result<EventPage> snapshot = rig.test.owner->ReadEvents(&late, "");
  ASSERT_TRUE(snapshot.ok());
  ASSERT_EQ(snapshot->present.size(), 1u);
  EXPECT_EQ(snapshot->present[0].constituents, expected);
}

// A follower that lost its stream in mid-snapshot was told that what it had was complete.
TEST(OwnerEventsOf, ASnapshotUnderWayCannotBeGoneOnWith) {
  Rig rig;
  for (uint64_t key = 1; key <= 10; ++key) rig.test.Put(rig.session, rig.number, {key, 4096, {0, 2, 0, 2}});
  EventCursor cursor;
  bool complete = false;
  for (int page = 0; page < 100 && !complete; ++page) {
    const Result<EventPage> told = rig.test.owner->ReadEvents(&cursor, "");
    ASSERT_TRUE(told.ok());
    complete = told->complete;
    EXPECT_EQ(told->resumable, cursor.scan == EventCursor::Scan::kDone);
    EXPECT_TRUE(told->resumable || !complete);
  }
  EXPECT_TRUE(complete);
}

TEST(OwnerEventsOf, ANodeWithoutEventsSaysSo) {
  OwnerOptions options;
  options.events_max = 0;
  Rig rig(options);
  EXPECT_EQ(rig.test.Put(rig.session, rig.number, {1, 4096, {0, 2, 0, 2}}), PutState::kStored);
  EventCursor cursor;
  EXPECT_EQ(rig.test.owner->ReadEvents(&cursor, "").status().code(), Code::kUnsupported);
}

TEST(OwnerEventsOf, WhoFellBehindBeginsAnewAndWhoKeptUpDoesNot) {
  OwnerOptions options;
  options.events_max = 8;
  Rig rig(options);
  Follower slow;
  slow.Follow(rig.test.owner.get());
  for (uint64_t key = 0; key < 20; ++key) {
    rig.test.Put(rig.session, rig.number, {key, 4096, {0, 2, 0, 2}});
    rig.follower.Follow(rig.test.owner.get());
  }
  slow.Follow(rig.test.owner.get());
  EXPECT_EQ(rig.follower.resets, 1u);
  EXPECT_EQ(slow.resets, 2u);
  EXPECT_EQ(slow.pieces, rig.follower.pieces);
  EXPECT_EQ(slow.pieces.size(), 20u);
  EXPECT_EQ(rig.test.owner->stats().event_gaps, 1u);
}

// A snapshot of more pieces than a page has, while pieces come and go between its pages.
TEST(OwnerEventsOf, ALongSnapshotMissesNothingThatHappensMeanwhile) {
  Rig rig;
  std::mt19937_64 random(7);
  for (uint64_t key = 0; key < 3000; ++key) {
    rig.test.Put(rig.session, rig.number, {key, 64, {0, 2, 0, 2}});
  }
  const uint64_t there = rig.test.owner->stats().pieces;
  int pages = 1;
  for (; !rig.follower.Step(rig.test.owner.get()); ++pages) {
    for (int i = 0; i < 50; ++i) {
      const uint64_t key = random() % 4000;
      if (random() % 2 == 0) {
        rig.test.Send(rig.session, Verb::kRemove, larder::Remove{rig.number, {0}, {HashOf(key)}});
      } else {
        rig.test.Put(rig.session, rig.number, {key, 64, {0, 2, 0, 2}});
      }
    }
  }
  rig.follower.Follow(rig.test.owner.get());
  EXPECT_GT(there, 600u);
  EXPECT_GT(pages, 1);
  Follower after;
  after.Follow(rig.test.owner.get());
  EXPECT_EQ(rig.follower.pieces, after.pieces);
  EXPECT_EQ(rig.follower.pieces.size(), rig.test.owner->stats().pieces);
}

}  // namespace
}  // namespace larder::node::events_test
