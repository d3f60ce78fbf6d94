#include "node/owner/index.h"

#define XXH_INLINE_ALL  // a call is a good part of a lookup
#include <xxhash.h>

#include <cstring>
#include <string>

#include "proto/status.h"

namespace larder::node {

namespace {
// A lookup waits for its bucket and then for its entry; this many other lookups begin meanwhile.
constexpr size_t kAhead = 16;
}  // namespace

Index::Index(uint64_t seed) : seed_(seed) {}
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

uint32_t Index::Lookup(uint64_t key_hash, Space space, const ChainHash& hash, uint16_t group) const {
  return table_.Find(key_hash, [&](uint32_t entry) { return Is(entry, space, hash, group); });
}

uint32_t Index::Find(Space space, const ChainHash& hash, uint16_t group) const {
  return Lookup(HashOf(space, hash, group), space, hash, group);
}

void Index::FindBatch(Space space, std::span<const ChainHash> hashes, uint16_t group, uint32_t* first) const {
  LARDER_CHECK(hashes.size() <= kBatch);
  uint64_t key_hash[kBatch];
  const uint64_t seed = SeedOf(space, group);
  const size_t count = hashes.size();
  for (size_t step = 0; step < count + 2 * kAhead; ++step) {
    if (step < count) {
      const uint64_t h = key_hash[step] = HashOf(seed, hashes[step]);
      table_.Prefetch(h);
    }
    if (const size_t i = step - kAhead; i < count) {
      first[i] = table_.Candidate(key_hash[i]);
      if (first[i] < KeyTable::kAbsent) __builtin_prefetch(&entries_[first[i]]);
    }
    if (const size_t i = step - 2 * kAhead; i < count) {
      if (first[i] == KeyTable::kAbsent) {
        first[i] = kNone;
      } else if (first[i] == kNone || !Is(first[i], space, hashes[i], group)) {
        first[i] = Lookup(key_hash[i], space, hashes[i], group);
      }
    }
  }
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
    table_.Insert(HashOf(entry), entry, [this](uint32_t other) { return HashOf(other); });
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
  const uint32_t first = Lookup(key_hash, e.space, e.hash, e.group);
  LARDER_CHECK(first != kNone);
  if (first == entry) {
    if (e.next_piece == kNone) {
      table_.Erase(key_hash, entry);
    } else {
      table_.Replace(key_hash, entry, e.next_piece);
    }
  } else {
    uint32_t before = first;
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
  return uint64_t{entry_bound_} * (sizeof(Entry) + sizeof(EntryPlace)) + table_.metadata_bytes();
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
  if (keys != table_.keys()) return "keys in the table and their count disagree";
  return {};
}

}  // namespace larder::node
