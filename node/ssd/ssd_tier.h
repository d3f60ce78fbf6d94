// The SSD tier: which records lie on which disk, which are read and written, which go. A state machine like
// the owner, on the owner's thread: no I/O, no lock, no clock; bytes move in the disks, which are
// asynchronous and bounded (disk.h). The index in memory answers every lookup.
//
//   Write(pieces) --bytes and index entry are on disk--> OnWritten(token, true)     found from here on
//   Read(entry)   --bytes are in memory and verified---> OnRead(token, header)
//   Remove, Clear --the disks have forgotten it--------> OnDurable(token)
//
// Segments are filled one after the other and reclaimed whole: when few are free, the coldest is emptied;
// what was read since it was written is carried over, up to a share of the segment.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/ssd/disk.h"
#include "node/ssd/ssd_index.h"

namespace larder::node::ssd {

struct TierOptions {
  uint64_t append_bytes = 8ull << 20;  // a write to a disk, about
  uint32_t appends_max = 4;            // under way, of a disk
  uint32_t reads_max = 128;            // under way, of a disk and lane
  uint32_t carry_percent = 10;         // of a reclaimed segment's bytes that may be carried over
  uint32_t free_segments_min = 2;      // of a disk; below it the coldest segment is reclaimed
  uint64_t bytes_per_hour_max = 0;     // written in all; 0: no cap
  uint32_t read_errors_max = 8;        // in a row, then the disk is left out
  uint64_t seed = 0;
};

// A piece to be written. Header and payload stay the caller's and unchanged until OnWritten. A payload of
// 4 KiB or more begins at a page, and the bytes up to the next page's start are readable.
struct TierPiece {
  uint64_t token = 0;
  uint32_t space = 0;
  uint32_t depth = 0;
  ByteView header;  // as proto/block_header.h encodes it; may have zeros behind it
  std::byte* payload = nullptr;
};

enum class ReadStatus : uint8_t { kOk, kCorrupt, kFailed };
struct ReadOutcome {
  ReadStatus status = ReadStatus::kFailed;
  BlockHeader header;  // kOk
  uint32_t depth = 0;  // in its chain, kOk
  bool there = true;   // it was not removed or carried elsewhere meanwhile
};

enum class WhyGone : uint8_t { kEvicted, kCorrupt, kDiskLost };

class TierSink {
 public:
  virtual ~TierSink() = default;
  // From inside Poll. The sink may call the tier back.
  virtual void OnWritten(uint64_t token, bool stored) = 0;
  virtual void OnRead(uint64_t token, ReadOutcome&& outcome) = 0;
  virtual void OnDurable(uint64_t token) = 0;
  // A record left that nobody removed.
  virtual void OnGone(const SsdEntry& entry, WhyGone why) = 0;
};

struct TierStats {
  uint64_t writes = 0, written_bytes = 0;                 // pieces that were asked to be written
  uint64_t reads = 0, read_bytes = 0;                     // of pieces, what was asked for
  uint64_t carried = 0, carried_bytes = 0, reclaims = 0;  // segments
  uint64_t evicted = 0, evicted_bytes = 0, corrupt = 0, write_errors = 0, read_errors = 0, stale_loaded = 0;
  uint64_t scrubbed = 0, scrubbed_bytes = 0;  // pieces that were read to see whether they verify
  uint64_t disk_bytes = 0;                    // written to segments, whatever for
  // gauges
  uint64_t pieces = 0, payload_bytes = 0, live_bytes = 0, capacity_bytes = 0, segments = 0, free_segments = 0,
           metadata_bytes = 0, disks = 0, disks_lost = 0, reads_open = 0, appends_open = 0;
  bool loaded = false;
  bool rebuilt = false;  // some disk's index was made anew from its segments
};

class SsdTier {
 public:
  static constexpr uint32_t kNone = SsdIndex::kNone;
  static constexpr size_t kDisksMax = 64;

  SsdTier(const TierOptions& options, std::vector<std::unique_ptr<Disk>> disks);
  ~SsdTier();  // ends the disks; nothing that was under way is told
  SsdTier(const SsdTier&) = delete;
  SsdTier& operator=(const SsdTier&) = delete;

