// Room for what is new: the coldest segment is emptied whole; a disk that fails is left out.
#include <algorithm>

#include "node/ssd/record.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node::ssd {
namespace {
constexpr size_t kDropsPerStep = 4096;
constexpr size_t kCarryReads = 8;
}  // namespace

void SsdTier::StepReclaim(uint32_t disk, uint64_t now_us, TierSink* sink) {
  DiskState& d = disks_[disk];
  PrepareSegment(disk);
  if (d.reclaim.segment == kNone) {
    const bool more_files = d.making || d.made_segments < d.segments_max;
    if (d.free_segments < options_.free_segments_min && !more_files) BeginReclaim(disk);
    if (d.reclaim.segment == kNone) return;
  }
  if (d.segments[d.reclaim.segment].state == Segment::State::kReclaiming) CarryOver(disk, now_us);
  const Reclaim& r = d.reclaim;
  if (r.next == r.carry.size() && r.reading == 0 && r.read.empty() && !r.appending) EmptySegment(disk, sink);
}

// The least heat a page; what is dead counts as cold as can be.
uint32_t SsdTier::ColdestSegment(const DiskState& d) const {
  uint32_t best = kNone;
  for (uint32_t i = 0; i < d.segments.size(); ++i) {
    const Segment& s = d.segments[i];
    if (s.state != Segment::State::kSealed || s.appends != 0) continue;
    if (best == kNone || s.heat < d.segments[best].heat) best = i;
  }
  return best;
}

void SsdTier::BeginReclaim(uint32_t disk) {
  DiskState& d = disks_[disk];
  const uint32_t coldest = ColdestSegment(d);
  if (coldest == kNone) return;
  d.reclaim = Reclaim{};
  d.reclaim.segment = coldest;
  Segment& segment = d.segments[coldest];
  segment.state = Segment::State::kReclaiming;
  std::sort(segment.entries.begin(), segment.entries.end());
  segment.entries.erase(std::unique(segment.entries.begin(), segment.entries.end()), segment.entries.end());
  std::vector<uint32_t> hot;
  const uint32_t place = disk << 24 | coldest;
  for (const uint32_t entry : segment.entries) {
    const SsdEntry& e = index_[entry];
    if (e.used != 0 && e.segment == place && e.hits > 0 && !spaces_[e.space].dead) hot.push_back(entry);
  }
  std::sort(hot.begin(), hot.end(),
            [&](uint32_t a, uint32_t b) { return index_.times(a).used_s > index_.times(b).used_s; });
  uint64_t left = d.disk->segment_bytes() / 100 * options_.carry_percent;
  for (const uint32_t entry : hot) {
    const uint64_t bytes = PagesOf(index_[entry]) * kPageBytes;
    if (bytes > left) break;
    left -= bytes;
    d.reclaim.carry.push_back(entry);
  }
}

// A few reads at a time; what was read goes out as one append.
void SsdTier::CarryOver(uint32_t disk, uint64_t now_us) {
  DiskState& d = disks_[disk];
  Reclaim& r = d.reclaim;
  const uint32_t place = disk << 24 | r.segment;
  while (r.next < r.carry.size() && r.reading + r.read.size() < kCarryReads) {
    const uint32_t entry = r.carry[r.next];
    const SsdEntry& e = index_[entry];
    if (e.used != 0 && e.segment == place) {
      Reading reading;
      reading.entry = entry;
      reading.lane = Lane::kWrite;
      reading.carry = true;
      if (!SubmitRead(std::move(reading), e.rectangle, nullptr, now_us)) return;
      ++r.reading;
    }
    ++r.next;
  }
  if (r.read.empty() || r.reading > 0 || r.appending || d.appends >= options_.appends_max) return;
  std::vector<AppendItem> items;
  std::vector<std::shared_ptr<ReadState>> states;
  for (auto& [entry, state] : r.read) {
    const SsdEntry& e = index_[entry];
    if (e.used == 0 || e.segment != place || e.hash != state->header.hash) continue;
    AppendItem item;
    item.record = RecordFor(entry);
    item.space = e.space;
    item.carried_from = entry;
    Preamble preamble;
    if (!DecodePreamble({state->head.get(), kPreambleBytes}, &preamble)) continue;
    item.record.depth = preamble.depth;
    item.head = {state->head.get() + kPreambleBytes, item.record.header_bytes};
    item.payload = state->whole.get();
    items.push_back(item);
    states.push_back(state);
  }
  if (items.empty()) return r.read.clear();
  const size_t taken = Append(disk, items, true, states);
  if (taken == 0) {
    // No room, not even for this: it goes with the rest.
    if (d.appends == 0) r.read.clear();
    return;
  }
  r.appending = true;
  std::vector<std::pair<uint32_t, std::shared_ptr<ReadState>>> rest;
  for (size_t i = taken; i < items.size(); ++i) rest.emplace_back(items[i].carried_from, states[i]);
  r.read = std::move(rest);
}

