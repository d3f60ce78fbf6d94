// Blocks that are read more than their share: which ones, how many nodes ought to have them, which have
// copies and until when, and whom a removal still has to reach. Pure: no clock, no thread, no socket; part of
// the owner. Whoever carries the copies (node/cluster/hot_copies.h) has a thread of its own.
//
// Reads are counted in a table of fixed size that forgets the seldom read ones first, and halves once a
// minute; so does the count of all that this node serves, copies of others' blocks included, which is what a
// share is of.
//
// Near copies are held by the same leases: of a block that one host has read twice, on the node of that host.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/eviction/seen_memory.h"
#include "node/owner/block_name.h"
#include "proto/message.h"

namespace larder::node {

inline constexpr uint32_t kHotPlacesMax = 64;  // of a block, its home included: bits of GetReply::Places
inline constexpr uint64_t kHotRenewUs = 15'000'000;

// Where a copy is, or is being put.
struct HotHolder {
  uint32_t position = 0;  // in the block's order
  std::string node;
  Digest writer{};       // whose credential opens the namespace there
  uint64_t end_us = 0;   // of its lease, at the latest
  uint64_t next_us = 0;  // when it is renewed, or tried again
  bool made = false;     // it is there
  bool near = false;     // for its own host's readers alone: others are not told of it
  uint32_t idle = 0;     // a near one: renewals in a row since when nobody had read it
};
// A near copy that has been asked for and not been begun (end_us is 0), or whose renewal is due.
inline bool NearDue(const HotHolder& holder, uint64_t now_us) {
  return holder.near && (holder.end_us == 0 || holder.next_us <= now_us);
}

// Copies that have to go: told to each holder, or waited for until their leases have ended.
struct HotRevoke {
  uint64_t token = 0;
  Namespace name_space;
  std::vector<ChainHash> hashes;
  std::vector<uint16_t> groups;
  std::vector<HotHolder> holders;  // that have not heard yet
};

class HotBlocks {
 public:
  static constexpr uint64_t kHalfLifeUs = 60'000'000;
  static constexpr uint32_t kReadsMin = 32;     // in about a minute; fewer are nobody's burden
  static constexpr size_t kCountersMax = 4096;  // 16 bytes each
  static constexpr size_t kCopiedMax = 256;     // blocks
  static constexpr size_t kNearMax = 4096;      // blocks with near copies, beside those
  static constexpr size_t kNearHoldersMax = 64;
  static constexpr uint64_t kNearWaitUs = 20'000'000;  // until a wish that nobody came to is forgotten

  struct Copied {
    uint64_t key = 0;
    uint32_t places = 1;  // that ought to have it, its home included
    std::vector<HotHolder> holders;
  };
  struct Hot {
    uint64_t key = 0;
    uint32_t entry = 0;  // a piece of it, perhaps
    uint32_t reads = 0;
  };

  // `copies_max` 0: none but near ones; without those either it is off.
  HotBlocks(uint32_t copies_max, uint32_t share_percent, uint64_t seed, bool near = false)
      : copies_max_(copies_max),
        share_percent_(share_percent),
        near_(near),
        counters_(copies_max != 0 || near ? kCountersMax : 0),
        copied_(16, BlockNameHash{seed}) {}

  bool on() const { return !counters_.empty(); }
  bool near() const { return near_; }
  // The next four only when on. One read that this node served of a block of its own.
  void Read(uint64_t key, uint32_t entry, uint64_t now_us);
  // One that it served of a copy.
  void ServeCopy(uint64_t now_us);
  // Reads that copies of the block served elsewhere.
  void AddReads(uint64_t key, uint32_t reads);
  // Blocks above their share, the most read first, and those that have copies.
  std::vector<Hot> Hottest() const;
  // How many places a block with so many reads ought to have when it has `places` now: a power of two, or the
  // most there may be. It cools below a quarter of what its places are for.
  uint32_t PlacesFor(uint32_t reads, uint32_t places) const;
  uint32_t ReadsOf(uint64_t key) const;

  Copied* Find(const BlockName& name);
  // nullptr: as many blocks as may be are copied already.
  Copied* Make(const BlockName& name, uint64_t key);
  // A reader on the host of `node`, which had no copy; the second one that is remembered makes it have one.
  void NearRead(const BlockName& name, uint64_t key, const std::string& node, uint64_t now_us);
  size_t copied_max() const { return kCopiedMax + (near_ ? kNearMax : 0); }
  // Forgets holders whose leases have ended, and blocks without any that ought to have none.
  void Forget(uint64_t now_us);
  // Bits of the places that have it now, bit 0 for this node; 0: only this node does.
  uint64_t MaskOf(const BlockName& name, uint64_t now_us) const;
  // Takes the block's holders away for a revoke: those whose leases have not ended.
  std::vector<HotHolder> Take(const BlockName& name, uint64_t now_us);
  const std::unordered_map<BlockName, Copied, BlockNameHash>& copied() const { return copied_; }
  size_t copies(uint64_t now_us, bool near = false) const;

 private:
  struct Counter {
    uint64_t key = 0;
    uint32_t entry = 0;
    uint32_t reads = 0;
  };
  static constexpr size_t kWays = 4;

  void Cool(uint64_t now_us);
  size_t SetOf(uint64_t key) const { return (key >> 32) % (kCountersMax / kWays) * kWays; }
  // nullptr: it is not among those that are counted.
  const Counter* CounterOf(uint64_t key) const;

  const uint32_t copies_max_, share_percent_;
  const bool near_;
  SeenMemory near_seen_;           // of a block and a host
  std::vector<Counter> counters_;  // sets of kWays; none: off
  uint64_t served_ = 0;
  uint64_t halved_us_ = 0;
  std::unordered_map<BlockName, Copied, BlockNameHash> copied_;
};

}  // namespace larder::node
