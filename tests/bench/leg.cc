#include "tests/bench/leg.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <set>

namespace larder::bench {

namespace {

std::atomic<bool> stop_asked{false};

struct Series {
  std::vector<Sample> samples;
  double MedianOf(double Sample::*field) const {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(sample.*field);
    return Median(values);
  }
  Sample MedianSample() const {
    Sample median;
    median.value = MedianOf(&Sample::value);
    median.p50_us = MedianOf(&Sample::p50_us);
    median.p99_us = MedianOf(&Sample::p99_us);
    median.cpu_s_per_gib = MedianOf(&Sample::cpu_s_per_gib);
    for (const Sample& sample : samples) {
      if (!sample.error.empty()) median.error = sample.error;
      median.detail = sample.detail;
    }
    return median;
  }
};

double MedianRatio(const Series& leg, const Series& reference, double Sample::*field) {
  std::vector<double> ratios;
  for (size_t i = 0; i < leg.samples.size() && i < reference.samples.size(); ++i) {
    if (reference.samples[i].*field > 0)
      ratios.push_back(leg.samples[i].*field / (reference.samples[i].*field));
  }
  return Median(ratios);
}

double SpreadOf(const Series& series) {
  const auto less = [](const Sample& a, const Sample& b) { return a.value < b.value; };
  const auto [low, high] = std::minmax_element(series.samples.begin(), series.samples.end(), less);
  const double median = series.MedianOf(&Sample::value);
  return median > 0 ? (high->value - low->value) / median : 0;
}

class Schedule {
 public:
  Schedule(Stage* stage, const std::vector<LegSpec>& wanted, const Options& options)
      : stage_(stage), wanted_(wanted), options_(options) {
    for (const LegSpec& leg : wanted) {
      if (!leg.reference.empty()) references_.insert(leg.reference);
    }
  }

  // Legs and limits in turn, beginning one further in each round, so that none always follows the same other.
  void Run() {
    std::vector<std::string> turns(references_.begin(), references_.end());
    for (const LegSpec& leg : wanted_) turns.push_back(leg.name);
    const bool once =
        std::all_of(wanted_.begin(), wanted_.end(), [](const LegSpec& leg) { return leg.once; });
    const int rounds = once ? 1 : options_.repeat;
    for (int round = 0; round < rounds; ++round) {
      if (!options_.quiet) {
        std::fprintf(stderr, "\r  %s: round %d of %d   ", wanted_.front().name.c_str(), round + 1, rounds);
      }
      for (size_t i = 0; i < turns.size() && !StopAsked(); ++i) {
        Turn(turns[(i + size_t(round)) % turns.size()], round);
      }
    }
    if (!options_.quiet) std::fprintf(stderr, "\r%60s\r", "");
  }

  std::vector<LegResult> Results() {
    std::vector<LegResult> results;
    for (const LegSpec& leg : wanted_) {
      const Series& series = series_[leg.name];
      LegResult result{.leg = leg, .median = series.MedianSample(), .spread = SpreadOf(series)};
      if (!leg.reference.empty()) {
        const Series& reference = series_[leg.reference];
        result.reference = reference.MedianSample();
        result.ratio = MedianRatio(series, reference, &Sample::value);
        result.cpu_ratio = MedianRatio(series, reference, &Sample::cpu_s_per_gib);
      }
      results.push_back(std::move(result));
    }
    return results;
  }

 private:
  void Turn(const std::string& name, int round) {
    for (const LegSpec& leg : wanted_) {
      if (leg.name == name) {
        if (!leg.once || round == 0) series_[name].samples.push_back(stage_->Measure(leg, options_.seconds));
        return;
      }
    }
    series_[name].samples.push_back(stage_->MeasureReference(name, options_.seconds));
  }

  Stage* stage_;
  const std::vector<LegSpec>& wanted_;
  const Options& options_;
  std::set<std::string> references_;
  std::map<std::string, Series> series_;
};

}  // namespace

void AskToStop() {
  stop_asked.store(true);
}
bool StopAsked() {
  return stop_asked.load();
}

std::vector<LegResult> RunGroup(const Group& group, const std::vector<LegSpec>& wanted,
                                const Options& options) {
  std::string error;
  const std::unique_ptr<Stage> stage = group.SetUp(options, &error);
  if (stage == nullptr) {
    std::vector<LegResult> results;
    for (const LegSpec& leg : wanted) results.push_back({.leg = leg, .median = {.error = error}});
    return results;
  }
  Schedule schedule(stage.get(), wanted, options);
  schedule.Run();
  return schedule.Results();
}

std::string SizeName(uint64_t bytes) {
  if (bytes >= (1 << 20) && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + "MiB";
  return std::to_string(bytes >> 10) + "KiB";
}

}  // namespace larder::bench
