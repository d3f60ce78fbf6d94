// What a client of the chaos run has seen, and what of it is a fault.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/chaos/control_timer.h"

namespace larder::chaos {

// A call that was made and has ended.
struct Ended {
  std::string what;  // "get", "put", ...
  uint64_t begin_us = 0, end_us = 0;
  uint64_t bound_us = 0;  // its deadline, from begin_us
  uint32_t items = 0;
  uint32_t hits = 0;
  uint32_t failed = 0;  // items of a get that no node answered in time
};

// Thread-safe.
class Tally {
 public:
  explicit Tally(const ControlTimer* timer) : timer_(timer) {}

  void Note(const Ended& call);
  void Count(const std::string& name, uint64_t by = 1);
  void Wrong(const std::string& what);  // wrong bytes: `what` says whose and where

  nlohmann::json Json() const;
  // Of the gets that were under way or begun between the two: how long they took from `from_us` on.
  nlohmann::json Window(uint64_t from_us, uint64_t to_us) const;

 private:
  const ControlTimer* const timer_;
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;
  std::vector<std::string> wrong_, overran_;  // the first few
  uint64_t wrong_blocks_ = 0;
  uint64_t gets_overran_ = 0, others_overran_ = 0;
  Ended longest_get_;              // by its time
  int64_t latest_us_ = INT64_MIN;  // the get that ended latest against its deadline, by how much
  uint64_t worst_timer_us_ = 0;    // beside gets that were late at all
  std::deque<Ended> gets_;         // of the last half minute
};

}  // namespace larder::chaos
