// Reads: head and the pages that a rectangle needs, one job; verified on the disk's thread.
#include <algorithm>
#include <cstring>

#include "node/ssd/record.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node::ssd {
namespace {
constexpr double kFadeOld = 0.875;
// A disk that stands still for a moment says little of the next read: no sample counts for more than so many
// times what was expected, so that a lasting change is believed step by step.
constexpr double kSurpriseMax = 4;
constexpr uint32_t kScrubsMax = 16;  // reclaiming has the same lane and must find room in it
}  // namespace

bool SsdTier::Read(uint64_t token, uint32_t entry, const Rectangle& rectangle, std::byte* payload, Lane lane,
                   uint64_t now_us) {
  Reading reading;
  reading.token = token;
  reading.entry = entry;
  reading.lane = lane;
  return SubmitRead(std::move(reading), rectangle, payload, now_us);
}

std::optional<uint64_t> SsdTier::Scrub(uint32_t entry, uint64_t now_us) {
  const SsdEntry& e = index_[entry];
  if (e.used == 0 || !Usable(entry)) return 0;
  if (scrubs_open_ == kScrubsMax) return std::nullopt;
  Reading reading;
  reading.entry = entry;
  reading.lane = Lane::kWrite;
  reading.scrub = true;
  if (!SubmitRead(std::move(reading), e.rectangle, nullptr, now_us)) return std::nullopt;
  ++scrubs_open_;
  return PagesOf(e) * kPageBytes;
}

// Without `payload` the record's payload is read into memory of its own, to be carried over
// or only looked at.
bool SsdTier::SubmitRead(Reading&& reading, const Rectangle& rectangle, std::byte* payload, uint64_t now_us) {
  const SsdEntry& e = index_[reading.entry];
  reading.disk = DiskOf(e.segment);
  reading.segment = NumberOf(e.segment);
  reading.page = e.page;
  DiskState& d = disks_[reading.disk];
  const auto lane = static_cast<size_t>(reading.lane);
  if (d.lost || d.reads[lane] >= options_.reads_max) return false;
  const IndexRecord record = RecordFor(reading.entry);
  const RecordShape shape = ShapeOf(record.header_bytes, record.payload_bytes);
  reading.state = std::make_shared<ReadState>();
  reading.state->head = MakePages(shape.head_bytes);
  if (payload == nullptr) {
    reading.state->whole = MakePages(std::max<uint64_t>(record.payload_bytes, 1));
    payload = reading.state->whole.get();
  }
  Job job;
  job.kind = Job::Kind::kRead;
  job.lane = reading.lane;
  job.id = ++last_id_;
  job.segment = reading.segment;
  const uint64_t offset = e.page * kPageBytes;
  job.ranges.push_back({offset, reading.state->head.get(), shape.head_bytes});
  uint64_t bytes = shape.head_bytes;
  if (!shape.packed) {
    for (const auto& [begin, end] : CoveringPages(record, rectangle)) {
      job.ranges.push_back({offset + shape.payload_offset + begin, payload + begin, end - begin});
      bytes += end - begin;
    }
  }
  job.check = [state = reading.state, record, rectangle, shape, payload](Job&) {
    if (!HeadIs({state->head.get(), shape.head_bytes}, record, &state->header)) return false;
    if (shape.packed) {
      std::memcpy(payload, state->head.get() + shape.payload_offset, record.payload_bytes);
    }
    return PartsVerifyIn(payload, state->header, rectangle);
  };
  if (!d.disk->Submit(std::move(job))) return false;
  reading.bytes = bytes;
  reading.submitted_us = now_us;
  reading.ahead_bytes = AheadOf(d, reading.lane);
  if (d.reads[0] + d.reads[1] + d.reads[2] == 0) {
    d.busy_since_us = now_us;
    d.busy_bytes = 0;
  }
  ++d.reads[lane];
  d.reading_bytes[lane] += bytes;
  ++d.segments[reading.segment].readers;
  readings_.emplace(last_id_, std::move(reading));
  return true;
}

