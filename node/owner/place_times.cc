#include "node/owner/place_times.h"

#include <algorithm>
#include <cstring>

namespace larder::node {

namespace {
constexpr std::string_view kPlacesTitle = "larder-places 1\n";
// Of each number of copies: a byte and four for each slot.
constexpr size_t kLevelBytes = size_t{kSlots} * 5;
}  // namespace

SlotSets PlaceTimes::Under(const NodeTable& table, const std::string& self) {
  const Placement placement(table, kReplicasMax);
  SlotSets held;
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) held[replicas].assign(kSlots, false);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    uint32_t copies = 0;  // before this node
    for (const uint16_t node : placement.Order(static_cast<uint16_t>(slot))) {
      if (table.nodes[node].id == self) {
        for (uint32_t replicas = copies + 1; replicas <= kReplicasMax; ++replicas)
          held[replicas][slot] = true;
        break;
      }
      if (table.nodes[node].state != NodeState::kDraining) ++copies;
    }
  }
  return held;
}

bool PlaceTimes::Follow(SlotSets held, uint64_t clock_s) {
  const auto now_s = static_cast<uint32_t>(clock_s) + 1;  // this second is from before, too
  if (held == held_) return false;
  if (followed()) {
    for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
      std::vector<uint32_t>& before_s = before_s_[replicas];
      for (uint32_t slot = 0; slot < kSlots; ++slot) {
        if (held[replicas][slot] == held_[replicas][slot]) continue;
        if (before_s.empty()) before_s.assign(kSlots, 0);
        before_s[slot] = held[replicas][slot] ? std::min(before_s[slot], now_s) : now_s + kSettleS;
      }
    }
  }
  held_ = std::move(held);
  return true;
}

bool PlaceTimes::Expect(uint32_t replicas, uint16_t slot, uint64_t clock_s) {
  const uint32_t level = Level(replicas);
  if (!followed() || held_[level][slot]) return false;
  held_[level][slot] = true;
  if (before_s_[level].empty() || before_s_[level][slot] == 0) return false;
  before_s_[level][slot] = std::min(before_s_[level][slot], static_cast<uint32_t>(clock_s) + 1);
  return true;
}

void PlaceTimes::LoseAll(uint64_t clock_s) {
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
    before_s_[replicas].assign(kSlots, static_cast<uint32_t>(clock_s) + 1);
    if (held_[replicas].empty()) held_[replicas].assign(kSlots, true);
  }
}

bool PlaceTimes::OldUnderAny(uint16_t slot, uint32_t born_s) const {
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
    if (Old(replicas, slot, born_s)) return true;
  }
  return false;
}

bool PlaceTimes::any() const {
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
    for (uint32_t slot = 0; slot < before_s_[replicas].size(); ++slot) {
      if (BeforeS(replicas, static_cast<uint16_t>(slot)) != 0) return true;
    }
  }
  return false;
}

uint32_t PlaceTimes::latest_s() const {
  uint32_t latest_s = 0;
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
    for (uint32_t slot = 0; slot < before_s_[replicas].size(); ++slot) {
      latest_s = std::max(latest_s, BeforeS(replicas, static_cast<uint16_t>(slot)));
    }
  }
  return latest_s;
}

void PlaceTimes::Shift(uint64_t from_s, uint64_t by_s) {
  for (std::vector<uint32_t>& level : before_s_) {
    for (uint32_t& before_s : level) {
      if (before_s >= from_s) before_s += static_cast<uint32_t>(by_s);
    }
  }
}

std::string PlaceTimes::Text() const {
  std::string text(kPlacesTitle);
  text.reserve(text.size() + kReplicasMax * kLevelBytes + sizeof(Digest));
  for (uint32_t replicas = 1; replicas <= kReplicasMax && followed(); ++replicas) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      text.push_back(held_[replicas][slot] ? '1' : '0');
      const uint32_t before_s = before_s_[replicas].empty() ? 0 : before_s_[replicas][slot];
      for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(before_s >> shift));
    }
  }
  const Digest digest = Sha256(AsBytes(text));
  text.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return text;
}

std::optional<PlaceTimes> PlaceTimes::Parse(std::string_view text) {
  if (text.substr(0, kPlacesTitle.size()) != kPlacesTitle || text.size() < kPlacesTitle.size() + sizeof(Digest)) {
    return std::nullopt;
  }
  const Digest digest = Sha256(AsBytes(text.substr(0, text.size() - digest.size())));
  if (std::memcmp(digest.data(), text.data() + text.size() - digest.size(), digest.size()) != 0) {
    return std::nullopt;
  }
  text.remove_suffix(digest.size());
  text.remove_prefix(kPlacesTitle.size());
  PlaceTimes out;
  if (text.empty()) return out;
  if (text.size() != kReplicasMax * kLevelBytes) return std::nullopt;
  for (uint32_t replicas = 1; replicas <= kReplicasMax; ++replicas) {
    out.held_[replicas].assign(kSlots, false);
    out.before_s_[replicas].assign(kSlots, 0);
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      if (text[0] != '0' && text[0] != '1') return std::nullopt;
      out.held_[replicas][slot] = text[0] == '1';
      for (size_t i = 0; i < 4; ++i) {
        out.before_s_[replicas][slot] |= uint32_t{static_cast<uint8_t>(text[1 + i])} << 8 * i;
      }
      text.remove_prefix(5);
    }
  }
  return out;
}

}  // namespace larder::node
