// The SSD tier beside its disk: blocks of 1 MiB written and read through the tier, and the same bytes by
// plain O_DIRECT calls, in one run on one file system.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <random>
#include <thread>

#include "node/ssd/file_disk.h"
#include "node/ssd/ssd_tier.h"
#include "proto/checksum.h"
#include "tests/bench/leg.h"
#include "tests/bench/ssd_folder.h"

namespace larder::bench {
namespace {

using node::ssd::Pages;
using node::ssd::SsdTier;

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint32_t kParts = 32;
constexpr uint64_t kSegmentBytes = 256ull << 20;
constexpr uint64_t kSegments = 12;
constexpr uint32_t kReadsInFlight = 16;
constexpr uint64_t kRawWriteBytes = 4 << 20;
constexpr int kRawWriters = 2;

// Raw I/O by threads that wait, each in its own place; GB/s and CPU.
class RawFile {
 public:
  bool Make(const std::string& path, uint64_t bytes, std::string* error) {
    bytes_ = bytes;
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (fd_ < 0 || fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
      *error = "cannot make " + path + " for O_DIRECT";
      return false;
    }
    // Once over, so that the file system has nothing left to convert.
    const Pages memory = node::ssd::MakePages(kRawWriteBytes);
    FillPattern(memory.get(), kRawWriteBytes, 1);
    for (uint64_t at = 0; at + kRawWriteBytes <= bytes; at += kRawWriteBytes) {
      if (pwrite(fd_, memory.get(), kRawWriteBytes, static_cast<off_t>(at)) != ssize_t(kRawWriteBytes))
        return false;
    }
    return true;
  }
  ~RawFile() {
    if (fd_ >= 0) close(fd_);
  }
  Sample Run(bool write, uint64_t step_bytes, int threads, double seconds) {
    std::atomic<uint64_t> moved{0}, next{0};
    std::atomic<bool> failed{false};
    const uint64_t end_us = NowUs() + uint64_t(seconds * 1e6), start_us = NowUs();
    const double cpu = OwnCpuSeconds();
    std::vector<std::thread> pool;
    for (int i = 0; i < threads; ++i) {
      pool.emplace_back([&, i] {
        const Pages memory = node::ssd::MakePages(step_bytes);
        FillPattern(memory.get(), step_bytes, uint64_t(i));
        std::mt19937_64 random(uint64_t(i) + 7);
        while (NowUs() < end_us) {
          const uint64_t steps = bytes_ / step_bytes;
          const auto at = static_cast<off_t>((write ? next++ % steps : random() % steps) * step_bytes);
          const ssize_t got =
              write ? pwrite(fd_, memory.get(), step_bytes, at) : pread(fd_, memory.get(), step_bytes, at);
          if (got != ssize_t(step_bytes)) failed = true;
          moved += step_bytes;
        }
      });
    }
    for (std::thread& thread : pool) thread.join();
    Sample sample;
    sample.value = double(moved) / double(NowUs() - start_us) * 1e-3;
    sample.cpu_s_per_gib = (OwnCpuSeconds() - cpu) / (double(moved) / kGib);
    if (failed) sample.error = "raw I/O failed";
    return sample;
  }

 private:
  int fd_ = -1;
  uint64_t bytes_ = 0;
};

class SsdStage : public Stage, private node::ssd::TierSink {
 public:
  bool SetUp(std::string* error) {
    node::ssd::FileDiskOptions options;
    options.directory = {folder_.path() + "/ssd", "bench", "bench", kSegmentBytes, false};
    options.capacity_bytes = kSegmentBytes * kSegments;
    options.notify = [this] {
      const std::lock_guard lock(mutex_);
      notified_ = true;
      changed_.notify_one();
    };
    std::vector<std::string> remarks;
    auto disk = node::ssd::OpenFileDisk(options, &remarks);
    if (!disk.ok()) {
      *error = disk.status().text();
      return false;
    }
    std::vector<std::unique_ptr<node::ssd::Disk>> disks;
    disks.push_back(std::move(disk).value());
    tier_ = std::make_unique<SsdTier>(node::ssd::TierOptions{}, std::move(disks));
    space_ = tier_->OpenSpace({{}, 0, "bench", "kind=opaque\n"});
    for (uint32_t i = 0; i < kSlots; ++i) {
      Slot& slot = slots_.emplace_back();
      slot.payload = node::ssd::MakePages(kBlockBytes);
      FillPattern(slot.payload.get(), kBlockBytes, i + 1);
      for (uint32_t part = 0; part < kParts; ++part) {
        const uint32_t bytes = kBlockBytes / kParts;
        slot.header.parts.push_back({bytes, Crc32c(0, {slot.payload.get() + part * bytes, bytes})});
      }
      slot.header.rectangle = {0, kParts, 0, 1};
      free_.push_back(i);
    }
    WriteUntil([&] { return tier_->stats().reclaims >= 2; });  // full, so that every write is churn
    return raw_.Make(folder_.path() + "/raw", kSegmentBytes * 4, error);
  }

