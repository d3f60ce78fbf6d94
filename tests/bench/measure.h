// What every leg of the bench measures, and the clocks it is measured with.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace larder::bench {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// One repetition of one leg. `value` is GB/s (1e9 bytes) or, for latency legs, microseconds.
struct Sample {
  double value = 0;
  double p50_us = 0;  // of one batch, or one match
  double p99_us = 0;
  double cpu_s_per_gib = 0;  // both sides; 0: not measured
  std::string detail;        // which variant was best, for people
  std::string error;         // not empty: the leg could not run, and why
};

uint64_t NowUs();        // CLOCK_MONOTONIC
double OwnCpuSeconds();  // user and system time of this process
// The same of another live process; negative when it is gone.
double CpuSecondsOf(pid_t pid);

// The value below which `share` (0..1) of the values lie; 0 for none. Sorts.
double Percentile(std::vector<double>* values, double share);
double Median(std::vector<double> values);

// Page-aligned anonymous memory, touched, with the kernel's default page size (the node's arena has no better
// one unless the machine has reserved huge pages).
class TouchedMemory {
 public:
  explicit TouchedMemory(size_t bytes);
  ~TouchedMemory();
  TouchedMemory(const TouchedMemory&) = delete;
  TouchedMemory& operator=(const TouchedMemory&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Bytes that depend on the seed alone, at memory speed.
void FillPattern(std::byte* data, size_t bytes, uint64_t seed);

}  // namespace larder::bench
