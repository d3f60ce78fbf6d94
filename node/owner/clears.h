// Which namespaces were cleared, and when: nodes compare what they know, so that one that was away when a
// namespace was cleared clears it when it is back. Pure; the text form is what a node keeps over a restart.
//
// A stamp is Unix milliseconds by the clock of whoever cleared, the same on all nodes that were asked. Per
// namespace it only rises: a clear whose stamp is not later than the known one (a clock that was set back)
// gets the next one. So of two nodes the one with the lower stamp has missed a clear. What a wrong clock can
// do is that a node clears once more than it had to. Stamps come from anybody, so none is believed that is
// far ahead of this node's clock (Bounded): one of the far future would hide every later clear.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "proto/block_key.h"
#include "proto/status.h"

namespace larder::node {

class Clears {
 public:
  static constexpr size_t kMost = 4096;  // the latest; 0.5 MB
  static constexpr uint64_t kAheadMs = 600'000;

  static uint64_t Bounded(uint64_t stamp_ms, uint64_t now_ms) {
    return std::min(stamp_ms, now_ms + kAheadMs);
  }

  // This node clears. The same clear again (a stamp that is known) stays the same one.
  void Note(const Namespace& name_space, uint64_t stamp_ms);
  // Another node's, as it has it. False: not later than what is known.
  bool Take(const Namespace& name_space, uint64_t stamp_ms);
  // Another node has forgotten some, of which the latest was then.
  void Forget(uint64_t stamp_ms) { forgotten_ms_ = std::max(forgotten_ms_, stamp_ms); }
  uint64_t Of(const Namespace& name_space) const;  // 0: none is known
  // `heard` may have forgotten a clear that this node has not heard of.
  bool MayLack(const Clears& heard) const { return heard.forgotten_ms_ > latest_ms(); }

  const std::map<Namespace, uint64_t>& stamps() const { return stamps_; }
  uint64_t forgotten_ms() const { return forgotten_ms_; }

  // Lines: "larder-clears 1", "forgotten MS", "cleared HEX MS". kCorrupt says which line.
  std::string Text() const;
  static Result<Clears> Parse(std::string_view text);

 private:
  uint64_t latest_ms() const;
  void Set(const Namespace& name_space, uint64_t stamp_ms);

  std::map<Namespace, uint64_t> stamps_;
  uint64_t forgotten_ms_ = 0;
};

}  // namespace larder::node
