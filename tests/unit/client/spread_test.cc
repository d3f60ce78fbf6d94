// Splitting over homes and merging their answers: five fake nodes, copies, tables that change.
#include <atomic>

#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

class Spread : public FakeCluster {
 protected:
  // Stores each key at its home only.
  void StoreAtHome(std::span<const ChainHash> chain, size_t bytes) {
    for (const ChainHash& hash : chain)
      nodes_[Order(hash)[0]]->Store(hash, 0, kWholeGrid, Payload(hash, bytes));
  }
  static PutItem ItemOf(const ChainHash& hash, const Bytes& payload) {
    PutItem item;
    item.hash = hash;
    item.extents = {{payload.data(), payload.size()}};
    return item;
  }
};

TEST_F(Spread, MatchMergesTheAnswersOfFiveHomesInChainOrder) {
  StartNodes(5);
  OpenClient();
  const auto chain = Chain(2000);
  StoreAtHome(std::span(chain).first(1500), 64);
  for (const size_t length : {1ul, 3ul, 200ul, 2000ul}) {
    MatchRequest request;
    request.chain = std::span(chain).first(length);
    request.pin_us = 1'000'000;
    const MatchResult result = client_->Match(ns_, request);
    ASSERT_TRUE(result.status.ok());
    ASSERT_EQ(result.presence.size(), length);
    EXPECT_EQ(result.usable_length, std::min<size_t>(length, 1500));
    for (size_t i = 0; i < length; ++i) {
      ASSERT_EQ(result.presence[i], i < 1500 ? Presence::kRam : Presence::kEvicted) << i;
      ASSERT_EQ(result.estimate_us[i], 42u);
    }
    EXPECT_NE(result.pin, 0u);
    client_->Release(result.pin);
    client_->Release(result.pin);  // a second time means nothing
  }
  EXPECT_TRUE(Eventually([&] {
    size_t released = 0;
    for (const auto& node : nodes_) released += node->seen(Verb::kRelease);
    return released >= 11;  // one or up to three homes, then five and five
  }));
}

TEST_F(Spread, AHomeThatIsDeadIsUnreachableAndTheOthersCount) {
  StartNodes(5);
  OpenClient();
  const auto chain = Chain(500);
  StoreAtHome(chain, 64);
  const size_t dead = Order(chain[7])[0];
  std::vector<size_t> home;
  for (const ChainHash& hash : chain) home.push_back(Order(hash)[0]);
  nodes_[dead].reset(new FakeNode("other"));  // its address is gone
  MatchRequest request;
  request.chain = chain;
  const MatchResult result = client_->Match(ns_, request);
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(result.presence[i], home[i] == dead ? Presence::kUnreachable : Presence::kRam);
  }
  WaitRequest wait;
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait), result.usable_length);
}

