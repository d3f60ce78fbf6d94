// The index: (namespace, chain hash, group) -> pieces.
//
// Entries (one a piece) live in chunks and never move; an entry's number is its name everywhere in the owner.
// The table (key_table.h) maps a key to its first piece, further pieces of the key hang from it. Pure: no
// clock, no threads, no I/O.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "node/chunked.h"
#include "node/key_table.h"
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
  uint8_t hidden = 0;        // not in the table any more; freed when its pins end
  uint8_t spilling : 1 = 0;  // on its way to SSD: in no policy, hard-pinned
  uint8_t warm : 1 = 0;      // touched meanwhile: it stays
  uint8_t used : 1 = 0;      // touched since it was stored
  uint8_t charged : 1 = 0;   // its slot counts as its tenant's
  uint8_t leaving : 1 = 0;   // hidden, charged and hard-pinned: its tenant's soon
  uint8_t leased : 1 = 0;    // another node's hot block; it goes when nobody renews its lease
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
  uint32_t born_s = 0;          // when it was put, by the owner's steady Unix time
  uint32_t space_previous = 0;  // all visible entries of a space
  uint32_t space_next = 0;
};
static_assert(sizeof(EntryPlace) == 24);

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
  uint64_t SeedOf(Space space, uint16_t group) const;
  static uint64_t HashOf(uint64_t seed, const ChainHash& hash);
  uint64_t HashOf(Space space, const ChainHash& hash, uint16_t group) const {
    return HashOf(SeedOf(space, group), hash);
  }
  uint64_t HashOf(uint32_t entry) const;
  bool Is(uint32_t entry, Space space, const ChainHash& hash, uint16_t group) const;
  uint32_t Lookup(uint64_t key_hash, Space space, const ChainHash& hash, uint16_t group) const;
  void LinkSpace(uint32_t entry);
  void UnlinkSpace(uint32_t entry);

  uint64_t seed_;
  Chunked<Entry> entries_;
  Chunked<EntryPlace> places_;
  uint32_t entry_bound_ = 0;
  uint32_t free_ = kNone;
  uint64_t visible_ = 0;
  KeyTable table_;
  std::unordered_map<uint64_t, uint32_t> space_heads_;
};

}  // namespace larder::node
