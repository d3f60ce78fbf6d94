// What every disk must do, real or simulated.
#include <algorithm>

#include "node/ssd/file_disk.h"
#include "tests/unit/ssd/tier_rig.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kSegmentBytes = 1 << 20;
constexpr uint32_t kSegments = 8;

struct Kind {
  const char* name;
  bool real, uring;
};

class TierBattery : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Disk> Make() {
    if (!GetParam().real) return std::make_unique<testing::SimDisk>(&media, ++seed, false);
    FileDiskOptions options;
    options.directory = {folder.path + "/ssd", "n1", "test", kSegmentBytes, false};
    options.capacity_bytes = kSegmentBytes * kSegments;
    options.io_uring = GetParam().uring;
    options.threads = 2;
    auto disk = OpenFileDisk(options, &remarks);
    EXPECT_TRUE(disk.ok()) << disk.status().text();
    return disk.ok() ? std::move(disk).value() : nullptr;
  }
  void Start() {
    rig.real = GetParam().real;
    rig.Stop();  // a directory belongs to one at a time
    std::vector<std::unique_ptr<Disk>> disks;
    disks.push_back(Make());
    rig.Start(std::move(disks));
    ASSERT_TRUE(rig.Load());
  }
  void SetUp() override {
    rig.options.append_bytes = 256 << 10;
    Start();
  }

  testing::SimMedia media{kSegmentBytes, kSegments};
  uint64_t seed = 1;
  ScratchFolder folder;
  std::vector<std::string> remarks;
  TierRig rig;
};

std::vector<Block> Blocks(uint64_t first, uint64_t count) {
  std::vector<Block> out;
  for (uint64_t i = 0; i < count; ++i) out.push_back({first + i});
  return out;
}

TEST_P(TierBattery, GivesBackWhatWasWritten) {
  ASSERT_TRUE(rig.Write(Blocks(1, 40)));
  EXPECT_EQ(rig.acknowledged.size(), 40u);
  for (const Block& block : Blocks(1, 40)) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.key;
  EXPECT_EQ(rig.Find({41}), SsdTier::kNone);
  rig.Check();
}

