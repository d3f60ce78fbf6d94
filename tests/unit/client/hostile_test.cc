// Nodes that lie, garble, fall silent or hang up: every call ends by its deadline, nothing wrong is ever a
// hit.
#include <atomic>

#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

class Hostile : public FakeCluster {
 protected:
  // One get of `chain`, whose bytes must be right where it is a hit.
  std::vector<BlockResult> GetChecked(std::span<const ChainHash> chain, size_t bytes,
                                      uint64_t deadline_us = 0) {
    Blocks blocks(chain, bytes);
    const std::vector<BlockResult> results = client_->Get(ns_, blocks.items, {.deadline_us = deadline_us});
    for (size_t i = 0; i < chain.size(); ++i) {
      if (results[i].outcome != Outcome::kHit) continue;
      EXPECT_EQ(blocks.landed[i], Payload(chain[i], bytes));
    }
    return results;
  }
};

TEST_F(Hostile, FlippedByteIsNeverAHitAndIsReported) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(4);
  StoreEverywhere(chain, 1 << 20);
  nodes_[0]->spoil_get = [](GetReply* reply, std::vector<Bytes>* segments) {
    for (size_t i = 0, segment = 0; i < reply->blocks.size(); ++i) {
      if (reply->blocks[i].sources.empty()) continue;
      (*segments)[segment++][700'000] ^= std::byte{4};
    }
  };
  for (const BlockResult& result : GetChecked(chain, 1 << 20)) {
    EXPECT_EQ(result.outcome, Outcome::kCorrupt);
    EXPECT_EQ(result.reason, Presence::kCorrupt);
  }
  EXPECT_EQ(client_->stats().corrupt, 4u) << client_->peers()[0].last_error;
  EXPECT_EQ(client_->stats().reports, 4u);
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kReport) == 4; }));
}

