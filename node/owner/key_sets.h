// Sets of four entries that a fingerprint chooses, zero at first. From calloc: the kernel gives zeroed pages,
// and only as they are written.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "proto/status.h"

namespace larder::node {

template <typename Entry>
class KeySets {
 public:
  static constexpr size_t kWays = 4;
  static_assert(sizeof(Entry) * kWays == 64, "a set is one cache line");

  // Entries are rounded up to a power of two, and to one set.
  explicit KeySets(uint32_t entries)
      : sets_(std::bit_ceil(std::max<uint64_t>((uint64_t{entries} + kWays - 1) / kWays, 1))),
        memory_(std::calloc(sets_ + 1, sizeof(Set))) {
    LARDER_CHECK(memory_ != nullptr);
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    first_ = reinterpret_cast<Set*>((address + sizeof(Set) - 1) / sizeof(Set) * sizeof(Set));
  }
  Entry* SetOf(uint64_t fingerprint) { return first_[fingerprint & (sets_ - 1)].entries; }
  const Entry* SetOf(uint64_t fingerprint) const { return first_[fingerprint & (sets_ - 1)].entries; }
  std::span<const Entry> all() const { return {first_[0].entries, sets_ * kWays}; }
  uint64_t bytes() const { return sets_ * sizeof(Set); }

 private:
  struct alignas(64) Set {
    Entry entries[kWays];
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  const uint64_t sets_;
  std::unique_ptr<void, Free> memory_;
  Set* first_ = nullptr;
};

}  // namespace larder::node