void SsdTier::EmptySegment(uint32_t disk, TierSink* sink) {
  DiskState& d = disks_[disk];
  Reclaim& r = d.reclaim;
  Segment& segment = d.segments[r.segment];
  if (segment.state == Segment::State::kEmptying) return;  // the index is being told
  const uint32_t place = disk << 24 | r.segment;
  for (size_t steps = 0; r.dropped < segment.entries.size() && steps < kDropsPerStep; ++r.dropped, ++steps) {
    const uint32_t entry = segment.entries[r.dropped];
    const SsdEntry gone = index_[entry];
    if (gone.used == 0 || gone.segment != place) continue;
    const bool dead = spaces_[gone.space].dead;
    ++counts_.evicted;
    counts_.evicted_bytes += gone.payload_bytes;
    DropEntry(entry);
    if (!dead) sink->OnGone(gone, WhyGone::kEvicted);
  }
  if (r.dropped < segment.entries.size() || segment.readers > 0) return;
  Job job;
  job.kind = Job::Kind::kUpdate;
  job.lane = Lane::kWrite;
  job.id = ++last_id_;
  job.changes.emptied.push_back(r.segment);
  if (!d.disk->Submit(std::move(job))) return;
  segment.state = Segment::State::kEmptying;
  std::erase_if(d.removals, [&](const RecordName& name) { return name.segment == r.segment; });
  Updating update;
  update.disk = disk;
  update.emptied = r.segment;
  updatings_.emplace(last_id_, std::move(update));
}

// What a clear hid, and what lay on a lost disk, a bounded number at a time.
void SsdTier::SweepStep(TierSink* sink) {
  if (sweeping_) {
    for (size_t steps = 0; steps < kDropsPerStep && sweep_cursor_ < index_.entry_bound(); ++steps) {
      const uint32_t entry = sweep_cursor_++;
      if (index_[entry].used != 0 && spaces_[index_[entry].space].dead) Remove(entry);
    }
    if (sweep_cursor_ >= index_.entry_bound()) {
      sweep_cursor_ = 0;
      sweeping_ =
          std::any_of(spaces_.begin(), spaces_.end(), [](const Space& s) { return s.dead && s.pieces != 0; });
    }
  }
  for (uint32_t disk = 0; disk < disks_.size(); ++disk) {
    DiskState& d = disks_[disk];
    if (!d.lost || d.lost_swept >= d.segments.size()) continue;
    const auto number = static_cast<uint32_t>(d.lost_swept++);
    for (const uint32_t entry : std::exchange(d.segments[number].entries, {})) {
      const SsdEntry gone = index_[entry];
      if (gone.used == 0 || gone.segment != (disk << 24 | number)) continue;
      DropEntry(entry);
      sink->OnGone(gone, WhyGone::kDiskLost);
    }
  }
}

void SsdTier::FailDisk(uint32_t disk, const std::string& why) {
  DiskState& d = disks_[disk];
  d.lost = true;
  d.lost_because = why;
  d.reclaim = Reclaim{};
  d.removals.clear();
  d.spaces.clear();
  // What can't be made durable here can't come back from here either: a lost disk is not read again.
  for (const uint64_t token : std::exchange(d.barriers, {})) {
    const auto barred = barred_.find(token);
    if (barred != barred_.end() && --barred->second.disks_left == 0) {
      barred_.erase(barred);
      durable_.push_back(token);
    }
  }
}

}  // namespace larder::node::ssd