  // --- namespaces ---
  // The number of a namespace as it is now. A newer epoch than the known one hides all that was; an older one
  // is answered with the known one.
  uint32_t OpenSpace(const SpaceRecord& record);
  // As loaded or opened; nullptr: never heard of.
  const SpaceRecord* FindSpace(const Namespace& name_space) const;
  uint32_t SpaceNumber(const Namespace& name_space) const;  // kNone: never heard of
  std::vector<SpaceRecord> Spaces() const;
  // Hides everything of the namespace; OnDurable(token) when no restart brings it back.
  void Clear(const Namespace& name_space, uint32_t new_epoch, uint64_t token);

  // --- lookups ---
  // Pieces of a key that can be read, one after the other; kNone ends.
  uint32_t First(uint32_t space, const ChainHash& hash, uint16_t group) const;
  uint32_t Next(uint32_t entry) const;
  bool Lost() const;  // every disk: nothing will be written any more
  const SsdEntry& entry(uint32_t number) const { return index_[number]; }
  const SsdTimes& times(uint32_t number) const { return index_.times(number); }
  // Where it lies, for who reads it past the tier: on which of the disks, and what is to be found there.
  uint32_t disk_of(uint32_t number) const { return DiskOf(index_[number].segment); }
  size_t disks() const { return disks_.size(); }
  IndexRecord RecordFor(uint32_t entry) const;
  // Who wrote it (WriterTag), 0 when only the record itself says it.
  uint32_t writer_tag(uint32_t number) const { return writer_tags_[index_[number].writer]; }
  // Something lies under this number and can be read.
  bool Readable(uint32_t number) const { return index_[number].used != 0 && Usable(number); }
  // Unix: when the youngest of what a restart found was put; 0: nothing.
  uint32_t newest_s() const { return newest_s_; }
  // Of an entry's namespace; also of one that a clear hid.
  const SpaceRecord& space_record(uint32_t space) const { return spaces_[space].record; }
  // Until OnGone or Remove says otherwise; also what can't be read any more and will be gone in a moment. An
  // entry keeps its number when its record is carried over.
  bool Listed(uint32_t entry) const { return index_[entry].used != 0 && !spaces_[index_[entry].space].dead; }
  uint64_t pieces_of(uint32_t space) const { return spaces_[space].pieces; }
  uint64_t bytes_of(uint32_t space) const { return spaces_[space].bytes; }
  // It was read (Touch), or something says that it is wanted (Warm).
  void Touch(uint32_t entry, uint64_t now_us);
  void Warm(uint32_t entry, uint64_t now_us);
  void Prefetch(uint32_t space, const ChainHash& hash, uint16_t group) const {
    index_.Prefetch(space, hash, group);
  }

  // --- work ---
  // How many bytes Write would take now; 0: the disks are behind, full, lost or still being loaded, or the
  // hour's bytes are used up.
  uint64_t WritableBytes(uint64_t now_us);
  // A larger piece is never written.
  bool Fits(uint32_t header_bytes, uint32_t payload_bytes) const;
  // Takes pieces from the front as far as there is room for them, and says how many.
  size_t Write(std::span<const TierPiece> pieces);
  // Reads what `rectangle` of a piece needs, to its place in `payload` (page-aligned when the piece has 4 KiB
  // or more; whole pages are written). false: too many reads are under way.
  bool Read(uint64_t token, uint32_t entry, const Rectangle& rectangle, std::byte* payload, Lane lane,
            uint64_t now_us);
  // Microseconds until a read of the piece would be there, behind those under way and `more_bytes`.
  uint64_t EstimateUs(uint32_t entry, Lane lane, uint64_t more_bytes = 0) const;
  // Reads a whole piece behind all that anybody waits for, to see whether it verifies: what does not is gone
  // as after any read. Bytes that are read, 0 when nothing is there; none: too many are under way.
  std::optional<uint64_t> Scrub(uint32_t entry, uint64_t now_us);
  uint32_t entry_bound() const { return index_.entry_bound(); }
  void Remove(uint32_t entry);
  // OnDurable(token) once no restart brings back what was removed before.
  void Barrier(uint64_t token);

