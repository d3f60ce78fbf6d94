// A disk in memory, from a seed. What a kernel has and a device has not yet is kept apart, so that a power
// cut can lose and tear it; reads and writes may fail, be slow, or find the disk full.
//
// Survivable by contract: a crash of the process at any moment (nothing acknowledged is lost); with `sync` a
// power cut as well; without, a power cut loses blocks but never gives back a wrong byte.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "node/ssd/disk.h"

namespace larder::testing {

// What is on the medium, and outlives the process.
class SimMedia {
 public:
  explicit SimMedia(uint64_t segment_bytes, uint32_t segments_max)
      : segment_bytes_(segment_bytes), segments_max_(segments_max) {}

  // Pages that were not synced are kept, lost or torn, each by chance; of the index's log a prefix survives.
  void PowerCut(std::mt19937_64* random);
  void FlipBit(std::mt19937_64* random);  // anywhere in a segment
  void LoseIndex() { log_.clear(), synced_changes_ = 0; }

 private:
  friend class SimDisk;
  const uint64_t segment_bytes_;
  const uint32_t segments_max_;
  std::map<uint32_t, Bytes> seen_;                 // as the kernel has it
  std::map<uint32_t, Bytes> durable_;              // as the device has it
  std::set<std::pair<uint32_t, uint32_t>> dirty_;  // segment, page
  std::vector<node::ssd::Changes> log_;
  size_t synced_changes_ = 0;
  std::map<Namespace, node::ssd::SpaceRecord> clears_;  // synced, always
};

struct SimFaults {
  uint32_t read_error_percent = 0;
  uint32_t write_error_percent = 0;
  uint32_t segments_full = UINT32_MAX;  // making more fails
  uint32_t done_percent = 60;           // of waiting jobs, at each poll
};

class SimDisk final : public node::ssd::Disk {
 public:
  SimDisk(SimMedia* media, uint64_t seed, bool sync, const SimFaults& faults = {});

  bool Submit(node::ssd::Job&& job) override;
  void Poll(std::vector<node::ssd::Done>* done, std::vector<node::ssd::Loaded>* loaded) override;
  uint32_t segments_max() const override { return media_->segments_max_; }
  uint64_t segment_bytes() const override { return media_->segment_bytes_; }
  node::ssd::DiskInfo info() const override;
  SimFaults faults;
  // Jobs that wait when the process dies: some have moved some of their bytes.
  void Die(std::mt19937_64* random);

 private:
  node::ssd::DiskStatus Run(node::ssd::Job* job);
  void Move(const node::ssd::Job& job, size_t ranges);

  SimMedia* const media_;
  const bool sync_;
  std::mt19937_64 random_;
  std::deque<node::ssd::Job> waiting_;
  std::vector<node::ssd::Loaded> loaded_;
  std::string error_;
  uint64_t written_bytes_ = 0, read_bytes_ = 0;
};

}  // namespace larder::testing
