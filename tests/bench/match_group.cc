// Matches of long chains against a node full of keys, idle and while gets saturate it, and what its keys cost
// in memory.
#include <cmath>

#include "tests/bench/limits.h"
#include "tests/bench/process.h"
#include "tests/bench/store.h"

namespace larder::bench {

namespace {

constexpr uint64_t kLoadFamily = 2;
constexpr uint64_t kLoadBlockBytes = 1 << 20;
constexpr uint64_t kLoadBlocks = 256;

struct Subject {
  std::string prefix;  // of the legs' names
  uint64_t keys;       // resident; 0: as the options say
  uint64_t block_bytes;
  std::vector<uint64_t> chains;
  std::string suffix;  // of the legs' names
  bool load;           // legs while gets saturate the node
  bool metadata;       // legs on memory
};

// Length of the chain in "match/tcp/8192/busy" or "match/tcp/16384x64KiB".
uint64_t ChainOf(const std::string& name) {
  size_t at = name.find('/');
  at = name.find('/', at + 1);
  return std::stoull(name.substr(at + 1));
}

class MatchStage : public Stage {
 public:
  MatchStage(const Subject& subject, const Options& options) : subject_(subject), options_(options) {}
  ~MatchStage() override { StopLoad(); }

  bool SetUp(std::string* error) {
    keys_ = subject_.keys != 0 ? subject_.keys : options_.match_keys;
    // With shm, slabs are shared memory: what is anonymous is metadata, and weighed as that.
    NodeSpec spec{.program = options_.node_program, .transport = "shm"};
    const uint64_t slot_bytes = std::max<uint64_t>(subject_.block_bytes, 64) + 512;  // with its header
    spec.memory_bytes = keys_ * slot_bytes + kLoadBlocks * kLoadBlockBytes * 5 / 4 + (256 << 20);
    node_ = NodeProcess::Start(spec, error);
    if (node_ == nullptr) return false;
    store_ = OpenStore(node_->data_address(), "tcp", true, error);
    // The load's blocks first: they open connections and size the node's buffers before its memory is
    // weighed.
    if (store_.client == nullptr || !FillNode(&store_, kLoadFamily, kLoadBlockBytes, kLoadBlocks, error))
      return false;
    const uint64_t before_bytes = node_->AnonymousBytes();
    if (!FillNode(&store_, 0, subject_.block_bytes, keys_, error)) return false;
    grown_bytes_ = double(node_->AnonymousBytes()) - double(before_bytes);
    chain_.resize(size_t(std::min<uint64_t>(keys_, kHashesMax)));
    for (size_t i = 0; i < chain_.size(); ++i) chain_[i] = HashOf(0, i);
    return true;
  }

  Sample Measure(const LegSpec& leg, double seconds) override {
    if (leg.name == "metadata/rss") return {.value = grown_bytes_ / double(keys_)};
    if (leg.name == "metadata/count") {
      const double bytes = node_->Metric("larder_memory_bytes{kind=\"metadata\"}");
      return {.value = bytes / node_->Metric("larder_pieces")};
    }
    const bool busy = leg.name.find("/busy") != std::string::npos;
    busy ? StartLoad() : StopLoad();
    const Sample sample = MatchLoop(ChainOf(leg.name), seconds);
    if (busy && !IsAlive(load_)) return {.error = "the load ended before its time"};
    StopLoad();
    return sample;
  }

  Sample MeasureReference(const std::string& reference, double seconds) override {
    const uint64_t keys = std::stoull(reference.substr(reference.find('/') + 1));
    return MeasureEcho(keys * sizeof(ChainHash), keys, options_, seconds);
  }

