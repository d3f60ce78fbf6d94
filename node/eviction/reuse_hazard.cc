// The learned reuse hazard: what is worth the least by the model leaves first.
#include "node/eviction/learned_family.h"

namespace larder::node {

namespace {
// References between two looks at all open spells: a share of what was learned from, and of how many there
// are, so that the work stays a few steps a reference.
constexpr uint64_t kLearnEveryMin = 64;
constexpr uint64_t kLearnEveryMax = 4096;
}  // namespace

LearnedFamily::LearnedFamily() {
  shared_.model = &model_;
  shared_.seen = &seen_;
}

uint64_t LearnedFamily::metadata_bytes() const {
  return shared_.store.bytes() + seen_.metadata_bytes() + history_.metadata_bytes() + sizeof(*this);
}

void LearnedFamily::Observe(const ChainTouch& touch) {
  if (touch.keys.empty()) return;
  shared_.now_us = std::max(shared_.now_us, touch.now_us);
  const bool other_chains = sampler_.SetSize(shared_.size);
  const bool other_roots = sampler_.Watch(touch);
  if (other_chains || other_roots) StartAnew(touch.now_us);
  if (!sampler_.Samples(touch)) return;
  uses_.clear();
  // A chain longer than this would push its own front out of the history.
  const size_t blocks = std::min<size_t>(touch.keys.size(), ChainHistory::kEntriesMax / 4);
  for (size_t i = 0; i < blocks; ++i) {
    uint32_t entry = history_.Find(touch.keys[i]);
    uint64_t spell_class = 0;
    if (entry != ChainHistory::kNone) {
      const ChainHistory::Entry& e = history_[entry];
      model_.Ended(e.spell_class, touch.now_us - std::min(touch.now_us, e.last_us), true);
      spell_class = SpellClass::NextUse(e.spell_class);
      history_.MakeNewest(entry);
    } else {
      if (history_.full()) {
        const uint32_t oldest = history_.oldest();
        model_.Ended(history_[oldest].spell_class, touch.now_us - history_[oldest].last_us, false);
        Forget(oldest);
      }
      entry = history_.Add(touch.keys[i]);
    }
    ChainHistory::Entry& e = history_[entry];
    e.last_us = touch.now_us;
    if (touch.depths[i] + 1 == touch.chain_length) spell_class |= SpellClass::kEnd;
    e.spell_class = static_cast<uint8_t>(SpellClass::With(spell_class, touch.retention));
    uses_.push_back({entry, static_cast<uint32_t>((spell_class & SpellClass::kUses) / SpellClass::kUse)});
  }
  observed_ += blocks;
  chains_ += touch.depths[blocks - 1] + 1;
  if (observed_ >= learn_at_) Learn(touch.now_us);
  ChainTouch played = touch;
  played.keys = touch.keys.first(blocks);
  played.depths = touch.depths.first(blocks);
  Play(played, uses_);
}

// The spells go on as what they are now known to be.
void LearnedFamily::ObserveEnd(const ChainTouch& touch) {
  if (touch.keys.empty() || !sampler_.Samples(touch)) return;
  for (const uint64_t key : touch.keys) {
    const uint32_t entry = history_.Find(key);
    if (entry == ChainHistory::kNone) continue;
    ChainHistory::Entry& e = history_[entry];
    e.spell_class = static_cast<uint8_t>(SpellClass::With(e.spell_class, touch.retention));
    PlayEnd(entry, touch.retention);
  }
}

// Other chains are watched from now on: what was open is censored. While all are, only the shadows play
// others.
void LearnedFamily::StartAnew(uint64_t now_us) {
  if (sampler_.watches_all()) {
    for (uint32_t i = 0; i < history_.entries().size(); ++i) history_[i].shadows = 0;
  } else {
    for (const ChainHistory::Entry& e : history_.entries()) {
      model_.Ended(e.spell_class, now_us - std::min(now_us, e.last_us), false);
    }
    history_.Clear();
  }
  Restart();
}

void LearnedFamily::Learn(uint64_t now_us) {
  ReuseModel::Counts open{};
  for (const ChainHistory::Entry& e : history_.entries()) {
    open[e.spell_class][ReuseModel::BucketOf(now_us - std::min(now_us, e.last_us))] += 1;
  }
  model_.Recompute(open, sees_shares());
  const uint64_t wanted = std::max<uint64_t>(observed_ / 16, history_.entries().size() / 16);
  learn_at_ = observed_ + std::clamp(wanted, kLearnEveryMin, kLearnEveryMax);
}

std::unique_ptr<PolicyFamily> MakeReuseHazard() {
  return std::make_unique<LearnedFamily>();
}

}  // namespace larder::node
