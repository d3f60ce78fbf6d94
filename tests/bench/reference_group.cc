// The limits alone: what this machine can do, without a store.
#include "tests/bench/limits.h"

namespace larder::bench {

namespace {

class ReferenceStage : public Stage {
 public:
  explicit ReferenceStage(const Options& options) : options_(options) {}

  Sample Measure(const LegSpec& leg, double seconds) override {
    const size_t first = leg.name.find('/');
    const size_t second = leg.name.find('/', first + 1);
    const size_t third = leg.name.find('/', second + 1);
    const std::string limit = leg.name.substr(first + 1, second - first - 1);
    const std::string verb = leg.name.substr(second + 1, third - second - 1);
    const Direction direction = verb == "put" ? Direction::kPut : Direction::kGet;
    for (const uint64_t block_bytes : {64ull << 10, 1ull << 20, 4ull << 20}) {
      if (leg.name.substr(third + 1) != SizeName(block_bytes)) continue;
      if (limit == "copy") return MeasureCopy(direction, block_bytes, options_, seconds);
      if (limit == "ucx_perftest") return MeasureUcxPerftest(block_bytes, seconds);
      return MeasureSockets(limit, direction, block_bytes, options_, seconds);
    }
    return {.error = "unknown size"};
  }
  Sample MeasureReference(const std::string&, double) override { return {}; }

 private:
  const Options options_;
};

class ReferenceGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override {
    std::vector<LegSpec> legs;
    const std::pair<const char*, const char*> limits[] = {{"sockets", "get"},
                                                          {"sockets", "put"},
                                                          {"sockets-stream", "get"},
                                                          {"sockets-parallel", "get"},
                                                          {"sockets-parallel", "put"},
                                                          {"copy", "get"},
                                                          {"copy", "put"},
                                                          {"ucx_perftest", "am"}};
    for (const auto& [limit, verb] : limits) {
      for (const char* size : {"64KiB", "1MiB", "4MiB"}) {
        legs.push_back({.name = std::string("reference/") + limit + "/" + verb + "/" + size, .unit = "GB/s"});
      }
    }
    return legs;
  }
  std::unique_ptr<Stage> SetUp(const Options& options, std::string*) const override {
    return std::make_unique<ReferenceStage>(options);
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> ReferenceGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<ReferenceGroup>());
  return groups;
}

}  // namespace larder::bench
