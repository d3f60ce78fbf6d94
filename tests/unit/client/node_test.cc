// The client against real nodes in this process, over real sockets.
#include "node/node.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <thread>

#include "client/client.h"

namespace larder {
namespace {

Identity TestIdentity() {
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "kv").ok());
  EXPECT_TRUE(identity.Set("layers", "4").ok());
  EXPECT_TRUE(identity.Set("kv_heads", "8").ok());
  EXPECT_TRUE(identity.Set("head_groups", "2").ok());
  EXPECT_TRUE(identity.Set("hash", "sha256").ok());
  return identity;
}

std::vector<ChainHash> Chain(size_t length, uint32_t seed = 1) {
  std::vector<ChainHash> chain;
  ChainHash parent;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t word = seed * 1'000'003ull + i;
    parent = NextLink(parent, {reinterpret_cast<const std::byte*>(&word), sizeof word});
    chain.push_back(parent);
  }
  return chain;
}

std::vector<std::byte> Payload(const ChainHash& hash, size_t bytes) {
  std::vector<std::byte> payload(bytes);
  uint64_t state = 0;
  std::memcpy(&state, hash.bytes.data(), sizeof state);
  for (std::byte& byte : payload) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return payload;
}

class RealNode : public ::testing::Test {
 protected:
  ~RealNode() override {
    client_.reset();
    nodes_.clear();
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }
  // With `ssd`, memory of 32 MiB over an SSD tier.
  void Start(size_t nodes, const std::string& transport = "tcp", bool ssd = false) {
    std::vector<NodeRecord> peers;
    for (size_t i = 0; i < nodes; ++i) {
      node::NodeOptions options;
      options.node_id = "n" + std::to_string(i);
      options.data_listen = "127.0.0.1:0";
      options.owner.memory_bytes = 128ull << 20;
      options.prefault = false;
      if (ssd) {
        std::string folder = (std::filesystem::temp_directory_path() / "larder-client-test-XXXXXX").string();
        ASSERT_NE(mkdtemp(folder.data()), nullptr);
        folder_ = folder;
        options.owner.memory_bytes = 32ull << 20;
        options.owner.promote_after = 0;
        options.ssd.directories = {folder};
        options.ssd.bytes = 256ull << 20;
        options.ssd.segment_bytes = 16ull << 20;
      }
      if (transport == "ucx") options.ucx_listen = "127.0.0.1:0";
      if (transport != "tcp") {
        options.shm_path =
            "/tmp/larder-client-test-" + std::to_string(getpid()) + "-" + std::to_string(i) + ".sock";
      }
      Result<std::unique_ptr<node::Node>> node = node::Node::Start(options);
      ASSERT_TRUE(node.ok()) << node.status().ToString();
      nodes_.push_back(std::move(node).value());
      peers.push_back(nodes_.back()->info().record);
    }
    NodeTable table;
    table.epoch = 2;
    table.nodes = peers;
    table.Normalize();
    for (auto& node : nodes_) node->SetTable(table);
    ClientOptions options;
    options.transport = transport;
    for (const NodeRecord& peer : peers) options.seeds.push_back(peer.data_address);
    Result<std::unique_ptr<Client>> client = Client::Open(options);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = std::move(client).value();
    Result<NamespaceHandle> ns = client_->OpenNamespace(TestIdentity());
    ASSERT_TRUE(ns.ok()) << ns.status().ToString();
    ns_ = ns.value();
  }

  node::OwnerStats Stats() { return nodes_[0]->stats().value(); }

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<node::Node>> nodes_;
  std::unique_ptr<Client> client_;
  NamespaceHandle ns_;
};

