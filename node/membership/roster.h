// What is known of a cluster that has no master: one fact a node, and what follows from them. Pure: no clock,
// no thread, no socket.
//
// Facts of one id are ordered, and of two the later one is kept (Fact::operator<). So it does not matter in
// which order, by whom or how often they are told: nodes that have told each other everything have the same
// roster. A node alone raises its own version; others may only add that it is away. The table's epoch is a
// sum that every later fact raises: equal rosters have equal epochs, a later one has a higher one.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/placement.h"

namespace larder::node {

struct Fact {
  NodeRecord record;     // only the id when `gone`
  uint64_t version = 0;  // 1..kVersionMax; the node raises it with whatever it says anew of itself
  bool gone = false;     // it gave its place up

  bool away() const { return !gone && record.state == NodeState::kAway; }
};

bool Later(const Fact& a, const Fact& b);  // of one id

class Roster {
 public:
  static constexpr uint64_t kVersionMax = uint64_t{1} << 32;
  static constexpr uint64_t kFoundedMinutesMax = uint64_t{1} << 32;
  static constexpr uint64_t kEpochsAMinute = 1'000'000;

  // True: it was news. Ids are never forgotten, so that what is gone stays gone; beyond kNodesMax a new one
  // is not taken.
  bool Merge(const Fact& fact);
  // When the cluster began; the latest is kept. A cluster that all nodes forgot begins anew, above the epochs
  // that its clients may still know.
  bool MergeFounded(uint64_t minutes);

  bool empty() const { return facts_.empty(); }
  uint64_t founded_minutes() const { return founded_minutes_; }
  const std::map<std::string, Fact>& facts() const { return facts_; }
  const Fact* Find(std::string_view id) const;
  uint64_t epoch() const;
  NodeTable Table() const;
  Digest digest() const;  // equal rosters, equal digests

 private:
  uint64_t founded_minutes_ = 0;
  uint64_t sum_ = 0;
  std::map<std::string, Fact> facts_;
};

}  // namespace larder::node