void SsdTier::OnReadDone(Reading&& reading, const Done& done, uint64_t now_us, TierSink* sink) {
  DiskState& d = disks_[reading.disk];
  const auto lane = static_cast<size_t>(reading.lane);
  --d.reads[lane];
  d.reading_bytes[lane] -= reading.bytes;
  --d.segments[reading.segment].readers;
  SsdEntry& e = index_[reading.entry];
  const bool there =
      e.used != 0 && e.segment == (reading.disk << 24 | reading.segment) && e.page == reading.page;
  if (done.status == DiskStatus::kOk) {
    d.read_errors = 0;
    Measure(&d, reading, now_us);
  } else if (there) {
    if (done.status == DiskStatus::kCorrupt) ++counts_.corrupt;
    const SsdEntry gone = e;
    Remove(reading.entry);
    sink->OnGone(gone, WhyGone::kCorrupt);
  }
  if (done.status == DiskStatus::kFailed) {
    ++counts_.read_errors;
    if (++d.read_errors >= options_.read_errors_max && !d.lost) {
      FailDisk(reading.disk, d.disk->info().error);
    }
  }
  if (reading.carry) {
    Reclaim& r = d.reclaim;
    if (r.reading > 0) --r.reading;  // none when the disk was lost meanwhile
    if (done.status == DiskStatus::kOk && there) r.read.emplace_back(reading.entry, std::move(reading.state));
    return;
  }
  if (reading.scrub) {
    --scrubs_open_;
    ++counts_.scrubbed;
    counts_.scrubbed_bytes += reading.bytes;
    return;
  }
  ++counts_.reads;
  counts_.read_bytes += reading.bytes;
  ReadOutcome outcome;
  outcome.there = there;
  outcome.status = done.status == DiskStatus::kOk        ? ReadStatus::kOk
                   : done.status == DiskStatus::kCorrupt ? ReadStatus::kCorrupt
                                                         : ReadStatus::kFailed;
  if (outcome.status == ReadStatus::kOk) {
    Preamble preamble;
    if (DecodePreamble({reading.state->head.get(), kPreambleBytes}, &preamble))
      outcome.depth = preamble.depth;
    outcome.header = std::move(reading.state->header);
  }
  sink->OnRead(reading.token, std::move(outcome));
}

// Two numbers describe a disk well enough to promise a time: what a byte takes while it is busy, and what a
// read takes besides.
void SsdTier::Measure(DiskState* d, const Reading& reading, uint64_t now_us) {
  d->busy_bytes += reading.bytes;
  const uint64_t busy_us = now_us - d->busy_since_us;
  const uint32_t open = d->reads[0] + d->reads[1] + d->reads[2];
  // Long enough, and deep enough, for the rate to be the disk's and not the asker's.
  if (busy_us >= 2000 && d->busy_bytes >= (4u << 20) && reading.ahead_bytes > reading.bytes) {
    const double byte_ns = static_cast<double>(busy_us) * 1000 / static_cast<double>(d->busy_bytes);
    d->byte_ns = d->byte_ns * kFadeOld + std::min(byte_ns, kSurpriseMax * d->byte_ns) * (1 - kFadeOld);
    d->busy_since_us = now_us;
    d->busy_bytes = 0;
  } else if (open == 0) {
    d->busy_since_us = now_us;
    d->busy_bytes = 0;
  }
  // What others overtake on purpose says nothing of what a get waits.
  if (reading.lane == Lane::kWrite) return;
  const auto took_us = static_cast<double>(now_us - reading.submitted_us);
  const auto bytes = static_cast<double>(reading.ahead_bytes + reading.bytes);
  // It was quicker than its bytes alone: so are they.
  const double fastest_ns = took_us * 1000 / bytes;
  if (fastest_ns < d->byte_ns) d->byte_ns = d->byte_ns * kFadeOld + fastest_ns * (1 - kFadeOld);
  const double bytes_us = bytes * d->byte_ns / 1000;
  double& latency_us = d->latency_us[static_cast<size_t>(reading.lane)];
  const double most_us = kSurpriseMax * (latency_us + bytes_us);
  const double took_besides_us = std::max(0.0, std::min(took_us, most_us) - bytes_us);
  latency_us = latency_us * kFadeOld + took_besides_us * (1 - kFadeOld);
}

// What goes first: its own lane and those before it, and of the others what the device has already.
uint64_t SsdTier::AheadOf(const DiskState& d, Lane lane) {
  uint64_t ahead = 0, behind = 0;
  for (size_t i = 0; i < kLanes; ++i) {
    (i <= static_cast<size_t>(lane) ? ahead : behind) += d.reading_bytes[i];
  }
  return ahead + std::min(behind, kReadingBytesMax - std::min(ahead, kReadingBytesMax));
}

uint64_t SsdTier::EstimateUs(uint32_t entry, Lane lane, uint64_t more_bytes) const {
  const SsdEntry& e = index_[entry];
  const DiskState& d = disks_[DiskOf(e.segment)];
  return static_cast<uint64_t>(d.latency_us[lane == Lane::kInteractive ? 0 : 1] +
                               static_cast<double>(AheadOf(d, lane) + e.payload_bytes + more_bytes) *
                                   d.byte_ns / 1000);
}

}  // namespace larder::node::ssd
