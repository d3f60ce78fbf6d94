#include "node/owner/hot_blocks.h"

#include <algorithm>
#include <bit>

namespace larder::node {

// Everything halves at the same moment, so that shares stay what they are.
void HotBlocks::Cool(uint64_t now_us) {
  if (now_us < halved_us_ + kHalfLifeUs) return;
  const uint64_t times = std::min<uint64_t>((now_us - halved_us_) / kHalfLifeUs, 31);
  halved_us_ = now_us;
  served_ >>= times;
  for (Counter& counter : counters_) counter.reads >>= times;
}

const HotBlocks::Counter* HotBlocks::CounterOf(uint64_t key) const {
  const Counter* const set = &counters_[SetOf(key)];
  for (size_t i = 0; i < kWays; ++i) {
    if (set[i].key == key && set[i].reads != 0) return &set[i];
  }
  return nullptr;
}

void HotBlocks::Read(uint64_t key, uint32_t entry, uint64_t now_us) {
  Cool(now_us);
  ++served_;
  Counter* const set = &counters_[SetOf(key)];
  auto counter =
      std::find_if(set, set + kWays, [&](const Counter& each) { return each.key == key && each.reads != 0; });
  if (counter == set + kWays) {
    // The least read of its set wears off until a newcomer takes its place.
    counter = std::min_element(set, set + kWays,
                               [](const Counter& a, const Counter& b) { return a.reads < b.reads; });
    if (counter->reads != 0 && --counter->reads != 0) return;
    *counter = {key, entry, 0};
  }
  counter->entry = entry;
  counter->reads += counter->reads != UINT32_MAX ? 1 : 0;
}

void HotBlocks::ServeCopy(uint64_t now_us) {
  Cool(now_us);
  ++served_;
}

void HotBlocks::AddReads(uint64_t key, uint32_t reads) {
  Counter* const set = &counters_[SetOf(key)];
  for (size_t i = 0; i < kWays; ++i) {
    if (set[i].key == key && set[i].reads != 0) set[i].reads += std::min(reads, UINT32_MAX - set[i].reads);
  }
}

uint32_t HotBlocks::ReadsOf(uint64_t key) const {
  const Counter* counter = CounterOf(key);
  return counter == nullptr ? 0 : counter->reads;
}

std::vector<HotBlocks::Hot> HotBlocks::Hottest() const {
  std::vector<Hot> hot;
  for (const Counter& counter : counters_) {
    if (PlacesFor(counter.reads, 1) > 1) hot.push_back({counter.key, counter.entry, counter.reads});
  }
  std::sort(hot.begin(), hot.end(), [](const Hot& a, const Hot& b) {
    return a.reads != b.reads ? a.reads > b.reads : a.key < b.key;
  });
  return hot;
}

uint32_t HotBlocks::PlacesFor(uint32_t reads, uint32_t places) const {
  const uint32_t most = std::min(copies_max_ + 1, kHotPlacesMax);
  const uint64_t share = std::max<uint64_t>(served_ * share_percent_, 100);  // in hundredths of a read
  const uint64_t shares = (uint64_t{reads} * 100 + share - 1) / share;
  const bool cool = shares * 4 < places || reads < kReadsMin / 4;
  if (places > 1 && cool) return places / 2;
  if (reads < kReadsMin || shares <= places) return places;
  return static_cast<uint32_t>(std::min<uint64_t>(std::bit_ceil(shares), most));
}

HotBlocks::Copied* HotBlocks::Find(const BlockName& name) {
  const auto found = copied_.find(name);
  return found == copied_.end() ? nullptr : &found->second;
}

HotBlocks::Copied* HotBlocks::Make(const BlockName& name, uint64_t key) {
  if (Copied* known = Find(name)) return known;
  if (copied_.size() >= copied_max()) return nullptr;
  Copied& made = copied_[name];
  made.key = key;
  return &made;
}

void HotBlocks::NearRead(const BlockName& name, uint64_t key, const std::string& node, uint64_t now_us) {
  const uint64_t pair = key ^ std::hash<std::string>{}(node);
  if (near_seen_.UsesOf(pair) == 0) return near_seen_.Remember(pair, false, now_us);
  Copied* copied = Find(name);
  if (copied == nullptr) {
    if (copied_.size() >= kNearMax) return;
    copied = Make(name, key);
  }
  for (HotHolder& known : copied->holders) {
    if (known.node != node) continue;
    const bool again = !known.near && known.position >= copied->places;
    if (!again) return;
    known.near = true;
    known.made = false;
    known.idle = 0;
    known.next_us = now_us;
    return;
  }
  if (copied->holders.size() >= kNearHoldersMax) return;
  copied->holders.push_back({.node = node, .next_us = now_us + kNearWaitUs, .near = true});
}

void HotBlocks::Forget(uint64_t now_us) {
  for (auto at = copied_.begin(); at != copied_.end();) {
    std::vector<HotHolder>& holders = at->second.holders;
    std::erase_if(holders, [&](const HotHolder& holder) {
      return holder.end_us <= now_us && holder.next_us <= now_us;
    });
    at = holders.empty() && at->second.places <= 1 ? copied_.erase(at) : std::next(at);
  }
}

uint64_t HotBlocks::MaskOf(const BlockName& name, uint64_t now_us) const {
  if (copied_.empty()) return 0;
  const auto found = copied_.find(name);
  if (found == copied_.end()) return 0;
  uint64_t mask = 0;
  for (const HotHolder& holder : found->second.holders) {
    const bool reads =
        holder.made && !holder.near && holder.position < found->second.places && now_us < holder.end_us;
    if (reads) mask |= uint64_t{1} << holder.position;
  }
  return mask == 0 ? 0 : mask | 1;
}

std::vector<HotHolder> HotBlocks::Take(const BlockName& name, uint64_t now_us) {
  std::vector<HotHolder> holders;
  if (copied_.empty()) return holders;
  const auto found = copied_.find(name);
  if (found == copied_.end()) return holders;
  holders = std::move(found->second.holders);
  copied_.erase(found);
  std::erase_if(holders, [&](const HotHolder& holder) { return holder.end_us <= now_us; });
  return holders;
}

size_t HotBlocks::copies(uint64_t now_us, bool near) const {
  size_t count = 0;
  for (const auto& [name, copied] : copied_) {
    for (const HotHolder& holder : copied.holders)
      count += holder.made && holder.near == near && now_us < holder.end_us ? 1 : 0;
  }
  return count;
}

}  // namespace larder::node
