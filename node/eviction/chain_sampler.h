// Which chains are watched: whole ones, chosen by their root, one in 2^k so that a sample of every size of
// cache stays small. Where one root stands before most chains (a shared prompt), the root alone would choose
// all or nothing; then the first block beyond a depth that adapts is part of what is hashed.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "node/eviction/policy.h"

namespace larder::node {

class ChainSampler {
 public:
  static constexpr uint32_t kSampledMax = 1 << 14;  // resident entries of watched chains
  static constexpr uint32_t kShadowMax = 1 << 9;    // of those, of chains that shadows play

  // Entries resident in all. True when other chains than before are watched from now on.
  bool SetSize(uint64_t entries) {
    const auto shift = static_cast<uint32_t>(std::bit_width(entries / kSampledMax));
    shadow_shift_ = std::max(shadow_shift_, static_cast<uint32_t>(std::bit_width(entries / kShadowMax)));
    if (shift == shift_ || (shift < shift_ && entries * 4 > uint64_t{kSampledMax} << shift_)) return false;
    shift_ = shift;
    shadow_shift_ = static_cast<uint32_t>(std::bit_width(entries / kShadowMax));
    return true;
  }
  // True when a deeper block decides from now on, because one root stood before too many chains.
  bool Watch(const ChainTouch& touch) {
    if (shadow_shift_ == 0) return false;
    ++roots_[HashOf(touch) >> 32 & (kRoots - 1)];
    if (++watched_ < kWindow) return false;
    const bool crowded = *std::max_element(roots_.begin(), roots_.end()) > kWindow / 4;
    roots_.fill(0);
    watched_ = 0;
    if (!crowded || depth_ >= kDepthMax) return false;
    depth_ = depth_ * 2 + 1;
    return true;
  }
  bool watches_all() const { return shift_ == 0; }
  bool Samples(const ChainTouch& touch) const { return (HashOf(touch) & ((uint64_t{1} << shift_) - 1)) == 0; }
  // A part of the watched chains is played in shadows, whose work is several times that of watching.
  bool Plays(const ChainTouch& touch) const {
    return (HashOf(touch) & ((uint64_t{1} << shadow_shift_) - 1)) == 0;
  }
  uint64_t Played(uint64_t entries) const { return std::max<uint64_t>(entries >> shadow_shift_, 1); }

 private:
  static constexpr uint32_t kRoots = 64;
  static constexpr uint32_t kWindow = 512;
  static constexpr uint32_t kDepthMax = 63;

  uint64_t HashOf(const ChainTouch& touch) const {
    size_t i = 0;
    while (i + 1 < touch.keys.size() && touch.depths[i] < depth_) ++i;
    const uint64_t name = depth_ == 0 && touch.root != 0 ? touch.root : touch.keys[i];
    const uint64_t mixed = (name ^ name >> 32) * 0xd6e8feb86659fd93ull;
    return (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull >> 8;
  }

  uint32_t shift_ = 0;         // one in 2^shift_ chains is watched
  uint32_t shadow_shift_ = 0;  // and one in 2^shadow_shift_ is played; never less
  uint32_t depth_ = 0;
  uint32_t watched_ = 0;
  std::array<uint32_t, kRoots> roots_{};
};

}  // namespace larder::node