 private:
  Sample MatchLoop(uint64_t keys, double seconds) {
    if (keys > chain_.size())
      return {.error = "the chain is longer than what is resident: raise --match-keys"};
    const MatchRequest request{.chain = std::span(chain_).first(keys)};
    std::vector<double> match_us;
    const uint64_t end_us = NowUs() + uint64_t(seconds * 1e6);
    for (uint64_t now_us = NowUs(); now_us < end_us;) {
      const MatchResult result = store_.client->Match(store_.name_space, request);
      const uint64_t done_us = NowUs();
      if (!result.status.ok() || result.usable_length != keys) {
        return {.error = "a match found " + std::to_string(result.usable_length) + " of " +
                         std::to_string(keys) + " keys " + result.status.ToString()};
      }
      match_us.push_back(double(done_us - now_us));
      now_us = done_us;
    }
    Sample sample;
    sample.p50_us = Percentile(&match_us, 0.50);
    sample.p99_us = Percentile(&match_us, 0.99);
    sample.value = sample.p50_us;
    sample.detail = std::to_string(match_us.size()) + " matches";
    return sample;
  }

  // Another process that gets as fast as it can, two batches in flight.
  void StartLoad() {
    if (load_ > 0) return;
    load_ = Spawn({.argv = {options_.own_program, "load", "--address", node_->data_address()}});
    const double before = node_->Metric("larder_get_bytes_total");
    for (int i = 0; i < 200 && node_->Metric("larder_get_bytes_total") <= before; ++i) usleep(10'000);
  }
  void StopLoad() {
    if (load_ > 0) End(load_, 3000);
    load_ = -1;
  }

  const Subject subject_;
  const Options options_;
  uint64_t keys_ = 0;
  double grown_bytes_ = 0;
  std::unique_ptr<NodeProcess> node_;
  Store store_;
  std::vector<ChainHash> chain_;
  pid_t load_ = -1;
};

class MatchGroup : public Group {
 public:
  explicit MatchGroup(Subject subject) : subject_(std::move(subject)) {}

  std::vector<LegSpec> legs() const override {
    std::vector<LegSpec> legs;
    for (const uint64_t chain : subject_.chains) {
      const std::string name = subject_.prefix + std::to_string(chain) + subject_.suffix;
      const std::string limit = "sockets/" + std::to_string(chain);
      legs.push_back({.name = name, .unit = "us", .reference = limit});
      if (subject_.load) legs.push_back({.name = name + "/busy", .unit = "us", .reference = limit});
    }
    if (subject_.metadata) {
      legs.push_back({.name = "metadata/count", .unit = "B/block", .once = true});
      legs.push_back({.name = "metadata/rss", .unit = "B/block", .once = true});
    }
    return legs;
  }

  std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const override {
    auto stage = std::make_unique<MatchStage>(subject_, options);
    if (!stage->SetUp(error)) return nullptr;
    return stage;
  }

 private:
  const Subject subject_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> MatchGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  // Small blocks: a match never looks at their bytes.
  groups.push_back(
      std::make_unique<MatchGroup>(Subject{"match/tcp/", 0, 64, {512, 8192, 65536}, "", true, true}));
  // A million tokens in blocks of 64, 64 KiB each.
  groups.push_back(
      std::make_unique<MatchGroup>(Subject{"match/tcp/", 16384, 64 << 10, {16384}, "x64KiB", false, false}));
  return groups;
}

int RunLoad(const std::string& address) {
  std::string error;
  Store store = OpenStore(address, "tcp", true, &error);
  if (store.client == nullptr) {
    std::fprintf(stderr, "larder-bench load: %s\n", error.c_str());
    return 1;
  }
  TouchedMemory first(kLoadBlockBytes * kBatchBlocks), second(kLoadBlockBytes * kBatchBlocks);
  uint64_t cursor = 0;
  LoopOptions loop{.family = kLoadFamily,
                   .block_bytes = kLoadBlockBytes,
                   .resident_blocks = kLoadBlocks,
                   .cursor = &cursor,
                   .seconds = 3600,
                   .node_pid = getpid()};
  const Sample sample =
      GetStreamLoop(&store, loop, {first.data(), first.bytes()}, {second.data(), second.bytes()});
  if (!sample.error.empty()) std::fprintf(stderr, "larder-bench load: %s\n", sample.error.c_str());
  return sample.error.empty() ? 0 : 1;
}

}  // namespace larder::bench
