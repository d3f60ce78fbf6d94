// What a match costs its client when the chain has sixty-four homes. The nodes are doubles in a process of
// their own: what is measured is the client's CPU, and that of theirs is not in it.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "tests/bench/process.h"
#include "tests/bench/store.h"
#include "tests/support/fake_node.h"

namespace larder::bench {

namespace {

constexpr size_t kNodes = 64;
constexpr uint64_t kKeys = 8192;
constexpr uint64_t kFamily = 7;

class FleetStage : public Stage {
 public:
  ~FleetStage() override {
    store_.client.reset();
    if (fleet_ > 0) End(fleet_, 5000);
  }

  bool SetUp(const Options& options, std::string* error) {
    int output[2];
    if (pipe2(output, O_CLOEXEC) != 0) return false;
    fleet_ =
        Spawn({.argv = {options.own_program, "fleet"}, .output_fd = output[1], .error_fd = STDERR_FILENO});
    close(output[1]);
    FILE* lines = fdopen(output[0], "r");
    char address[64] = "";
    const bool ready = lines != nullptr && std::fscanf(lines, "%63s", address) == 1;
    if (lines != nullptr) std::fclose(lines);
    if (!ready) {
      *error = "the fleet did not start";
      return false;
    }
    store_ = OpenStore(address, "tcp", true, error);
    if (store_.client == nullptr) return false;
    for (uint64_t i = 0; i < kKeys; ++i) chain_.push_back(HashOf(kFamily, i));
    return true;
  }

  Sample Measure(const LegSpec&, double seconds) override {
    std::vector<double> match_us;
    const MatchRequest request{.chain = chain_};
    const double before_s = OwnCpuSeconds();
    for (const uint64_t end_us = NowUs() + uint64_t(seconds * 1e6); NowUs() < end_us;) {
      const uint64_t begin_us = NowUs();
      const MatchResult result =
          store_.client->Match(store_.name_space, request, {.deadline_us = 10'000'000});
      match_us.push_back(double(NowUs() - begin_us));
      if (result.usable_length != kKeys) {
        return {.error = "a match found " + std::to_string(result.usable_length) + " of " +
                         std::to_string(kKeys) + " keys " + result.status.ToString()};
      }
    }
    Sample sample;
    sample.value = (OwnCpuSeconds() - before_s) / double(match_us.size()) * 1e6;
    sample.p50_us = Percentile(&match_us, 0.50);
    sample.p99_us = Percentile(&match_us, 0.99);
    sample.detail = std::to_string(match_us.size()) + " matches; CPU of the client, one match";
    return sample;
  }
  Sample MeasureReference(const std::string&, double) override { return {}; }

 private:
  pid_t fleet_ = -1;
  Store store_;
  std::vector<ChainHash> chain_;
};

class FleetGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override { return {{.name = "match/cluster64/8192/cpu", .unit = "us"}}; }
  std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const override {
    auto stage = std::make_unique<FleetStage>();
    if (!stage->SetUp(options, error)) return nullptr;
    return stage;
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> FleetGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<FleetGroup>());
  return groups;
}

int RunFleet() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before the nodes have threads
  std::vector<std::unique_ptr<testing::FakeNode>> nodes;
  NodeTable table;
  table.epoch = 1;
  for (size_t i = 0; i < kNodes; ++i) {
    nodes.push_back(std::make_unique<testing::FakeNode>("f" + std::to_string(i)));
    table.nodes.push_back(nodes.back()->record());
  }
  table.Normalize();
  const Placement placement(table);
  for (uint64_t i = 0; i < kKeys; ++i) {
    const ChainHash hash = HashOf(kFamily, i);
    const std::string& home = table.nodes[placement.Order(hash)[0]].id;
    const auto node = std::ranges::find(nodes, home, [](const auto& each) { return each->record().id; });
    (*node)->Store(hash, 0, {0, 1, 0, 1}, Bytes(64));
  }
  for (const auto& node : nodes) node->SetTable(table);
  std::printf("%s\n", nodes[0]->address().c_str());
  std::fflush(stdout);
  int number = 0;
  sigwait(&ends, &number);
  return 0;
}

}  // namespace larder::bench