TEST_F(Hostile, CorruptCopyIsReplacedByTheNext) {
  StartNodes(3);
  OpenClient({.replicas = 3});
  const auto chain = Chain(12);
  StoreEverywhere(chain, 100'000 / 8 * 8);
  nodes_[1]->spoil_get = [](GetReply*, std::vector<Bytes>* segments) {
    for (Bytes& segment : *segments) segment.back() ^= std::byte{1};
  };
  for (const BlockResult& result : GetChecked(chain, 100'000)) EXPECT_EQ(result.outcome, Outcome::kHit);
  EXPECT_TRUE(Eventually([&] { return nodes_[1]->seen(Verb::kReport) > 0; }));  // it goes behind the answer
}

struct Lie {
  const char* name;
  std::function<void(GetReply*, std::vector<Bytes>*)> spoil;
};

TEST_F(Hostile, ImpossibleRepliesAreRefusedBeforeTheyLand) {
  const Lie lies[] = {
      {"a block too few",
       [](GetReply* reply, std::vector<Bytes>* segments) {
         reply->blocks.pop_back();
         segments->pop_back();
       }},
      {"a block too many", [](GetReply* reply, std::vector<Bytes>*) { reply->blocks.push_back({}); }},
      {"a hit without a source",
       [](GetReply* reply, std::vector<Bytes>* segments) {
         for (auto& block : reply->blocks) block.sources.clear();
         segments->clear();
       }},
      {"a miss with a source",
       [](GetReply* reply, std::vector<Bytes>*) { reply->blocks[0].presence = Presence::kEvicted; }},
      {"a rectangle outside of the ask",
       [](GetReply* reply, std::vector<Bytes>*) {
         reply->blocks[0].sources[0].rectangle = {0, 4, 1, 3};
       }},
      {"a rectangle that does not cover",
       [](GetReply* reply, std::vector<Bytes>* segments) {
         reply->blocks[0].sources[0].rectangle = {0, 3, 0, 2};
         reply->blocks[0].sources[0].parts.resize(6);
         for (auto& part : reply->blocks[0].sources[0].parts) part.bytes = 8192 / 6 * 1;
         reply->blocks[0].sources[0].parts[0].bytes += 8192 - 8192 / 6 * 6;
         (void)segments;
       }},
      {"overlapping sources",
       [](GetReply* reply, std::vector<Bytes>* segments) {
         auto source = reply->blocks[0].sources[0];
         for (auto& part : source.parts) part.bytes /= 2;
         reply->blocks[0].sources = {source, source};
         Bytes half((*segments)[0].begin(), (*segments)[0].begin() + 4096);
         segments->erase(segments->begin());
         segments->insert(segments->begin(), {half, half});
       }},
      {"too few parts",
       [](GetReply* reply, std::vector<Bytes>*) { reply->blocks[0].sources[0].parts.pop_back(); }},
      {"parts that are not the segment",
       [](GetReply* reply, std::vector<Bytes>*) { reply->blocks[0].sources[0].parts[3].bytes += 8; }},
      {"a segment too short", [](GetReply*, std::vector<Bytes>* segments) { segments->front().pop_back(); }},
      {"a segment too many",
       [](GetReply*, std::vector<Bytes>* segments) { segments->push_back(Bytes(100)); }},
      {"a segment too few", [](GetReply*, std::vector<Bytes>* segments) { segments->pop_back(); }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    client_.reset();
    nodes_.clear();
    StartNodes(1);
    OpenClient();
    const auto chain = Chain(2);
    StoreEverywhere(chain, 8192);
    nodes_[0]->spoil_get = lie.spoil;
    Blocks blocks(chain, 8192);
    const std::vector<BlockResult> results = client_->Get(ns_, blocks.items);
    for (const BlockResult& result : results) EXPECT_NE(result.outcome, Outcome::kHit);
    // Only what passed the checks was let in: with these lies nothing.
    for (const Bytes& landed : blocks.landed) EXPECT_EQ(landed, Bytes(8192));
    // It is believed again once it behaves and its time-out is over.
    nodes_[0]->spoil_get = nullptr;
    EXPECT_TRUE(Eventually([&] { return GetChecked(chain, 8192)[0].outcome == Outcome::kHit; }));
  }
}

TEST_F(Hostile, ABlockOfAnotherSizeCostsItsNeighboursNothing) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(6);
  StoreEverywhere(chain, 8192);
  nodes_[0]->Store(chain[2], 0, kWholeGrid, Payload(chain[2], 4096));
  const auto results = GetChecked(chain, 8192);
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i == 2 ? Outcome::kRefused : Outcome::kHit) << i;
  }
  EXPECT_TRUE(client_->peers()[0].connected);
}

TEST_F(Hostile, WrongAnswersToEveryVerbEndTheCallAndNothingElse) {
  for (const Manners manners :
       {Manners::kGarbage, Manners::kWrongVerb, Manners::kHangUp, Manners::kBusy, Manners::kDenied}) {
    SCOPED_TRACE(static_cast<int>(manners));
    client_.reset();
    nodes_.clear();
    StartNodes(1);
    OpenClient({.backoff_min_us = 1000, .backoff_max_us = 2000});
    const auto chain = Chain(300);
    StoreEverywhere(std::span(chain).first(1), 8192);
    nodes_[0]->manners = [manners](const Envelope& envelope) {
      return envelope.verb == Verb::kHello || envelope.verb == Verb::kOpen ? Manners::kAnswer : manners;
    };
    MatchRequest match;
    match.chain = chain;
    const MatchResult found = client_->Match(ns_, match);
    EXPECT_EQ(found.usable_length, 0u);
    for (const Presence presence : found.presence) EXPECT_FALSE(IsHit(presence));
    EXPECT_NE(GetChecked(chain, 8192)[0].outcome, Outcome::kHit);
    const Bytes payload = Payload(chain[9], 8192);
    PutItem put;
    put.hash = chain[9];
    put.extents = {{payload.data(), payload.size()}};
    EXPECT_FALSE(client_->Put(ns_, {&put, 1})[0].there());
    WaitRequest wait;
    wait.chain = chain;
    EXPECT_EQ(client_->Wait(ns_, wait), 0u);
    EXPECT_FALSE(client_->Remove(ns_, chain, std::vector<uint16_t>{0}).ok());
    EXPECT_FALSE(client_->Clear(ns_).ok());
    EXPECT_FALSE(client_->Ping("f0").ok());
    nodes_[0]->manners = nullptr;
    EXPECT_TRUE(
        Eventually([&] { return GetChecked(std::span(chain).first(1), 8192)[0].outcome == Outcome::kHit; }));
    EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
    EXPECT_EQ(client_->stats().operations, 0u);
  }
}

TEST_F(Hostile, WrongCountsInRepliesAreNotBelieved) {
  StartNodes(1);
  OpenClient({.backoff_min_us = 1000, .backoff_max_us = 2000});
  const auto chain = Chain(10);
  const Bytes payload = Payload(chain[9], 8192);
  PutItem put;
  put.hash = chain[9];
  put.extents = {{payload.data(), payload.size()}};
  const auto calm = [&] { EXPECT_TRUE(Eventually([&] { return client_->Ping("f0").ok(); })); };
  nodes_[0]->spoil_match = [](MatchReply* reply) { reply->presence.assign(reply->presence.size() + 1, 0); };
  MatchRequest match;
  match.chain = chain;
  EXPECT_EQ(client_->Match(ns_, match).usable_length, 0u);
  calm();
  nodes_[0]->spoil_wait = [](WaitReply* reply) { reply->leading = 1'000'000; };
  WaitRequest wait;
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait), 0u);
  calm();
  nodes_[0]->spoil_prefetch = [](PrefetchReply* reply) { reply->blocks = 1'000'000; };
  const Result<uint64_t> there = client_->Prefetch(ns_, wait);
  EXPECT_TRUE(there.ok() && there.value() == 0);
  calm();
  nodes_[0]->spoil_reserve = [](ReserveReply* reply) { reply->blocks.push_back({PutState::kTicket, 1}); };
  EXPECT_FALSE(client_->Put(ns_, {&put, 1})[0].there());
  calm();
  nodes_[0]->spoil_reserve = nullptr;
  nodes_[0]->spoil_commit = [](CommitReply* reply) { reply->states.clear(); };
  EXPECT_FALSE(client_->Put(ns_, {&put, 1})[0].there());
  calm();
  nodes_[0]->spoil_commit = [](CommitReply* reply) { reply->states[0] = PutState::kTicket; };
  put.hash = chain[8];
  EXPECT_FALSE(client_->Put(ns_, {&put, 1})[0].there());
}

