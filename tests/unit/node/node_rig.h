// A node on any free port of the loopback address, with small and quick bounds.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "node/node.h"
#include "tests/unit/node/raw_client.h"

namespace larder::node {

inline NodeOptions SmallNode() {
  NodeOptions options;
  options.owner.memory_bytes = 64 << 20;
  options.data_listen = "127.0.0.1:0";
  options.node_id = "test-node";
  return options;
}

inline NodeOptions NamedNode(const std::string& id, const std::vector<Credential>& credentials = {}) {
  NodeOptions options = SmallNode();
  options.node_id = id;
  options.credentials = credentials;
  return options;
}

inline const std::vector<Credential> kTwoCredentials = {{"one", "0123456789abcdef", ""},
                                                        {"two", "fedcba9876543210", ""}};

struct NodeRig {
  explicit NodeRig(const NodeOptions& options = SmallNode()) {
    Result<std::unique_ptr<Node>> started = Node::Start(options);
    EXPECT_TRUE(started.ok()) << started.status().ToString();
    if (started.ok()) node = std::move(started).value();
  }
  std::string address() const { return node->info().record.data_address; }
  OwnerStats Stats() const {
    const Result<OwnerStats> stats = node->stats();
    EXPECT_TRUE(stats.ok());
    return stats.ok() ? stats.value() : OwnerStats{};
  }
  // Until the owner's state is so, or 20 s have passed.
  bool Until(const std::function<bool(const OwnerStats&)>& condition) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition(Stats())) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }
  // Nothing is held for anybody any more.
  bool UntilIdle() const {
    return Until([](const OwnerStats& stats) {
      return stats.tickets == 0 && stats.hard_pins == 0 && stats.waits_open == 0 && stats.soft_pins == 0;
    });
  }
  // It still serves: a new client puts and gets a block.
  void ExpectServes(uint64_t seed) const {
    RawClient client(address());
    client.Begin(2);
    const std::vector<ChainHash> hashes = {TestHash(seed)};
    const std::vector<Bytes> payloads = {TestBytes(seed, 8192)};
    EXPECT_EQ(client.PutBlocks(hashes, payloads, 4096), std::vector{PutState::kStored});
    GetReply reply;
    const auto message = client.GetBlocks(hashes, &reply);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->segments, payloads);
  }

  std::unique_ptr<Node> node;
};

}  // namespace larder::node
