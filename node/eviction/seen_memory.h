// Keys of blocks that left, four bytes each: so that one that comes back is known to have been used before.
// Sets of sixteen cells, a cache line each; in a full set the oldest gives way. It may forget, and one key in
// 1,000 is taken for another; either costs a hit at most.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace larder::node {

class SeenMemory {
 public:
  // `again`: it was used more than once.
  void Remember(uint64_t key, bool again, uint64_t now_us) {
    if (sets_.empty()) sets_.resize(kSetsMin);
    Set& set = sets_[SetOf(key)];
    const uint16_t tag = TagOf(key), now = TimeOf(now_us);
    uint32_t place = 0;
    for (uint32_t i = 0; i < kCells; ++i) {
      if ((set.tags[i] & ~kAgain) == tag || set.tags[i] == 0) {
        place = i;
        break;
      }
      const auto age = [&](uint32_t cell) { return static_cast<uint16_t>(now - set.times[cell]); };
      if (age(i) > age(place)) place = i;
    }
    set.tags[place] = static_cast<uint16_t>(again ? tag | kAgain : tag);
    set.times[place] = now;
  }
  // How often it was used: 0: not known, 1: once, 2: more.
  uint32_t UsesOf(uint64_t key) const {
    if (sets_.empty()) return 0;
    const uint16_t tag = TagOf(key);
    for (const uint16_t seen : sets_[SetOf(key)].tags) {
      if ((seen & ~kAgain) == tag) return (seen & kAgain) != 0 ? 2 : 1;
    }
    return 0;
  }
  // Makes room for about as many keys as there are entries. What is known stays: each set becomes two.
  void GrowFor(uint64_t entries) {
    while (!sets_.empty() && sets_.size() * kCells * 2 <= entries) {
      const size_t half = sets_.size();
      sets_.resize(half * 2);
      std::copy_n(sets_.begin(), half, sets_.begin() + static_cast<std::ptrdiff_t>(half));
    }
  }
  uint64_t metadata_bytes() const { return sets_.size() * sizeof(Set); }

 private:
  static constexpr uint32_t kCells = 16;
  static constexpr uint16_t kAgain = 2;  // a bit of the tag
  static constexpr size_t kSetsMin =
      1 << 14;  // 1 MiB: a small node has a short life in memory, a long one here
  struct Set {
    uint16_t tags[kCells] = {};  // 0: empty
    uint16_t times[kCells] = {};
  };
  static_assert(sizeof(Set) == 64);

  static uint64_t Mix(uint64_t key) { return (key ^ key >> 31) * 0x9e3779b97f4a7c15ull; }
  size_t SetOf(uint64_t key) const { return (Mix(key) >> 16) & (sets_.size() - 1); }
  static uint16_t TagOf(uint64_t key) {
    return static_cast<uint16_t>(((Mix(key) >> 48) | 1) & ~uint64_t{kAgain});
  }
  static uint16_t TimeOf(uint64_t now_us) {
    return static_cast<uint16_t>(now_us >> 22);
  }  // 4 s, for 76 hours

  std::vector<Set> sets_;
};

}  // namespace larder::node
