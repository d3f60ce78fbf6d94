#include "tests/chaos/tally.h"

#include <algorithm>

namespace larder::chaos {

namespace {

constexpr uint64_t kExcusedUs = 20'000;  // beyond what the control timer was late
constexpr uint64_t kGetsKeptUs = 30'000'000;
constexpr size_t kExamples = 8;

double Ms(double us) {
  return us / 1'000;
}

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) return 0;
  std::sort(values->begin(), values->end());
  return (*values)[std::min(values->size() - 1, static_cast<size_t>(share * double(values->size())))];
}

}  // namespace

void Tally::Note(const Ended& call) {
  const uint64_t took_us = call.end_us - call.begin_us;
  const uint64_t late_us = took_us > call.bound_us ? took_us - call.bound_us : 0;
  const uint64_t excuse_us = late_us == 0 ? 0 : timer_->WorstLateUs(call.begin_us, call.end_us);
  const bool overran = late_us > excuse_us + kExcusedUs;
  const std::lock_guard lock(mutex_);
  ++counts_[call.what + (call.what == "match" ? "es" : "s")];
  if (overran && overran_.size() < kExamples) {
    overran_.push_back(call.what + " begun at " + std::to_string(call.begin_us) + " us took " +
                       std::to_string(took_us) + " us of " + std::to_string(call.bound_us) +
                       " us; the control timer was late by " + std::to_string(excuse_us) + " us");
  }
  if (call.what != "get") {
    others_overran_ += overran;
    return;
  }
  gets_overran_ += overran;
  worst_timer_us_ = std::max(worst_timer_us_, excuse_us);
  if (took_us > longest_get_.end_us - longest_get_.begin_us) longest_get_ = call;
  latest_us_ = std::max(latest_us_, static_cast<int64_t>(took_us) - static_cast<int64_t>(call.bound_us));
  gets_.push_back(call);
  while (gets_.front().end_us + kGetsKeptUs < call.end_us) gets_.pop_front();
}

void Tally::Count(const std::string& name, uint64_t by) {
  const std::lock_guard lock(mutex_);
  counts_[name] += by;
}

void Tally::Wrong(const std::string& what) {
  const std::lock_guard lock(mutex_);
  ++wrong_blocks_;
  if (wrong_.size() < kExamples) wrong_.push_back(what);
}

nlohmann::json Tally::Json() const {
  const std::lock_guard lock(mutex_);
  return {{"counts", counts_},
          {"wrong_blocks", wrong_blocks_},
          {"wrong", wrong_},
          {"gets_overran", gets_overran_},
          {"others_overran", others_overran_},
          {"overran", overran_},
          {"longest_get_ms", Ms(double(longest_get_.end_us - longest_get_.begin_us))},
          {"longest_get_bound_ms", Ms(double(longest_get_.bound_us))},
          {"latest_get_ms", latest_us_ == INT64_MIN ? 0 : Ms(double(latest_us_))},
          {"worst_timer_ms", Ms(double(worst_timer_us_))}};
}

nlohmann::json Tally::Window(uint64_t from_us, uint64_t to_us) const {
  const std::lock_guard lock(mutex_);
  std::vector<double> took, beyond;  // milliseconds; beyond a quarter of the deadline
  uint64_t items = 0, failed = 0;
  for (const Ended& get : gets_) {
    if (get.end_us < from_us || get.begin_us > to_us) continue;
    const double took_us = double(get.end_us - std::max(get.begin_us, from_us));
    took.push_back(Ms(took_us));
    beyond.push_back(Ms(took_us - double(get.bound_us) / 4));
    items += get.items;
    failed += get.failed;
  }
  return {{"took_ms", took},  {"beyond_quarter_ms", beyond},      {"items", items},
          {"failed", failed}, {"p50_ms", Percentile(&took, 0.5)}, {"p99_ms", Percentile(&took, 0.99)}};
}

}  // namespace larder::chaos