  Sample Measure(const LegSpec& leg, double seconds) override {
    if (leg.name == "ssd/write-amplification") {
      const auto before = tier_->stats();
      const uint64_t wanted = before.written_bytes + kSegmentBytes * kSegments;
      WriteUntil([&] { return tier_->stats().written_bytes >= wanted; });
      const auto after = tier_->stats();
      return {.value = double(after.disk_bytes - before.disk_bytes) /
                       double(after.written_bytes - before.written_bytes)};
    }
    if (leg.name == "ssd/write/1MiB") return MeasureWrite(seconds);
    Sample sample = MeasureRead(seconds, leg.name == "ssd/estimate/idle" ? 1 : kReadsInFlight);
    // Of the estimates, those that were within a factor of two of what the read took.
    if (leg.unit == "%") sample.value = read_ == 0 ? 0 : 100 * double(near_) / double(read_);
    return sample;
  }
  Sample MeasureReference(const std::string& reference, double seconds) override {
    if (reference == "raw-ssd/write") return raw_.Run(true, kRawWriteBytes, kRawWriters, seconds);
    return raw_.Run(false, kBlockBytes, kReadsInFlight, seconds);
  }

 private:
  static constexpr uint32_t kSlots = 64;
  struct Slot {
    Pages payload;
    BlockHeader header;
    Bytes encoded;
  };

