// A client of the library against real nodes that stop, die and come back.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "client/client.h"
#include "proto/placement.h"
#include "tests/integration/node_process.h"
#include "tests/support/free_port.h"

namespace larder {
namespace {

using test::NodeProcess;

constexpr size_t kBlockBytes = 64 * 1024;

std::unique_ptr<Client> OpenClient(const std::string& address) {
  ClientOptions options;
  options.seeds = {address};
  options.default_deadline_us = 2'000'000;
  Result<std::unique_ptr<Client>> client = Client::Open(options, 30'000'000);
  EXPECT_TRUE(client.ok()) << client.status().ToString();
  return client.ok() ? std::move(client).value() : nullptr;
}

NamespaceHandle OpenOpaque(Client* client) {
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "opaque").ok());
  return client->OpenNamespace(identity).value();
}

ChainHash Key(uint32_t number) {
  Bytes bytes;
  Writer(&bytes).U32(number);
  return NextLink({}, bytes);
}

Bytes Content(uint32_t number) {
  Bytes bytes(kBlockBytes);
  uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& each : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    each = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

PutResult PutOne(Client* client, const NamespaceHandle& handle, uint32_t number) {
  const Bytes content = Content(number);
  PutItem item;
  item.hash = Key(number);
  item.extents = {{content.data(), content.size()}};
  return client->Put(handle, {&item, 1}).front();
}

// A hit has the right bytes, always.
BlockResult GetOne(Client* client, const NamespaceHandle& handle, uint32_t number) {
  Bytes landed(kBlockBytes);
  GetItem item;
  item.hash = Key(number);
  item.extents = {{landed.data(), landed.size()}};
  BlockResult result = client->Get(handle, {&item, 1}).front();
  if (result.outcome == Outcome::kHit) {
    EXPECT_EQ(landed, Content(number));
  }
  return result;
}

// Until it works again: reconnecting takes its back-off.
bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST(Process, AClientGoesOnWhenItsNodeIsKilledAndComesBack) {
  NodeProcess node;
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  ASSERT_EQ(PutOne(client.get(), handle, 1).state, PutState::kStored);
  ASSERT_EQ(GetOne(client.get(), handle, 1).outcome, Outcome::kHit);

  node.Signal(SIGKILL);
  ASSERT_EQ(node.Wait(), 128 + SIGKILL);
  for (uint32_t i = 0; i < 20; i++) {
    EXPECT_NE(GetOne(client.get(), handle, 1).outcome, Outcome::kHit);
    EXPECT_FALSE(PutOne(client.get(), handle, 100 + i).there());
  }

  node.Restart();
  ASSERT_TRUE(node.serves());
  EXPECT_TRUE(Eventually([&] { return PutOne(client.get(), handle, 2).there(); }));
  EXPECT_EQ(GetOne(client.get(), handle, 2).outcome, Outcome::kHit);
  EXPECT_EQ(GetOne(client.get(), handle, 1).outcome, Outcome::kMiss)
      << "the new process has nothing of the old";
}

// Blocks that a match found on SSD, so that they are promised.
std::vector<uint32_t> OnSsd(Client* client, const NamespaceHandle& handle, uint32_t first, uint32_t end) {
  std::vector<uint32_t> out;
  std::vector<ChainHash> chain;
  for (uint32_t i = first; i < end; i++) chain.push_back(Key(i));
  const MatchResult result = client->Match(handle, {.chain = chain});
  for (uint32_t i = first; i < end && result.presence.size() == chain.size(); i++) {
    if (result.presence[i - first] == Presence::kSsd) out.push_back(i);
  }
  return out;
}

class ScratchFolder {
 public:
  ScratchFolder() {
    char name[] = "/tmp/larder-process-XXXXXX";
    path = mkdtemp(name);
  }
  ~ScratchFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
  std::string path;
};

TEST(Process, BlocksOnSsdSurviveKilling) {
  const ScratchFolder folder;
  NodeProcess node(
      {"--memory=8MiB", "--ssd=" + folder.path + "/ssd", "--ssd-bytes=512MiB", "--ssd-segment-bytes=16MiB"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  std::set<uint32_t> promised;
  for (uint32_t life = 0; life < 4; life++) {
    const uint32_t first = life * 1000;
    ASSERT_TRUE(Eventually([&] { return PutOne(client.get(), handle, first).there(); }));
    // What a slow disk has no time for is dropped: it is put again.
    uint32_t next = 1;
    std::vector<uint32_t> on_ssd;
    ASSERT_TRUE(Eventually([&] {
      for (uint32_t n = 0; n < 399; n++) (void)PutOne(client.get(), handle, first + next++ % 400);
      on_ssd = OnSsd(client.get(), handle, first, first + 400);
      return on_ssd.size() > 200;
    }));
    promised.insert(on_ssd.begin(), on_ssd.end());
    std::thread writer([&] {
      for (uint32_t i = 400; i < 600; i++) (void)PutOne(client.get(), handle, first + i);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * life));
    node.Signal(SIGKILL);
    ASSERT_EQ(node.Wait(), 128 + SIGKILL);
    writer.join();
    node.Restart();
    ASSERT_TRUE(node.serves());
    for (const uint32_t i : promised) {
      EXPECT_TRUE(Eventually([&] { return GetOne(client.get(), handle, i).outcome == Outcome::kHit; }))
          << "life " << life << " block " << i;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(promised.size(), 800u);
}

TEST(Process, APrefetchBringsBlocksUpFromSsd) {
  const ScratchFolder folder;
  NodeProcess node({"--memory=8MiB", "--ssd=" + folder.path + "/ssd", "--ssd-bytes=512MiB",
                    "--ssd-segment-bytes=16MiB", "--ssd-promote-after=0"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  ASSERT_TRUE(Eventually([&] { return PutOne(client.get(), handle, 0).there(); }));
  for (uint32_t i = 1; i < 600; i++) (void)PutOne(client.get(), handle, i);
  std::vector<uint32_t> cold;
  ASSERT_TRUE(Eventually([&] {
    cold = OnSsd(client.get(), handle, 0, 600);
    return cold.size() >= 8;
  }));
  cold.resize(8);
  std::vector<ChainHash> chain;
  for (const uint32_t i : cold) chain.push_back(Key(i));
  chain.push_back(Key(999'999));  // nowhere
  WaitRequest request;
  request.chain = chain;
  const Result<uint64_t> blocks = client->Prefetch(handle, request, {.deadline_us = 20'000'000});
  ASSERT_TRUE(blocks.ok()) << blocks.status().ToString();
  EXPECT_EQ(blocks.value(), cold.size());
  const MatchResult match = client->Match(handle, {.chain = chain});
  for (size_t i = 0; i < cold.size(); i++) EXPECT_EQ(match.presence[i], Presence::kRam) << i;
  for (const uint32_t i : cold) EXPECT_EQ(GetOne(client.get(), handle, i).outcome, Outcome::kHit);
  EXPECT_EQ(client->stats().prefetches, 1u);
}

TEST(Process, AKilledNodeCostsOnlyItsOwnBlocks) {
  NodeProcess first({"--node-id=a"});
  ASSERT_TRUE(first.serves());
  NodeProcess second({"--node-id=b", "--peers=a@" + first.data(), "--table-epoch=2"});
  ASSERT_TRUE(second.serves());
  auto client = OpenClient(second.data());
  ASSERT_NE(client, nullptr);
  ASSERT_EQ(client->table().nodes.size(), 2u);
  const NamespaceHandle handle = OpenOpaque(client.get());
  constexpr uint32_t kBlocks = 64;
  for (uint32_t i = 0; i < kBlocks; i++) ASSERT_TRUE(PutOne(client.get(), handle, i).there());
  const Placement placement(client->table());

  first.Signal(SIGKILL);
  ASSERT_EQ(first.Wait(), 128 + SIGKILL);
  for (uint32_t i = 0; i < kBlocks; i++) {
    const bool lost = client->table().nodes[placement.Order(Key(i))[0]].id == "a";
    EXPECT_EQ(GetOne(client.get(), handle, i).outcome == Outcome::kHit, !lost) << i;
  }
}

TEST(Process, GetsAndPutsNeverLieWhileANodeDiesUnderThem) {
  NodeProcess node({"--memory=16MiB"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> hits{0}, calls{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; !stop; i++) {
        const uint32_t number = (i * 7 + t * 13) % 400;
        PutOne(client.get(), handle, number);
        hits += GetOne(client.get(), handle, (number + 3) % 400).outcome == Outcome::kHit;
        calls++;
      }
    });
  }
  for (int round = 0; round < 3; round++) {
    const uint64_t before = hits;
    EXPECT_TRUE(Eventually([&] { return hits > before + 50; }));
    node.Signal(SIGKILL);
    ASSERT_EQ(node.Wait(), 128 + SIGKILL);
    node.Restart();
    EXPECT_TRUE(node.serves());
  }
  const uint64_t before = hits;
  EXPECT_TRUE(Eventually([&] { return hits > before + 50; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(client->stats().corrupt, 0u);
}

class OpenWait {
 public:
  // Returns once the node has it.
  OpenWait(const NodeProcess& node, Client* client, const NamespaceHandle& handle, uint64_t deadline_us)
      : queue_(client->MakeQueue()) {
    WaitRequest request;
    const ChainHash key = Key(9999);
    request.chain = {&key, 1};
    EXPECT_TRUE(client->SubmitWait(queue_.get(), 1, handle, request, {deadline_us}).ok());
    EXPECT_TRUE(
        Eventually([&] { return node.Http("/metrics").find("larder_waits_open 1\n") != std::string::npos; }));
  }

 private:
  std::unique_ptr<CompletionQueue> queue_;
};

TEST(Process, ANodeThatStopsIsNotReadyAndWaitsForWhatIsInFlight) {
  NodeProcess node({"--drain-budget=50s"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  ASSERT_TRUE(PutOne(client.get(), handle, 1).there());
  ASSERT_EQ(node.HttpStatus("/readyz"), 200);
  auto wait = std::make_unique<OpenWait>(node, client.get(), handle, 600'000'000);
  node.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return node.HttpStatus("/readyz") == 503; }));
  EXPECT_EQ(node.HttpStatus("/livez"), 200);
  EXPECT_EQ(GetOne(client.get(), handle, 1).outcome, Outcome::kHit) << "reads go on while it drains";
  EXPECT_FALSE(PutOne(client.get(), handle, 2).there()) << "new puts are turned away";
  // What it waits for ends with the client, not with a clock: under load, three seconds were over too soon.
  wait.reset();
  client.reset();
  EXPECT_EQ(node.Wait(), 0);
}

TEST(Process, TheDrainBudgetEndsIt) {
  NodeProcess node({"--drain-budget=100ms"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  ASSERT_TRUE(PutOne(client.get(), handle, 1).there());
  OpenWait wait(node, client.get(), handle, 600'000'000);
  node.Signal(SIGTERM);
  EXPECT_EQ(node.Wait(), 0);
}

TEST(Process, ASecondSignalEndsItAtOnce) {
  NodeProcess node({"--drain-budget=1h"});
  ASSERT_TRUE(node.serves());
  auto client = OpenClient(node.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  ASSERT_TRUE(PutOne(client.get(), handle, 1).there());
  OpenWait wait(node, client.get(), handle, 600'000'000);
  node.Signal(SIGTERM);
  EXPECT_TRUE(Eventually([&] { return node.HttpStatus("/readyz") == 503; }));
  node.Signal(SIGTERM);
  EXPECT_EQ(node.Wait(), 1);
}

// One block that everybody reads: by then its home is one of several that serve it, and a remove at its home
// reaches them all.
TEST(Process, AHotBlockIsReadEverywhereAndRemovedEverywhere) {
  std::string peers;
  std::vector<std::string> addresses;
  for (const char* id : {"a", "b", "c"}) {
    addresses.push_back("127.0.0.1:" + std::to_string(testing::FreePort()));
    peers += (peers.empty() ? "" : ",") + std::string(id) + "@" + addresses.back();
  }
  std::vector<std::unique_ptr<NodeProcess>> nodes;
  for (size_t i = 0; i < addresses.size(); i++) {
    const std::vector<std::string> flags = {"--node-id=" + std::string(1, static_cast<char>('a' + i)),
                                            "--peers=" + peers};
    nodes.push_back(std::make_unique<NodeProcess>(flags, addresses[i]));
    ASSERT_TRUE(nodes.back()->serves());
  }
  std::vector<std::unique_ptr<Client>> clients;
  for (const std::string& address : addresses) clients.push_back(OpenClient(address));
  const NamespaceHandle handle = OpenOpaque(clients[0].get());
  for (size_t i = 1; i < clients.size(); i++) OpenOpaque(clients[i].get());
  ASSERT_EQ(PutOne(clients[0].get(), handle, 1).state, PutState::kStored);
  const auto read_all = [&] {
    for (const auto& client : clients) ASSERT_EQ(GetOne(client.get(), handle, 1).outcome, Outcome::kHit);
  };
  const auto sum = [&](const std::string& name) {
    double total = 0;
    for (const auto& node : nodes) total += node->Metric(name);
    return total;
  };
  for (int i = 0; i < 30; i++) read_all();
  EXPECT_TRUE(Eventually([&] { return sum("larder_hot_copies") == 2; }));
  const auto served = [&] {
    std::vector<double> reads;
    for (const auto& node : nodes) reads.push_back(node->Metric("larder_get_hits_total"));
    return reads;
  };
  read_all();  // each hears of the copies
  const std::vector<double> before = served();
  for (int i = 0; i < 30; i++) read_all();
  const std::vector<double> after = served();
  for (size_t i = 0; i < nodes.size(); i++) EXPECT_NEAR(after[i] - before[i], 30, 10) << i;

  const uint16_t group = 0;
  const ChainHash key = Key(1);
  EXPECT_EQ(clients[0]->Remove(handle, {&key, 1}, {&group, 1}).value(), 1u);
  for (int i = 0; i < 4; i++) {
    for (const auto& client : clients) {
      EXPECT_EQ(GetOne(client.get(), handle, 1).reason, Presence::kRemoved);
    }
  }
  EXPECT_EQ(sum("larder_leased_pieces"), 0);
  EXPECT_EQ(sum("larder_pieces"), 0);
  EXPECT_EQ(sum("larder_hot_revoked_total"), 1);
}

// Two nodes of this host, of which one is reached over tcp alone, as if it were on another.
TEST(Process, WhatAHostReadsTwiceItReadsFromItsOwnNode) {
  const std::string near_at = "127.0.0.1:" + std::to_string(testing::FreePort());
  const std::string far_at = "127.0.0.1:" + std::to_string(testing::FreePort());
  const std::string peers = "--peers=near@" + near_at + ",far@" + far_at;
  NodeProcess near({"--node-id=near", peers, "--near-share=20"}, near_at);
  NodeProcess far({"--node-id=far", peers, "--shm=false", "--near-share=20"}, far_at);
  ASSERT_TRUE(near.serves() && far.serves());
  auto client = OpenClient(near.data());
  ASSERT_NE(client, nullptr);
  const NamespaceHandle handle = OpenOpaque(client.get());
  constexpr uint32_t kKeys = 16;
  for (uint32_t key = 1; key <= kKeys; ++key) {
    ASSERT_EQ(PutOne(client.get(), handle, key).state, PutState::kStored);
  }
  const double pieces = far.Metric("larder_pieces");
  ASSERT_TRUE(pieces > 0 && pieces < kKeys);
  const auto read_all = [&] {
    for (uint32_t key = 1; key <= kKeys; ++key) {
      ASSERT_EQ(GetOne(client.get(), handle, key).outcome, Outcome::kHit) << key;
    }
  };
  read_all();
  EXPECT_EQ(far.Metric("larder_near_copies"), 0);
  read_all();
  EXPECT_TRUE(Eventually([&] { return far.Metric("larder_near_copies") == pieces; }));
  EXPECT_EQ(near.Metric("larder_leased_pieces"), pieces);
  EXPECT_EQ(near.Metric("larder_near_asked_total"), 0);  // the home's last life may have left copies
  const auto asks_near = [&] {
    std::this_thread::sleep_for(std::chrono::seconds(4));  // read more often, blocks would be hot
    read_all();
    return near.Metric("larder_near_hits_total") >= pieces;
  };
  EXPECT_TRUE(Eventually(asks_near) || Eventually(asks_near));
  const double far_before = far.Metric("larder_get_hits_total");
  const double near_before = near.Metric("larder_near_hits_total");
  read_all();
  EXPECT_EQ(far.Metric("larder_get_hits_total"), far_before);
  EXPECT_EQ(near.Metric("larder_near_hits_total"), near_before + pieces);

  // A near node that is stopped costs a part of the deadline and no hit of others' blocks.
  const NodeTable table = client->table();
  uint32_t far_key = 1;
  while (table.nodes[OrderOf(table, SlotOf(Key(far_key)), 1)[0]].id != "far") ++far_key;
  near.Signal(SIGSTOP);
  EXPECT_EQ(GetOne(client.get(), handle, far_key).outcome, Outcome::kHit);
  near.Signal(SIGCONT);

  const uint16_t group = 0;
  for (uint32_t key = 1; key <= kKeys; ++key) {
    const ChainHash hash = Key(key);
    EXPECT_EQ(client->Remove(handle, {&hash, 1}, {&group, 1}).value(), 1u);
    EXPECT_EQ(GetOne(client.get(), handle, key).reason, Presence::kRemoved);
  }
  EXPECT_EQ(near.Metric("larder_leased_pieces"), 0);
  EXPECT_EQ(far.Metric("larder_near_copies"), 0);
}

}  // namespace
}  // namespace larder
