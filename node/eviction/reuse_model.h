// When will a block be used again? Learned online, from the blocks of sampled chains, resident or not.
//
// A spell lasts from a block's touch to its next one; its class is what is known when it begins. For each
// class and bucket of age (an octave each) the model counts spells that reached the bucket and spells that
// ended there with a use: the Kaplan-Meier estimate of reuse, with those still open or forgotten as censored.
// An entry's worth at its age is the best rate at which it can still earn a hit for the room it takes: the
// maximum over horizons of P(reuse until then) / E[time held until then]. The lowest worth leaves first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "proto/retention.h"

namespace larder::node {

// What is known of a spell: how often the block was used, whether it ends its chain (often a partly filled
// block, which the next turn of a conversation replaces), and what the engine said when the request ended.
struct SpellClass {
  static constexpr uint32_t kCount = 32;  // 24 of them in use
  static constexpr uint64_t kEnd = 1;     // the request's last block
  static constexpr uint64_t kUse = 2;     // added by each use after the first, up to two
  static constexpr uint64_t kUses = 6;
  static constexpr uint64_t kRetention = 8;  // times a Retention
  static constexpr uint64_t kEvery = kCount - 1;

  static uint64_t NextUse(uint64_t spell_class) { return std::min((spell_class & kUses) + kUse, 2 * kUse); }
  static Retention RetentionOf(uint64_t spell_class) {
    return static_cast<Retention>(spell_class / kRetention % kRetentions);
  }
  static uint64_t With(uint64_t spell_class, Retention retention) {
    return (spell_class & (kEnd | kUses)) | static_cast<uint64_t>(retention) * kRetention;
  }
};

class ReuseModel {
 public:
  static constexpr uint32_t kBuckets = 30;
  static uint32_t BucketOf(uint64_t age_us);

  using Counts = std::array<std::array<double, kBuckets>, SpellClass::kCount>;

  // A spell ended at this age: with a use, or because it was forgotten.
  void Ended(uint64_t spell_class, uint64_t age_us, bool used);
  // Learns from what ended, and from open spells by class and bucket. `coarse`: no difference between blocks
  // used twice and more often. Then nodes that hold shares of the same chains agree better on what to keep.
  void Recompute(const Counts& open, bool coarse);
  double Worth(uint64_t spell_class, uint64_t age_us) const { return worth_[spell_class][BucketOf(age_us)]; }

 private:
  Counts used_{};
  Counts ended_{};
  Counts worth_{};
  double total_ = 0;
};

}  // namespace larder::node
