// What only a real directory can do wrong: whose it is, which version, damage to its files, no room.
#include "node/ssd/file_disk.h"

#include <sys/mount.h>
#include <unistd.h>

#include <fstream>

#include "node/ssd/index_store.h"
#include "tests/unit/ssd/tier_rig.h"

namespace larder::node::ssd {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kSegmentBytes = 1 << 20;

class FileDiskTest : public ::testing::Test {
 protected:
  FileDiskTest() {
    options.directory = {folder.path + "/ssd", "n1", "c1", kSegmentBytes, false};
    options.capacity_bytes = kSegmentBytes * 8;
    rig.real = true;
    rig.options.append_bytes = 256 << 10;
  }
  Status Start() {
    rig.Stop();
    remarks.clear();
    auto disk = OpenFileDisk(options, &remarks);
    if (!disk.ok()) return disk.status();
    std::vector<std::unique_ptr<Disk>> disks;
    disks.push_back(std::move(disk).value());
    rig.Start(std::move(disks));
    EXPECT_TRUE(rig.Load());
    return Status::Ok();
  }
  void WriteBlocks(uint64_t count) {
    std::vector<Block> blocks;
    for (uint64_t key = 1; key <= count; ++key) blocks.push_back({key});
    ASSERT_TRUE(rig.Write(blocks));
  }
  // How many of the blocks read well; a wrong byte fails.
  int Good(uint64_t count) {
    int good = 0;
    for (uint64_t key = 1; key <= count; ++key) {
      const TierRig::Outcome outcome = rig.Read({key});
      EXPECT_NE(outcome, TierRig::Outcome::kWrong) << key;
      good += outcome == TierRig::Outcome::kGood ? 1 : 0;
    }
    return good;
  }
  std::string Path(const std::string& name) const { return options.directory.directory + "/" + name; }
  void Overwrite(const std::string& path, std::streamoff at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
    ASSERT_TRUE(file.good()) << path;
  }

  ScratchFolder folder;
  FileDiskOptions options;
  std::vector<std::string> remarks;
  TierRig rig;
};

// Records of before the index had a tag of the writer are read all the same.
TEST(IndexRecords, ReadBackAndWithoutATagToo) {
  IndexRecord record;
  record.sequence = 7;
  record.created_s = 1'700'000'000;
  record.payload_bytes = 4096;
  record.depth = 3;
  record.writer_tag = WriterTag(Digest{std::byte{6}});
  EXPECT_EQ(record.writer_tag, 7u);  // never 0
  Bytes bytes = EncodeRecord(record);
  IndexRecord read;
  ASSERT_TRUE(DecodeRecord(bytes, &read));
  EXPECT_EQ(read, record);
  bytes.resize(bytes.size() - 4);
  read = {};
  ASSERT_TRUE(DecodeRecord(bytes, &read));
  record.writer_tag = 0;
  EXPECT_EQ(read, record);
  bytes.resize(bytes.size() - 1);
  EXPECT_FALSE(DecodeRecord(bytes, &read));
}

TEST_F(FileDiskTest, TwoNodesOnOneDirectoryAreRefused) {
  ASSERT_TRUE(Start().ok());
  const auto second = OpenFileDisk(options, &remarks);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().text().find("another node uses"), std::string::npos);
  EXPECT_EQ(second.status().text().find('\n'), std::string::npos);
}

TEST_F(FileDiskTest, AnotherNodeOrClusterOrANewerVersionIsRefusedUntilStartEmpty) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(5);
  rig.Stop();
  const FileDiskOptions mine = options;
  options.directory.node_id = "n2";
  EXPECT_NE(Start().text().find("belongs to node 'n1', this is 'n2'"), std::string::npos);
  options = mine;
  options.directory.cluster = "c2";
  EXPECT_NE(Start().text().find("belongs to cluster 'c1'"), std::string::npos);
  options = mine;
  std::ofstream(Path("LARDER")) << "larder-ssd 7\nnode n1\n";
  EXPECT_NE(Start().text().find("version 7"), std::string::npos);
  EXPECT_NE(Start().text().find("--start-empty"), std::string::npos);
  options.directory.start_empty = true;
  ASSERT_TRUE(Start().ok());
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(rig.tier->stats().pieces, 0u);
  options.directory.start_empty = false;
  ASSERT_TRUE(Start().ok());
}