TEST_F(Spread, GetsAndPutsReachEveryHome) {
  StartNodes(5);
  OpenClient();
  const auto chain = Chain(100);
  std::vector<Bytes> payloads;
  std::vector<PutItem> puts;
  for (const ChainHash& hash : chain) payloads.push_back(Payload(hash, 40'000));
  for (size_t i = 0; i < chain.size(); ++i) puts.push_back(ItemOf(chain[i], payloads[i]));
  for (const PutResult& result : client_->Put(ns_, puts)) {
    EXPECT_EQ(result.state, PutState::kStored) << result.why.ToString();
    EXPECT_EQ(result.copies, 1u);
  }
  for (const ChainHash& hash : chain) EXPECT_TRUE(nodes_[Order(hash)[0]]->Has(hash));
  Blocks blocks(chain, 40'000);
  for (const BlockResult& result : client_->Get(ns_, blocks.items)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_EQ(blocks.landed, payloads);
}

TEST_F(Spread, CopiesAreMadeAndFound) {
  StartNodes(4);
  OpenClient({.replicas = 2});
  const auto chain = Chain(40);
  std::vector<Bytes> payloads;
  std::vector<PutItem> puts;
  for (const ChainHash& hash : chain) payloads.push_back(Payload(hash, 4096));
  for (size_t i = 0; i < chain.size(); ++i) puts.push_back(ItemOf(chain[i], payloads[i]));
  for (const PutResult& result : client_->Put(ns_, puts)) {
    EXPECT_EQ(result.state, PutState::kStored);
    EXPECT_EQ(result.copies, 2u);
  }
  for (const ChainHash& hash : chain) {
    EXPECT_TRUE(nodes_[Order(hash)[0]]->Has(hash));
    EXPECT_TRUE(nodes_[Order(hash)[1]]->Has(hash));
  }
  nodes_[2].reset(new FakeNode("other"));
  MatchRequest request;
  request.chain = chain;
  EXPECT_EQ(client_->Match(ns_, request).usable_length, 40u);
  Blocks blocks(chain, 4096);
  for (const BlockResult& result : client_->Get(ns_, blocks.items)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_EQ(blocks.landed, payloads);
  WaitRequest wait;
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait), 40u);
}

TEST_F(Spread, OfTwoCopiesTheBetterOutcomeIsHeard) {
  StartNodes(2);
  OpenClient({.replicas = 2});
  const auto chain = Chain(1);
  const Bytes payload = Payload(chain[0], 4096);
  nodes_[1]->spoil_reserve = [](ReserveReply* reply) {
    for (auto& block : reply->blocks) block = {PutState::kFull, 0};
  };
  const PutItem item = ItemOf(chain[0], payload);
  const PutResult result = client_->Put(ns_, {&item, 1})[0];
  EXPECT_EQ(result.state, PutState::kStored);
  EXPECT_EQ(result.copies, 1u);
  const PutResult again = client_->Put(ns_, {&item, 1})[0];
  EXPECT_EQ(again.state, PutState::kExists);
  EXPECT_TRUE(again.there());
}

// A stopped process was waited for until it was given up, a second at least, however near the deadline was
// and however many copies there were.
TEST_F(Spread, AGetAsksTheNextCopyLongBeforeItsDeadline) {
  StartNodes(2);
  OpenClient({.replicas = 2});
  const auto chain = Chain(20);
  StoreEverywhere(chain, 8192);
  std::atomic<bool> stopped{true};
  nodes_[0]->manners = [&](const Envelope& envelope) {
    return stopped && envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  const auto get = [&] {
    Blocks blocks(chain, 8192);
    for (const BlockResult& result : client_->Get(ns_, blocks.items, {.deadline_us = 4'000'000}))
      EXPECT_EQ(result.outcome, Outcome::kHit);
    for (size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(blocks.landed[i], Payload(chain[i], 8192));
  };
  get();
  const size_t asked = nodes_[0]->seen(Verb::kGet);
  EXPECT_GT(asked, 0u);
  get();
  EXPECT_EQ(nodes_[0]->seen(Verb::kGet), asked);  // it has not answered yet
  stopped = false;
  nodes_[0]->SendSwallowed();
  EXPECT_TRUE(Eventually([&] {
    get();
    return nodes_[0]->seen(Verb::kGet) > asked;
  }));
  EXPECT_EQ(client_->stats().timed_out, 0u);
}

// With one copy only there is nobody else to ask: it is worth waiting for.
TEST_F(Spread, AGetWithoutAnotherCopyWaitsForItsNode) {
  StartNodes(2);
  OpenClient();
  const auto chain = Chain(20);
  StoreEverywhere(chain, 8192);
  nodes_[0]->manners = [&](const Envelope& envelope) {
    return envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  Blocks blocks(chain, 8192);
  const auto results = client_->Get(ns_, blocks.items, {.deadline_us = 200'000});
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(results[i].outcome, Order(chain[i])[0] == 0 ? Outcome::kTimedOut : Outcome::kHit);
  }
}

TEST_F(Spread, RemoveAndClearReachEveryNodeAndNameTheDead) {
  StartNodes(3);
  OpenClient();
  const auto chain = Chain(60);
  StoreAtHome(chain, 64);
  EXPECT_EQ(client_->Remove(ns_, std::span(chain).first(20), std::vector<uint16_t>{0}).value(), 20u);
  EXPECT_EQ(client_->Clear(ns_).value(), 40u);
  nodes_[1].reset(new FakeNode("other"));
  const Result<uint64_t> partly = client_->Clear(ns_);
  EXPECT_EQ(partly.status().code(), Code::kUnavailable);
  EXPECT_NE(partly.status().text().find("f1"), std::string::npos) << partly.status().text();
  EXPECT_EQ(client_->Ping("nobody").status().code(), Code::kNotFound);
}

TEST_F(Spread, ANewerTableMovesKeysAndAnOlderOneDoesNot) {
  StartNodes(1);
  OpenClient();
  nodes_.push_back(std::make_unique<FakeNode>("f1"));
  NodeTable table;
  table.epoch = 5;
  table.nodes = {nodes_[0]->record(), nodes_[1]->record()};
  nodes_[0]->PushTable(table);
  EXPECT_TRUE(Eventually([&] { return client_->table().nodes.size() == 2; }));
  NodeTable older = table;
  older.epoch = 4;
  older.nodes.pop_back();
  nodes_[0]->PushTable(older);
  EXPECT_TRUE(client_->Ping("f0").ok());
  EXPECT_EQ(client_->table().epoch, 5u);
  const auto chain = Chain(50);
  StoreAtHome(chain, 4096);
  Blocks blocks(chain, 4096);
  for (const BlockResult& result : client_->Get(ns_, blocks.items)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_GT(nodes_[1]->seen(Verb::kGet), 0u);
}

TEST_F(Spread, ADrainingNodeIsReadButNotWritten) {
  StartNodes(2);
  NodeTable table;
  table.epoch = 2;
  table.nodes = {nodes_[0]->record(), nodes_[1]->record()};
  table.nodes[0].state = NodeState::kDraining;
  for (const auto& node : nodes_) node->SetTable(table);
  OpenClient();
  const auto chain = Chain(20);
  StoreAtHome(chain, 4096);
  Blocks blocks(chain, 4096);
  for (const BlockResult& result : client_->Get(ns_, blocks.items)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_GT(nodes_[0]->seen(Verb::kGet), 0u);
  const auto fresh = Chain(20, 9);
  const Bytes payload = Payload(fresh[0], 4096);
  std::vector<PutItem> puts;
  for (const ChainHash& hash : fresh) puts.push_back(ItemOf(hash, payload));
  for (const PutResult& result : client_->Put(ns_, puts)) EXPECT_EQ(result.state, PutState::kStored);
  EXPECT_EQ(nodes_[0]->seen(Verb::kReserve), 0u);
  // What the draining home has not got is looked for where it goes now.
  Blocks moved(fresh, 4096);
  for (const BlockResult& result : client_->Get(ns_, moved.items)) EXPECT_EQ(result.outcome, Outcome::kHit);
  // And removed there, too.
  EXPECT_EQ(client_->Remove(ns_, fresh, std::vector<uint16_t>{0}).value(), 20u);
  EXPECT_EQ(client_->Remove(ns_, chain, std::vector<uint16_t>{0}).value(), 20u);
}

TEST_F(Spread, WaitComposesTheLeadingCountsOfItsHomes) {
  StartNodes(5);
  OpenClient();
  const auto chain = Chain(400);
  for (const size_t there : {0ul, 1ul, 37ul, 399ul, 400ul}) {
    for (size_t i = 0; i < there; ++i) nodes_[Order(chain[i])[0]]->Store(chain[i], 0, kWholeGrid, Bytes(64));
    WaitRequest wait;
    wait.chain = chain;
    EXPECT_EQ(client_->Wait(ns_, wait), there);
  }
}

TEST_F(Spread, APrefetchAddsUpWhatItsHomesHave) {
  StartNodes(3);
  OpenClient();
  const auto chain = Chain(2500);
  for (size_t i = 0; i < chain.size(); i += 2) {
    for (const uint16_t group : {uint16_t{0}, uint16_t{1}})
      nodes_[Order(chain[i])[0]]->Store(chain[i], group, kWholeGrid, Bytes(64));
  }
  WaitRequest request;
  request.chain = chain;
  request.groups = {{0}, {1}};
  const Result<uint64_t> there = client_->Prefetch(ns_, request);
  ASSERT_TRUE(there.ok()) << there.status().ToString();
  EXPECT_EQ(there.value(), 2500u);
  size_t requests = 0;
  for (const auto& node : nodes_) requests += node->seen(Verb::kPrefetch);
  EXPECT_GE(requests, 5u) << "a request names 1,024 blocks at most, and there are 5,000";
}

TEST_F(Spread, APrefetchEndsByItsDeadlineWithWhatOthersHave) {
  StartNodes(2);
  nodes_[1]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kPrefetch ? Manners::kSwallow : Manners::kAnswer;
  };
  OpenClient();
  const auto chain = Chain(40);
  StoreAtHome(chain, 64);
  uint64_t first = 0;
  for (const ChainHash& hash : chain) first += Order(hash)[0] == 0 ? 1u : 0u;
  ASSERT_TRUE(first > 0 && first < chain.size());
  const Result<uint64_t> there = client_->Prefetch(ns_, {.chain = chain}, {.deadline_us = 300'000});
  ASSERT_TRUE(there.ok()) << there.status().ToString();
  EXPECT_EQ(there.value(), first);
}

TEST_F(Spread, BytesInFlightStayUnderTheirBound) {
  StartNodes(3);
  OpenClient(
      {.connections_per_peer = 4, .bytes_in_flight_max = 1 << 20, .peer_bytes_in_flight_max = 600'000});
  const auto chain = Chain(60);
  const size_t bytes = 150'000 / 8 * 8;
  std::vector<Bytes> payloads;
  std::vector<PutItem> puts;
  for (const ChainHash& hash : chain) payloads.push_back(Payload(hash, bytes));
  for (size_t i = 0; i < chain.size(); ++i) puts.push_back(ItemOf(chain[i], payloads[i]));
  for (const PutResult& result : client_->Put(ns_, puts)) EXPECT_EQ(result.state, PutState::kStored);
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      Blocks blocks(chain, bytes);
      const CallOptions options{.priority = reader % 2 == 0 ? Priority::kBatch : Priority::kInteractive};
      for (const BlockResult& result : client_->Get(ns_, blocks.items, options)) {
        EXPECT_EQ(result.outcome, Outcome::kHit) << PresenceName(result.reason);
      }
      EXPECT_EQ(blocks.landed, payloads);
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_LE(client_->stats().bytes_in_flight_peak, 1u << 20);
  EXPECT_GT(client_->stats().bytes_in_flight_peak, bytes);
  EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
  // What can never fit is refused at once.
  Blocks huge({chain.data(), 1}, 700'000);
  const BlockResult refused = client_->Get(ns_, huge.items)[0];
  EXPECT_EQ(refused.outcome, Outcome::kRefused);
  EXPECT_EQ(refused.reason, Presence::kBusy);
}

}  // namespace
}  // namespace larder::testing
