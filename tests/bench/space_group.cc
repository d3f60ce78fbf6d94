// How much of a full node's memory is payload.
#include "tests/bench/store.h"

namespace larder::bench {

namespace {

// Sizes of a model's blocks are odd: whole pages, a few bytes over a page, large and small.
constexpr uint64_t kSizes[] = {1 << 20, (1 << 20) + 4096 * 37 + 64, 2 << 20, (5 << 20) / 2 + 512, 5 << 20};

class SpaceStage : public Stage {
 public:
  bool SetUp(const Options& options, std::string* error) {
    NodeSpec spec{
        .program = options.node_program, .memory_bytes = options.working_set_bytes, .transport = "tcp"};
    node_ = NodeProcess::Start(spec, error);
    if (node_ == nullptr) return false;
    Store store = OpenStore(node_->data_address(), "tcp", true, error);
    if (store.client == nullptr) return false;
    // Three times the memory, sizes in turn. Looked at after each round of sizes from the second filling on,
    // when what is resident came after evictions of every size: one look alone may fall on a slab that is
    // just being emptied for another size, 1/64 of the memory.
    uint64_t put_bytes = 0, family = 100;
    while (put_bytes < 3 * options.working_set_bytes) {
      for (const uint64_t block_bytes : kSizes) {
        if (!FillNode(&store, family++, block_bytes, 4, error)) return false;
        put_bytes += block_bytes * 4;
      }
      if (put_bytes < 2 * options.working_set_bytes) continue;
      const double payload = node_->Metric("larder_memory_bytes{kind=\"payload\"}");
      capacity_shares_.push_back(100 * payload / node_->Metric("larder_memory_bytes{kind=\"capacity\"}"));
      slot_shares_.push_back(100 * payload / node_->Metric("larder_memory_bytes{kind=\"slots\"}"));
    }
    return true;
  }

  Sample Measure(const LegSpec& leg, double) override {
    return {.value = Median(leg.name == "payload-share/slots" ? slot_shares_ : capacity_shares_)};
  }
  Sample MeasureReference(const std::string&, double) override { return {}; }

 private:
  std::unique_ptr<NodeProcess> node_;
  std::vector<double> capacity_shares_, slot_shares_;  // in percent, one of each a look
};

class SpaceGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override {
    return {{.name = "payload-share/capacity", .unit = "%", .once = true},
            {.name = "payload-share/slots", .unit = "%", .once = true}};
  }
  std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const override {
    auto stage = std::make_unique<SpaceStage>();
    if (!stage->SetUp(options, error)) return nullptr;
    return stage;
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> SpaceGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<SpaceGroup>());
  return groups;
}

}  // namespace larder::bench
