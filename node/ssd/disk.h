// One data directory: preallocated segment files that hold bytes, and a durable index that says what lies in
// them. Asynchronous: jobs go in, results come out; nobody who calls here ever waits for a device. FileDisk
// (files, RocksDB) and the tests' SimDisk are the two that there are, and one battery holds both.
//
// Threads: one thread submits and polls. What a job points to is the disk's from Submit until Poll gave its
// Done. `check` runs on a thread of the disk.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/block_header.h"

namespace larder::node::ssd {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint32_t kHeaderUnitBytes = 64;  // headers on disk are rounded up to it
inline constexpr uint64_t RoundToPages(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Memory that O_DIRECT takes.
struct FreePages {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;
inline Pages MakePages(uint64_t bytes) {
  return Pages(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, RoundToPages(bytes))));
}

// Interactive reads go first, then batch reads, then writes; each lane has a bound of its own.
enum class Lane : uint8_t { kInteractive = 0, kBatch = 1, kWrite = 2 };
inline constexpr size_t kLanes = 3;
// Of reads that the device has at a time (or two of any size); the others wait in their lanes.
inline constexpr uint64_t kReadingBytesMax = 2 << 20;

enum class DiskStatus : uint8_t {
  kOk = 0,
  kCorrupt,  // `check` says that the bytes are not what they should be
  kFailed,   // the device or the file system said no; the text of info() says more
  kFull,     // no room for another segment
};

// Everything a whole number of pages: offset, bytes, and where the memory begins.
struct Range {
  uint64_t offset = 0;
  std::byte* memory = nullptr;  // appends only read it
  uint64_t bytes = 0;
};

// Tells writers apart, never 0: a quarantine has to find their records without reading them.
inline uint32_t WriterTag(const Digest& writer) {
  uint32_t tag = 0;
  std::memcpy(&tag, writer.data(), sizeof tag);
  return tag | 1;
}

// What the durable index says about a record (a piece on disk). Its name is (segment, page).
struct IndexRecord {
  uint32_t segment = 0;
  uint32_t page = 0;      // where in the segment
  uint64_t sequence = 0;  // the segment's life: a record of an earlier one is not there any more
  Namespace name_space;
  ChainHash hash;
  Rectangle rectangle;
  uint32_t clear_epoch = 0;
  uint32_t payload_bytes = 0;
  uint32_t header_bytes = 0;  // of the encoded BlockHeader, rounded up to 64
  uint32_t created_s = 0;     // Unix
  uint32_t depth = 0;         // in its chain
  uint32_t writer_tag = 0;    // WriterTag; 0: written before the index had it
  uint16_t group = 0;
  bool uniform = false;  // all parts have one size
  bool operator==(const IndexRecord&) const = default;
};
struct RecordName {
  uint32_t segment = 0;
  uint32_t page = 0;
};
// What a namespace is, beside its blocks.
struct SpaceRecord {
  Namespace name_space;
  uint32_t clear_epoch = 0;  // records of earlier epochs are gone
  std::string tenant;
  std::string identity;
  bool operator==(const SpaceRecord&) const = default;
};

// Changes of the durable index: all or nothing, and in the order in which they were submitted.
struct Changes {
  std::vector<IndexRecord> puts;
  std::vector<RecordName> removals;
  std::vector<uint32_t> emptied;  // segments: every record in them
  std::vector<SpaceRecord> spaces;
  bool empty() const { return puts.empty() && removals.empty() && emptied.empty() && spaces.empty(); }
};

struct Job {
  enum class Kind : uint8_t {
    kRead,         // ranges -> memory, then `check`
    kAppend,       // `check`, then memory -> ranges, then (with sync: durable) `changes`
    kUpdate,       // `changes` alone
    kMakeSegment,  // a file for `segment`
  };
  Kind kind = Kind::kRead;
  Lane lane = Lane::kInteractive;
  uint64_t id = 0;
  uint32_t segment = 0;
  std::vector<Range> ranges;
  // kRead: whether the bytes are good. kAppend: drops from `changes` what should not be told.
  std::function<bool(Job&)> check;
  Changes changes;
};

struct Done {
  uint64_t id = 0;
  DiskStatus status = DiskStatus::kOk;
  uint64_t bytes = 0;
  uint64_t service_us = 0;  // on the device, without waiting in line
};

// What was found when the directory was opened; comes in chunks, in no order. The last one has `last` set.
struct Loaded {
  std::vector<IndexRecord> records;
  std::vector<SpaceRecord> spaces;
  std::vector<uint32_t> segments;  // files that are there
  bool last = false;
  bool rebuilt = false;  // from the segments, because the index could not be read
};

struct DiskInfo {
  std::string directory;
  std::string engine;  // "io_uring", "threads", "simulated"
  bool direct = true;  // false: the file system has no O_DIRECT, the page cache is in between
  std::string error;   // the last one, for people
  uint64_t written_bytes = 0, read_bytes = 0;
  uint64_t index_bytes = 0;  // written by the index, its log included
};

class Disk {
 public:
  virtual ~Disk() = default;  // ends the threads; what is under way ends first, its Done is lost
  // false: this lane is full, nothing was taken.
  virtual bool Submit(Job&& job) = 0;
  // Appends what is done. `notify` (given at the opening) is called, on any thread, when there is something.
  virtual void Poll(std::vector<Done>* done, std::vector<Loaded>* loaded) = 0;
  virtual uint32_t segments_max() const = 0;
  virtual uint64_t segment_bytes() const = 0;
  virtual DiskInfo info() const = 0;
};

}  // namespace larder::node::ssd
