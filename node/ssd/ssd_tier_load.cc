// Restart: what the disks' indexes say becomes the index in memory, chunk by chunk while the node serves; and
// the small changes that go to the disks' indexes.
#include <algorithm>

#include "node/ssd/record.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node::ssd {

void SsdTier::OnLoaded(uint32_t disk, Loaded&& loaded, uint64_t now_us, uint64_t unix_ms) {
  DiskState& d = disks_[disk];
  if (d.lost) return;
  for (const SpaceRecord& record : loaded.spaces) {
    const uint32_t number = OpenSpace(record);
    if (spaces_[number].record == record) spaces_[number].told_disks |= 1ull << disk;
  }
  const uint64_t unix_s = unix_ms / 1000;
  const uint32_t now_s = SecondsOf(now_us);
  for (const IndexRecord& record : loaded.records) {
    if (record.segment >= d.segments.size()) continue;  // the capacity was lowered
    Segment& segment = d.segments[record.segment];
    const RecordShape shape = ShapeOf(record.header_bytes, record.payload_bytes);
    const auto end = static_cast<uint32_t>(record.page + shape.record_bytes / kPageBytes);
    if (end > d.disk->segment_bytes() / kPageBytes || record.sequence < segment.sequence) {
      ++counts_.stale_loaded;
      continue;
    }
    // Left from a life that the index should have forgotten with its segment.
    if (segment.sequence != 0 && record.sequence > segment.sequence) RemoveAll(disk, record.segment);
    segment.sequence = record.sequence;
    segment.end_page = std::max(segment.end_page, end);
    last_sequence_ = std::max(last_sequence_, record.sequence);
    SpaceRecord space;
    space.name_space = record.name_space;
    space.clear_epoch = record.clear_epoch;
    const uint32_t number = OpenSpace(space);
    if (spaces_[number].record.clear_epoch != record.clear_epoch) {
      ++counts_.stale_loaded;  // a clear hid it
      continue;
    }
    bool same = false;
    // A crash while it was carried over leaves two.
    for (uint32_t old = index_.Find(number, record.hash, record.group); old != kNone;) {
      const uint32_t next = index_[old].next_piece;
      if (index_[old].rectangle == record.rectangle) {
        same = index_[old].segment == (disk << 24 | record.segment) && index_[old].page == record.page;
        if (!same) Remove(old);
        break;
      }
      old = next;
    }
    if (same) continue;  // an index that broke while it was read is read again from the segments
    // Clocks may have been set: an age is never negative, and never reaches back before the base.
    const uint64_t age_s = unix_s > record.created_s ? unix_s - record.created_s : 0;
    const auto used_s = static_cast<uint32_t>(now_s - std::min<uint64_t>(age_s, now_s - 1));
    AddEntry(record, disk, number, used_s);
    newest_s_ = std::max(newest_s_, record.created_s);
  }
  for (const uint32_t segment : loaded.segments) {
    if (segment >= d.segments.size() || d.segments[segment].state != Segment::State::kMissing) continue;
    d.segments[segment].state = Segment::State::kSealed;
    ++d.made_segments;
  }
  d.rebuilt = d.rebuilt || loaded.rebuilt;
  if (loaded.last) FinishLoad(disk);
}

// The youngest segment is filled further; what lies behind its last known record was never told to anybody.
void SsdTier::FinishLoad(uint32_t disk) {
  DiskState& d = disks_[disk];
  d.loaded = true;
  d.segments_max = std::max(d.segments_max, d.made_segments);
  uint32_t youngest = kNone;
  for (uint32_t i = 0; i < d.segments.size(); ++i) {
    Segment& segment = d.segments[i];
    if (segment.state == Segment::State::kMissing && segment.sequence != 0) {
      RemoveAll(disk, i);  // its file is gone
      segment = Segment{};
    }
    if (segment.state != Segment::State::kSealed) continue;
    if (segment.sequence == 0) {
      segment.state = Segment::State::kFree;
      ++d.free_segments;
    } else if (youngest == kNone || segment.sequence > d.segments[youngest].sequence) {
      youngest = i;
    }
  }
  if (youngest != kNone && d.segments[youngest].end_page < d.disk->segment_bytes() / kPageBytes) {
    d.segments[youngest].state = Segment::State::kOpen;
    d.open = youngest;
  }
  PrepareSegment(disk);
}

void SsdTier::RemoveAll(uint32_t disk, uint32_t number) {
  Segment& segment = disks_[disk].segments[number];
  for (const uint32_t entry : std::exchange(segment.entries, {})) {
    const SsdEntry& e = index_[entry];
    if (e.used == 0 || e.segment != (disk << 24 | number)) continue;
    ++counts_.stale_loaded;
    Remove(entry);
  }
  segment.end_page = 0;
}

void SsdTier::Barrier(uint64_t token) {
  uint32_t waits = 0;
  for (DiskState& d : disks_) {
    if (d.lost) continue;
    d.barriers.push_back(token);
    ++waits;
  }
  if (waits == 0) {
    durable_.push_back(token);
  } else {
    barred_[token].disks_left = waits;
  }
}

// Everything that waits, in one change: it comes after whatever was submitted before.
void SsdTier::FlushUpdates(uint32_t disk) {
  DiskState& d = disks_[disk];
  if (d.lost || d.updating || (d.removals.empty() && d.spaces.empty() && d.barriers.empty())) return;
  Job job;
  job.kind = Job::Kind::kUpdate;
  job.lane = Lane::kWrite;
  job.id = ++last_id_;
  job.changes.removals = d.removals;
  job.changes.spaces = d.spaces;
  if (!d.disk->Submit(std::move(job))) return;  // again at the next poll
  const uint64_t id = last_id_;
  d.updating = true;
  d.removals.clear();
  d.spaces.clear();
  Updating update;
  update.disk = disk;
  update.barriers = std::exchange(d.barriers, {});
  updatings_.emplace(id, std::move(update));
}

void SsdTier::OnUpdateDone(const Updating& update, const Done& done, TierSink* sink) {
  DiskState& d = disks_[update.disk];
  if (update.emptied == kNone) d.updating = false;
  if (update.emptied != kNone && !d.lost) {
    Segment& segment = d.segments[update.emptied];
    d.reclaim = Reclaim{};
    segment.entries = {};
    segment.end_page = 0;
    segment.state = Segment::State::kFree;
    ++d.free_segments;
    ++counts_.reclaims;
  }
  for (const uint64_t token : update.barriers) EndBarrier(token, sink);
  if (done.status != DiskStatus::kOk && !d.lost) FailDisk(update.disk, d.disk->info().error);
}

void SsdTier::EndBarrier(uint64_t token, TierSink* sink) {
  const auto barred = barred_.find(token);
  if (barred == barred_.end() || --barred->second.disks_left > 0) return;
  barred_.erase(barred);
  sink->OnDurable(token);
}

}  // namespace larder::node::ssd