TEST_F(RealNode, PutsMatchesGetsWaitsAndTouches) {
  Start(1);
  const std::vector<ChainHash> chain = Chain(16);
  std::vector<std::vector<std::byte>> payloads;
  std::vector<PutItem> puts;
  for (size_t i = 0; i < chain.size(); ++i) {
    payloads.push_back(Payload(chain[i], 1 << 20));
    PutItem item;
    item.hash = chain[i];
    item.extents = {{payloads[i].data(), 1000}, {payloads[i].data() + 1000, payloads[i].size() - 1000}};
    item.depth = static_cast<uint32_t>(i);
    puts.push_back(item);
  }
  for (const PutResult& result : client_->Put(ns_, puts)) {
    EXPECT_EQ(result.state, PutState::kStored) << result.why.ToString();
    EXPECT_EQ(result.copies, 1u);
  }
  for (const PutResult& result : client_->Put(ns_, puts)) EXPECT_EQ(result.state, PutState::kExists);

  const std::vector<ChainHash> longer = [&] {
    std::vector<ChainHash> with = chain;
    with.push_back(Chain(1, 99)[0]);
    return with;
  }();
  MatchRequest match;
  match.chain = longer;
  match.pin_us = 1'000'000;
  const MatchResult found = client_->Match(ns_, match);
  ASSERT_TRUE(found.status.ok());
  EXPECT_EQ(found.usable_length, 16u);
  EXPECT_EQ(found.presence.back(), Presence::kNeverStored);
  EXPECT_NE(found.pin, 0u);

  std::vector<std::vector<std::byte>> landed(longer.size(), std::vector<std::byte>(1 << 20));
  std::vector<GetItem> gets;
  for (size_t i = 0; i < longer.size(); ++i) {
    GetItem item;
    item.hash = longer[i];
    item.extents = {{landed[i].data(), 300'000}, {landed[i].data() + 300'000, landed[i].size() - 300'000}};
    gets.push_back(item);
  }
  const std::vector<BlockResult> results = client_->Get(ns_, gets);
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(results[i].outcome, Outcome::kHit) << PresenceName(results[i].reason);
    EXPECT_EQ(landed[i], payloads[i]);
  }
  EXPECT_EQ(results.back().outcome, Outcome::kMiss);
  EXPECT_EQ(results.back().reason, Presence::kNeverStored);

  WaitRequest wait;
  wait.chain = longer;
  EXPECT_EQ(client_->Wait(ns_, wait, {.deadline_us = 1'000'000}), 16u);
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait), 16u);
  const Result<uint64_t> there = client_->Prefetch(ns_, {.chain = longer});
  EXPECT_TRUE(there.ok() && there.value() == 16u) << "what is nowhere is not waited for";
  TouchRequest touch;
  touch.chain = chain;
  touch.usable_length = 16;
  client_->Touch(ns_, touch);
  client_->Release(found.pin);
  EXPECT_TRUE(client_->Ping("n0").ok());
  const ClientStats stats = client_->stats();
  EXPECT_EQ(stats.hits, 16u);
  EXPECT_EQ(stats.stored, 16u);
  EXPECT_EQ(stats.bytes_in_flight, 0u);
}

// A put says it of its own blocks, the end of a turn of a chain.
TEST_F(RealNode, WhatIsNeverAskedForAgainMakesRoomForTheNextPut) {
  Start(1);
  const auto put = [&](const std::vector<ChainHash>& chain, Retention retention) {
    std::vector<std::vector<std::byte>> payloads;
    std::vector<PutItem> puts(chain.size());
    for (size_t i = 0; i < chain.size(); ++i) {
      payloads.push_back(Payload(chain[i], 1 << 20));
      puts[i].hash = chain[i];
      puts[i].extents = {{payloads[i].data(), payloads[i].size()}};
      puts[i].retention = retention;
    }
    for (const PutResult& result : client_->Put(ns_, puts)) ASSERT_TRUE(result.there());
  };
  const auto there = [&](const std::vector<ChainHash>& chain) {
    MatchRequest match;
    match.chain = chain;
    return client_->Match(ns_, match).usable_length;
  };
  const auto told = [&](uint64_t turns) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (nodes_[0]->stats()->turns_finished < turns && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return nodes_[0]->stats()->turns_finished;
  };
  const std::vector<ChainHash> old = Chain(30, 1), ended = Chain(30, 2), written = Chain(30, 3);
  put(old, Retention::kNone);
  put(ended, Retention::kNone);
  put(written, Retention::kNever);
  ASSERT_EQ(told(1), 1u);
  TouchRequest finish;
  finish.chain = ended;
  finish.retention = Retention::kNever;
  finish.finishes = true;
  client_->Touch(ns_, finish);
  ASSERT_EQ(told(2), 2u);
  put(Chain(60, 4), Retention::kNone);
  EXPECT_EQ(there(old), 30u) << "the oldest of all stays";
  EXPECT_LT(there(ended) + there(written), 60u);
  put(Chain(28, 5), Retention::kNone);
  EXPECT_EQ(there(old), 30u);
}