TEST_F(Hostile, ASilentNodeCostsTheDeadlineAndNoMore) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(20);
  StoreEverywhere(chain, 8192);
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet || envelope.verb == Verb::kMatch || envelope.verb == Verb::kReserve
               ? Manners::kSwallow
               : Manners::kAnswer;
  };
  const auto begun = std::chrono::steady_clock::now();
  Blocks blocks(chain, 8192);
  for (const BlockResult& result : client_->Get(ns_, blocks.items, {.deadline_us = 50'000})) {
    EXPECT_EQ(result.outcome, Outcome::kTimedOut);
    EXPECT_EQ(result.reason, Presence::kTimedOut);
  }
  MatchRequest match;
  match.chain = chain;
  EXPECT_EQ(client_->Match(ns_, match, {.deadline_us = 50'000}).presence[0], Presence::kTimedOut);
  PutItem put;
  put.hash = Chain(1, 5)[0];
  const Bytes payload = Payload(put.hash, 8192);
  put.extents = {{payload.data(), payload.size()}};
  const PutResult result = client_->Put(ns_, {&put, 1}, {.deadline_us = 50'000})[0];
  EXPECT_EQ(result.why.code(), Code::kTimedOut);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  // Late answers are thrown away; the memory is the caller's.
  nodes_[0]->SendSwallowed();
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->unsent() == 0; }));
  EXPECT_TRUE(client_->Ping("f0").ok());
  for (const Bytes& landed : blocks.landed) EXPECT_EQ(landed, Bytes(8192));
  EXPECT_EQ(client_->stats().timed_out, 20u);
}

TEST_F(Hostile, ANodeWithoutASignOfLifeIsGivenUpLongBeforeTheDeadline) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(1);
  nodes_[0]->manners = [](const Envelope&) { return Manners::kSwallow; };
  const auto begun = std::chrono::steady_clock::now();
  const BlockResult result = GetChecked(chain, 8192, 60'000'000)[0];
  EXPECT_EQ(result.outcome, Outcome::kMiss);
  EXPECT_EQ(result.reason, Presence::kUnreachable);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
  EXPECT_EQ(client_->stats().peers_down, 1u);
}

// A node that takes longer than a second to wire up RDMA (an emulated guest may) was given up by callers who
// had allowed it two minutes.
TEST_F(Hostile, ASlowNodeIsWaitedForAsLongAsAConnectionMayTake) {
  StartNodes(1);
  ClientOptions options;
  options.connect_timeout_us = 30'000'000;
  OpenClient(options);
  const auto chain = Chain(1);
  StoreEverywhere(chain, 8192);
  std::atomic<bool> slow{true};
  nodes_[0]->manners = [&](const Envelope&) { return slow ? Manners::kSwallow : Manners::kAnswer; };
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    slow = false;
    nodes_[0]->SendSwallowed();
  });
  EXPECT_EQ(GetChecked(chain, 8192, 60'000'000)[0].outcome, Outcome::kHit);
  EXPECT_EQ(client_->stats().peers_down, 0u);
  late.join();
}

