// What an SSD tier that is busy costs those who do not need it: puts while cold blocks go down as fast as the
// disk takes them, gets from memory while batch reads keep the disk busy.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/bench/leg.h"
#include "tests/bench/ssd_folder.h"
#include "tests/bench/store.h"

namespace larder::bench {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMemoryBytes = 512ull << 20;
constexpr uint64_t kHot = 64;                            // blocks in memory
constexpr uint64_t kCold = 2048;                         // blocks that came before them
constexpr uint64_t kColdFamily = 800, kHotFamily = 801;  // and those after it

class TiersStage : public Stage {
 public:
  bool SetUp(const Options& options, std::string* error) {
    NodeSpec spec{.program = options.node_program, .memory_bytes = kMemoryBytes, .transport = "tcp"};
    plain_ = NodeProcess::Start(spec, error);
    if (plain_ == nullptr) return false;
    spec.flags = {"--ssd=" + folder_.path() + "/ssd", "--ssd-bytes=8GiB", "--ssd-promote-after=0",
                  "--node-id=bench"};
    tiered_ = NodeProcess::Start(spec, error);
    if (tiered_ == nullptr) return false;
    plain_store_ = OpenStore(plain_->data_address(), "tcp", true, error);
    tiered_store_ = OpenStore(tiered_->data_address(), "tcp", true, error);
    batch_store_ = OpenStore(tiered_->data_address(), "tcp", true, error);
    if (plain_store_.client == nullptr || tiered_store_.client == nullptr || batch_store_.client == nullptr) {
      return false;
    }
    return FillNode(&tiered_store_, kColdFamily, kBlockBytes, kCold, error) &&
           FillNode(&tiered_store_, kHotFamily, kBlockBytes, kHot, error);
  }

  Sample Measure(const LegSpec& leg, double seconds) override {
    if (leg.name == "tiers/put/p99") return Put(&tiered_store_, tiered_->pid(), seconds);
    if (leg.name == "tiers/estimate/idle") return Estimate(seconds);
    std::atomic<bool> stop{false};
    std::thread batch([&] {
      TouchedMemory memory(kBatchBlocks * kBlockBytes);
      while (!stop) {
        LoopOptions options{.family = kColdFamily,
                            .block_bytes = kBlockBytes,
                            .resident_blocks = kCold / 2,
                            .cursor = &cold_cursor_,
                            .seconds = 0.05,
                            .node_pid = tiered_->pid()};
        options.call.priority = Priority::kBatch;
        (void)GetLoop(&batch_store_, options, {memory.data(), memory.bytes()});
      }
    });
    Sample sample = leg.name == "tiers/estimate/busy" ? Estimate(seconds) : Get(seconds);
    stop = true;
    batch.join();
    return sample;
  }
  Sample MeasureReference(const std::string& reference, double seconds) override {
    return reference == "no-ssd/put" ? Put(&plain_store_, plain_->pid(), seconds) : Get(seconds);
  }

 private:
  // Of chains on SSD, how many took what their matches had said within a factor of two.
  Sample Estimate(double seconds) {
    const uint64_t end_us = NowUs() + uint64_t(seconds * 1e6);
    std::vector<double> took;
    uint64_t near = 0;
    std::vector<ChainHash> chain(kBatchBlocks);
    std::vector<GetItem> items(kBatchBlocks);
    while (NowUs() < end_us) {
      const uint64_t first = random_() % (kCold / 2 - kBatchBlocks);
      for (uint64_t i = 0; i < kBatchBlocks; ++i) {
        chain[i] = items[i].hash = HashOf(kColdFamily, first + i);
        items[i].extents = {{memory_.data() + i * kBlockBytes, kBlockBytes}};
      }
      const MatchResult match = tiered_store_.client->Match(tiered_store_.name_space, {.chain = chain});
      // What the disk could not take in time is not there.
      if (std::any_of(match.presence.begin(), match.presence.end(),
                      [](Presence presence) { return presence != Presence::kSsd; })) {
        continue;
      }
      const uint64_t begun_us = NowUs();
      for (const BlockResult& result : tiered_store_.client->Get(tiered_store_.name_space, items)) {
        if (result.outcome != Outcome::kHit)
          return {.error = "a block on SSD was " + std::string(PresenceName(result.reason))};
      }
      const double us = double(NowUs() - begun_us);
      const double estimate = *std::max_element(match.estimate_us.begin(), match.estimate_us.end());
      near += us <= 2 * estimate && estimate <= 2 * us ? 1 : 0;
      took.push_back(us);
    }
    Sample sample;
    sample.value = took.empty() ? 0 : 100 * double(near) / double(took.size());
    sample.p50_us = Percentile(&took, 0.5);
    sample.p99_us = Percentile(&took, 0.99);
    return sample;
  }
  Sample Put(Store* store, pid_t pid, double seconds) {
    const LoopOptions options{
        .block_bytes = kBlockBytes, .cursor = &put_cursor_, .seconds = seconds, .node_pid = pid};
    Sample sample = PutLoop(store, options, {memory_.data(), memory_.bytes()});
    sample.value = sample.p99_us;
    return sample;
  }
  Sample Get(double seconds) {
    // Puts of other legs may have pushed them out.
    std::string error;
    if (!FillNode(&tiered_store_, ++hot_family_, kBlockBytes, kHot, &error)) return {.error = error};
    const LoopOptions options{.family = hot_family_,
                              .block_bytes = kBlockBytes,
                              .resident_blocks = kHot,
                              .cursor = &hot_cursor_,
                              .seconds = seconds,
                              .node_pid = tiered_->pid()};
    Sample sample = GetLoop(&tiered_store_, options, {memory_.data(), memory_.bytes()});
    sample.value = sample.p99_us;
    return sample;
  }

  SsdFolder folder_;
  std::unique_ptr<NodeProcess> plain_, tiered_;
  Store plain_store_, tiered_store_, batch_store_;
  TouchedMemory memory_{kBatchBlocks * kBlockBytes};
  std::mt19937_64 random_{11};
  uint64_t put_cursor_ = 0, hot_cursor_ = 0, cold_cursor_ = 0, hot_family_ = kHotFamily;
};

class TiersGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override {
    return {{.name = "tiers/put/p99", .unit = "us", .reference = "no-ssd/put"},
            {.name = "tiers/get-beside-batch/p99", .unit = "us", .reference = "alone/get"},
            {.name = "tiers/estimate/idle", .unit = "%"},
            {.name = "tiers/estimate/busy", .unit = "%"}};
  }
  std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const override {
    auto stage = std::make_unique<TiersStage>();
    if (!stage->SetUp(options, error)) return nullptr;
    return stage;
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> TiersGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<TiersGroup>());
  return groups;
}

}  // namespace larder::bench
