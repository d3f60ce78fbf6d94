// What waits for a disk and in which order, and what the tier says a read will take.
#include <algorithm>
#include <random>

#include "node/ssd/lane_queue.h"
#include "tests/unit/ssd/tier_rig.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kMib = 1 << 20;

Job ReadOf(uint64_t id, uint64_t bytes, Lane lane = Lane::kInteractive) {
  Job job;
  job.id = id;
  job.lane = lane;
  job.ranges.push_back({0, nullptr, bytes});
  return job;
}

// The ids of what may begin now.
std::vector<uint64_t> PopAll(LaneQueue* queue, std::vector<Job>* popped) {
  std::vector<uint64_t> ids;
  while (std::optional<Job> job = queue->TryPop(0)) {
    ids.push_back(job->id);
    popped->push_back(std::move(*job));
  }
  return ids;
}

TEST(LaneQueue, ReadsWaitHereAndNotInTheDevice) {
  LaneQueue queue(64);
  std::vector<Job> popped;
  for (uint64_t id = 1; id <= 6; ++id) queue.Push(ReadOf(id, kMib / 2, Lane::kBatch));
  EXPECT_EQ(PopAll(&queue, &popped), (std::vector<uint64_t>{1, 2, 3, 4}));
  queue.Push(ReadOf(7, kMib / 2));
  queue.Push(ReadOf(8, 4096, Lane::kWrite));  // a scrub: small, and does not slip past those that wait
  EXPECT_TRUE(PopAll(&queue, &popped).empty());
  queue.Moved(popped[1]);
  EXPECT_EQ(PopAll(&queue, &popped), (std::vector<uint64_t>{7}));
  for (const size_t at : {0, 2, 3, 4}) queue.Moved(popped[at]);
  EXPECT_EQ(PopAll(&queue, &popped), (std::vector<uint64_t>{5, 6, 8}));
}

TEST(LaneQueue, TwoReadsOfAnySizeAreUnderWayAndWritesDoNotWaitForThem) {
  LaneQueue queue(64);
  std::vector<Job> popped;
  for (uint64_t id = 1; id <= 3; ++id) queue.Push(ReadOf(id, 100 * kMib));
  Job write = ReadOf(4, 8 * kMib, Lane::kWrite);
  write.kind = Job::Kind::kAppend;
  queue.Push(std::move(write));
  EXPECT_EQ(PopAll(&queue, &popped), (std::vector<uint64_t>{1, 2, 4}));
  queue.Moved(popped[2]);
  EXPECT_TRUE(PopAll(&queue, &popped).empty());
  queue.Moved(popped[0]);
  EXPECT_EQ(PopAll(&queue, &popped), (std::vector<uint64_t>{3}));
}

// A device that shares its pace among the reads that it has, each of which takes a little more or less than
// its bytes say, and now and then much more. What lies on it is SimDisk's.
class PacedDisk final : public Disk {
 public:
  PacedDisk(testing::SimMedia* media, uint64_t seed, const uint64_t* now_us)
      : disk_(media, seed, false, {.done_percent = 100}), now_us_(now_us), random_(seed) {}
  bool Submit(Job&& job) override {
    if (job.kind != Job::Kind::kRead) return disk_.Submit(std::move(job));
    Advance();
    return queue_.Push(std::move(job)) && (Advance(), true);
  }
  void Poll(std::vector<Done>* done, std::vector<Loaded>* loaded) override {
    Advance();
    disk_.Poll(done, loaded);
  }
  uint32_t segments_max() const override { return disk_.segments_max(); }
  uint64_t segment_bytes() const override { return disk_.segment_bytes(); }
  DiskInfo info() const override { return disk_.info(); }

  uint64_t next_us() const {
    return has_.empty() ? UINT64_MAX : static_cast<uint64_t>(clock_us_ + Least() * Count()) + 1;
  }
  double latency_us = 100, byte_ns = 0.8;

 private:
  struct Served {
    Job job;
    double left_us = 0;  // if it were alone
  };
  double Count() const { return static_cast<double>(has_.size()); }
  double Least() const {
    double least_us = has_.front().left_us;
    for (const Served& served : has_) least_us = std::min(least_us, served.left_us);
    return least_us;
  }
  void Advance() {
    const auto now_us = static_cast<double>(*now_us_);
    Fill();
    while (!has_.empty()) {
      const double step_us = std::min(Least(), (now_us - clock_us_) / Count());
      clock_us_ += step_us * Count();
      for (Served& served : has_) served.left_us -= step_us;
      const auto done =
          std::find_if(has_.begin(), has_.end(), [](const Served& served) { return served.left_us <= 1e-6; });
      if (done == has_.end()) break;
      queue_.Moved(done->job);
      ASSERT_TRUE(disk_.Submit(std::move(done->job)));
      has_.erase(done);
      Fill();
    }
    if (has_.empty()) clock_us_ = now_us;
  }
  void Fill() {
    while (std::optional<Job> job = queue_.TryPop(0)) {
      uint64_t bytes = 0;
      for (const Range& range : job->ranges) bytes += range.bytes;
      const double jitter = 0.6 + static_cast<double>(random_() % 800) / 1000;
      const double stall = random_() % 100 == 0 ? 20 : 1;
      const double us = (latency_us + static_cast<double>(bytes) * byte_ns / 1000) * jitter * stall;
      has_.push_back({std::move(*job), us});
    }
  }

