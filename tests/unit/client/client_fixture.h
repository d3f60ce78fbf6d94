// Chains, payloads and a client over fake nodes, for the client's tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "client/client.h"
#include "tests/support/fake_node.h"

namespace larder::testing {

inline Identity TestIdentity() {
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "kv").ok());
  EXPECT_TRUE(identity.Set("layers", "4").ok());
  EXPECT_TRUE(identity.Set("kv_heads", "8").ok());
  EXPECT_TRUE(identity.Set("head_groups", "2").ok());
  EXPECT_TRUE(identity.Set("hash", "sha256").ok());
  return identity;
}
inline constexpr Rectangle kWholeGrid = {0, 4, 0, 2};

inline std::vector<ChainHash> Chain(size_t length, uint32_t seed = 1) {
  std::vector<ChainHash> chain;
  ChainHash parent;
  for (size_t i = 0; i < length; ++i) {
    const uint64_t word = seed * 1'000'003ull + i;
    parent = NextLink(parent, {reinterpret_cast<const std::byte*>(&word), sizeof word});
    chain.push_back(parent);
  }
  return chain;
}

inline Bytes Payload(const ChainHash& hash, size_t bytes) {
  Bytes payload(bytes);
  uint64_t state = 0;
  std::memcpy(&state, hash.bytes.data(), sizeof state);
  for (std::byte& byte : payload) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  return payload;
}

// Until it holds, or 10 s have passed.
inline bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Memory for a get of so many blocks.
struct Blocks {
  Blocks(std::span<const ChainHash> chain, size_t bytes)
      : landed(chain.size(), Bytes(bytes)), items(chain.size()) {
    for (size_t i = 0; i < chain.size(); ++i) {
      items[i].hash = chain[i];
      items[i].extents = {{landed[i].data(), bytes}};
    }
  }
  std::vector<Bytes> landed;
  std::vector<GetItem> items;
};

class FakeCluster : public ::testing::Test {
 protected:
  void StartNodes(size_t count) {
    for (size_t i = 0; i < count; ++i) nodes_.push_back(std::make_unique<FakeNode>("f" + std::to_string(i)));
    ShareTable(1);
  }
  void ShareTable(uint64_t epoch) {
    NodeTable table;
    table.epoch = epoch;
    for (const auto& node : nodes_) table.nodes.push_back(node->record());
    table.Normalize();
    for (const auto& node : nodes_) node->SetTable(table);
  }
  void OpenClient(ClientOptions options = {}) {
    options.transport = "tcp";
    for (const auto& node : nodes_) options.seeds.push_back(node->address());
    Result<std::unique_ptr<Client>> client = Client::Open(options);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = std::move(client).value();
    Result<NamespaceHandle> ns = client_->OpenNamespace(TestIdentity());
    ASSERT_TRUE(ns.ok()) << ns.status().ToString();
    ns_ = ns.value();
  }
  // On every node: then each is a copy.
  void StoreEverywhere(std::span<const ChainHash> chain, size_t bytes) {
    for (const ChainHash& hash : chain) {
      for (const auto& node : nodes_) node->Store(hash, 0, kWholeGrid, Payload(hash, bytes));
    }
  }
  // The index in nodes_ of a key's home and of its next copies, by the client's table.
  std::vector<size_t> Order(const ChainHash& hash) {
    if (const NodeTable table = client_->table(); table != table_) {
      table_ = table;
      placement_ = Placement(table_);
    }
    std::vector<size_t> order;
    for (const uint16_t node : placement_.Order(hash)) {
      for (size_t i = 0; i < nodes_.size(); ++i) {
        if (nodes_[i]->record().id == table_.nodes[node].id) order.push_back(i);
      }
    }
    return order;
  }
  void TearDown() override { client_.reset(); }  // before the nodes

  std::vector<std::unique_ptr<FakeNode>> nodes_;
  std::unique_ptr<Client> client_;
  NamespaceHandle ns_;

 private:
  NodeTable table_;
  Placement placement_;
};

}  // namespace larder::testing