  // Takes results from the disks, reclaims, sweeps a step. Call it when a disk notifies and at NextTimerUs.
  void Poll(uint64_t now_us, uint64_t unix_ms, TierSink* sink);
  uint64_t NextTimerUs() const;

  bool loaded() const;
  TierStats stats() const;
  std::vector<DiskInfo> disk_infos() const;
  std::string CheckInvariants() const;

 private:
  struct Space {
    SpaceRecord record;
    uint64_t pieces = 0;
    uint64_t bytes = 0;
    bool dead = false;        // a clear hid it; what is left of it is swept
    uint64_t told_disks = 0;  // bit a disk whose index has the record
  };
  struct Segment {
    enum class State : uint8_t { kMissing, kMaking, kFree, kOpen, kSealed, kReclaiming, kEmptying };
    State state = State::kMissing;
    uint64_t sequence = 0;
    uint32_t end_page = 0;  // where the next record goes
    uint64_t live_pages = 0;
    uint64_t heat = 0;  // sum over live records of pages x used_s
    uint32_t readers = 0;
    uint32_t appends = 0;
    std::vector<uint32_t> entries;  // whose record may be here; valid when the entry says so too
  };
  // Bytes that were read, and whose.
  struct ReadState {
    Pages head;
    BlockHeader header;
    Pages whole;  // carried over: the record's payload
  };
  struct Reading {
    uint64_t token = 0;
    uint32_t disk = 0, segment = 0, entry = 0, page = 0;
    uint64_t bytes = 0, submitted_us = 0, ahead_bytes = 0;
    Lane lane = Lane::kInteractive;
    bool carry = false;
    bool scrub = false;
    std::shared_ptr<ReadState> state;
  };
  struct AppendItem {
    uint64_t token = 0;
    IndexRecord record;
    uint32_t space = 0;
    uint32_t carried_from = kNone;  // entry
    const std::byte* payload = nullptr;
    ByteView head;  // the encoded BlockHeader; once laid out, preamble and all
  };
  // The disk's from Submit until Done.
  struct AppendState {
    std::vector<AppendItem> items;
    std::vector<uint8_t> bad;  // one an item
    Pages heads;
    std::vector<std::shared_ptr<ReadState>> carried;
  };
  struct Appending {
    uint32_t disk = 0, segment = 0;
    bool carry = false;
    std::shared_ptr<AppendState> state;
  };
  struct Updating {
    uint32_t disk = 0;
    uint32_t emptied = kNone;
    std::vector<uint64_t> barriers;
  };
  struct Reclaim {
    uint32_t segment = kNone;
    std::vector<uint32_t> carry;
    size_t next = 0;         // of carry
    size_t reading = 0;      // under way
    bool appending = false;  // under way
    std::vector<std::pair<uint32_t, std::shared_ptr<ReadState>>> read;
    size_t dropped = 0;  // of the segment's entries
  };
  struct DiskState {
    std::unique_ptr<Disk> disk;
    bool loaded = false;
    bool lost = false;
    bool rebuilt = false;
    std::string lost_because;
    std::vector<Segment> segments;
    uint32_t free_segments = 0;
    uint32_t made_segments = 0;
    uint32_t segments_max = 0;  // less than the disk's own once it was full
    uint32_t open = kNone;
    bool making = false;
    bool updating = false;  // small changes are on their way
    uint32_t appends = 0;
    uint32_t reads[kLanes] = {};
    uint64_t reading_bytes[kLanes] = {};
    uint32_t read_errors = 0;  // in a row
    Reclaim reclaim;
    std::vector<RecordName> removals;  // not yet submitted
    std::vector<SpaceRecord> spaces;   // the same
    std::vector<uint64_t> barriers;    // wait for these
    size_t lost_swept = 0;             // segments
    // Service of reads: nanoseconds a byte, and what a lane's reads take besides, in the batch lane for those
    // that overtake too.
    double byte_ns = 1, latency_us[2] = {200, 200};
    uint64_t busy_since_us = 0, busy_bytes = 0;
  };
  struct Barred {
    uint32_t disks_left = 0;
  };