  testing::SimDisk disk_;
  const uint64_t* const now_us_;
  std::mt19937_64 random_;
  LaneQueue queue_{256};
  std::vector<Served> has_;
  double clock_us_ = 0;
};

struct EstimateRig {
  static constexpr uint64_t kBlocks = 48;

  explicit EstimateRig(uint64_t seed) : random(seed) {
    auto made = std::make_unique<PacedDisk>(&media, seed, &rig.now_us);
    disk = made.get();
    std::vector<std::unique_ptr<Disk>> disks;
    disks.push_back(std::move(made));
    rig.Start(std::move(disks));
    EXPECT_TRUE(rig.Load());
    std::vector<Block> blocks;
    for (uint64_t key = 1; key <= kBlocks; ++key) blocks.push_back(BlockOf(key));
    EXPECT_TRUE(rig.Write(blocks));
  }
  static Block BlockOf(uint64_t key) { return {key, 64 << 10, 4}; }

  struct Asked {
    uint64_t token = 0, begun_us = 0, estimate_us = 0;
    Lane lane = Lane::kInteractive;
    Pages memory;
  };
  void Ask(Lane lane) {
    Asked asked;
    asked.token = ++last_token;
    asked.begun_us = rig.now_us;
    asked.lane = lane;
    asked.memory = MakePages(256 << 10);
    const uint32_t entry = rig.Find(BlockOf(1 + random() % kBlocks));
    asked.estimate_us = rig.tier->EstimateUs(entry, lane);
    ASSERT_TRUE(rig.tier->Read(asked.token, entry, rig.tier->entry(entry).rectangle, asked.memory.get(), lane,
                               rig.now_us));
    ++in_lane[static_cast<size_t>(lane)];
    open.push_back(std::move(asked));
  }
  // To the end of the next read. Counts those of the interactive lane.
  void Step() {
    rig.now_us = std::max(rig.now_us, disk->next_us());
    rig.tier->Poll(rig.now_us, rig.unix_ms, &rig);
    for (auto at = open.begin(); at != open.end();) {
      const auto read = rig.reads.find(at->token);
      if (read == rig.reads.end()) {
        ++at;
        continue;
      }
      EXPECT_EQ(read->second.status, ReadStatus::kOk);
      const uint64_t took_us = rig.now_us - at->begun_us;
      const bool is_near = took_us <= 2 * at->estimate_us && at->estimate_us <= 2 * took_us;
      if (at->lane == Lane::kInteractive) ++reads, near += is_near ? 1 : 0;
      --in_lane[static_cast<size_t>(at->lane)];
      at = open.erase(at);
    }
  }
  // Keeps so many under way until so many interactive ones have ended; percent of them that were near.
  uint64_t Run(uint32_t interactive, uint32_t batch, uint64_t count) {
    reads = near = 0;
    while (reads < count) {
      while (in_lane[0] < interactive) Ask(Lane::kInteractive);
      while (in_lane[1] < batch) Ask(Lane::kBatch);
      Step();
    }
    return 100 * near / reads;
  }

  testing::SimMedia media{4 << 20, 16};
  TierRig rig;
  PacedDisk* disk = nullptr;
  std::mt19937_64 random;
  std::vector<Asked> open;
  uint32_t in_lane[kLanes] = {};
  uint64_t last_token = 1'000'000, reads = 0, near = 0;
};

TEST(Estimate, HoldsForAReadAloneAndForOneOfMany) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EstimateRig rig(seed);
    rig.Run(1, 0, 100);
    EXPECT_GE(rig.Run(1, 0, 400), 90u);
    for (const uint32_t depth : {4u, 40u, 1u, 100u, 1u}) {
      rig.Run(depth, 0, 100);
      EXPECT_GE(rig.Run(depth, 0, 400), 90u) << depth;
    }
  }
}

// The batch lane waits, but not what the device has of it already.
TEST(Estimate, HoldsBesideBatchReads) {
  EstimateRig rig(4);
  rig.Run(1, 60, 100);
  EXPECT_GE(rig.Run(1, 60, 400), 90u);
  EXPECT_GE(rig.Run(8, 60, 400), 90u);
}

TEST(Estimate, FollowsADiskThatBecomesSlowerAndQuickerAgain) {
  EstimateRig rig(5);
  rig.Run(16, 0, 200);
  rig.disk->byte_ns *= 8;
  rig.Run(16, 0, 100);
  EXPECT_GE(rig.Run(16, 0, 400), 90u);
  rig.disk->byte_ns /= 8;
  rig.Run(1, 0, 60);  // alone, so that only its own time tells
  EXPECT_GE(rig.Run(1, 0, 400), 90u);
  rig.Run(16, 0, 100);
  EXPECT_GE(rig.Run(16, 0, 400), 90u);
}

// One read that stands still for seconds made all that followed look hopeless.
TEST(Estimate, OneStallIsNotTakenForThePace) {
  EstimateRig rig(6);
  rig.Run(1, 0, 200);
  const uint32_t entry = rig.rig.Find(EstimateRig::BlockOf(1));
  const uint64_t before_us = rig.rig.tier->EstimateUs(entry, Lane::kInteractive);
  rig.disk->latency_us = 10'000'000;
  rig.Run(1, 0, 1);
  rig.disk->latency_us = 100;
  EXPECT_LE(rig.rig.tier->EstimateUs(entry, Lane::kInteractive), 2 * before_us);
}

}  // namespace
}  // namespace larder::node::ssd
