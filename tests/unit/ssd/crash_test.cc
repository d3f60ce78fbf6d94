// Crashes and power cuts at random moments, on the simulated disk. What was acknowledged is there afterwards,
// and nothing is ever wrong. A failure prints its seed.
#include <cstring>

#include "tests/unit/ssd/tier_rig.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kSegmentBytes = 128 << 10;
constexpr uint32_t kSegments = 12;

struct Life {
  Life(testing::SimMedia* media_given, uint64_t seed_given, bool sync_given)
      : media(media_given), seed(seed_given), sync(sync_given), random(seed_given) {
    rig.options.append_bytes = 48 << 10;
    Start();
  }
  void Start() {
    auto made = std::make_unique<testing::SimDisk>(media, ++seed, sync, faults);
    disk = made.get();
    std::vector<std::unique_ptr<Disk>> disks;
    disks.push_back(std::move(made));
    rig.Start(std::move(disks));
  }
  // Puts, reads, removals, clears, for so many steps.
  void Work(int steps) {
    for (int i = 0; i < steps; ++i) {
      const uint64_t what = random() % 10;
      if (what < 6) {
        const Block block = Fixed(random() % 60);
        if (rig.Find(block) == SsdTier::kNone) (void)rig.BeginWrite(block);
      } else if (what == 6 && random() % 8 == 0) {
        const Block removed = Fixed(random() % 60);
        if (const uint32_t entry = rig.Find(removed); entry != SsdTier::kNone) {
          rig.tier->Remove(entry);
          rig.acknowledged.erase(removed.key);
        }
      } else if (what == 7 && random() % 20 == 0) {
        rig.acknowledged.clear();
        ++epoch;
        rig.tier->Clear(SpaceName(1), epoch, 900'000 + epoch);
        ASSERT_TRUE(rig.Durable(900'000 + epoch)) << "seed " << seed;
      }
      rig.now_us += 1000;
      rig.tier->Poll(rig.now_us, rig.unix_ms, &rig);
    }
  }
  // A block has one size, whoever writes it.
  Block Fixed(uint64_t key) const { return {key, 4096, static_cast<uint16_t>(1 + key % 4), epoch}; }
  // A clear that was answered is a promise on every disk, synced or not.
  bool StaysCleared() const {
    const SpaceRecord* space = rig.tier->FindSpace(SpaceName(1));
    return epoch == 0 || (space != nullptr && space->clear_epoch >= epoch);
  }
  // How many of the acknowledged are missing; wrong bytes fail at once.
  int Missing(uint64_t run) {
    int missing = 0;
    for (const auto& [key, block] : std::map(rig.acknowledged)) {
      const TierRig::Outcome outcome = rig.Read(block);
      EXPECT_NE(outcome, TierRig::Outcome::kWrong) << "seed " << run << " block " << key;
      missing += outcome == TierRig::Outcome::kMissing ? 1 : 0;
    }
    return missing;
  }

  testing::SimMedia* media;
  uint64_t seed;
  bool sync;
  testing::SimFaults faults;
  std::mt19937_64 random;
  uint32_t epoch = 0;
  TierRig rig;
  testing::SimDisk* disk = nullptr;
};

// Blocks that reclaiming dropped are told by OnGone, so the space here is large enough for all of them.
TEST(Crash, AKilledProcessLosesNothingThatWasAcknowledged) {
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    testing::SimMedia media(kSegmentBytes * 4, kSegments);
    Life life(&media, seed * 1000, false);
    for (int lives = 0; lives < 3; ++lives) {
      ASSERT_TRUE(life.rig.Load()) << "seed " << seed;
      life.Work(150);
      if (life.rig.gone[WhyGone::kEvicted] != 0) break;  // reclaimed: no longer a promise
      life.disk->Die(&life.random);
      life.Start();
      ASSERT_TRUE(life.rig.Load()) << "seed " << seed;
      ASSERT_EQ(life.Missing(seed), 0) << "seed " << seed;
      ASSERT_EQ(life.rig.tier->CheckInvariants(), "") << "seed " << seed;
      ASSERT_TRUE(life.StaysCleared()) << "seed " << seed;
    }
  }
}

TEST(Crash, WithSyncAPowerCutLosesNothingThatWasAcknowledged) {
  size_t acknowledged = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    testing::SimMedia media(kSegmentBytes * 4, kSegments);
    Life life(&media, seed * 1000, true);
    ASSERT_TRUE(life.rig.Load()) << "seed " << seed;
    life.Work(static_cast<int>(50 + life.random() % 200));
    const bool promised = life.rig.gone[WhyGone::kEvicted] == 0;
    acknowledged += promised ? life.rig.acknowledged.size() : 0;
    life.disk->Die(&life.random);
    media.PowerCut(&life.random);
    life.Start();
    ASSERT_TRUE(life.rig.Load()) << "seed " << seed;
    const int missing = life.Missing(seed);
    if (promised) {
      ASSERT_EQ(missing, 0) << "seed " << seed;
    }
    ASSERT_EQ(life.rig.tier->CheckInvariants(), "") << "seed " << seed;
  }
  EXPECT_GT(acknowledged, 10'000u);
}

TEST(Crash, WithoutSyncAPowerCutMayLoseBlocksButNeverGivesWrongBytes) {
  int lost = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    testing::SimMedia media(kSegmentBytes, kSegments);
    Life life(&media, seed * 1000, false);
    ASSERT_TRUE(life.rig.Load());
    life.Work(250);
    life.disk->Die(&life.random);
    media.PowerCut(&life.random);
    life.Start();
    ASSERT_TRUE(life.rig.Load()) << "seed " << seed;
    ASSERT_TRUE(life.StaysCleared()) << "seed " << seed;
    lost += life.Missing(seed);
    ASSERT_EQ(life.rig.tier->CheckInvariants(), "") << "seed " << seed;
    life.Work(100);  // and goes on
    (void)life.Missing(seed);
  }
  EXPECT_GT(lost, 0);  // else the simulated cut cuts nothing
}

TEST(Crash, RottenBitsAreMissesThatAreCountedAndGoAway) {
  uint64_t corrupt = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    testing::SimMedia media(kSegmentBytes, kSegments);
    Life life(&media, seed * 1000, false);
    ASSERT_TRUE(life.rig.Load());
    life.Work(120);
    ASSERT_TRUE(life.rig.Until([&] { return life.rig.tier->stats().appends_open == 0; }));
    for (int i = 0; i < 20; ++i) media.FlipBit(&life.random);
    const int missing = life.Missing(seed);
    corrupt += life.rig.tier->stats().corrupt;
    if (missing > 0 && life.rig.gone[WhyGone::kEvicted] == 0) {
      EXPECT_GT(life.rig.gone[WhyGone::kCorrupt], 0u);
    }
    ASSERT_EQ(life.rig.tier->CheckInvariants(), "") << "seed " << seed;
  }
  EXPECT_GT(corrupt, 100u);
}

