// Namespaces, lookups, the life of an entry, results from the disks.
#include "node/ssd/ssd_tier.h"

#include <algorithm>

#include "node/ssd/record.h"

namespace larder::node::ssd {

SsdTier::SsdTier(const TierOptions& options, std::vector<std::unique_ptr<Disk>> disks)
    : options_(options),
      index_(options.seed),
      hour_budget_(static_cast<int64_t>(options.bytes_per_hour_max / 60)) {
  for (std::unique_ptr<Disk>& disk : disks) {
    DiskState& d = disks_.emplace_back();
    d.segments_max = disk->segments_max();
    d.segments.resize(d.segments_max);
    d.disk = std::move(disk);
  }
  LARDER_CHECK(disks_.size() <= kDisksMax);
}

SsdTier::~SsdTier() = default;

uint32_t SsdTier::OpenSpace(const SpaceRecord& record) {
  const auto found = space_of_.find(record.name_space);
  if (found != space_of_.end()) {
    Space& known = spaces_[found->second];
    if (known.record.clear_epoch >= record.clear_epoch) {
      if (known.record.identity.empty() && !record.identity.empty()) {
        // A rebuilt index knows blocks whose namespace nobody had named yet.
        known.record.identity = record.identity;
        known.record.tenant = record.tenant;
        known.told_disks = 0;
      }
      return found->second;
    }
    known.dead = true;
    sweeping_ = sweeping_ || known.pieces != 0;
  }
  const auto number = static_cast<uint32_t>(spaces_.size());
  Space& added = spaces_.emplace_back();
  added.record = record;
  if (found != space_of_.end() && record.identity.empty()) {
    added.record.identity = spaces_[found->second].record.identity;
    added.record.tenant = spaces_[found->second].record.tenant;
  }
  space_of_[record.name_space] = number;
  return number;
}

const SpaceRecord* SsdTier::FindSpace(const Namespace& name_space) const {
  const uint32_t number = SpaceNumber(name_space);
  return number == kNone ? nullptr : &spaces_[number].record;
}

uint32_t SsdTier::SpaceNumber(const Namespace& name_space) const {
  const auto found = space_of_.find(name_space);
  return found == space_of_.end() ? kNone : found->second;
}

std::vector<SpaceRecord> SsdTier::Spaces() const {
  std::vector<SpaceRecord> out;
  for (const auto& [name, number] : space_of_) out.push_back(spaces_[number].record);
  return out;
}

void SsdTier::Clear(const Namespace& name_space, uint32_t new_epoch, uint64_t token) {
  SpaceRecord record;
  if (const SpaceRecord* known = FindSpace(name_space)) record = *known;
  record.name_space = name_space;
  record.clear_epoch = new_epoch;
  const uint32_t number = OpenSpace(record);
  for (uint32_t i = 0; i < disks_.size(); ++i) {
    if (disks_[i].lost) continue;
    disks_[i].spaces.push_back(spaces_[number].record);
    spaces_[number].told_disks |= 1ull << i;
  }
  Barrier(token);
}

bool SsdTier::Usable(uint32_t entry) const {
  const SsdEntry& e = index_[entry];
  return !disks_[DiskOf(e.segment)].lost && e.doomed == 0;
}

uint32_t SsdTier::First(uint32_t space, const ChainHash& hash, uint16_t group) const {
  uint32_t entry = index_.Find(space, hash, group);
  while (entry != kNone && !Usable(entry)) entry = index_[entry].next_piece;
  return entry;
}

uint32_t SsdTier::Next(uint32_t entry) const {
  do {
    entry = index_[entry].next_piece;
  } while (entry != kNone && !Usable(entry));
  return entry;
}

void SsdTier::Touch(uint32_t entry, uint64_t now_us) {
  Warm(entry, now_us);
  SsdEntry& e = index_[entry];
  if (e.hits < 63) ++e.hits;
}

void SsdTier::Warm(uint32_t entry, uint64_t now_us) {
  const SsdEntry& e = index_[entry];
  const uint32_t now_s = SecondsOf(now_us);
  SsdTimes& times = index_.times(entry);
  if (now_s > times.used_s) {
    SegmentOf(e).heat += PagesOf(e) * (now_s - times.used_s);
    times.used_s = now_s;
  }
}

uint64_t SsdTier::PagesOf(const SsdEntry& e) const {
  return ShapeOf(e.header_units * kHeaderUnitBytes, e.payload_bytes).record_bytes / kPageBytes;
}

IndexRecord SsdTier::RecordFor(uint32_t entry) const {
  const SsdEntry& e = index_[entry];
  IndexRecord record;
  record.segment = NumberOf(e.segment);
  record.page = e.page;
  record.sequence = disks_[DiskOf(e.segment)].segments[NumberOf(e.segment)].sequence;
  const SpaceRecord& space = spaces_[e.space].record;
  record.name_space = space.name_space;
  record.clear_epoch = space.clear_epoch;
  record.hash = e.hash;
  record.rectangle = e.rectangle;
  record.payload_bytes = e.payload_bytes;
  record.header_bytes = e.header_units * kHeaderUnitBytes;
  record.created_s = index_.times(entry).created_s;
  record.group = e.group;
  record.uniform = e.uniform != 0;
  record.writer_tag = writer_tag(entry);
  return record;
}

// Credentials are few. Beyond what a record has bits for, only the record itself says who wrote it.
uint8_t SsdTier::WriterNumber(uint32_t tag) {
  if (tag == 0) return 0;
  const auto known = std::find(writer_tags_.begin(), writer_tags_.end(), tag);
  const auto number = static_cast<size_t>(known - writer_tags_.begin());
  if (number > kWritersMax) return 0;
  if (known == writer_tags_.end()) writer_tags_.push_back(tag);
  return static_cast<uint8_t>(number);
}

uint32_t SsdTier::AddEntry(const IndexRecord& record, uint32_t disk, uint32_t space, uint32_t used_s) {
  SsdEntry e;
  e.hash = record.hash;
  e.space = space;
  e.group = record.group;
  e.uniform = record.uniform ? 1 : 0;
  e.rectangle = record.rectangle;
  e.writer = WriterNumber(record.writer_tag) & 0x7f;
  e.segment = disk << 24 | record.segment;
  e.page = record.page & 0xfffff;
  e.header_units = (record.header_bytes / kHeaderUnitBytes) & 0xfff;
  e.payload_bytes = record.payload_bytes;
  const uint32_t number = index_.Add(e, {record.created_s, used_s});
  Segment& segment = SegmentOf(e);
  const uint64_t pages = PagesOf(e);
  segment.entries.push_back(number);
  segment.live_pages += pages;
  segment.heat += pages * used_s;
  live_pages_ += pages;
  payload_bytes_ += e.payload_bytes;
  ++spaces_[space].pieces;
  spaces_[space].bytes += e.payload_bytes;
  return number;
}

void SsdTier::DropEntry(uint32_t entry) {
  const SsdEntry& e = index_[entry];
  Segment& segment = SegmentOf(e);
  const uint64_t pages = PagesOf(e);
  segment.live_pages -= pages;
  segment.heat -= pages * index_.times(entry).used_s;
  live_pages_ -= pages;
  payload_bytes_ -= e.payload_bytes;
  --spaces_[e.space].pieces;
  spaces_[e.space].bytes -= e.payload_bytes;
  index_.Remove(entry);
}

void SsdTier::Remove(uint32_t entry) {
  const SsdEntry& e = index_[entry];
  DiskState& d = disks_[DiskOf(e.segment)];
  if (!d.lost) d.removals.push_back({NumberOf(e.segment), e.page});
  DropEntry(entry);
}

void SsdTier::Poll(uint64_t now_us, uint64_t unix_ms, TierSink* sink) {
  std::vector<Done> done;
  std::vector<Loaded> loaded;
  for (uint32_t disk = 0; disk < disks_.size(); ++disk) {
    done.clear();
    loaded.clear();
    disks_[disk].disk->Poll(&done, &loaded);
    for (Loaded& chunk : loaded) OnLoaded(disk, std::move(chunk), now_us, unix_ms);
    for (const Done& result : done) {
      if (auto reading = readings_.extract(result.id)) {
        OnReadDone(std::move(reading.mapped()), result, now_us, sink);
      } else if (auto append = appendings_.extract(result.id)) {
        OnAppendDone(std::move(append.mapped()), result, now_us, sink);
      } else if (auto update = updatings_.extract(result.id)) {
        OnUpdateDone(update.mapped(), result, sink);
      }
    }
  }
  SweepStep(sink);
  for (uint32_t disk = 0; disk < disks_.size(); ++disk) {
    if (disks_[disk].loaded && !disks_[disk].lost) StepReclaim(disk, now_us, sink);
    FlushUpdates(disk);
  }
  for (const uint64_t token : std::exchange(durable_, {})) sink->OnDurable(token);
}

uint64_t SsdTier::NextTimerUs() const {
  if (sweeping_ || !durable_.empty()) return 0;
  for (const DiskState& d : disks_) {
    if (d.lost && d.lost_swept < d.segments.size()) return 0;
    if (!d.lost && !d.updating && (!d.removals.empty() || !d.barriers.empty() || !d.spaces.empty())) return 0;
    const Reclaim& r = d.reclaim;
    if (r.segment != kNone && r.dropped > 0 && r.dropped < d.segments[r.segment].entries.size()) return 0;
  }
  return UINT64_MAX;
}

bool SsdTier::loaded() const {
  return std::all_of(disks_.begin(), disks_.end(), [](const DiskState& d) { return d.loaded || d.lost; });
}

TierStats SsdTier::stats() const {
  TierStats out = counts_;
  out.pieces = index_.size();
  out.payload_bytes = payload_bytes_;
  out.live_bytes = live_pages_ * kPageBytes;
  out.metadata_bytes = index_.metadata_bytes();
  out.disks = disks_.size();
  out.loaded = loaded();
  out.reads_open = readings_.size();
  out.appends_open = appendings_.size();
  for (const DiskState& d : disks_) {
    out.disks_lost += d.lost ? 1 : 0;
    out.rebuilt = out.rebuilt || d.rebuilt;
    if (d.lost) continue;
    out.capacity_bytes += uint64_t{d.segments_max} * d.disk->segment_bytes();
    out.segments += d.made_segments;
    out.free_segments += d.free_segments + (d.segments_max - d.made_segments);
    for (const Segment& segment : d.segments) {
      out.metadata_bytes += sizeof(Segment) + segment.entries.capacity() * sizeof(uint32_t);
    }
  }
  return out;
}

std::vector<DiskInfo> SsdTier::disk_infos() const {
  std::vector<DiskInfo> out;
  for (const DiskState& d : disks_) {
    out.push_back(d.disk->info());
    if (d.lost && !d.lost_because.empty()) out.back().error = d.lost_because;
  }
  return out;
}

std::string SsdTier::CheckInvariants() const {
  if (std::string text = index_.CheckInvariants(); !text.empty()) return text;
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> expected;  // place -> pages, heat
  uint64_t pages = 0;
  for (uint32_t i = 0; i < index_.entry_bound(); ++i) {
    const SsdEntry& e = index_[i];
    if (e.used == 0) continue;
    auto& [live, heat] = expected[e.segment];
    live += PagesOf(e);
    heat += PagesOf(e) * index_.times(i).used_s;
    pages += PagesOf(e);
    const auto& listed = disks_[DiskOf(e.segment)].segments[NumberOf(e.segment)].entries;
    if (std::find(listed.begin(), listed.end(), i) == listed.end()) return "a segment does not list a record";
  }
  if (pages != live_pages_) return "pages on SSD and their sum disagree";
  for (uint32_t disk = 0; disk < disks_.size(); ++disk) {
    uint32_t free = 0, made = 0;
    for (uint32_t i = 0; i < disks_[disk].segments.size(); ++i) {
      const Segment& s = disks_[disk].segments[i];
      const auto [live, heat] = expected[disk << 24 | i];
      if (s.live_pages != live || s.heat != heat) return "a segment's sums disagree with its records";
      free += s.state == Segment::State::kFree ? 1 : 0;
      made += s.state != Segment::State::kMissing && s.state != Segment::State::kMaking ? 1 : 0;
      if (s.state == Segment::State::kFree && live != 0) return "a free segment holds a record";
    }
    if (disks_[disk].loaded && !disks_[disk].lost &&
        (free != disks_[disk].free_segments || made != disks_[disk].made_segments)) {
      return "segments and their counts disagree";
    }
  }
  return {};
}

bool SsdTier::Lost() const {
  return std::all_of(disks_.begin(), disks_.end(), [](const DiskState& disk) { return disk.lost; });
}

}  // namespace larder::node::ssd
