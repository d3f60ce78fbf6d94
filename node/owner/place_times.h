// Since when this node has had its places: what it holds of a slot from before it lost the place, and got it
// back, may have been removed meanwhile at whoever had it then, and is not trusted. Pure.
//
// A place is a slot and a number of copies: with n copies a block's places are the nodes that clients ask for
// it, the first of its order that take blocks and those before them that drain.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/owner/replica_places.h"

namespace larder::node {

class PlaceTimes {
 public:
  // What was put here within this time after a place was lost may come from clients that had not heard of it.
  static constexpr uint32_t kSettleS = 10;

  // The places of `self` under a table.
  static SlotSets Under(const NodeTable& table, const std::string& self);

  // A newer table's places. Clocks are the owner's, in whole seconds. False: nothing has changed.
  bool Follow(SlotSets held, uint64_t clock_s);
  // One place is this node's, as a table will say that has not come yet. True: something may be old now.
  bool Expect(uint32_t replicas, uint16_t slot, uint64_t clock_s);
  // Others may have had any of the places, nobody knows since when.
  void LoseAll(uint64_t clock_s);
  bool followed() const { return !held_[1].empty(); }

  // Whether a piece that was put at `born_s` is from before the place was lost and got back.
  bool Old(uint32_t replicas, uint16_t slot, uint32_t born_s) const {
    return born_s < BeforeS(replicas, slot);
  }
  // The same of a tenant that is not known: under any number of copies.
  bool OldUnderAny(uint16_t slot, uint32_t born_s) const;
  // What is put from now on is dated no earlier.
  uint32_t BeforeS(uint32_t replicas, uint16_t slot) const {
    const uint32_t level = Level(replicas);
    return !before_s_[level].empty() && held_[level][slot] ? before_s_[level][slot] : 0;
  }
  bool any() const;           // something may be old
  uint32_t latest_s() const;  // of places that are held: what is put is dated no later, but by the clock
  // The clock of what was noted from `from_s` on was behind.
  void Shift(uint64_t from_s, uint64_t by_s);

  // What a node keeps over a restart; none: it is damaged.
  std::string Text() const;
  static std::optional<PlaceTimes> Parse(std::string_view text);

 private:
  static uint32_t Level(uint32_t replicas) { return std::clamp<uint32_t>(replicas, 1, kReplicasMax); }

  using Times = std::array<std::vector<uint32_t>, kReplicasMax + 1>;

  SlotSets held_;   // by number of copies; none before the first table
  Times before_s_;  // counts while the place is held; none: 0
};

}  // namespace larder::node
