// Readers that wait for leading blocks of a chain.
//
// A wait watches only the first key of its list that is missing: commits of later keys don't concern it, and
// one commit wakes exactly those that can go on. Pure bookkeeping; who is present, the owner knows.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "node/owner/block_name.h"
#include "node/owner/owner.h"

namespace larder::node {

class Waits {
 public:
  struct Wait {
    SessionId session = 0;
    Envelope envelope;
    uint32_t name_space = 0;  // node-wide number
    Rectangle rectangle;
    std::vector<uint16_t> groups;
    std::vector<ChainHash> hashes;
    uint32_t target = 0;  // answer at so many leading keys
    uint32_t have = 0;    // leading keys that were seen; what leaves later does not count back
    uint64_t deadline_us = UINT64_MAX;
    bool watching = false;
    BlockName watched;  // generation 0: a clear does not end a wait
  };

  explicit Waits(uint64_t seed) : watchers_(16, BlockNameHash{seed}) {}

  uint64_t Add(Wait&& wait);
  Wait* Find(uint64_t id);
  void Watch(uint64_t id, const BlockName& name);
  // Ends the watch of all that watch this name and returns them, oldest first.
  std::vector<uint64_t> TakeWatchers(const BlockName& name);
  void Remove(uint64_t id);
  // A wait whose deadline is not after `now_us`; 0: none.
  uint64_t Due(uint64_t now_us) const;
  uint64_t FirstDeadlineUs() const { return deadlines_.empty() ? UINT64_MAX : deadlines_.begin()->first; }
  uint64_t size() const { return waits_.size(); }
  uint64_t keys() const { return keys_; }  // of all waits together
  std::string CheckInvariants() const;

 private:
  void Unwatch(uint64_t id, Wait* wait);

  uint64_t last_id_ = 0;
  uint64_t keys_ = 0;
  std::unordered_map<uint64_t, Wait> waits_;
  std::unordered_map<BlockName, std::set<uint64_t>, BlockNameHash> watchers_;
  std::set<std::pair<uint64_t, uint64_t>> deadlines_;
};

}  // namespace larder::node
