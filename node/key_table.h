// From a key's hash to a number: the table of both indexes. It knows numbers and hashes only; whoever has the
// keys says which number is the one.
//
// A bucket is one cache line: twelve numbers, a byte of hash for each, and a count of keys that found this
// bucket full and went on, so that a lookup ends where no key has passed; there are no tombstones. The table
// doubles at 80 % load; the old one is moved over a bucket an insert, so no insert pauses for long.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "node/chunked.h"
#include "proto/status.h"

namespace larder::node {

class KeyTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kAbsent = kNone - 1;

  KeyTable() { table_.Make(kFirstBuckets); }

  void Prefetch(uint64_t key_hash) const {
    __builtin_prefetch(&table_.buckets[key_hash & (table_.bucket_count - 1)]);
    if (old_.buckets != nullptr) __builtin_prefetch(&old_.buckets[key_hash & (old_.bucket_count - 1)]);
  }
  // A number of the key's bucket that may be it; kAbsent: the key is not here; kNone: look for it.
  uint32_t Candidate(uint64_t key_hash) const {
    const uint32_t candidate = CandidateIn(table_, key_hash);
    return candidate == kAbsent && old_.buckets != nullptr ? CandidateIn(old_, key_hash) : candidate;
  }
  // The number that `is` accepts, or kNone.
  template <typename Is>
  uint32_t Find(uint64_t key_hash, const Is& is) const {
    if (const uint32_t* cell = FindCell(table_, key_hash, is)) return *cell;
    if (old_.buckets != nullptr) {
      if (const uint32_t* cell = FindCell(old_, key_hash, is)) return *cell;
    }
    return kNone;
  }
  // The key is not here. `hash_of(number)` is asked for keys that move to a larger table.
  template <typename HashOf>
  void Insert(uint64_t key_hash, uint32_t number, const HashOf& hash_of) {
    GrowIfFull(hash_of);
    InsertInto(&table_, key_hash, number);
  }
  // The key is here. Its number becomes another one.
  void Replace(uint64_t key_hash, uint32_t number, uint32_t other) {
    const auto is = [&](uint32_t candidate) { return candidate == number; };
    uint32_t* cell = FindCell(table_, key_hash, is);
    if (cell == nullptr) cell = FindCell(old_, key_hash, is);
    LARDER_CHECK(cell != nullptr);
    *cell = other;
  }
  void Erase(uint64_t key_hash, uint32_t number) {
    const auto is = [&](uint32_t candidate) { return candidate == number; };
    if (uint32_t* cell = FindCell(table_, key_hash, is)) return EraseCell(&table_, key_hash, cell);
    uint32_t* cell = old_.buckets == nullptr ? nullptr : FindCell(old_, key_hash, is);
    LARDER_CHECK(cell != nullptr);
    EraseCell(&old_, key_hash, cell);
  }

  uint64_t keys() const { return table_.keys + old_.keys; }
  uint64_t metadata_bytes() const { return (table_.bucket_count + old_.bucket_count) * sizeof(Bucket); }

 private:
  static constexpr uint32_t kCells = 12;
  static constexpr uint64_t kFirstBuckets = 64;
  static constexpr uint64_t kHugeTableBytes = 2ull << 20;

  static uint8_t TagOf(uint64_t key_hash) {
    const auto tag = static_cast<uint8_t>(key_hash >> 56);
    return tag == 0 ? uint8_t{1} : tag;
  }
  // 0x80 in every byte of `word` that equals `tag`. Exact: no borrow runs into the next byte.
  static uint64_t EqualBytes(uint64_t word, uint8_t tag) {
    constexpr uint64_t kLow = 0x7f7f7f7f7f7f7f7full;
    const uint64_t x = word ^ (0x0101010101010101ull * tag);
    return ~(((x & kLow) + kLow) | x | kLow);
  }

  struct alignas(64) Bucket {
    uint32_t number[kCells];
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
  struct Table {
    Memory memory;
    Bucket* buckets = nullptr;
    uint64_t bucket_count = 0;  // power of two
    uint64_t keys = 0;