TEST(Faults, ReadErrorsAreMissesAndManyInARowLeaveTheDiskOut) {
  testing::SimMedia media(kSegmentBytes, kSegments);
  Life life(&media, 5, false);
  ASSERT_TRUE(life.rig.Load());
  std::vector<Block> written;
  for (uint64_t key = 1; key <= 20; ++key) written.push_back(life.Fixed(key));
  ASSERT_TRUE(life.rig.Write(written));
  const auto blocks = life.rig.acknowledged;
  ASSERT_EQ(blocks.size(), 20u);
  life.disk->faults.read_error_percent = 100;
  for (const auto& [key, block] : blocks) EXPECT_EQ(life.rig.Read(block), TierRig::Outcome::kMissing);
  EXPECT_EQ(life.rig.tier->stats().disks_lost, 1u);
  EXPECT_NE(life.rig.tier->disk_infos()[0].error, "");
  EXPECT_EQ(life.rig.tier->WritableBytes(life.rig.now_us), 0u);
  ASSERT_TRUE(life.rig.Until([&] { return life.rig.tier->stats().pieces == 0; }));
  EXPECT_GT(life.rig.gone[WhyGone::kDiskLost], 0u);
  life.rig.tier->Barrier(3);  // nobody waits for a disk that is gone
  EXPECT_TRUE(life.rig.Durable(3));
}