TEST_F(FileDiskTest, AnOlderVersionIsPutAsideAndTheNodeStartsEmpty) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(5);
  rig.Stop();
  std::ofstream(Path("LARDER")) << "larder-ssd 0\n";
  ASSERT_TRUE(Start().ok());
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("put aside"), std::string::npos);
  EXPECT_TRUE(fs::exists(Path("aside-version-0/000000.seg")));
  EXPECT_EQ(rig.tier->stats().pieces, 0u);
  ASSERT_TRUE(Start().ok());  // and does not loop
  EXPECT_TRUE(remarks.empty());
}

TEST_F(FileDiskTest, ABrokenIndexIsMadeAnewFromTheSegments) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(60);
  rig.tier->Clear(SpaceName(2), 4, 9);
  ASSERT_TRUE(rig.Durable(9));
  rig.Stop();
  for (const auto& file : fs::directory_iterator(Path("index"))) {
    const std::string name = file.path().filename();
    if (name.rfind("MANIFEST", 0) == 0) Overwrite(file.path(), 3, "this is not what was here before at all");
  }
  ASSERT_TRUE(Start().ok());
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_TRUE(rig.tier->stats().rebuilt);
  EXPECT_EQ(Good(60), 60);
  EXPECT_EQ(rig.tier->FindSpace(SpaceName(2))->clear_epoch, 4u);
  rig.Check();
  ASSERT_TRUE(Start().ok());  // the new index holds
  EXPECT_FALSE(rig.tier->stats().rebuilt);
  EXPECT_EQ(Good(60), 60);
}

TEST_F(FileDiskTest, AnIndexThatIsGoneIsMadeAnew) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(30);
  rig.Stop();
  fs::remove_all(Path("index"));
  ASSERT_TRUE(Start().ok());
  EXPECT_TRUE(rig.tier->stats().rebuilt);
  EXPECT_EQ(Good(30), 30);
}

TEST_F(FileDiskTest, WithoutItsListOfClearsADirectoryStartsEmpty) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(5);
  rig.tier->Clear(SpaceName(2), 1, 9);
  rig.tier->Clear(SpaceName(3), 1, 10);
  ASSERT_TRUE(rig.Durable(10));
  rig.Stop();
  Overwrite(Path("clears"), 2, "x");
  ASSERT_TRUE(Start().ok());
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(rig.tier->stats().pieces, 0u);
}

TEST_F(FileDiskTest, ADamagedHeadIsOneMissAndTheRebuildFindsWhatLiesBehindIt) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(20);
  rig.Stop();
  Overwrite(Path("000000.seg"), 4096 + 36, "????");  // the first record's header
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Good(20), 19);
  EXPECT_EQ(rig.tier->stats().corrupt, 1u);
  EXPECT_EQ(rig.gone[WhyGone::kCorrupt], 1u);
  rig.Stop();
  fs::remove_all(Path("index"));
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(rig.tier->stats().pieces, 19u);
  EXPECT_EQ(Good(20), 19);
}

TEST_F(FileDiskTest, ATruncatedSegmentLosesItsOwnBlocksOnly) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(60);  // more than two segments
  rig.Stop();
  fs::resize_file(Path("000000.seg"), 300'000);
  ASSERT_TRUE(Start().ok());
  const int good = Good(60);
  EXPECT_GE(good, 60 - 28 + 7);
  EXPECT_LT(good, 60);
  rig.Check();
}

TEST_F(FileDiskTest, ADeletedSegmentLosesItsOwnBlocksOnly) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(60);  // three segments
  rig.Stop();
  fs::remove(Path("000000.seg"));
  ASSERT_TRUE(Start().ok());
  const int good = Good(60);
  EXPECT_GE(good, 60 - 28);
  EXPECT_LT(good, 60);
  EXPECT_EQ(rig.tier->stats().disks_lost, 0u);
  EXPECT_EQ(rig.tier->stats().pieces, static_cast<uint64_t>(good));
  rig.Check();
  ASSERT_TRUE(rig.Write({{1000}, {1001}}));
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Good(60), good);
}

