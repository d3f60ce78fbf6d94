// Gets and puts of blocks at three sizes, over each transport, beside its limit.
#include <mutex>
#include <thread>

#include "tests/bench/limits.h"
#include "tests/bench/store.h"

namespace larder::bench {

namespace {

struct Subject {
  Direction direction;
  std::string transport;
  uint64_t block_bytes;
};

constexpr int kCallers = 2;  // of getparallel

class BlockStage : public Stage {
 public:
  BlockStage(const Subject& subject, const Options& options) : subject_(subject), options_(options) {}

  bool SetUp(std::string* error) {
    resident_blocks_ = options_.working_set_bytes / subject_.block_bytes;
    NodeSpec spec{.program = options_.node_program, .transport = subject_.transport};
    // Puts go round in the same memory that gets walk over, by eviction.
    spec.memory_bytes = options_.working_set_bytes;
    if (subject_.direction == Direction::kGet) spec.memory_bytes += options_.working_set_bytes / 8;
    node_ = NodeProcess::Start(spec, error);
    if (node_ == nullptr) return false;
    for (const bool verify : {true, false}) {
      Store& store = stores_[verify ? 1 : 0];
      store = OpenStore(node_->data_address(), subject_.transport, verify, error);
      if (store.client == nullptr) return false;
    }
    const size_t batch_bytes = subject_.block_bytes * kBatchBlocks;
    for (auto& memory : ordinary_) memory = std::make_unique<TouchedMemory>(batch_bytes);
    for (auto& memory : ordinary_) FillPattern(memory->data(), memory->bytes(), 11);
    auto buffer = stores_[1].client->AllocateBuffer(batch_bytes);
    if (!buffer.ok()) {
      *error = "no library buffer: " + buffer.status().ToString();
      return false;
    }
    library_ = std::move(buffer).value();
    FillPattern(library_->data(), batch_bytes, 11);
    return FillNode(&stores_[1], 0, subject_.block_bytes, resident_blocks_, error) && WarmUp(error);
  }

  Sample Measure(const LegSpec& leg, double seconds) override {
    const auto has = [&leg](const char* word) { return leg.name.find(word) != std::string::npos; };
    Store* store = &stores_[has("/noverify") ? 0 : 1];
    const LoopOptions loop = Loop(seconds);
    if (subject_.direction == Direction::kPut) {
      const bool library = subject_.transport != "tcp" && !has("/ordinary");
      return PutLoop(store, loop, library ? Library() : Ordinary(0));
    }
    if (has("getstream/")) return GetStreamLoop(store, loop, Ordinary(0), Ordinary(1));
    if (has("getparallel/")) return Parallel(store, loop);
    return GetLoop(store, loop, subject_.transport == "ucx" ? Library() : Ordinary(0));
  }

  Sample MeasureReference(const std::string& reference, double seconds) override {
    if (reference == "copy") return MeasureCopy(subject_.direction, subject_.block_bytes, options_, seconds);
    if (reference == "ucx_perftest") return MeasureUcxPerftest(subject_.block_bytes, seconds);
    return MeasureSockets(reference, subject_.direction, subject_.block_bytes, options_, seconds);
  }

 private:
  LoopOptions Loop(double seconds) {
    return {.block_bytes = subject_.block_bytes,
            .resident_blocks = resident_blocks_,
            .cursor = &cursor_,
            .seconds = seconds,
            .node_pid = node_->pid()};
  }
  BatchMemory Ordinary(size_t index) { return {ordinary_[index]->data(), ordinary_[index]->bytes()}; }
  BatchMemory Library() { return {library_->data(), library_->bytes()}; }

  // Opens the connections and lets TCP's windows grow; over shm it maps the slabs.
  bool WarmUp(std::string* error) {
    for (Store& store : stores_) {
      const Sample sample = subject_.direction == Direction::kGet ? GetLoop(&store, Loop(0.2), Ordinary(0))
                                                                  : PutLoop(&store, Loop(0.2), Ordinary(0));
      if (!sample.error.empty()) {
        *error = sample.error;
        return false;
      }
    }
    return true;
  }

  // Several callers of one client, a batch each.
  Sample Parallel(Store* store, const LoopOptions& loop) {
    std::mutex mutex;
    std::vector<Sample> samples;
    std::vector<std::thread> callers;
    const double cpu = OwnCpuSeconds() + CpuSecondsOf(node_->pid());
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] {
        LoopOptions own = loop;
        uint64_t cursor = resident_blocks_ / kCallers * uint64_t(i);
        own.cursor = &cursor;
        const Sample sample = GetLoop(store, own, Ordinary(size_t(i)));
        const std::lock_guard lock(mutex);
        samples.push_back(sample);
      });
    }
    for (std::thread& caller : callers) caller.join();
    Sample all = samples[0];
    for (size_t i = 1; i < samples.size(); ++i) {
      all.value += samples[i].value;
      if (!samples[i].error.empty()) all.error = samples[i].error;
    }
    const double used = OwnCpuSeconds() + CpuSecondsOf(node_->pid()) - cpu;
    all.cpu_s_per_gib = used / (all.value * loop.seconds * 1e9 / kGib);
    return all;
  }

  const Subject subject_;
  const Options options_;
  uint64_t resident_blocks_ = 0;
  uint64_t cursor_ = 0;
  std::unique_ptr<TouchedMemory> ordinary_[kCallers];
  std::unique_ptr<NodeProcess> node_;
  Store stores_[2];  // [verifies]
  std::unique_ptr<Buffer> library_;
};

class BlockGroup : public Group {
 public:
  explicit BlockGroup(Subject subject) : subject_(std::move(subject)) {}

  std::vector<LegSpec> legs() const override {
    const bool get = subject_.direction == Direction::kGet;
    const bool tcp = subject_.transport == "tcp";
    const bool one_mib = subject_.block_bytes == 1 << 20;
    const std::string limit = tcp ? "sockets" : subject_.transport == "shm" ? "copy" : "ucx_perftest";
    const std::string where = "/" + subject_.transport + "/" + SizeName(subject_.block_bytes);
    std::vector<LegSpec> legs;
    const auto add = [&legs](const std::string& name, const std::string& reference, bool canonical) {
      legs.push_back({.name = name, .unit = "GB/s", .reference = reference, .canonical = canonical});
    };
    add((get ? "get" : "put") + where, limit, subject_.transport != "ucx");
    if (get && tcp) add("get" + where + "/noverify", limit, false);
    if (get && tcp && one_mib) {
      add("getstream" + where, limit, false);
      add("getstream" + where + "/noverify", limit, false);
      add("getparallel" + where, "sockets-parallel", false);
      add("getparallel" + where + "/noverify", "sockets-parallel", false);
    }
    if (!get && !tcp && one_mib) add("put" + where + "/ordinary", limit, false);
    return legs;
  }

  std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const override {
    auto stage = std::make_unique<BlockStage>(subject_, options);
    if (!stage->SetUp(error)) return nullptr;
    return stage;
  }

 private:
  const Subject subject_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> BlockGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  for (const char* transport : {"tcp", "shm", "ucx"}) {
    for (const Direction direction : {Direction::kGet, Direction::kPut}) {
      for (const uint64_t block_bytes : {64ull << 10, 1ull << 20, 4ull << 20}) {
        groups.push_back(std::make_unique<BlockGroup>(Subject{direction, transport, block_bytes}));
      }
    }
  }
  return groups;
}

}  // namespace larder::bench
