#include "node/index.h"

#define XXH_INLINE_ALL  // a call is a good part of a lookup
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <string>

#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint32_t kCells = 12;
// A lookup waits for its bucket and then for its entry; this many other lookups begin meanwhile.
constexpr size_t kAhead = 16;
constexpr uint64_t kFirstBuckets = 64;
constexpr uint32_t kBucketsMovedPerInsert = 1;
constexpr uint64_t kHugeTableBytes = 2ull << 20;

uint8_t TagOf(uint64_t key_hash) {
  const auto tag = static_cast<uint8_t>(key_hash >> 56);
  return tag == 0 ? uint8_t{1} : tag;
}

// 0x80 in every byte of `word` that equals `tag`. Exact: no borrow runs into the next byte.
uint64_t EqualBytes(uint64_t word, uint8_t tag) {
  constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7full;
  const uint64_t x = word ^ (0x0101010101010101ull * tag);
  return ~(((x & kLow) + kLow) | x | kLow);
}
}  // namespace

struct alignas(64) Index::Bucket {
  uint32_t entry[kCells];
  uint8_t tag[kCells];  // 0: empty
  uint32_t passed;      // keys that are stored behind this bucket because it was full

  // Cells whose tag is this one, as a bit mask.
  uint32_t Cells(uint8_t wanted) const {
    uint64_t first = 0;
    uint32_t last = 0;
    std::memcpy(&first, tag, 8);
    std::memcpy(&last, tag + 8, 4);
    const uint64_t a = EqualBytes(first, wanted);
    const uint64_t b = EqualBytes(last, wanted) & 0xffffffffull;
    // The product collects the eight 0x80 bits in its top byte; no two partial products share a bit.
    constexpr uint64_t kGather = 0x0102040810204080ull;
    return static_cast<uint32_t>(((a >> 7) * kGather) >> 56 | (((b >> 7) * kGather) >> 56) << 8);
  }
};

void Index::Table::Make(uint64_t buckets_wanted) {
  const uint64_t bytes = buckets_wanted * sizeof(Bucket);
  memory = MakeMemory(bytes, bytes >= kHugeTableBytes);
  buckets = reinterpret_cast<Bucket*>(memory.get());
  bucket_count = buckets_wanted;
  keys = 0;
}

Index::Index(uint64_t seed) : seed_(seed) {
  table_.Make(kFirstBuckets);
}
Index::~Index() = default;

// Chain hashes come from clients: without a secret seed one could aim them all at one bucket.
uint64_t Index::SeedOf(Space space, uint16_t group) const {
  const uint64_t seed = (seed_ ^ space.packed()) * 0x9e3779b97f4a7c15ull;
  return seed ^ seed >> 32 ^ group * 0xd6e8feb86659fd93ull;
}

uint64_t Index::HashOf(uint64_t seed, const ChainHash& hash) {
  return XXH3_64bits_withSeed(hash.bytes.data(), hash.bytes.size(), seed);
}

uint64_t Index::HashOf(uint32_t entry) const {
  const Entry& e = entries_[entry];
  return HashOf(e.space, e.hash, e.group);
}

bool Index::Is(uint32_t entry, Space space, const ChainHash& hash, uint16_t group) const {
  const Entry& e = entries_[entry];
  // Not ==: arrays of std::byte are compared byte by byte.
  return std::memcmp(e.hash.bytes.data(), hash.bytes.data(), hash.bytes.size()) == 0 && e.space == space &&
         e.group == group;
}

uint32_t* Index::FindCell(const Table& table, uint64_t key_hash, Space space, const ChainHash& hash,
                          uint16_t group) const {
  const uint64_t mask = table.bucket_count - 1;
  const uint8_t tag = TagOf(key_hash);
  for (uint64_t b = key_hash & mask, looked = 0; looked <= mask; b = (b + 1) & mask, ++looked) {
    Bucket& bucket = table.buckets[b];
    for (uint32_t cells = bucket.Cells(tag); cells != 0; cells &= cells - 1) {
      uint32_t* cell = &bucket.entry[std::countr_zero(cells)];
      if (Is(*cell, space, hash, group)) return cell;
    }
    if (bucket.passed == 0) return nullptr;
  }
  return nullptr;
}

uint32_t Index::Candidate(const Table& table, uint64_t key_hash) {
  const Bucket& bucket = table.buckets[key_hash & (table.bucket_count - 1)];
  const uint32_t cells = bucket.Cells(TagOf(key_hash));
  if (cells != 0) return bucket.entry[std::countr_zero(cells)];
  return bucket.passed == 0 ? kAbsent : kNone;
}

