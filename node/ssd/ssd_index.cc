#include "node/ssd/ssd_index.h"

#include <xxhash.h>

#include <cstring>

#include "proto/status.h"

namespace larder::node::ssd {

uint64_t SsdIndex::HashOf(uint32_t space, const ChainHash& hash, uint16_t group) const {
  const uint64_t seed = (seed_ ^ (uint64_t{space} << 16 | group)) * 0x9e3779b97f4a7c15ull;
  return XXH3_64bits_withSeed(hash.bytes.data(), hash.bytes.size(), seed ^ seed >> 32);
}

uint32_t SsdIndex::Find(uint32_t space, const ChainHash& hash, uint16_t group) const {
  return table_.Find(HashOf(space, hash, group), [&](uint32_t entry) {
    const SsdEntry& e = entries_[entry];
    return std::memcmp(e.hash.bytes.data(), hash.bytes.data(), hash.bytes.size()) == 0 && e.space == space &&
           e.group == group;
  });
}

uint32_t SsdIndex::Add(const SsdEntry& entry, const SsdTimes& times) {
  uint32_t number = free_;
  if (number != kNone) {
    free_ = entries_[number].next_piece;
  } else {
    LARDER_CHECK(entry_bound_ < kEntriesMax);
    number = entry_bound_++;
    entries_.Reserve(entry_bound_);
    times_.Reserve(entry_bound_);
  }
  const uint32_t first = Find(entry.space, entry.hash, entry.group);
  SsdEntry& e = entries_[number];
  e = entry;
  e.used = 1;
  times_[number] = times;
  if (first == kNone) {
    e.next_piece = kNone;
    table_.Insert(HashOf(number), number, [this](uint32_t other) { return HashOf(other); });
  } else {
    e.next_piece = entries_[first].next_piece;
    entries_[first].next_piece = number;
  }
  ++size_;
  return number;
}

void SsdIndex::Remove(uint32_t entry) {
  SsdEntry& e = entries_[entry];
  LARDER_CHECK(e.used != 0);
  const uint32_t first = Find(e.space, e.hash, e.group);
  LARDER_CHECK(first != kNone);
  if (first == entry) {
    if (e.next_piece == kNone) {
      table_.Erase(HashOf(entry), entry);
    } else {
      table_.Replace(HashOf(entry), entry, e.next_piece);
    }
  } else {
    uint32_t before = first;
    while (entries_[before].next_piece != entry) before = entries_[before].next_piece;
    entries_[before].next_piece = e.next_piece;
  }
  e = SsdEntry{};
  e.next_piece = free_;
  free_ = entry;
  --size_;
}

std::string SsdIndex::CheckInvariants() const {
  uint64_t used = 0;
  for (uint32_t i = 0; i < entry_bound_; ++i) {
    const SsdEntry& e = entries_[i];
    if (e.used == 0) continue;
    ++used;
    uint32_t piece = Find(e.space, e.hash, e.group);
    while (piece != kNone && piece != i) piece = entries_[piece].next_piece;
    if (piece != i) return "a record on SSD is not found by its key";
  }
  if (used != size_) return "records on SSD and their count disagree";
  return {};
}

}  // namespace larder::node::ssd
