// Appends: pieces and what is carried over, in batches of several MiB, each one job: bytes, then index.
#include <algorithm>
#include <cstring>

#include "node/ssd/record.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kMinuteUs = 60'000'000;

}  // namespace

// What the disk's thread does before it writes: pieces that are not what their header says are written but
// never told, so that nobody finds them.
bool SsdTier::CheckAppend(Job* job, AppendState* state) {
  std::vector<IndexRecord> good;
  for (size_t i = 0; i < state->items.size(); ++i) {
    const AppendItem& item = state->items[i];
    const Result<BlockHeader> header = DecodeHeader(item.head.subspan(kPreambleBytes));
    const bool verified =
        header.ok() && PartsVerifyIn(item.payload, header.value(), header.value().rectangle);
    state->bad[i] = verified ? 0 : 1;
    if (verified) good.push_back(item.record);
  }
  job->changes.puts = std::move(good);
  return true;
}

// One free segment is kept for what is carried over: else a full disk could not be emptied without loss.
uint64_t SsdTier::RoomOf(const DiskState& d) const {
  if (!d.loaded || d.lost || d.appends >= options_.appends_max) return 0;
  const uint64_t segment_bytes = d.disk->segment_bytes();
  uint64_t room = 0;
  if (d.open != kNone) room = segment_bytes - std::max(d.segments[d.open].end_page, 1u) * kPageBytes;
  if (d.free_segments > 1) room += (d.free_segments - 1) * (segment_bytes - kPageBytes);
  return room;
}

uint64_t SsdTier::WritableBytes(uint64_t now_us) {
  if (options_.bytes_per_hour_max != 0) {
    // A bucket that holds one minute's share. A piece may overdraw it, or large ones would never pass.
    const auto share = static_cast<int64_t>(options_.bytes_per_hour_max / 60 + 1);
    if (budget_us_ == 0) budget_us_ = now_us;
    const uint64_t passed_us = std::min(now_us - budget_us_, kMinuteUs);
    const int64_t earned = share * static_cast<int64_t>(passed_us) / static_cast<int64_t>(kMinuteUs);
    if (earned > 0) {
      hour_budget_ = std::min(share, hour_budget_ + earned);
      budget_us_ = now_us;
    }
  }
  const uint32_t disk = DiskForWrite();
  if (disk == kNone) return 0;
  if (options_.bytes_per_hour_max != 0 && hour_budget_ <= 0) return 0;
  return std::min(options_.append_bytes, RoomOf(disks_[disk]));
}

bool SsdTier::Fits(uint32_t header_bytes, uint32_t payload_bytes) const {
  const uint64_t record_bytes = ShapeOf(header_bytes + kHeaderUnitBytes, payload_bytes).record_bytes;
  return std::any_of(disks_.begin(), disks_.end(), [&](const DiskState& d) {
    return !d.lost && record_bytes + kPageBytes <= d.disk->segment_bytes();
  });
}

// The idlest disk, of those the one with the most room.
uint32_t SsdTier::DiskForWrite() const {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < disks_.size(); ++i) {
    const DiskState& d = disks_[i];
    if (RoomOf(d) == 0) continue;
    const auto free = [](const DiskState& of) {
      return (of.free_segments + uint64_t{of.segments_max} - of.made_segments) * of.disk->segment_bytes();
    };
    if (best == kNone || d.appends < disks_[best].appends ||
        (d.appends == disks_[best].appends && free(d) > free(disks_[best]))) {
      best = i;
    }
  }
  return best;
}

size_t SsdTier::Write(std::span<const TierPiece> pieces) {
  const uint32_t disk = DiskForWrite();
  if (disk == kNone) return 0;
  std::vector<AppendItem> items;
  items.reserve(pieces.size());
  for (const TierPiece& piece : pieces) {
    const Result<BlockHeader> header = DecodeHeader(piece.header);
    AppendItem item;
    item.token = piece.token;
    item.space = piece.space;
    item.payload = piece.payload;
    if (!header.ok()) break;  // the caller has checked it; what is behind it is for the next call
    item.head =
        piece.header.first(HeaderBytes(static_cast<uint32_t>(header.value().parts.size()),
                                       header.value().codec_data.size(), header.value().constituents.size()));
    const BlockHeader& h = header.value();
    item.record.name_space = h.name_space;
    item.record.hash = h.hash;
    item.record.rectangle = h.rectangle;
    item.record.clear_epoch = h.clear_epoch;
    item.record.payload_bytes = static_cast<uint32_t>(h.payload_bytes());
    item.record.header_bytes = static_cast<uint32_t>((item.head.size() + kHeaderUnitBytes - 1) /
                                                     kHeaderUnitBytes * kHeaderUnitBytes);
    item.record.created_s = static_cast<uint32_t>(h.created_ms / 1000);
    item.record.depth = piece.depth;
    item.record.writer_tag = WriterTag(h.writer);
    item.record.group = h.group;
    item.record.uniform = std::all_of(h.parts.begin(), h.parts.end(),
                                      [&](const PartRecord& part) { return part.bytes == h.parts[0].bytes; });
    items.push_back(item);
  }
  const size_t taken = Append(disk, items, false, {});
  for (size_t i = 0; i < taken; ++i) {
    ++counts_.writes;
    counts_.written_bytes += items[i].record.payload_bytes;
    hour_budget_ -= items[i].record.payload_bytes;
  }
  return taken;
}

