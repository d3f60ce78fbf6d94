// Restarts over what is on SSD: how long until the first hit, and what a kill -9 under load costs.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "node/ssd/file_disk.h"
#include "node/ssd/ssd_tier.h"
#include "proto/checksum.h"
#include "tests/bench/leg.h"
#include "tests/bench/ssd_folder.h"
#include "tests/bench/store.h"

namespace larder::bench {
namespace {

constexpr uint64_t kSegmentBytes = 256ull << 20;
constexpr uint64_t kMemoryBytes = 64ull << 20;
constexpr uint64_t kSmallBytes = 512;       // of the many
constexpr uint64_t kBlockBytes = 64 << 10;  // of those under load
constexpr uint64_t kFamily = 700;
constexpr int kKills = 50;
constexpr uint64_t kPutsPerLife = 2048;

// A data directory of so many blocks, made by the tier itself: as a node leaves it.
class Filler : private node::ssd::TierSink {
 public:
  bool Fill(const std::string& directory, const Namespace& name_space, uint64_t blocks, std::string* error) {
    node::ssd::FileDiskOptions options;
    options.directory = {directory, "bench", "larder", kSegmentBytes, false};
    options.capacity_bytes = blocks * node::ssd::kPageBytes + 8 * kSegmentBytes;
    std::vector<std::string> remarks;
    auto disk = node::ssd::OpenFileDisk(options, &remarks);
    if (!disk.ok()) {
      *error = disk.status().text();
      return false;
    }
    std::vector<std::unique_ptr<node::ssd::Disk>> disks;
    disks.push_back(std::move(disk).value());
    node::ssd::SsdTier tier(node::ssd::TierOptions{}, std::move(disks));
    const uint32_t space = tier.OpenSpace({name_space, 0, "", "kind=opaque\n"});
    alignas(8) std::byte payload[kSmallBytes];
    FillBlock(payload, sizeof payload, 0);
    BlockHeader header;
    header.name_space = name_space;
    header.parts = {{kSmallBytes, Crc32c(0, {payload, kSmallBytes})}};
    std::vector<Bytes> encoded;
    for (uint64_t next = 0; written_ < blocks;) {
      const uint64_t room = tier.WritableBytes(NowUs());
      if (room > 0 && next < blocks) {
        std::vector<node::ssd::TierPiece> pieces;
        encoded.clear();
        for (; next < blocks && pieces.size() * node::ssd::kPageBytes < room; ++next) {
          header.hash = HashOf(kFamily, next);
          EncodeHeader(header, &encoded.emplace_back());
          pieces.push_back({next, space, 0, {}, payload});
        }
        // Heads and small payloads are copied, so one buffer serves all.
        for (size_t i = 0; i < pieces.size(); ++i) pieces[i].header = encoded[i];
        next -= pieces.size() - tier.Write(pieces);
      } else {
        usleep(200);
      }
      tier.Poll(NowUs(), 1'700'000'000'000, this);
    }
    return true;
  }

 private:
  void OnWritten(uint64_t, bool stored) override { written_ += stored ? 1 : 0; }
  void OnRead(uint64_t, node::ssd::ReadOutcome&&) override {}
  void OnDurable(uint64_t) override {}
  void OnGone(const node::ssd::SsdEntry&, node::ssd::WhyGone) override {}
  uint64_t written_ = 0;
};

class RecoverStage : public Stage {
 public:
  explicit RecoverStage(const Options& options) : options_(options) {}

  Sample Measure(const LegSpec& leg, double) override {
    return leg.name == "recover/first-hit" ? FirstHit() : Kills();
  }
  Sample MeasureReference(const std::string&, double) override { return {}; }

 private:
  std::unique_ptr<NodeProcess> StartNode(const SsdFolder& folder, uint64_t ssd_bytes, std::string* error) {
    NodeSpec spec{.program = options_.node_program, .memory_bytes = kMemoryBytes, .transport = "tcp"};
    spec.flags = {"--node-id=bench", "--ssd=" + folder.path() + "/ssd",
                  "--ssd-bytes=" + std::to_string(ssd_bytes >> 20) + "MiB"};
    return NodeProcess::Start(spec, error);
  }

