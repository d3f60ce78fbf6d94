#include "tests/support/sim_disk.h"

#include <algorithm>
#include <cstring>

#include "node/ssd/record.h"

namespace larder::testing {

using namespace node::ssd;  // NOLINT: the double of that folder

namespace {
constexpr uint64_t kSectorBytes = 512;
constexpr size_t kWaitingMax = 64;

// The index as its log says.
std::map<std::pair<uint32_t, uint32_t>, IndexRecord> Replay(const std::vector<Changes>& log,
                                                            std::map<Namespace, SpaceRecord>* spaces) {
  std::map<std::pair<uint32_t, uint32_t>, IndexRecord> index;
  for (const Changes& changes : log) {
    for (const SpaceRecord& space : changes.spaces) (*spaces)[space.name_space] = space;
    for (const RecordName& name : changes.removals) index.erase({name.segment, name.page});
    for (const uint32_t segment : changes.emptied) {
      index.erase(index.lower_bound({segment, 0}), index.lower_bound({segment + 1, 0}));
    }
    for (const IndexRecord& record : changes.puts) index[{record.segment, record.page}] = record;
  }
  return index;
}

}  // namespace

void SimMedia::PowerCut(std::mt19937_64* random) {
  for (const auto& [segment, page] : dirty_) {
    Bytes& durable = durable_[segment];
    durable.resize(segment_bytes_);
    const size_t at = page * kPageBytes;
    for (uint64_t sector = 0; sector < kPageBytes; sector += kSectorBytes) {
      // Mostly whole pages, sometimes half of one.
      const bool torn = (*random)() % 4 == 0;
      const bool kept = torn ? (*random)() % 2 == 0 : (page * 2654435761u + segment) % 2 == 0;
      if (kept) std::memcpy(&durable[at + sector], &seen_[segment][at + sector], kSectorBytes);
    }
  }
  dirty_.clear();
  seen_ = durable_;
  const size_t unsynced = log_.size() - synced_changes_;
  log_.resize(synced_changes_ + (unsynced == 0 ? 0 : (*random)() % (unsynced + 1)));
  synced_changes_ = log_.size();
}

void SimMedia::FlipBit(std::mt19937_64* random) {
  if (seen_.empty()) return;
  auto segment = seen_.begin();
  std::advance(segment, static_cast<std::ptrdiff_t>((*random)() % seen_.size()));
  segment->second[(*random)() % segment_bytes_] ^= std::byte{1};
}

SimDisk::SimDisk(SimMedia* media, uint64_t seed, bool sync, const SimFaults& given)
    : faults(given), media_(media), sync_(sync), random_(seed) {
  std::map<Namespace, SpaceRecord> spaces;
  const auto index = Replay(media_->log_, &spaces);
  for (const auto& [name, clear] : media_->clears_) {
    const auto [known, added] = spaces.emplace(name, clear);
    if (!added) known->second.clear_epoch = std::max(known->second.clear_epoch, clear.clear_epoch);
  }
  Loaded first;
  for (const auto& [name, space] : spaces) first.spaces.push_back(space);
  loaded_.push_back(std::move(first));
  Loaded chunk;
  for (const auto& [name, record] : index) {
    chunk.records.push_back(record);
    if (chunk.records.size() == 5) loaded_.push_back(std::exchange(chunk, {}));
  }
  for (const auto& [segment, bytes] : media_->seen_) chunk.segments.push_back(segment);
  chunk.last = true;
  loaded_.push_back(std::move(chunk));
}

bool SimDisk::Submit(Job&& job) {
  if (waiting_.size() >= kWaitingMax) return false;
  waiting_.push_back(std::move(job));
  return true;
}

void SimDisk::Poll(std::vector<Done>* done, std::vector<Loaded>* loaded) {
  if (!loaded_.empty()) {
    loaded->push_back(std::move(loaded_.front()));
    loaded_.erase(loaded_.begin());
  }
  std::deque<Job> later;
  // Appends and updates become durable in their order, as in a log; reads overtake.
  bool blocked = false;
  for (Job& job : waiting_) {
    const bool read = job.kind == Job::Kind::kRead;
    if (random_() % 100 >= faults.done_percent || (blocked && !read)) {
      blocked = blocked || !read;
      later.push_back(std::move(job));
      continue;
    }
    Done result;
    result.id = job.id;
    result.status = Run(&job);
    for (const Range& range : job.ranges) result.bytes += range.bytes;
    result.service_us = 100;
    done->push_back(result);
  }
  waiting_ = std::move(later);
}

DiskStatus SimDisk::Run(Job* job) {
  const bool read = job->kind == Job::Kind::kRead;
  if (job->kind == Job::Kind::kMakeSegment) {
    if (media_->seen_.size() >= faults.segments_full) return DiskStatus::kFull;
    media_->seen_[job->segment].resize(media_->segment_bytes_);
    media_->durable_[job->segment].resize(media_->segment_bytes_);
    return DiskStatus::kOk;
  }
  if (read || job->kind == Job::Kind::kAppend) {
    if (random_() % 100 < (read ? faults.read_error_percent : faults.write_error_percent)) {
      error_ = "simulated: input/output error";
      return DiskStatus::kFailed;
    }
  }
  if (job->kind == Job::Kind::kAppend && job->check != nullptr) job->check(*job);
  Move(*job, job->ranges.size());
  if (read) return job->check == nullptr || job->check(*job) ? DiskStatus::kOk : DiskStatus::kCorrupt;
  if (sync_) {
    for (const auto& [segment, page] : media_->dirty_) {
      const size_t at = page * kPageBytes;
      std::memcpy(&media_->durable_[segment][at], &media_->seen_[segment][at], kPageBytes);
    }
    media_->dirty_.clear();
  }
  for (const SpaceRecord& space : job->changes.spaces) {
    if (space.clear_epoch != 0) media_->clears_[space.name_space] = space;
  }
  if (!job->changes.empty()) media_->log_.push_back(std::move(job->changes));
  if (sync_) media_->synced_changes_ = media_->log_.size();
  return DiskStatus::kOk;
}

void SimDisk::Move(const Job& job, size_t ranges) {
  if (job.ranges.empty()) return;
  Bytes& bytes = media_->seen_.at(job.segment);
  for (size_t i = 0; i < ranges; ++i) {
    const Range& range = job.ranges[i];
    LARDER_CHECK(range.offset % kPageBytes == 0 && range.bytes % kPageBytes == 0 &&
                 range.offset + range.bytes <= bytes.size() &&
                 reinterpret_cast<uintptr_t>(range.memory) % kPageBytes == 0);
    if (job.kind == Job::Kind::kRead) {
      std::memcpy(range.memory, &bytes[range.offset], range.bytes);
      read_bytes_ += range.bytes;
      continue;
    }
    std::memcpy(&bytes[range.offset], range.memory, range.bytes);
    written_bytes_ += range.bytes;
    for (uint64_t at = range.offset; at < range.offset + range.bytes; at += kPageBytes) {
      media_->dirty_.emplace(job.segment, static_cast<uint32_t>(at / kPageBytes));
    }
  }
}

void SimDisk::Die(std::mt19937_64* random) {
  for (const Job& job : waiting_) {
    if (job.kind == Job::Kind::kAppend && (*random)() % 2 == 0)
      Move(job, (*random)() % (job.ranges.size() + 1));
  }
  waiting_.clear();
}

DiskInfo SimDisk::info() const {
  DiskInfo out;
  out.directory = "simulated";
  out.engine = "simulated";
  out.written_bytes = written_bytes_;
  out.read_bytes = read_bytes_;
  out.error = error_;
  return out;
}

}  // namespace larder::testing