bool SsdTier::OpenSegment(uint32_t disk) {
  DiskState& d = disks_[disk];
  if (d.open != kNone) {
    Segment& full = d.segments[d.open];
    full.state = Segment::State::kSealed;
    full.entries.shrink_to_fit();
    d.open = kNone;
  }
  for (uint32_t i = 0; i < d.segments.size() && d.free_segments > 0; ++i) {
    Segment& segment = d.segments[i];
    if (segment.state != Segment::State::kFree) continue;
    segment.state = Segment::State::kOpen;
    segment.sequence = ++last_sequence_;
    segment.end_page = 0;
    segment.entries.clear();
    d.open = i;
    --d.free_segments;
    PrepareSegment(disk);
    return true;
  }
  return false;
}

void SsdTier::PrepareSegment(uint32_t disk) {
  DiskState& d = disks_[disk];
  if (d.making || d.made_segments >= d.segments_max || d.free_segments >= options_.free_segments_min) return;
  for (uint32_t i = 0; i < d.segments.size(); ++i) {
    if (d.segments[i].state != Segment::State::kMissing) continue;
    Job job;
    job.kind = Job::Kind::kMakeSegment;
    job.lane = Lane::kWrite;
    job.id = ++last_id_;
    job.segment = i;
    if (!d.disk->Submit(std::move(job))) return;
    d.segments[i].state = Segment::State::kMaking;
    d.making = true;
    Appending making;
    making.disk = disk;
    making.segment = i;
    appendings_.emplace(last_id_, std::move(making));
    return;
  }
}

void SsdTier::TellSpace(uint32_t disk, uint32_t space, Changes* changes) {
  Space& s = spaces_[space];
  if ((s.told_disks >> disk & 1) != 0) return;
  s.told_disks |= 1ull << disk;
  changes->spaces.push_back(s.record);
}

// How many of the items one job and the open segment take; opens the next segment when this one is full.
size_t SsdTier::FitItems(uint32_t disk, std::span<const AppendItem> items) {
  DiskState& d = disks_[disk];
  const uint64_t segment_bytes = d.disk->segment_bytes();
  size_t count = 0;
  uint64_t bytes = 0, left = 0;
  if (d.open != kNone) left = segment_bytes - std::max(d.segments[d.open].end_page, 1u) * kPageBytes;
  for (const AppendItem& item : items) {
    const RecordShape shape = ShapeOf(item.record.header_bytes, item.record.payload_bytes);
    if (count > 0 && bytes + shape.record_bytes > options_.append_bytes) break;
    if (shape.record_bytes > left - bytes) {
      if (count > 0 || shape.record_bytes > segment_bytes - kPageBytes || !OpenSegment(disk)) break;
      left = segment_bytes - kPageBytes;
    }
    bytes += shape.record_bytes;
    ++count;
  }
  return count;
}

// Gives every item its place and lays out the job's memory: heads of our own, payloads where they are.
void SsdTier::LayOut(uint32_t disk, AppendState* state, Job* job) {
  Segment& segment = disks_[disk].segments[job->segment];
  const bool first = segment.end_page == 0;
  uint64_t head_bytes = first ? kPageBytes : 0;
  for (const AppendItem& item : state->items) {
    head_bytes += ShapeOf(item.record.header_bytes, item.record.payload_bytes).head_bytes;
  }
  state->heads = MakePages(head_bytes);
  std::byte* head = state->heads.get();
  std::memset(head, 0, head_bytes);
  uint64_t offset = std::max(segment.end_page, 1u) * kPageBytes;
  if (first) {
    EncodeSegmentHeader(segment.sequence, job->segment, head);
    job->ranges.push_back({0, head, kPageBytes});
    head += kPageBytes;
  }
  for (AppendItem& item : state->items) {
    IndexRecord& record = item.record;
    const RecordShape shape = ShapeOf(record.header_bytes, record.payload_bytes);
    record.segment = job->segment;
    record.page = static_cast<uint32_t>(offset / kPageBytes);
    record.sequence = segment.sequence;
    EncodePreamble({record.sequence, record.header_bytes, record.payload_bytes, record.depth}, head);
    std::memcpy(head + kPreambleBytes, item.head.data(), item.head.size());
    item.head = {head, shape.head_bytes};
    job->ranges.push_back({offset, head, shape.head_bytes});
    if (shape.packed) {
      std::memcpy(head + shape.payload_offset, item.payload, record.payload_bytes);
      item.payload = head + shape.payload_offset;
    } else {
      job->ranges.push_back({offset + shape.head_bytes, const_cast<std::byte*>(item.payload),
                             shape.record_bytes - shape.payload_offset});
    }
    head += shape.head_bytes;
    offset += shape.record_bytes;
    job->changes.puts.push_back(record);
    TellSpace(disk, item.space, &job->changes);
  }
}