// The answer is a byte a key and group: 1 MiB and a little, which was over the transport's own header limit.
TEST_F(RealNode, TheLargestMatchIsAnswered) {
  Start(1);
  const std::vector<ChainHash> chain = Chain(kHashesMax);
  const uint16_t last_group = kGroupsMax - 1;
  const auto payload = Payload(chain.back(), 4096);
  for (const uint16_t group : {uint16_t{0}, last_group}) {
    PutItem item;
    item.hash = chain.back();
    item.group = group;
    item.extents = {{payload.data(), payload.size()}};
    EXPECT_EQ(client_->Put(ns_, {&item, 1})[0].state, PutState::kStored);
  }
  MatchRequest match;
  match.chain = chain;
  match.groups.clear();
  for (uint16_t group = 0; group < kGroupsMax; ++group) match.groups.push_back({group});
  match.pin_us = 1'000'000;
  const MatchResult found = client_->Match(ns_, match, {.deadline_us = 20'000'000});
  ASSERT_TRUE(found.status.ok()) << found.status.ToString();
  ASSERT_EQ(found.presence.size(), kHashesMax * kGroupsMax);
  for (size_t i = 0; i < found.presence.size(); ++i) {
    const bool stored = i == (kHashesMax - 1) * kGroupsMax || i + 1 == found.presence.size();
    ASSERT_EQ(found.presence[i], stored ? Presence::kRam : Presence::kNeverStored) << i;
  }
  EXPECT_NE(found.pin, 0u);
}

TEST_F(RealNode, SpreadsOverThreeNodesAndMergesTheirAnswers) {
  Start(3);
  const std::vector<ChainHash> chain = Chain(64);
  const std::vector<std::byte> payload = Payload(chain[0], 64 << 10);
  std::vector<PutItem> puts;
  for (const ChainHash& hash : chain) {
    PutItem item;
    item.hash = hash;
    item.extents = {{payload.data(), payload.size()}};
    puts.push_back(item);
  }
  for (const PutResult& result : client_->Put(ns_, puts)) EXPECT_EQ(result.state, PutState::kStored);
  for (const auto& node : nodes_) EXPECT_GT(node->stats()->pieces, 0u);
  MatchRequest match;
  match.chain = chain;
  EXPECT_EQ(client_->Match(ns_, match).usable_length, 64u);
  WaitRequest wait;
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait), 64u);
  const std::vector<uint16_t> groups = {0};
  EXPECT_EQ(client_->Remove(ns_, std::span(chain).subspan(60), groups).value(), 4u);
  EXPECT_EQ(client_->Match(ns_, match).usable_length, 60u);
  EXPECT_EQ(client_->Clear(ns_).value(), 60u);
  EXPECT_EQ(client_->Match(ns_, match).usable_length, 0u);
}

