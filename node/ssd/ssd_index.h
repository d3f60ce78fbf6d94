// What is on SSD, in memory: answers every match, so that a match never waits for a disk. 64 bytes a record
// in one cache line, 8 beside it, 4 in its segment's list, and the table's 6.7 to 13.3. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "node/chunked.h"
#include "node/key_table.h"
#include "proto/block_key.h"

namespace larder::node::ssd {

struct SsdEntry {
  ChainHash hash;
  uint32_t space = 0;  // the tier's number of (namespace, clear epoch)
  uint16_t group = 0;
  uint8_t used : 1 = 0;    // in the table
  uint8_t writer : 7 = 0;  // the tier's number of who wrote it; 0: not known
  uint8_t hits : 6 = 0;
  uint8_t uniform : 1 = 0;
  uint8_t doomed : 1 = 0;  // its segment is being reclaimed and it is not carried over
  Rectangle rectangle;
  uint32_t next_piece = 0;  // of the same key; also links free entries
  uint32_t segment = 0;
  uint32_t page : 20 = 0;
  uint32_t header_units : 12 = 0;  // of 64 bytes
  uint32_t payload_bytes = 0;
};
static_assert(sizeof(SsdEntry) == 64);

struct SsdTimes {
  uint32_t created_s = 0;  // Unix
  uint32_t used_s = 0;     // of the node's clock: written or read last
};

class SsdIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kEntriesMax = 1u << 30;

  explicit SsdIndex(uint64_t seed) : seed_(seed) {}

  // The first piece of a key, further ones by next_piece; kNone: nothing.
  uint32_t Find(uint32_t space, const ChainHash& hash, uint16_t group) const;
  // Brings in what Find of this key reads first.
  void Prefetch(uint32_t space, const ChainHash& hash, uint16_t group) const {
    table_.Prefetch(HashOf(space, hash, group));
  }
  uint32_t Add(const SsdEntry& entry, const SsdTimes& times);
  void Remove(uint32_t entry);

  SsdEntry& operator[](uint32_t entry) { return entries_[entry]; }
  const SsdEntry& operator[](uint32_t entry) const { return entries_[entry]; }
  SsdTimes& times(uint32_t entry) { return times_[entry]; }
  const SsdTimes& times(uint32_t entry) const { return times_[entry]; }

  uint32_t entry_bound() const { return entry_bound_; }  // every number in use is below
  uint64_t size() const { return size_; }
  uint64_t metadata_bytes() const {
    return uint64_t{entry_bound_} * (sizeof(SsdEntry) + sizeof(SsdTimes)) + table_.metadata_bytes();
  }
  std::string CheckInvariants() const;

 private:
  uint64_t HashOf(uint32_t space, const ChainHash& hash, uint16_t group) const;
  uint64_t HashOf(uint32_t entry) const {
    const SsdEntry& e = entries_[entry];
    return HashOf(e.space, e.hash, e.group);
  }

  const uint64_t seed_;
  Chunked<SsdEntry> entries_;
  Chunked<SsdTimes> times_;
  KeyTable table_;
  uint32_t entry_bound_ = 0;
  uint32_t free_ = kNone;
  uint64_t size_ = 0;
};

}  // namespace larder::node::ssd