TEST_P(TierBattery, ReadsAPartByItsCoveringPages) {
  const Block block{7, 12'000, 16};  // parts that begin inside a page
  ASSERT_TRUE(rig.Write({block}));
  const uint64_t before = rig.tier->stats().read_bytes;
  const Rectangle one{5, 6, 0, 1};
  EXPECT_EQ(rig.Read(block, &one), TierRig::Outcome::kGood);
  EXPECT_LE(rig.tier->stats().read_bytes - before, 5 * kPageBytes);
}

TEST_P(TierBattery, TakesPiecesOfEverySize) {
  std::vector<Block> blocks;
  uint64_t key = 100;
  for (const uint32_t bytes : {1u, 100u, 4095u, 4096u, 4097u, 65'536u, 200'000u})
    blocks.push_back({key++, bytes, 1});
  ASSERT_TRUE(rig.Write(blocks));
  for (const Block& block : blocks) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.part_bytes;
  Start();
  for (const Block& block : blocks) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.part_bytes;
}

TEST_P(TierBattery, ARestartFindsEverythingAgain) {
  ASSERT_TRUE(rig.Write(Blocks(1, 60)));
  Start();
  EXPECT_EQ(rig.tier->stats().pieces, 60u);
  for (const Block& block : Blocks(1, 60)) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.key;
  const SpaceRecord* space = rig.tier->FindSpace(SpaceName(1));
  ASSERT_NE(space, nullptr);
  EXPECT_EQ(space->tenant, "tenant");
  rig.Check();
  // And goes on behind what is there.
  ASSERT_TRUE(rig.Write(Blocks(1000, 60)));
  Start();
  for (const Block& block : Blocks(1, 60)) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.key;
  for (const Block& block : Blocks(1000, 60))
    EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.key;
}

TEST_P(TierBattery, AClearHidesAtOnceAndStaysClearedAfterARestart) {
  ASSERT_TRUE(rig.Write(Blocks(1, 20)));
  ASSERT_TRUE(rig.Write({{500, 8192, 4, 0, 2}}));
  rig.tier->Clear(SpaceName(1), 1, 77);
  for (const Block& block : Blocks(1, 20)) EXPECT_EQ(rig.Find({block.key, 8192, 4, 1}), SsdTier::kNone);
  ASSERT_TRUE(rig.Durable(77));
  ASSERT_TRUE(rig.Write({{3, 8192, 4, 1}}));
  Start();
  EXPECT_EQ(rig.tier->FindSpace(SpaceName(1))->clear_epoch, 1u);
  EXPECT_EQ(rig.tier->stats().pieces, 2u);
  EXPECT_EQ(rig.Read({3, 8192, 4, 1}), TierRig::Outcome::kGood);
  EXPECT_EQ(rig.Read({500, 8192, 4, 0, 2}), TierRig::Outcome::kGood);
  rig.Check();
}

TEST_P(TierBattery, WhatWasRemovedStaysRemoved) {
  ASSERT_TRUE(rig.Write(Blocks(1, 10)));
  rig.tier->Remove(rig.Find({4}));
  rig.tier->Barrier(5);
  ASSERT_TRUE(rig.Durable(5));
  Start();
  EXPECT_EQ(rig.Find({4}), SsdTier::kNone);
  EXPECT_EQ(rig.tier->stats().pieces, 9u);
}

TEST_P(TierBattery, ReclaimsTheColdestAndCarriesOverWhatWasRead) {
  // 36 KiB a record: 28 a segment, 224 in all.
  ASSERT_TRUE(rig.Write(Blocks(1, 20)));
  for (uint64_t round = 0; round < 40; ++round) {
    rig.now_us += 2'000'000;
    const uint32_t hot = rig.Find({3});
    if (hot != SsdTier::kNone) rig.tier->Touch(hot, rig.now_us);
    ASSERT_TRUE(rig.Write(Blocks(100 + round * 10, 10))) << round;
  }
  const TierStats stats = rig.tier->stats();
  EXPECT_GT(stats.reclaims, 3u);
  EXPECT_GT(stats.evicted, 100u);
  EXPECT_EQ(rig.gone[WhyGone::kEvicted], stats.evicted);
  EXPECT_EQ(rig.Read({3}), TierRig::Outcome::kGood);
  EXPECT_EQ(rig.Find({5}), SsdTier::kNone);
  for (const Block& block : Blocks(480, 10)) EXPECT_EQ(rig.Read(block), TierRig::Outcome::kGood) << block.key;
  EXPECT_LT(static_cast<double>(stats.disk_bytes), 1.35 * static_cast<double>(stats.written_bytes));
  rig.Check();
  Start();
  EXPECT_EQ(rig.Read({3}), TierRig::Outcome::kGood);
  EXPECT_EQ(rig.Find({5}), SsdTier::kNone);
  rig.Check();
}

TEST_P(TierBattery, AWrongPieceIsWrittenToNobody) {
  Block block{9};
  Bytes header;
  EncodeHeader(HeaderOf(block), &header);
  const Pages payload = MakePages(32768);
  std::memset(payload.get(), 7, 32768);  // not what the header says
  const TierPiece piece{1000, rig.Space(), 0, header, payload.get()};
  ASSERT_TRUE(rig.Until([&] { return rig.tier->WritableBytes(rig.now_us) > 0; }));
  ASSERT_EQ(rig.tier->Write({&piece, 1}), 1u);
  ASSERT_TRUE(rig.Until([&] { return rig.written.count(1000) != 0; }));
  EXPECT_FALSE(rig.written[1000]);
  EXPECT_EQ(rig.Find(block), SsdTier::kNone);
  Start();
  EXPECT_EQ(rig.Find(block), SsdTier::kNone);
}

TEST_P(TierBattery, TheHoursBytesAreACap) {
  rig.options.bytes_per_hour_max = 60 * (100 << 10);
  rig.options.appends_max = 16;
  Start();
  ASSERT_TRUE(rig.Until([&] { return rig.tier->WritableBytes(rig.now_us) >= rig.options.append_bytes; }));
  uint64_t taken = 0;
  for (uint64_t key = 1; key < 40; ++key) taken += rig.BeginWrite({key}) ? 1 : 0;
  EXPECT_LE(taken, 4u);  // a minute's share, and one that overdraws it
  EXPECT_GE(taken, 3u);
  rig.now_us += 60'000'000;
  ASSERT_TRUE(rig.Until([&] { return rig.tier->stats().appends_open == 0; }));
  EXPECT_TRUE(rig.BeginWrite({1000}));
}

INSTANTIATE_TEST_SUITE_P(Disks, TierBattery,
                         ::testing::Values(Kind{"Simulated", false, false}, Kind{"Threads", true, false},
                                           Kind{"IoUring", true, true}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace larder::node::ssd
