#include "tests/demo/report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "proto/units.h"
#include "tests/bench/http_get.h"
#include "tests/bench/measure.h"

namespace larder::demo {

namespace {

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

uint64_t Sum(const std::map<std::string, uint64_t>& counts) {
  uint64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

std::string Listed(const std::map<std::string, uint64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  }
  return text.empty() ? "none" : text;
}

double GbPerSecond(double bytes, double seconds) {
  return seconds > 0 ? bytes / seconds * 1e-9 : 0;
}

void Row(const char* name, const std::string& value) {
  std::printf("  %-34s %s\n", name, value.c_str());
}

std::string Format(const char* format, double a, double b = 0) {
  char text[96];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

}  // namespace

NodeMemory MemoryOf(const std::vector<std::string>& http_addresses) {
  NodeMemory memory;
  for (const std::string& address : http_addresses) {
    const std::string text = bench::HttpGet(address, "/metrics");
    if (text.empty()) continue;
    ++memory.nodes;
    memory.capacity_bytes += bench::MetricIn(text, "larder_memory_bytes{kind=\"capacity\"}");
    memory.slab_bytes += bench::MetricIn(text, "larder_memory_bytes{kind=\"slabs\"}");
    memory.payload_bytes += bench::MetricIn(text, "larder_memory_bytes{kind=\"payload\"}");
    memory.ssd_bytes += std::max(0.0, bench::MetricIn(text, "larder_ssd_bytes{kind=\"live\"}"));
    memory.ssd_capacity_bytes += std::max(0.0, bench::MetricIn(text, "larder_ssd_bytes{kind=\"capacity\"}"));
  }
  return memory;
}

std::string ProgressLine(const Totals& totals, size_t requests_in_all, double seconds) {
  char text[200];
  std::snprintf(
      text, sizeof(text),
      "%4.0f s  %zu of %zu requests, put %s, pulled %s, hits %.1f %% (ideal %.1f %%), %llu wrong bytes",
      seconds, size_t(totals.requests), requests_in_all, PrettyBytes(double(totals.bytes_put)).c_str(),
      PrettyBytes(double(totals.bytes_pulled)).c_str(), 100 * totals.hit_rate(),
      100 * totals.ideal_hit_rate(), static_cast<unsigned long long>(totals.wrong_bytes));
  return text;
}

void PrintTable(Totals* totals, const NodeMemory& memory) {
  const double pulled = double(totals->bytes_pulled), put = double(totals->bytes_put);
  std::printf("\n");
  Row("requests", std::to_string(totals->requests) + (totals->interrupted ? " (interrupted)" : ""));
  Row("blocks put", std::to_string(totals->blocks_put) + ", " + PrettyBytes(put));
  Row("blocks pulled", std::to_string(totals->blocks_pulled) + ", " + PrettyBytes(pulled));
  Row("prefix hit rate", Format("%.1f %% of blocks; ideal (endless memory) %.1f %%", 100 * totals->hit_rate(),
                                100 * totals->ideal_hit_rate()));
  Row("of them from", Listed(totals->hit_tiers));
  Row("pulls from", Listed(totals->pulled_tiers));
  Row("pulls that missed", Listed(totals->missed));
  Row("puts not stored", Listed(totals->not_stored));
  Row("pull, while pulling", Format("%.2f GB/s", GbPerSecond(pulled, Sum(totals->pull_us) * 1e-6)));
  Row("put, with making the blocks", Format("%.2f GB/s", GbPerSecond(put, totals->put_seconds)));
  Row("match of a prefix, p50 / p99", Format("%.0f / %.0f us", bench::Percentile(&totals->match_us, 0.50),
                                             bench::Percentile(&totals->match_us, 0.99)));
  Row("pull of up to 16 blocks, p50 / p99",
      Format("%.0f / %.0f us", bench::Percentile(&totals->pull_us, 0.50),
             bench::Percentile(&totals->pull_us, 0.99)));
  Row("decode's wait for prefill, p50 / p99",
      Format("%.0f / %.0f us", bench::Percentile(&totals->wait_us, 0.50),
             bench::Percentile(&totals->wait_us, 0.99)));
  Row("node memory", std::to_string(memory.nodes) + " nodes, " + PrettyBytes(memory.capacity_bytes) +
                         ", in use " + PrettyBytes(memory.slab_bytes) +
                         Format(", %.1f %% of it payload", 100 * memory.payload_share()));
  if (memory.ssd_capacity_bytes > 0) {
    Row("SSD", PrettyBytes(memory.ssd_capacity_bytes) + ", in use " + PrettyBytes(memory.ssd_bytes));
  }
  Row("decode's connections", Listed(totals->peers));
  Row("time", Format("%.1f s", totals->seconds));
  Row("wrong bytes", std::to_string(totals->wrong_bytes));
  if (!totals->failure.empty()) Row("FAILED", totals->failure);
  std::fflush(stdout);
}

void PrintRecovery(const Recovery& recovery) {
  const uint64_t held = recovery.held_ram + recovery.held_ssd;
  std::printf("\n%s was killed with -9 and started again\n", recovery.node.c_str());
  Row("blocks that it had",
      std::to_string(recovery.held_ram) + " ram, " + std::to_string(recovery.held_ssd) + " ssd");
  Row("hits that came back",
      std::to_string(recovery.back) + ", " + PrettyBytes(double(recovery.bytes_back)) +
          Format(", %.1f %% of them", held == 0 ? 0 : 100 * double(recovery.back) / double(held)));
  Row("lost with its memory", Listed(recovery.lost));
  Row("from the kill to the first hit", Format("%.2f s", recovery.seconds));
  Row("wrong bytes", std::to_string(recovery.wrong_bytes));
  if (!recovery.failure.empty()) Row("FAILED", recovery.failure);
  std::fflush(stdout);
}

bool WriteJson(Totals* totals, const NodeMemory& memory, const Recovery& recovery, const std::string& path) {
  const double pulled = double(totals->bytes_pulled);
  nlohmann::ordered_json object = {
      {"requests", totals->requests},
      {"blocks", totals->blocks},
      {"blocks_put", totals->blocks_put},
      {"bytes_put", totals->bytes_put},
      {"blocks_pulled", totals->blocks_pulled},
      {"bytes_pulled", totals->bytes_pulled},
      {"hits_by_tier", totals->hit_tiers},
      {"pulled_by_tier", totals->pulled_tiers},
      {"blocks_missed", Sum(totals->missed)},
      {"missed", totals->missed},
      {"puts_not_stored", Sum(totals->not_stored)},
      {"not_stored", totals->not_stored},
      {"hit_rate", totals->hit_rate()},
      {"ideal_hit_rate", totals->ideal_hit_rate()},
      {"wrong_bytes", totals->wrong_bytes},
      {"payload_share", memory.payload_share()},
      {"memory_bytes", uint64_t(memory.capacity_bytes)},
      {"ssd_bytes", uint64_t(memory.ssd_capacity_bytes)},
      {"match_p50_us", bench::Percentile(&totals->match_us, 0.50)},
      {"match_p99_us", bench::Percentile(&totals->match_us, 0.99)},
      {"pull_p50_us", bench::Percentile(&totals->pull_us, 0.50)},
      {"pull_p99_us", bench::Percentile(&totals->pull_us, 0.99)},
      {"wait_p99_us", bench::Percentile(&totals->wait_us, 0.99)},
      {"pull_gb_per_s", GbPerSecond(pulled, Sum(totals->pull_us) * 1e-6)},
      {"put_gb_per_s", GbPerSecond(double(totals->bytes_put), totals->put_seconds)},
      {"transports", totals->peers},
      {"seconds", totals->seconds},
      {"interrupted", totals->interrupted},
      {"failure", totals->failure}};
  if (!recovery.node.empty()) {
    object["recovery"] = {
        {"node", recovery.node},       {"held", {{"ram", recovery.held_ram}, {"ssd", recovery.held_ssd}}},
        {"came_back", recovery.back},  {"bytes_back", recovery.bytes_back},
        {"lost", recovery.lost},       {"wrong_bytes", recovery.wrong_bytes},
        {"seconds", recovery.seconds}, {"failure", recovery.failure}};
  }
  if (path == "-") {
    std::cout << object.dump() << std::endl;
    return bool(std::cout);
  }
  std::ofstream file(path);
  file << object.dump(2) << "\n";
  file.flush();
  return bool(file);
}

}  // namespace larder::demo
