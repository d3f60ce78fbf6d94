#include "tests/bench/sim/sim_trace.h"

#include <cstring>
#include <filesystem>

#include "tests/demo/workload.h"

namespace larder::sim {

namespace {
constexpr uint64_t kBlockTokens = 512;  // of the format

uint64_t Mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}
}  // namespace

SimTraceBuilder::SimTraceBuilder(std::string name) : table_(1 << 10) {
  trace_.name = std::move(name);
}

void SimTraceBuilder::Add(uint64_t now_us, std::span<const uint64_t> blocks, bool partial_end) {
  SimRequest request{now_us, trace_.blocks.size(), 0};
  const auto cell_of = [this](uint64_t name) -> auto& {
    size_t cell = Mix(name) & (table_.size() - 1);
    while (table_[cell].first != 0 && table_[cell].first != name + 1) cell = (cell + 1) & (table_.size() - 1);
    return table_[cell];
  };
  for (const uint64_t name : blocks) {
    auto* cell = &cell_of(name);
    if (cell->first == 0) {
      if (trace_.distinct >= table_.size() / 2) {
        auto old = std::exchange(table_, std::vector<std::pair<uint64_t, uint32_t>>(table_.size() * 2));
        for (const auto& entry : old) {
          if (entry.first != 0) cell_of(entry.first - 1) = entry;
        }
        cell = &cell_of(name);
      }
      *cell = {name + 1, trace_.distinct++};
    }
    trace_.blocks.push_back(cell->second);
  }
  trace_.partial.resize(trace_.distinct);
  if (!blocks.empty() && partial_end) trace_.partial[trace_.blocks.back()] = 1;
  request.end = trace_.blocks.size();
  trace_.requests.push_back(request);
}

Result<SimTrace> ReadSimTrace(const std::string& path) {
  Result<std::vector<demo::Request>> read = demo::ReadTrace(path);
  if (!read.ok()) return read.status();
  SimTraceBuilder builder(std::filesystem::path(path).stem().string());
  for (const demo::Request& request : read.value()) {
    const bool partial = request.tokens != 0 && request.tokens < kBlockTokens * request.blocks.size();
    builder.Add(request.at_ms * 1000, request.blocks, partial);
  }
  return builder.Take();
}

uint64_t KeyOfBlock(uint32_t block) {
  return Mix(uint64_t{block} + 0x9e3779b97f4a7c15ull);
}

ChainHash HashOfBlock(uint32_t block) {
  ChainHash hash;
  for (uint64_t i = 0; i < 4; ++i) {
    const uint64_t word = Mix(KeyOfBlock(block) + i * 0x9e3779b97f4a7c15ull);
    std::memcpy(hash.bytes.data() + i * 8, &word, sizeof word);
  }
  return hash;
}

}  // namespace larder::sim