// As many items as one job and the open segment take.
size_t SsdTier::Append(uint32_t disk, std::span<const AppendItem> items, bool carry,
                       std::vector<std::shared_ptr<ReadState>> carried) {
  DiskState& d = disks_[disk];
  const size_t count = FitItems(disk, items);
  if (count == 0) return 0;
  auto state = std::make_shared<AppendState>();
  state->items.assign(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(count));
  state->carried = std::move(carried);
  state->bad.assign(count, 0);
  Job job;
  job.kind = Job::Kind::kAppend;
  job.lane = Lane::kWrite;
  job.id = ++last_id_;
  job.segment = d.open;
  LayOut(disk, state.get(), &job);
  job.check = [state](Job& checked) { return CheckAppend(&checked, state.get()); };
  uint64_t bytes = 0;
  for (const Range& range : job.ranges) bytes += range.bytes;
  const Range& last = job.ranges.back();
  const auto end_page = static_cast<uint32_t>((last.offset + last.bytes) / kPageBytes);
  if (!d.disk->Submit(std::move(job))) {
    // Tell the namespaces again with whatever goes next.
    for (const AppendItem& item : state->items) spaces_[item.space].told_disks &= ~(1ull << disk);
    return 0;
  }
  d.segments[d.open].end_page = end_page;
  ++d.segments[d.open].appends;
  ++d.appends;
  Appending append;
  append.disk = disk;
  append.segment = d.open;
  append.carry = carry;
  append.state = std::move(state);
  counts_.disk_bytes += bytes;
  appendings_.emplace(last_id_, std::move(append));
  return count;
}

void SsdTier::OnAppendDone(Appending&& append, const Done& done, uint64_t now_us, TierSink* sink) {
  DiskState& d = disks_[append.disk];
  Segment& segment = d.segments[append.segment];
  if (append.state == nullptr) {  // a segment was made
    d.making = false;
    segment.state = Segment::State::kMissing;
    if (d.lost) return;
    if (done.status == DiskStatus::kOk) {
      segment.state = Segment::State::kFree;
      ++d.free_segments;
      ++d.made_segments;
      return PrepareSegment(append.disk);
    }
    if (done.status == DiskStatus::kFull && d.made_segments > options_.free_segments_min) {
      d.segments_max = d.made_segments;
      return;
    }
    return FailDisk(append.disk,
                    done.status == DiskStatus::kFull
                        ? "it has no room for " + std::to_string(options_.free_segments_min + 1) + " segments"
                        : d.disk->info().error);
  }
  --segment.appends;
  --d.appends;
  if (append.carry) d.reclaim.appending = false;
  const bool good = done.status == DiskStatus::kOk && !d.lost;
  if (!good) ++counts_.write_errors;
  const uint32_t now_s = SecondsOf(now_us);
  for (size_t i = 0; i < append.state->items.size(); ++i) {
    const AppendItem& item = append.state->items[i];
    const bool stored = good && append.state->bad[i] == 0;
    const bool wanted = stored && !spaces_[item.space].dead;
    if (append.carry) {
      // It may have been removed, or replaced, while it was on its way.
      const SsdEntry& from = index_[item.carried_from];
      const bool there = from.used != 0 && from.segment == (append.disk << 24 | d.reclaim.segment) &&
                         from.hash == item.record.hash && from.space == item.space &&
                         from.rectangle == item.record.rectangle;
      if (wanted && there) {
        const uint32_t used_s = index_.times(item.carried_from).used_s;
        DropEntry(item.carried_from);
        AddEntry(item.record, append.disk, item.space, used_s);
        ++counts_.carried;
        counts_.carried_bytes += item.record.payload_bytes;
      } else if (stored) {
        d.removals.push_back({item.record.segment, item.record.page});
      }
      continue;
    }
    if (wanted) {
      for (uint32_t old = index_.Find(item.space, item.record.hash, item.record.group); old != kNone;) {
        const uint32_t next = index_[old].next_piece;
        if (index_[old].rectangle == item.record.rectangle) {
          Remove(old);
          break;
        }
        old = next;
      }
      AddEntry(item.record, append.disk, item.space, now_s);
    } else if (stored) {
      d.removals.push_back({item.record.segment, item.record.page});
    }
    if (good && !stored) ++counts_.corrupt;
    sink->OnWritten(item.token, wanted);
  }
  if (done.status != DiskStatus::kOk && !d.lost) FailDisk(append.disk, d.disk->info().error);
}

}  // namespace larder::node::ssd
