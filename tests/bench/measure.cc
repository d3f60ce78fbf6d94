#include "tests/bench/measure.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace larder::bench {

namespace {

double Seconds(const timespec& time) {
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

}  // namespace

uint64_t NowUs() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return uint64_t(time.tv_sec) * 1'000'000 + uint64_t(time.tv_nsec) / 1000;
}

double OwnCpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return Seconds(time);
}

double CpuSecondsOf(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return -1;
  return Seconds(time);
}

double Percentile(std::vector<double>* values, double share) {
  if (values->empty()) return 0;
  std::sort(values->begin(), values->end());
  const auto rank = static_cast<size_t>(std::ceil(share * double(values->size())));
  return (*values)[std::min(values->size(), std::max<size_t>(rank, 1)) - 1];
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

TouchedMemory::TouchedMemory(size_t bytes) : bytes_(bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    std::fprintf(stderr, "larder-bench: no %zu bytes of memory; try --working-set with less\n", bytes);
    std::exit(2);
  }
  data_ = static_cast<std::byte*>(memory);
}

TouchedMemory::~TouchedMemory() {
  munmap(data_, bytes_);
}

void FillPattern(std::byte* data, size_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    std::memcpy(data + at, &state, 8);
  }
  if (at < bytes) std::memcpy(data + at, &state, bytes - at);
}

}  // namespace larder::bench