uint32_t Index::Lookup(uint64_t key_hash, Space space, const ChainHash& hash, uint16_t group) const {
  if (const uint32_t* cell = FindCell(table_, key_hash, space, hash, group)) return *cell;
  if (old_.buckets != nullptr) {
    if (const uint32_t* cell = FindCell(old_, key_hash, space, hash, group)) return *cell;
  }
  return kNone;
}

uint32_t Index::Find(Space space, const ChainHash& hash, uint16_t group) const {
  return Lookup(HashOf(space, hash, group), space, hash, group);
}

void Index::FindBatch(Space space, std::span<const ChainHash> hashes, uint16_t group, uint32_t* first) const {
  LARDER_CHECK(hashes.size() <= kBatch);
  uint64_t key_hash[kBatch];
  const uint64_t seed = SeedOf(space, group);
  const bool moving = old_.buckets != nullptr;
  const size_t count = hashes.size();
  for (size_t step = 0; step < count + 2 * kAhead; ++step) {
    if (step < count) {
      const uint64_t h = key_hash[step] = HashOf(seed, hashes[step]);
      __builtin_prefetch(&table_.buckets[h & (table_.bucket_count - 1)]);
      if (moving) __builtin_prefetch(&old_.buckets[h & (old_.bucket_count - 1)]);
    }
    if (const size_t i = step - kAhead; i < count) {
      first[i] = Candidate(table_, key_hash[i]);
      if (first[i] == kAbsent && moving) first[i] = Candidate(old_, key_hash[i]);
      if (first[i] < kAbsent) __builtin_prefetch(&entries_[first[i]]);
    }
    if (const size_t i = step - 2 * kAhead; i < count) {
      if (first[i] == kAbsent) {
        first[i] = kNone;
      } else if (first[i] == kNone || !Is(first[i], space, hashes[i], group)) {
        first[i] = Lookup(key_hash[i], space, hashes[i], group);
      }
    }
  }
}

void Index::InsertKey(Table* table, uint64_t key_hash, uint32_t entry) {
  const uint64_t mask = table->bucket_count - 1;
  for (uint64_t b = key_hash & mask;; b = (b + 1) & mask) {
    Bucket& bucket = table->buckets[b];
    const uint32_t empty = bucket.Cells(0);
    if (empty != 0) {
      const int cell = std::countr_zero(empty);
      bucket.entry[cell] = entry;
      bucket.tag[cell] = TagOf(key_hash);
      ++table->keys;
      return;
    }
    ++bucket.passed;
  }
}

void Index::EraseCell(Table* table, uint64_t key_hash, uint32_t* cell) {
  const uint64_t mask = table->bucket_count - 1;
  const auto at = static_cast<uint64_t>(reinterpret_cast<std::byte*>(cell) -
                                        reinterpret_cast<std::byte*>(table->buckets)) /
                  sizeof(Bucket);
  Bucket& bucket = table->buckets[at];
  bucket.tag[cell - bucket.entry] = 0;
  for (uint64_t b = key_hash & mask; b != at; b = (b + 1) & mask) --table->buckets[b].passed;
  --table->keys;
}

void Index::GrowIfFull() {
  MoveBuckets(kBucketsMovedPerInsert);
  const uint64_t cells = table_.bucket_count * kCells;
  if ((table_.keys + old_.keys + 1) * 10 <= cells * 8) return;
  MoveBuckets(UINT64_MAX);  // long done: a doubled table takes in many more keys than the old one had buckets
  old_ = std::move(table_);
  table_ = Table();
  table_.Make(old_.bucket_count * 2);
  moved_ = 0;
}

void Index::MoveBuckets(uint64_t count) {
  if (old_.buckets == nullptr) return;
  for (; count > 0 && moved_ < old_.bucket_count; --count, ++moved_) {
    Bucket& bucket = old_.buckets[moved_];
    for (uint32_t cell = 0; cell < kCells; ++cell) {
      if (bucket.tag[cell] == 0) continue;
      const uint32_t entry = bucket.entry[cell];
      const uint64_t key_hash = HashOf(entry);
      EraseCell(&old_, key_hash, &bucket.entry[cell]);
      InsertKey(&table_, key_hash, entry);
    }
  }
  if (moved_ == old_.bucket_count) old_ = Table();
}