TEST_F(RealNode, OneHostGoesOverShm) {
  Start(2, "auto");
  const std::vector<ChainHash> chain = Chain(40);
  std::vector<std::vector<std::byte>> payloads, landed;
  std::vector<PutItem> puts;
  std::vector<GetItem> gets;
  Result<std::unique_ptr<Buffer>> buffer = client_->AllocateBuffer(20 * 100'000);
  ASSERT_TRUE(buffer.ok());
  for (size_t i = 0; i < chain.size(); ++i) {
    payloads.push_back(Payload(chain[i], 100'000));
    landed.emplace_back(100'000);
  }
  for (size_t i = 0; i < chain.size(); ++i) {
    PutItem put;
    put.hash = chain[i];
    const std::byte* from = payloads[i].data();
    if (i < 20) {  // half of it from memory that moves as it is
      std::byte* memory = buffer.value()->data() + i * 100'000;
      std::memcpy(memory, from, 100'000);
      from = memory;
    }
    put.extents = {{from, 100'000}};
    puts.push_back(put);
    GetItem get;
    get.hash = chain[i];
    get.extents = {{landed[i].data(), 100'000}};
    gets.push_back(get);
  }
  for (const PutResult& result : client_->Put(ns_, puts)) {
    EXPECT_EQ(result.state, PutState::kStored) << result.why.ToString();
  }
  for (const BlockResult& result : client_->Get(ns_, gets)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_EQ(landed, payloads);
  for (const PeerInfo& peer : client_->peers()) {
    EXPECT_EQ(peer.transport, "shm") << peer.last_error;
    EXPECT_TRUE(peer.connected);
  }
}

class RealNodeWithSsd : public RealNode, public ::testing::WithParamInterface<const char*> {};

// Some of the blocks are in memory, the others come from SSD, in the same requests.
TEST_P(RealNodeWithSsd, OneGetTakesWhatIsInMemoryAndOnSsd) {
  transport::Error error;
  if (transport::MakeTransport(GetParam(), {}, &error) == nullptr) GTEST_SKIP() << error.text;
  Start(1, GetParam(), true);
  constexpr size_t kBytes = 256 << 10;
  const std::vector<ChainHash> chain = Chain(2000);
  std::vector<ChainHash> hot, cold;
  for (size_t next = 0; next < chain.size() && (hot.size() < 20 || cold.size() < 60);) {
    const size_t end = std::min(next + 20, chain.size());
    for (; next < end; ++next) {
      const std::vector<std::byte> payload = Payload(chain[next], kBytes);
      PutItem put;
      put.hash = chain[next];
      put.extents = {{payload.data(), payload.size()}};
      ASSERT_TRUE(client_->Put(ns_, {&put, 1})[0].there());
      while (Stats().spilling_bytes != 0) std::this_thread::yield();
    }
    const MatchResult match = client_->Match(ns_, {.chain = chain});
    hot.clear(), cold.clear();
    for (size_t i = 0; i < chain.size(); ++i) {
      if (match.presence[i] == Presence::kRam) hot.push_back(chain[i]);
      if (match.presence[i] == Presence::kSsd) cold.push_back(chain[i]);
    }
  }
  ASSERT_GE(cold.size(), 60u);
  for (size_t round = 0; round < 20; ++round) {
    std::vector<std::vector<std::byte>> landed(30, std::vector<std::byte>(kBytes));
    std::vector<GetItem> gets(landed.size());
    for (size_t i = 0; i < gets.size(); ++i) {
      gets[i].hash = i % 2 == 0 ? hot[hot.size() - 1 - i / 2] : cold[round + i];
      gets[i].extents = {{landed[i].data(), kBytes}};
    }
    const std::vector<BlockResult> results = client_->Get(ns_, gets);
    for (size_t i = 0; i < gets.size(); ++i) {
      ASSERT_EQ(results[i].outcome, Outcome::kHit) << i << ": " << PresenceName(results[i].reason);
      ASSERT_EQ(landed[i], Payload(gets[i].hash, kBytes)) << i;
    }
  }
  EXPECT_EQ(client_->peers()[0].transport, GetParam());
  EXPECT_GT(Stats().get_parts, 20u);
  EXPECT_GT(Stats().ssd_hits, 100u);
  EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
}
INSTANTIATE_TEST_SUITE_P(Each, RealNodeWithSsd, ::testing::Values("tcp", "shm", "ucx"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(RealNode, ShmThatCannotBeReachedFallsBackToTcp) {
  Start(1, "auto");
  NodeTable table = nodes_[0]->info().table;
  ASSERT_EQ(table.nodes.size(), 1u);
  ASSERT_EQ(unlink(table.nodes[0].shm_path.c_str()), 0);
  const std::vector<ChainHash> chain = Chain(1);
  MatchRequest match;
  match.chain = chain;
  EXPECT_EQ(client_->Match(ns_, match).presence[0], Presence::kNeverStored);
  EXPECT_EQ(client_->peers()[0].transport, "tcp");
}

TEST_F(RealNode, ReadsByRectanglesWhatWasWrittenInPieces) {
  Start(1);
  const std::vector<ChainHash> chain = Chain(1);
  // 4 layers x 2 head groups of 1,000 bytes a part; one writer a head group.
  const std::vector<std::byte> whole = Payload(chain[0], 8000);
  std::vector<PutItem> puts(2);
  for (uint16_t head = 0; head < 2; ++head) {
    puts[head].hash = chain[0];
    puts[head].whole = false;
    puts[head].rectangle = {0, 4, head, static_cast<uint16_t>(head + 1)};
    for (size_t layer = 0; layer < 4; ++layer) {
      puts[head].extents.push_back({whole.data() + (layer * 2 + head) * 1000, 1000});
    }
  }
  for (const PutResult& result : client_->Put(ns_, puts)) EXPECT_EQ(result.state, PutState::kStored);
  std::vector<std::byte> landed(8000);
  std::vector<GetItem> gets(2);
  gets[0].hash = gets[1].hash = chain[0];
  gets[0].extents = {{landed.data(), 1500}, {landed.data() + 1500, 6500}};
  std::vector<std::byte> layers(4000);
  gets[1].whole = false;
  gets[1].rectangle = {1, 3, 0, 2};
  gets[1].extents = {{layers.data(), layers.size()}};
  for (const BlockResult& result : client_->Get(ns_, gets)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_EQ(landed, whole);
  EXPECT_EQ(std::memcmp(layers.data(), whole.data() + 2000, 4000), 0);
}

}  // namespace
}  // namespace larder
