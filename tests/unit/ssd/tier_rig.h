// A tier over one of the disks, a few blocks with known bytes, and what the tier told about them.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "node/ssd/ssd_tier.h"
#include "tests/support/sim_disk.h"

namespace larder::node::ssd {

// Bytes of a block, from its number.
struct Block {
  uint64_t key = 0;
  uint32_t part_bytes = 8192;
  uint16_t layers = 4;
  uint32_t clear_epoch = 0;
  uint8_t space = 1;
};

ChainHash HashOf(uint64_t key);
Namespace SpaceName(uint8_t space);
Bytes PayloadOf(const Block& block);
BlockHeader HeaderOf(const Block& block);

// A directory that goes with the test.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  std::string path;
};

class TierRig : public TierSink {
 public:
  explicit TierRig(const TierOptions& given = {}) : options(given) {}
  ~TierRig() { Stop(); }  // before the bytes that its disks may still be reading

  // Takes over the disks; earlier ones are gone.
  void Start(std::vector<std::unique_ptr<Disk>> disks);
  void Stop() { tier.reset(); }
  // Polls until `done`, at most ten seconds; false: it did not come.
  bool Until(const std::function<bool()>& done);
  bool Load() {
    return Until([&] { return tier->loaded(); });
  }
  uint32_t Space(uint8_t space = 1, uint32_t epoch = 0);
  // Hands the blocks to the tier and waits until each is written or refused.
  bool Write(const std::vector<Block>& blocks);
  // Without waiting; false: no room now.
  bool BeginWrite(const Block& block);
  // kNone: not found.
  uint32_t Find(const Block& block);
  // Reads and compares every byte of the rectangle. Missing: not found, or the read found it bad.
  enum class Outcome { kGood, kMissing, kWrong };
  Outcome Read(const Block& block, const Rectangle* rectangle = nullptr);
  bool Durable(uint64_t token) {
    return Until([&] { return durable.count(token) != 0; });
  }
  void Check() { ASSERT_EQ(tier->CheckInvariants(), ""); }

  void OnWritten(uint64_t token, bool stored) override;
  void OnRead(uint64_t token, ReadOutcome&& outcome) override { reads[token] = std::move(outcome); }
  void OnDurable(uint64_t token) override { durable.insert(token); }
  void OnGone(const SsdEntry&, WhyGone why) override { ++gone[why]; }

  TierOptions options;
  std::unique_ptr<SsdTier> tier;
  uint64_t now_us = 1'000'000;
  uint64_t unix_ms = 1'700'000'000'000;
  bool real = false;  // real disks take real time
  std::map<uint64_t, bool> written;
  std::map<uint64_t, Block> acknowledged;  // by key
  std::map<uint64_t, ReadOutcome> reads;
  std::set<uint64_t> durable;
  std::map<WhyGone, uint64_t> gone;

 private:
  struct Held {
    Block block;
    Bytes header;
    Pages payload;
  };
  std::map<uint64_t, Held> held_;  // by token, until it was written
  uint64_t last_token_ = 0;
};

}  // namespace larder::node::ssd