void Index::LinkSpace(uint32_t entry) {
  EntryPlace& e = places_[entry];
  auto [head, added] = space_heads_.try_emplace(entries_[entry].space.packed(), entry);
  e.space_previous = kNone;
  e.space_next = added ? kNone : head->second;
  if (!added) {
    places_[head->second].space_previous = entry;
    head->second = entry;
  }
}

void Index::UnlinkSpace(uint32_t entry) {
  const EntryPlace& e = places_[entry];
  if (e.space_next != kNone) places_[e.space_next].space_previous = e.space_previous;
  if (e.space_previous != kNone) {
    places_[e.space_previous].space_next = e.space_next;
  } else if (e.space_next != kNone) {
    space_heads_[entries_[entry].space.packed()] = e.space_next;
  } else {
    space_heads_.erase(entries_[entry].space.packed());
  }
}

uint32_t Index::Add(Space space, const ChainHash& hash, uint16_t group, const Rectangle& rectangle) {
  GrowIfFull();
  uint32_t entry = free_;
  if (entry != kNone) {
    free_ = entries_[entry].next_piece;
  } else {
    LARDER_CHECK(entry_bound_ < kEntriesMax);
    entry = entry_bound_++;
    entries_.Reserve(entry_bound_);
    places_.Reserve(entry_bound_);
  }
  Entry& e = entries_[entry];
  e = Entry{};
  places_[entry] = EntryPlace{};
  e.hash = hash;
  e.space = space;
  e.group = group;
  e.rectangle = rectangle;
  const uint32_t first = Find(space, hash, group);
  if (first == kNone) {
    e.next_piece = kNone;
    InsertKey(&table_, HashOf(entry), entry);
  } else {
    e.next_piece = entries_[first].next_piece;
    entries_[first].next_piece = entry;
  }
  LinkSpace(entry);
  ++visible_;
  return entry;
}

void Index::Hide(uint32_t entry) {
  Entry& e = entries_[entry];
  LARDER_CHECK(e.hidden == 0);
  const uint64_t key_hash = HashOf(entry);
  Table* table = &table_;
  uint32_t* cell = FindCell(*table, key_hash, e.space, e.hash, e.group);
  if (cell == nullptr) {
    table = &old_;
    LARDER_CHECK(old_.buckets != nullptr);
    cell = FindCell(*table, key_hash, e.space, e.hash, e.group);
  }
  LARDER_CHECK(cell != nullptr);
  if (*cell == entry) {
    if (e.next_piece == kNone) {
      EraseCell(table, key_hash, cell);
    } else {
      *cell = e.next_piece;
    }
  } else {
    uint32_t before = *cell;
    while (entries_[before].next_piece != entry) before = entries_[before].next_piece;
    entries_[before].next_piece = e.next_piece;
  }
  UnlinkSpace(entry);
  e.hidden = 1;
  e.next_piece = kNone;
  --visible_;
}

void Index::Free(uint32_t entry) {
  Entry& e = entries_[entry];
  LARDER_CHECK(e.hidden != 0 && !e.pinned());
  e.next_piece = free_;
  free_ = entry;
}

uint32_t Index::FirstOf(Space space) const {
  const auto head = space_heads_.find(space.packed());
  return head == space_heads_.end() ? kNone : head->second;
}

uint64_t Index::metadata_bytes() const {
  return uint64_t{entry_bound_} * (sizeof(Entry) + sizeof(EntryPlace)) +
         (table_.bucket_count + old_.bucket_count) * sizeof(Bucket);
}

std::string Index::CheckInvariants() const {
  uint64_t visible = 0, keys = 0;
  for (const auto& [packed, head] : space_heads_) {
    uint32_t previous = kNone;
    for (uint32_t i = head; i != kNone; previous = i, i = places_[i].space_next) {
      const Entry& e = entries_[i];
      if (e.space.packed() != packed) return "an entry is in the list of another space";
      if (places_[i].space_previous != previous) return "a space list's links disagree";
      if (e.hidden != 0) return "a hidden entry is in a space list";
      const uint32_t first = Find(e.space, e.hash, e.group);
      if (first == kNone) return "a visible entry is not found by its key";
      uint32_t piece = first;
      while (piece != kNone && piece != i) piece = entries_[piece].next_piece;
      if (piece == kNone) return "a visible entry is not among the pieces of its key";
      if (first == i) ++keys;
      ++visible;
    }
  }
  if (visible != visible_) return "visible entries and their count disagree";
  if (keys != table_.keys + old_.keys) return "keys in the table and their count disagree";
  return {};
}

}  // namespace larder::node