  Sample FirstHit() {
    const SsdFolder folder;
    const uint64_t blocks = options_.match_keys;
    std::string error;
    Identity identity;
    (void)identity.Set("kind", "opaque");
    (void)identity.Set("model", "larder-bench");
    Filler filler;
    if (!filler.Fill(folder.path() + "/ssd", NamespaceOf(identity, "bench", ""), blocks, &error))
      return {.error = error};
    const uint64_t start_us = NowUs();
    auto node = StartNode(folder, blocks * node::ssd::kPageBytes + 8 * kSegmentBytes, &error);
    if (node == nullptr) return {.error = error};
    Store store = OpenStore(node->data_address(), "tcp", true, &error);
    if (store.client == nullptr) return {.error = error};
    Bytes landed(kSmallBytes);
    std::mt19937_64 random(3);
    Sample sample;
    while (NowUs() - start_us < 120'000'000) {
      GetItem item;
      item.hash = HashOf(kFamily, random() % blocks);
      item.extents = {{landed.data(), landed.size()}};
      if (store.client->Get(store.name_space, {&item, 1})[0].outcome == Outcome::kHit) {
        sample.value = double(NowUs() - start_us) / 1e6;
        break;
      }
      usleep(1000);
    }
    while (node->Metric("larder_ssd_loaded") != 1 && NowUs() - start_us < 120'000'000) usleep(5000);
    sample.detail =
        "all of " + std::to_string(blocks) + " after " + std::to_string((NowUs() - start_us) / 1000) + " ms";
    if (node->Metric("larder_ssd_pieces") != double(blocks)) sample.error = "not all blocks came back";
    if (sample.value == 0) sample.error = "no hit in two minutes";
    return sample;
  }

  // Puts until it is killed at a random moment; what a match had found on SSD has to be there afterwards.
  Sample Kills() {
    const SsdFolder folder;
    std::string error;
    std::mt19937_64 random(11);
    std::vector<uint64_t> promised;
    uint64_t lost = 0, wrong = 0, checked = 0, next = 0;
    for (int life = 0; life <= kKills && !StopAsked(); ++life) {
      auto node = StartNode(folder, 8ull << 30, &error);
      if (node == nullptr) return {.error = error};
      Store store = OpenStore(node->data_address(), "tcp", true, &error);
      if (store.client == nullptr) return {.error = error};
      while (node->Metric("larder_ssd_loaded") != 1) usleep(2000);
      for (const uint64_t index : promised) {
        ++checked;
        const int outcome = Check(&store, index);
        lost += outcome == 0 ? 1 : 0;
        wrong += outcome < 0 ? 1 : 0;
      }
      if (life == kKills) break;
      // Half of the promises of this life are made, then more is put while the signal comes.
      promised.clear();
      const uint64_t first = next;
      for (uint64_t i = 0; i < kPutsPerLife; ++i) Put(&store, next++);
      for (const uint64_t index : OnSsd(&store, first, next)) promised.push_back(index);
      const auto wait_us = static_cast<unsigned>(random() % 200'000);
      const pid_t pid = node->pid();
      std::thread killer([pid, wait_us] {
        usleep(wait_us);
        kill(pid, SIGKILL);
      });
      for (uint64_t i = 0; i < kPutsPerLife / 2; ++i) {
        if (!Put(&store, next++)) break;
      }
      killer.join();
    }
    Sample sample;
    sample.value = double(lost + wrong);
    sample.detail = std::to_string(kKills) + " kills, " + std::to_string(checked) + " blocks checked, " +
                    std::to_string(lost) + " lost, " + std::to_string(wrong) + " wrong";
    if (lost + wrong != 0) sample.error = sample.detail;
    return sample;
  }

  bool Put(Store* store, uint64_t index) {
    Bytes bytes(kBlockBytes);
    FillBlock(bytes.data(), bytes.size(), index);
    PutItem item;
    item.hash = HashOf(kFamily, index);
    item.extents = {{bytes.data(), bytes.size()}};
    return store->client->Put(store->name_space, {&item, 1})[0].there();
  }
  // 1 right, 0 not there, -1 wrong bytes.
  int Check(Store* store, uint64_t index) {
    Bytes bytes(kBlockBytes);
    GetItem item;
    item.hash = HashOf(kFamily, index);
    item.extents = {{bytes.data(), bytes.size()}};
    const BlockResult result = store->client->Get(store->name_space, {&item, 1})[0];
    if (result.outcome == Outcome::kCorrupt) return -1;
    if (result.outcome != Outcome::kHit) return 0;
    return IsBlock(bytes.data(), bytes.size(), index) ? 1 : -1;
  }
  std::vector<uint64_t> OnSsd(Store* store, uint64_t first, uint64_t end) {
    std::vector<ChainHash> chain;
    for (uint64_t i = first; i < end; ++i) chain.push_back(HashOf(kFamily, i));
    const MatchResult result = store->client->Match(store->name_space, {.chain = chain});
    std::vector<uint64_t> out;
    for (size_t i = 0; i < result.presence.size(); ++i) {
      if (result.presence[i] == Presence::kSsd) out.push_back(first + i);
    }
    return out;
  }

  const Options options_;
};

class RecoverGroup : public Group {
 public:
  std::vector<LegSpec> legs() const override {
    return {{.name = "recover/first-hit", .unit = "s", .once = true},
            {.name = "recover/kill", .unit = "lost", .once = true}};
  }
  std::unique_ptr<Stage> SetUp(const Options& options, std::string*) const override {
    return std::make_unique<RecoverStage>(options);
  }
};

}  // namespace

std::vector<std::unique_ptr<Group>> RecoverGroups() {
  std::vector<std::unique_ptr<Group>> groups;
  groups.push_back(std::make_unique<RecoverGroup>());
  return groups;
}

}  // namespace larder::bench