TEST(Faults, AWriteErrorLeavesTheDiskOutAndAnotherGoesOn) {
  testing::SimMedia media(kSegmentBytes, kSegments), other(kSegmentBytes, kSegments);
  TierRig rig;
  rig.options.append_bytes = 48 << 10;
  testing::SimFaults faults;
  faults.write_error_percent = 100;
  std::vector<std::unique_ptr<Disk>> disks;
  disks.push_back(std::make_unique<testing::SimDisk>(&media, 1, false, faults));
  disks.push_back(std::make_unique<testing::SimDisk>(&other, 2, false));
  rig.Start(std::move(disks));
  ASSERT_TRUE(rig.Load());
  std::vector<Block> blocks;
  for (uint64_t key = 1; key <= 30; ++key) blocks.push_back({key, 4096, 2});
  ASSERT_TRUE(rig.Write(blocks));
  EXPECT_EQ(rig.tier->stats().disks_lost, 1u);
  EXPECT_GT(rig.acknowledged.size(), 15u);
  for (const auto& [key, block] : rig.acknowledged) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood);
  rig.Check();
}

TEST(Faults, AFullDiskGoesOnWithTheSegmentsItHas) {
  testing::SimMedia media(kSegmentBytes, kSegments);
  Life life(&media, 5, false);
  life.faults.segments_full = 5;
  life.Start();
  ASSERT_TRUE(life.rig.Load());
  for (int i = 0; i < 200; ++i) {
    life.Work(10);
    life.rig.now_us += 1'000'000;
    ASSERT_TRUE(life.rig.Until([&] { return life.rig.tier->WritableBytes(life.rig.now_us) > 0; })) << i;
    (void)life.rig.Write({{1000u + static_cast<uint64_t>(i), 4096, 3}});
  }
  EXPECT_EQ(life.rig.tier->stats().disks_lost, 0u);
  EXPECT_GT(life.rig.tier->stats().reclaims, 2u);
  EXPECT_EQ(life.rig.tier->stats().capacity_bytes, 5 * kSegmentBytes);
}

TEST(SsdIndex, TakesAtMost96BytesARecord) {
  SsdIndex index(3);
  SsdEntry entry;
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    std::memcpy(entry.hash.bytes.data(), &i, sizeof i);
    index.Add(entry, {});
  }
  const uint64_t in_segments = index.size() * sizeof(uint32_t);
  EXPECT_LE((index.metadata_bytes() + in_segments) / index.size(), 96u);
}

TEST(SsdIndex, AgreesWithAMapThroughRandomAddsAndRemovals) {
  std::mt19937_64 random(5);
  SsdIndex index(9);
  std::map<uint32_t, uint32_t> model;
  for (int step = 0; step < 50'000; ++step) {
    const auto key = static_cast<uint32_t>(random() % 5'000);
    SsdEntry entry;
    std::memcpy(entry.hash.bytes.data(), &key, sizeof key);
    const auto found = model.find(key);
    ASSERT_EQ(index.Find(0, entry.hash, 0), found == model.end() ? SsdIndex::kNone : found->second);
    if (found == model.end()) {
      model[key] = index.Add(entry, {});
    } else {
      index.Remove(found->second);
      model.erase(found);
    }
  }
  EXPECT_EQ(index.size(), model.size());
  EXPECT_EQ(index.CheckInvariants(), "");
}

}  // namespace
}  // namespace larder::node::ssd
