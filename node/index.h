// The index: (namespace, chain hash, group) -> pieces.
//
// Entries (one a piece) live in chunks and never move; an entry's number is its name everywhere in the owner.
// The table maps a key to its first piece, further pieces of the key hang from it. A table bucket is one
// cache line: twelve entry numbers, a byte of hash for each, and a count of keys that found this bucket full
// and went on, so that a lookup ends where no key has passed; there are no tombstones. The table doubles at
// 80 % load; the old one is moved over a bucket an insert, so no insert pauses for long. Pure: no clock, no
// threads, no I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "node/chunked.h"
#include "proto/block_key.h"

namespace larder::node {

// A namespace between two clears. The generation is part of the key: raising it hides all pieces at once.
struct Space {
  uint32_t number = 0;
  uint32_t generation = 0;
  uint64_t packed() const { return uint64_t{number} << 32 | generation; }
  bool operator==(const Space&) const = default;
};

// What a lookup reads: one cache line, since lookups are random and wait for memory.
struct Entry {
  ChainHash hash;
  Space space;
  uint16_t group = 0;
  uint16_t hidden = 0;  // not in the table any more; freed when its pins end
  Rectangle rectangle;
  uint32_t next_piece = 0;  // of the same key; also links free entries
  uint32_t hard_pins = 0;
  uint32_t soft_pins = 0;

  bool pinned() const { return (hard_pins | soft_pins) != 0; }
};
static_assert(sizeof(Entry) == 64);

// What is needed once it was found.
struct EntryPlace {
  uint32_t slab = 0;
  uint32_t slot = 0;
  uint32_t payload_bytes = 0;
  uint32_t space_previous = 0;  // all visible entries of a space
  uint32_t space_next = 0;
};
static_assert(sizeof(EntryPlace) == 20);

class Index {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kEntriesMax = 1u << 30;
  static constexpr size_t kBatch = 256;

  explicit Index(uint64_t seed);
  ~Index();
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // The first piece of a key, or kNone.
  uint32_t Find(Space space, const ChainHash& hash, uint16_t group) const;
  // The same for up to kBatch keys; their cache misses overlap. The entries found are in cache afterwards.
  void FindBatch(Space space, std::span<const ChainHash> hashes, uint16_t group, uint32_t* first) const;

  // A new visible piece. Never fails; the caller bounds the pieces by the memory they describe.
  uint32_t Add(Space space, const ChainHash& hash, uint16_t group, const Rectangle& rectangle);
  // Takes a piece out of the table and its lists. The entry stays until Free.
  void Hide(uint32_t entry);
  void Free(uint32_t entry);

  Entry& operator[](uint32_t entry) { return entries_[entry]; }
  const Entry& operator[](uint32_t entry) const { return entries_[entry]; }
  void PrefetchPlace(uint32_t entry) const { __builtin_prefetch(&places_[entry]); }
  EntryPlace& place(uint32_t entry) { return places_[entry]; }
  const EntryPlace& place(uint32_t entry) const { return places_[entry]; }
  // The first of all visible pieces of a space, linked by space_next; kNone when there are none.
  uint32_t FirstOf(Space space) const;

  uint32_t entry_bound() const { return entry_bound_; }  // every number in use is below
  uint64_t visible() const { return visible_; }
  uint64_t metadata_bytes() const;
  // Visible entries are found by their key, counts agree. Empty when well.
  std::string CheckInvariants() const;

 private:
  struct Bucket;
  // One open-addressing table; knows entry numbers and hashes only.
  struct Table {
    Memory memory;
    Bucket* buckets = nullptr;
    uint64_t bucket_count = 0;  // power of two
    uint64_t keys = 0;
    void Make(uint64_t buckets_wanted);
  };

  uint64_t SeedOf(Space space, uint16_t group) const;
  static uint64_t HashOf(uint64_t seed, const ChainHash& hash);
  uint64_t HashOf(Space space, const ChainHash& hash, uint16_t group) const {
    return HashOf(SeedOf(space, group), hash);
  }
  uint64_t HashOf(uint32_t entry) const;
  bool Is(uint32_t entry, Space space, const ChainHash& hash, uint16_t group) const;
  // The cell that holds the key's first piece, nullptr without.
  uint32_t* FindCell(const Table& table, uint64_t key_hash, Space space, const ChainHash& hash,
                     uint16_t group) const;
  uint32_t Lookup(uint64_t key_hash, Space space, const ChainHash& hash, uint16_t group) const;
  // An entry of the key's bucket that may be it; kAbsent: the key is not in the table; kNone: look for it.
  static constexpr uint32_t kAbsent = kNone - 1;
  static uint32_t Candidate(const Table& table, uint64_t key_hash);
  static void InsertKey(Table* table, uint64_t key_hash, uint32_t entry);
  static void EraseCell(Table* table, uint64_t key_hash, uint32_t* cell);
  void GrowIfFull();
  void MoveBuckets(uint64_t count);
  void LinkSpace(uint32_t entry);
  void UnlinkSpace(uint32_t entry);

  uint64_t seed_;
  Chunked<Entry> entries_;
  Chunked<EntryPlace> places_;
  uint32_t entry_bound_ = 0;
  uint32_t free_ = kNone;
  uint64_t visible_ = 0;
  Table table_;
  Table old_;           // being moved into table_; no buckets when there is none
  uint64_t moved_ = 0;  // buckets of old_ that are empty for good
  std::unordered_map<uint64_t, uint32_t> space_heads_;
};

}  // namespace larder::node