TEST_F(FileDiskTest, ADirectoryThatVanishesIsLeftOut) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(5);
  fs::remove_all(options.directory.directory);
  // Sooner or later something needs a file by its name.
  for (uint64_t key = 100; key < 1500 && rig.tier->stats().disks_lost == 0; ++key) {
    if (!rig.BeginWrite({key})) rig.Until([&] { return rig.tier->stats().appends_open == 0; });
    rig.Until([] { return true; });
  }
  EXPECT_EQ(rig.tier->stats().disks_lost, 1u);
  EXPECT_NE(rig.tier->disk_infos()[0].error, "");
}

TEST_F(FileDiskTest, AFullFileSystemIsUsedAsFarAsItGoes) {
  const std::string mount_point = folder.path + "/small";
  fs::create_directories(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=20m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  options.directory.directory = mount_point + "/ssd";
  options.capacity_bytes = kSegmentBytes * 64;
  EXPECT_TRUE(Start().ok());
  for (uint64_t key = 1; key < 1200; ++key) {
    rig.now_us += 1'000'000;
    EXPECT_TRUE(rig.Until([&] { return rig.BeginWrite({key}) || rig.tier->stats().disks_lost != 0; })) << key;
    if (rig.tier->stats().disks_lost != 0) break;
  }
  rig.Until([&] { return rig.tier->stats().appends_open == 0; });
  EXPECT_EQ(rig.tier->stats().disks_lost, 0u) << rig.tier->disk_infos()[0].error;
  EXPECT_GT(rig.tier->stats().reclaims, 10u);
  EXPECT_LT(rig.tier->stats().capacity_bytes, 20u << 20);
  EXPECT_EQ(rig.Read({1199}), TierRig::Outcome::kGood);
  rig.Stop();
  umount(mount_point.c_str());
}

// RocksDB ended the process there. Found by tests/chaos.
TEST_F(FileDiskTest, AStartOnAFullFileSystemGivesUpSegmentsForTheIndex) {
  const std::string mount_point = folder.path + "/full";
  fs::create_directories(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=80m") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  options.directory.directory = mount_point + "/ssd";
  options.capacity_bytes = kSegmentBytes * 40;
  ASSERT_TRUE(Start().ok());
  WriteBlocks(700);
  rig.Stop();
  std::FILE* others = std::fopen((mount_point + "/others").c_str(), "w");
  const std::string piece(4096, 'x');
  while (std::fwrite(piece.data(), 1, piece.size(), others) == piece.size() && std::fflush(others) == 0) {
  }
  std::fclose(others);
  const Status full = Start();
  ASSERT_TRUE(full.ok()) << full.text();
  EXPECT_GT(Good(700), 0);
  rig.Check();
  rig.Stop();
  for (const auto& each : fs::directory_iterator(options.directory.directory)) {
    if (each.path().extension() == ".seg") fs::remove(each.path());
  }
  std::FILE* more = std::fopen((mount_point + "/more").c_str(), "w");
  while (std::fwrite(piece.data(), 1, piece.size(), more) == piece.size() && std::fflush(more) == 0) {
  }
  std::fclose(more);
  options.capacity_bytes = kSegmentBytes * 40;
  const Status refused = Start();
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.text().find("free space there"), std::string::npos) << refused.text();
  umount(mount_point.c_str());
}

TEST_F(FileDiskTest, RoomForLessThanFourSegmentsIsRefusedWithALine) {
  options.capacity_bytes = kSegmentBytes * 3;
  const Status status = Start();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.text().find("--ssd-bytes"), std::string::npos);
}

TEST_F(FileDiskTest, ALoweredCapacityGivesUpWhatIsBeyondIt) {
  ASSERT_TRUE(Start().ok());
  WriteBlocks(150);  // six segments
  options.capacity_bytes = kSegmentBytes * 4;
  ASSERT_TRUE(Start().ok());
  const int good = Good(150);
  EXPECT_GT(good, 50);
  EXPECT_LT(good, 150);
  EXPECT_FALSE(fs::exists(Path("000005.seg")));
  rig.Check();
}

TEST_F(FileDiskTest, WithSyncEverythingWorksToo) {
  options.sync = true;
  ASSERT_TRUE(Start().ok());
  WriteBlocks(40);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(Good(40), 40);
}

}  // namespace
}  // namespace larder::node::ssd
