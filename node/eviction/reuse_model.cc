#include "node/eviction/reuse_model.h"

#include <algorithm>
#include <bit>

namespace larder::node {

namespace {
constexpr uint32_t kFirstBucketBits = 16;  // below 65 ms: one bucket
// Spells of the average block that each class begins with: few of its own prove little.
constexpr double kPriorSpells = 30;
constexpr double kForgetAt = 1 << 20;  // ended spells; then the old ones count half

double BucketStartUs(uint32_t bucket) {
  return bucket == 0 ? 0 : static_cast<double>(uint64_t{1} << (kFirstBucketBits + bucket - 1));
}
}  // namespace

uint32_t ReuseModel::BucketOf(uint64_t age_us) {
  return std::min<uint32_t>(static_cast<uint32_t>(std::bit_width(age_us >> kFirstBucketBits)), kBuckets - 1);
}

void ReuseModel::Ended(uint64_t spell_class, uint64_t age_us, bool used) {
  const uint32_t bucket = BucketOf(age_us);
  ended_[spell_class][bucket] += 1;
  if (used) used_[spell_class][bucket] += 1;
  total_ += 1;
}

void ReuseModel::Recompute(const Counts& open, bool coarse) {
  Counts at_risk{}, used = used_;
  std::array<double, kBuckets> all_used{}, all_at_risk{};
  for (uint32_t c = 0; c < SpellClass::kCount; ++c) {
    double reached = 0;
    for (uint32_t b = kBuckets; b-- > 0;) {
      // An open spell has seen half of the bucket that it is in, and all of those before.
      at_risk[c][b] = reached + ended_[c][b] + open[c][b] / 2;
      reached += ended_[c][b] + open[c][b];
      all_used[b] += used_[c][b];
      all_at_risk[b] += at_risk[c][b];
    }
  }
  for (uint64_t once = 0; coarse && once < SpellClass::kCount; ++once) {
    if ((once & SpellClass::kUses) != 0) continue;
    const uint64_t twice = once + SpellClass::kUse, more = twice + SpellClass::kUse;
    for (uint32_t b = 0; b < kBuckets; ++b) {
      used[twice][b] = used[more][b] = used[twice][b] + used[more][b];
      at_risk[twice][b] = at_risk[more][b] = at_risk[twice][b] + at_risk[more][b];
    }
  }
  uint32_t unseen = SpellClass::kCount;
  for (uint32_t c = 0; c < SpellClass::kCount; ++c) {
    if (at_risk[c][0] == 0) {  // as the average block: the same for all of them
      if (unseen != SpellClass::kCount) {
        worth_[c] = worth_[unseen];
        continue;
      }
      unseen = c;
    }
    std::array<double, kBuckets + 1> used_until{}, held_until{};
    double alive = 1;
    for (uint32_t b = 0; b < kBuckets; ++b) {
      const double average = all_at_risk[b] > 0 ? all_used[b] / all_at_risk[b] : 0;
      const double hazard =
          std::min(1.0, (used[c][b] + kPriorSpells * average) / (at_risk[c][b] + kPriorSpells));
      const double left = alive * (1 - hazard);
      used_until[b + 1] = used_until[b] + alive * hazard;
      held_until[b + 1] = held_until[b] + (BucketStartUs(b + 1) - BucketStartUs(b)) * (alive + left) / 2;
      alive = left;
    }
    for (uint32_t b = 0; b < kBuckets; ++b) {
      double best = 1e-12 / (BucketStartUs(b) + 1e6);  // nothing known: the older the less
      for (uint32_t end = b + 1; end <= kBuckets && held_until[end] > held_until[b]; ++end) {
        best = std::max(best, (used_until[end] - used_until[b]) / (held_until[end] - held_until[b]));
      }
      worth_[c][b] = best;
    }
  }
  // Blocks at a chain's front were used more often than those behind them, which are worth nothing without
  // them; so more uses never count less, whatever few spells seem to say.
  for (uint64_t c = 0; c < SpellClass::kCount; ++c) {
    if ((c & SpellClass::kUses) == 0) continue;
    for (uint32_t b = 0; b < kBuckets; ++b) {
      worth_[c][b] = std::max(worth_[c][b], worth_[c - SpellClass::kUse][b]);
    }
  }
  // A list's coldest entry stands for all of it, so within a class the older never counts more.
  for (auto& row : worth_) {
    for (uint32_t b = kBuckets - 1; b-- > 0;) row[b] = std::max(row[b], row[b + 1]);
  }
  if (total_ < kForgetAt) return;
  total_ /= 2;
  for (auto* counts : {&used_, &ended_}) {
    for (auto& row : *counts) {
      for (double& count : row) count /= 2;
    }
  }
}

}  // namespace larder::node