  // Sleeps until a disk has something, then takes it.
  void Step() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(10), [&] { return notified_; });
      notified_ = false;
    }
    tier_->Poll(NowUs(), 1'700'000'000'000, this);
  }

  void Offer() {
    for (uint64_t room = tier_->WritableBytes(NowUs()); room >= kBlockBytes && !free_.empty();
         room = tier_->WritableBytes(NowUs())) {
      std::vector<node::ssd::TierPiece> pieces;
      while (!free_.empty() && (pieces.size() + 1) * kBlockBytes <= room) {
        const uint32_t i = free_.front();
        free_.pop_front();
        Slot& slot = slots_[i];
        std::memcpy(slot.header.hash.bytes.data(), &++last_key_, sizeof last_key_);
        slot.encoded.clear();
        EncodeHeader(slot.header, &slot.encoded);
        pieces.push_back({i, space_, 0, slot.encoded, slot.payload.get()});
      }
      const size_t taken = tier_->Write(pieces);
      for (size_t i = pieces.size(); i > taken; --i) free_.push_front(uint32_t(pieces[i - 1].token));
      if (taken == 0) return;
    }
  }

  template <typename Until>
  void WriteUntil(const Until& until) {
    while (!until()) {
      Offer();
      Step();
    }
  }

  Sample MeasureWrite(double seconds) {
    const uint64_t start_us = NowUs(), end_us = start_us + uint64_t(seconds * 1e6), before = written_;
    const double cpu = OwnCpuSeconds();
    WriteUntil([&] { return NowUs() >= end_us; });
    const double bytes = double(written_ - before) * kBlockBytes;
    Sample sample;
    sample.value = bytes / double(NowUs() - start_us) * 1e-3;
    sample.cpu_s_per_gib = (OwnCpuSeconds() - cpu) / (bytes / kGib);
    return sample;
  }

  Sample MeasureRead(double seconds, uint32_t in_flight) {
    // What was under way ends first.
    while (tier_->stats().appends_open > 0) Step();
    const uint64_t start_us = NowUs(), end_us = start_us + uint64_t(seconds * 1e6);
    const double cpu = OwnCpuSeconds();
    read_ = bad_ = near_ = 0;
    std::mt19937_64 random(5);
    uint32_t open = 0;
    std::vector<double> us;
    read_us_ = &us;
    while (NowUs() < end_us || open > 0) {
      while (open < in_flight && NowUs() < end_us) {
        ChainHash hash;
        const uint64_t key = 1 + random() % last_key_;
        std::memcpy(hash.bytes.data(), &key, sizeof key);
        const uint32_t entry = tier_->First(space_, hash, 0);
        if (entry == SsdTier::kNone) continue;
        const uint32_t slot = free_.front();
        estimate_us_[slot] = tier_->EstimateUs(entry, node::ssd::Lane::kInteractive);
        if (!tier_->Read(slot, entry, tier_->entry(entry).rectangle, slots_[slot].payload.get(),
                         node::ssd::Lane::kInteractive, NowUs())) {
          break;
        }
        free_.pop_front();
        begun_us_[slot] = NowUs();
        ++open;
      }
      const uint64_t ended = read_ + bad_;
      Step();
      open -= uint32_t(read_ + bad_ - ended);
    }
    const double bytes = double(read_) * kBlockBytes;
    Sample sample;
    sample.value = bytes / double(NowUs() - start_us) * 1e-3;
    sample.cpu_s_per_gib = (OwnCpuSeconds() - cpu) / (bytes / kGib);
    sample.p50_us = Percentile(&us, 0.5);
    sample.p99_us = Percentile(&us, 0.99);
    if (bad_ != 0) sample.error = "a block did not verify";
    return sample;
  }

  void OnWritten(uint64_t token, bool stored) override {
    free_.push_back(uint32_t(token));
    written_ += stored ? 1 : 0;
  }
  void OnRead(uint64_t token, node::ssd::ReadOutcome&& outcome) override {
    const auto slot = uint32_t(token);
    // The slot holds another block now: its header is what a write of it needs.
    if (outcome.status == node::ssd::ReadStatus::kOk) slots_[slot].header = std::move(outcome.header);
    (outcome.status == node::ssd::ReadStatus::kOk ? read_ : bad_) += 1;
    const uint64_t took_us = NowUs() - begun_us_[slot];
    near_ += took_us <= 2 * estimate_us_[slot] && estimate_us_[slot] <= 2 * took_us ? 1 : 0;
    read_us_->push_back(double(took_us));
    free_.push_back(slot);
  }
  void OnDurable(uint64_t) override {}
  void OnGone(const node::ssd::SsdEntry&, node::ssd::WhyGone) override {}

  SsdFolder folder_;
  RawFile raw_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool notified_ = false;
  std::vector<Slot> slots_;
  std::deque<uint32_t> free_;
  uint64_t begun_us_[kSlots] = {}, estimate_us_[kSlots] = {};
  std::vector<double>* read_us_ = nullptr;
  uint64_t last_key_ = 0, written_ = 0, read_ = 0, bad_ = 0, near_ = 0;
  uint32_t space_ = 0;
  std::unique_ptr<SsdTier> tier_;  // goes first: its disk writes from the slots
};

class SsdGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override {
    return {{.name = "ssd/write/1MiB", .unit = "GB/s", .reference = "raw-ssd/write"},
            {.name = "ssd/read/1MiB", .unit = "GB/s", .reference = "raw-ssd/read"},
            {.name = "ssd/estimate/idle", .unit = "%"},
            {.name = "ssd/estimate/busy", .unit = "%"},
            {.name = "ssd/write-amplification", .unit = "x", .once = true}};
  }
  std::unique_ptr<Stage> SetUp(const Options&, std::string* error) const override {
    auto stage = std::make_unique<SsdStage>();
    if (!stage->SetUp(error)) return nullptr;
    return stage;
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> SsdGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<SsdGroup>());
  return groups;
}

}  // namespace larder::bench