    void Make(uint64_t buckets_wanted) {
      const uint64_t bytes = buckets_wanted * sizeof(Bucket);
      memory = MakeMemory(bytes, bytes >= kHugeTableBytes);
      buckets = reinterpret_cast<Bucket*>(memory.get());
      bucket_count = buckets_wanted;
      keys = 0;
    }
  };

  template <typename Is>
  static uint32_t* FindCell(const Table& table, uint64_t key_hash, const Is& is) {
    const uint64_t mask = table.bucket_count - 1;
    const uint8_t tag = TagOf(key_hash);
    for (uint64_t b = key_hash & mask, looked = 0; looked <= mask; b = (b + 1) & mask, ++looked) {
      Bucket& bucket = table.buckets[b];
      for (uint32_t cells = bucket.Cells(tag); cells != 0; cells &= cells - 1) {
        uint32_t* cell = &bucket.number[std::countr_zero(cells)];
        if (is(*cell)) return cell;
      }
      if (bucket.passed == 0) return nullptr;
    }
    return nullptr;
  }

  static uint32_t CandidateIn(const Table& table, uint64_t key_hash) {
    const Bucket& bucket = table.buckets[key_hash & (table.bucket_count - 1)];
    const uint32_t cells = bucket.Cells(TagOf(key_hash));
    if (cells != 0) return bucket.number[std::countr_zero(cells)];
    return bucket.passed == 0 ? kAbsent : kNone;
  }

  static void InsertInto(Table* table, uint64_t key_hash, uint32_t number) {
    const uint64_t mask = table->bucket_count - 1;
    for (uint64_t b = key_hash & mask;; b = (b + 1) & mask) {
      Bucket& bucket = table->buckets[b];
      const uint32_t empty = bucket.Cells(0);
      if (empty != 0) {
        const int cell = std::countr_zero(empty);
        bucket.number[cell] = number;
        bucket.tag[cell] = TagOf(key_hash);
        ++table->keys;
        return;
      }
      ++bucket.passed;
    }
  }

  static void EraseCell(Table* table, uint64_t key_hash, uint32_t* cell) {
    const uint64_t mask = table->bucket_count - 1;
    const auto at = static_cast<uint64_t>(reinterpret_cast<std::byte*>(cell) -
                                          reinterpret_cast<std::byte*>(table->buckets)) /
                    sizeof(Bucket);
    Bucket& bucket = table->buckets[at];
    bucket.tag[cell - bucket.number] = 0;
    for (uint64_t b = key_hash & mask; b != at; b = (b + 1) & mask) --table->buckets[b].passed;
    --table->keys;
  }

  template <typename HashOf>
  void GrowIfFull(const HashOf& hash_of) {
    MoveBuckets(1, hash_of);
    const uint64_t cells = table_.bucket_count * kCells;
    if ((keys() + 1) * 10 <= cells * 8) return;
    // Long done: a doubled table takes in many more keys than the old one had buckets.
    MoveBuckets(UINT64_MAX, hash_of);
    old_ = std::move(table_);
    table_ = Table();
    table_.Make(old_.bucket_count * 2);
    moved_ = 0;
  }

  template <typename HashOf>
  void MoveBuckets(uint64_t count, const HashOf& hash_of) {
    if (old_.buckets == nullptr) return;
    for (; count > 0 && moved_ < old_.bucket_count; --count, ++moved_) {
      Bucket& bucket = old_.buckets[moved_];
      for (uint32_t cell = 0; cell < kCells; ++cell) {
        if (bucket.tag[cell] == 0) continue;
        const uint32_t number = bucket.number[cell];
        const uint64_t key_hash = hash_of(number);
        EraseCell(&old_, key_hash, &bucket.number[cell]);
        InsertInto(&table_, key_hash, number);
      }
    }
    if (moved_ == old_.bucket_count) old_ = Table();
  }

  Table table_;
  Table old_;           // being moved into table_; no buckets when there is none
  uint64_t moved_ = 0;  // buckets of old_ that are empty for good
};

}  // namespace larder::node