TEST_F(Hostile, MemoryIsNotTouchedOnceAGetHasTimedOutInMidPayload) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(8);
  StoreEverywhere(chain, 4 << 20);
  for (uint64_t deadline_us = 500; deadline_us < 20'000; deadline_us += 1500) {
    Blocks blocks(chain, 4 << 20);
    const auto results = client_->Get(ns_, blocks.items, {.deadline_us = deadline_us});
    const std::vector<Bytes> then = blocks.landed;
    EXPECT_TRUE(Eventually([&] { return nodes_[0]->unsent() == 0; }));
    EXPECT_TRUE(client_->Ping("f0").ok());
    EXPECT_TRUE(then == blocks.landed) << deadline_us;
    for (size_t i = 0; i < chain.size(); ++i) {
      if (results[i].outcome != Outcome::kHit) continue;
      EXPECT_TRUE(blocks.landed[i] == Payload(chain[i], 4 << 20));
    }
  }
}

TEST_F(Hostile, ADeadNodeIsAMissAtOnceAndComesBack) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(4);
  StoreEverywhere(chain, 8192);
  EXPECT_EQ(GetChecked(chain, 8192)[0].outcome, Outcome::kHit);
  const std::string address = nodes_[0]->address();
  nodes_.clear();
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    const BlockResult result = GetChecked(chain, 8192, 10'000'000)[0];
    EXPECT_EQ(result.outcome, Outcome::kMiss);
    EXPECT_EQ(result.reason, Presence::kUnreachable);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
  EXPECT_GE(client_->stats().peers_down, 1u);
  nodes_.push_back(std::make_unique<FakeNode>("f0", address));
  StoreEverywhere(chain, 8192);
  EXPECT_TRUE(Eventually([&] { return GetChecked(chain, 8192)[3].outcome == Outcome::kHit; }));
  EXPECT_GE(client_->stats().reconnects, 1u);
}

TEST_F(Hostile, BrokenConnectionsAreMendedWithinTheCall) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(4);
  StoreEverywhere(chain, 8192);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(GetChecked(chain, 8192)[0].outcome, Outcome::kHit) << client_->peers()[0].last_error;
    nodes_[0]->HangUp();
  }
}

TEST_F(Hostile, ARefusedNamespaceRefusesItsBlocks) {
  StartNodes(1);
  OpenClient();
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kOpen ? Manners::kDenied : Manners::kAnswer;
  };
  const BlockResult result = GetChecked(Chain(1), 8192)[0];
  EXPECT_EQ(result.outcome, Outcome::kRefused);
  EXPECT_EQ(result.reason, Presence::kRefused);
  EXPECT_EQ(GetChecked(Chain(1), 8192)[0].outcome, Outcome::kRefused);
}

TEST_F(Hostile, AWrongTokenIsSaidAtOnce) {
  StartNodes(1);
  nodes_[0]->manners = [](const Envelope&) { return Manners::kDenied; };
  ClientOptions options;
  options.seeds = {nodes_[0]->address()};
  options.transport = "tcp";
  const auto client = Client::Open(options, 60'000'000);
  EXPECT_EQ(client.status().code(), Code::kDenied);
  EXPECT_EQ(client.status().text(), "who are you");
}

TEST_F(Hostile, AWaitThatIsDecidedEarlyEndsEarly) {
  StartNodes(3);
  OpenClient();
  const auto chain = Chain(30);
  const size_t first = Order(chain[0])[0];
  for (size_t i = 0; i < 3; ++i) {
    if (i == first) continue;  // the others would wait for ever
    nodes_[i]->manners = [](const Envelope& envelope) {
      return envelope.verb == Verb::kWait ? Manners::kSwallow : Manners::kAnswer;
    };
  }
  WaitRequest wait;
  wait.chain = chain;
  EXPECT_EQ(client_->Wait(ns_, wait, {.deadline_us = 60'000'000}), 0u);
  EXPECT_EQ(client_->stats().operations, 0u);
}

TEST_F(Hostile, OpenEndsByItsDeadlineWhenNoSeedAnswers) {
  ClientOptions options;
  options.seeds = {"127.0.0.1:1", "127.0.0.1:2"};
  options.transport = "tcp";
  const auto begun = std::chrono::steady_clock::now();
  const auto client = Client::Open(options, 200'000);
  EXPECT_FALSE(client.ok());
  EXPECT_NE(client.status().text().find("127.0.0.1"), std::string::npos) << client.status().ToString();
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

TEST_F(Hostile, ANodeThatSaysItIsAnotherIsNotBelieved) {
  StartNodes(2);
  NodeTable table;
  table.epoch = 3;
  table.nodes = {nodes_[0]->record(), nodes_[1]->record()};
  std::swap(table.nodes[0].data_address, table.nodes[1].data_address);
  for (auto& node : nodes_) node->SetTable(table);
  OpenClient();
  for (const BlockResult& result : GetChecked(Chain(20), 8192)) EXPECT_EQ(result.outcome, Outcome::kMiss);
}

}  // namespace
}  // namespace larder::testing