  static uint32_t DiskOf(uint32_t place) { return place >> 24; }
  static uint32_t NumberOf(uint32_t place) { return place & 0xffffff; }
  uint64_t PagesOf(const SsdEntry& e) const;
  Segment& SegmentOf(const SsdEntry& e) { return disks_[DiskOf(e.segment)].segments[NumberOf(e.segment)]; }
  bool Usable(uint32_t entry) const;
  uint8_t WriterNumber(uint32_t tag);
  uint32_t AddEntry(const IndexRecord& record, uint32_t disk, uint32_t space, uint32_t used_s);
  void DropEntry(uint32_t entry);
  uint32_t SecondsOf(uint64_t now_us) const { return static_cast<uint32_t>(now_us / 1'000'000) + kClockBase; }

  // ssd_tier_write.cc
  uint64_t RoomOf(const DiskState& d) const;
  uint32_t DiskForWrite() const;
  bool OpenSegment(uint32_t disk);
  void PrepareSegment(uint32_t disk);
  size_t FitItems(uint32_t disk, std::span<const AppendItem> items);
  void LayOut(uint32_t disk, AppendState* state, Job* job);
  static bool CheckAppend(Job* job, AppendState* state);
  size_t Append(uint32_t disk, std::span<const AppendItem> items, bool carry,
                std::vector<std::shared_ptr<ReadState>> carried);
  void OnAppendDone(Appending&& append, const Done& done, uint64_t now_us, TierSink* sink);
  void TellSpace(uint32_t disk, uint32_t space, Changes* changes);
  // ssd_tier_read.cc
  bool SubmitRead(Reading&& reading, const Rectangle& rectangle, std::byte* payload, uint64_t now_us);
  void OnReadDone(Reading&& reading, const Done& done, uint64_t now_us, TierSink* sink);
  void Measure(DiskState* d, const Reading& reading, uint64_t now_us);
  static uint64_t AheadOf(const DiskState& d, Lane lane);
  // ssd_tier_reclaim.cc
  void StepReclaim(uint32_t disk, uint64_t now_us, TierSink* sink);
  void BeginReclaim(uint32_t disk);
  uint32_t ColdestSegment(const DiskState& d) const;
  void CarryOver(uint32_t disk, uint64_t now_us);
  void EmptySegment(uint32_t disk, TierSink* sink);
  void SweepStep(TierSink* sink);
  void FailDisk(uint32_t disk, const std::string& why);
  // ssd_tier_load.cc
  void OnLoaded(uint32_t disk, Loaded&& loaded, uint64_t now_us, uint64_t unix_ms);
  void FinishLoad(uint32_t disk);
  void RemoveAll(uint32_t disk, uint32_t number);
  void FlushUpdates(uint32_t disk);
  void OnUpdateDone(const Updating& update, const Done& done, TierSink* sink);
  void EndBarrier(uint64_t token, TierSink* sink);

  static constexpr size_t kWritersMax = 127;        // SsdEntry::writer
  static constexpr uint32_t kClockBase = 1u << 30;  // so that what was loaded can be older than this boot

  const TierOptions options_;
  SsdIndex index_;
  std::vector<DiskState> disks_;
  std::vector<Space> spaces_;
  std::map<Namespace, uint32_t> space_of_;
  uint64_t last_id_ = 0;
  uint64_t last_sequence_ = 0;
  std::unordered_map<uint64_t, Reading> readings_;
  std::unordered_map<uint64_t, Appending> appendings_;
  std::unordered_map<uint64_t, Updating> updatings_;
  std::unordered_map<uint64_t, Barred> barred_;
  std::vector<uint64_t> durable_;  // barriers that ended at once
  uint32_t sweep_cursor_ = 0;
  bool sweeping_ = false;    // entries of dead spaces may be left
  int64_t hour_budget_ = 0;  // bytes; a piece may overdraw it
  uint64_t budget_us_ = 0;
  uint64_t live_pages_ = 0;
  uint64_t payload_bytes_ = 0;
  uint32_t scrubs_open_ = 0;
  uint32_t newest_s_ = 0;
  std::vector<uint32_t> writer_tags_ = {0};  // by number
  TierStats counts_;
};

}  // namespace larder::node::ssd
