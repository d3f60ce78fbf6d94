// Gets that a node answers in several replies.
#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

constexpr size_t kBytes = 32 << 10;  // ten of them are one request

class Parts : public FakeCluster {
 protected:
  void Start(size_t nodes = 1, uint32_t replicas = 1) {
    StartNodes(nodes);
    OpenClient(
        {.connections_per_peer = 1, .replicas = replicas, .backoff_min_us = 1000, .backoff_max_us = 2000});
    StoreEverywhere(chain_, kBytes);
    for (const auto& node : nodes_) node->reply_of = [](size_t i) { return static_cast<uint32_t>(i % 3); };
  }
  void ExpectHits(const std::vector<BlockResult>& results, const Blocks& blocks) {
    for (size_t i = 0; i < chain_.size(); ++i) {
      EXPECT_EQ(results[i].outcome, Outcome::kHit) << i;
      EXPECT_EQ(blocks.landed[i], Payload(chain_[i], kBytes)) << i;
    }
    EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
  }
  const std::vector<ChainHash> chain_ = Chain(10);
};

TEST_F(Parts, AnAnswerInSeveralRepliesIsPutTogether) {
  Start();
  EXPECT_EQ(nodes_[0]->features() & kFeatureParts, kFeatureParts);
  for (int round = 0; round < 20; ++round) {
    Blocks blocks(chain_, kBytes);
    ExpectHits(client_->Get(ns_, blocks.items), blocks);
  }
  EXPECT_EQ(nodes_[0]->seen(Verb::kGet), 20u);
  EXPECT_EQ(client_->stats().hits, 200u);
}

TEST_F(Parts, MissesOfEveryPartAreHeard) {
  Start();
  std::vector<ChainHash> chain = Chain(5, 9);  // of which nothing is there
  for (const ChainHash& hash : chain_) chain.push_back(hash);
  Blocks blocks(chain, kBytes);
  const auto results = client_->Get(ns_, blocks.items);
  for (size_t i = 0; i < chain.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i < 5 ? Outcome::kMiss : Outcome::kHit) << i;
  }
}

TEST_F(Parts, WhatCameIsAHitWhenTheRestIsTooLate) {
  Start();
  nodes_[0]->hold_parts = true;
  Blocks blocks(chain_, kBytes);
  const auto results = client_->Get(ns_, blocks.items, {.deadline_us = 200'000});
  for (size_t i = 0; i < chain_.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i % 3 == 0 ? Outcome::kHit : Outcome::kTimedOut) << i;
    if (i % 3 != 0) continue;
    EXPECT_EQ(blocks.landed[i], Payload(chain_[i], kBytes));
  }
  EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
  // The memory is the caller's: what comes now is thrown away.
  nodes_[0]->SendSwallowed();
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->unsent() == 0; }));
  EXPECT_TRUE(client_->Ping("f0").ok());
  for (size_t i = 0; i < chain_.size(); ++i) {
    EXPECT_EQ(blocks.landed[i], i % 3 == 0 ? Payload(chain_[i], kBytes) : Bytes(kBytes)) << i;
  }
  nodes_[0]->hold_parts = false;
  Blocks again(chain_, kBytes);
  ExpectHits(client_->Get(ns_, again.items), again);
}

TEST_F(Parts, WhatCameIsNotInFlightAnyMoreAndACancelFreesTheRest) {
  Start();
  nodes_[0]->hold_parts = true;
  const auto queue = client_->MakeQueue();
  Blocks blocks(chain_, kBytes);
  const OperationId id = client_->SubmitGet(queue.get(), 1, ns_, blocks.items).value();
  EXPECT_TRUE(Eventually([&] { return client_->stats().bytes_in_flight == 6 * kBytes; }));
  EXPECT_EQ(client_->stats().hits, 4u);
  client_->Cancel(id);
  const std::vector<Completion> done = queue->Poll(1, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  for (size_t i = 0; i < chain_.size(); ++i) {
    EXPECT_EQ(done[0].blocks[i].outcome, i % 3 == 0 ? Outcome::kHit : Outcome::kMiss) << i;
  }
  EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kCancel) == 1; }));
}

TEST_F(Parts, AConnectionThatBreaksBetweenTwoPartsCostsOnlyTheRest) {
  Start();
  nodes_[0]->hold_parts = true;
  const auto queue = client_->MakeQueue();
  Blocks blocks(chain_, kBytes);
  ASSERT_TRUE(client_->SubmitGet(queue.get(), 1, ns_, blocks.items).ok());
  EXPECT_TRUE(Eventually([&] { return client_->stats().hits == 4; }));
  nodes_[0]->reply_of = nullptr;
  nodes_[0]->HangUp();
  const std::vector<Completion> done = queue->Poll(1, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  ExpectHits(done[0].blocks, blocks);
  EXPECT_EQ(nodes_[0]->seen(Verb::kGet), 2u);
}

TEST_F(Parts, WithCopiesWhatANodeStillOwesIsAskedOfTheNext) {
  Start(2, 2);
  nodes_[0]->hold_parts = true;
  Blocks blocks(chain_, kBytes);
  ExpectHits(client_->Get(ns_, blocks.items, {.deadline_us = 2'000'000}), blocks);
  // Late answers of the first land nowhere.
  nodes_[0]->SendSwallowed();
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->unsent() == 0; }));
  EXPECT_TRUE(client_->Ping("f0").ok());
  for (size_t i = 0; i < chain_.size(); ++i) EXPECT_EQ(blocks.landed[i], Payload(chain_[i], kBytes)) << i;
}

TEST_F(Parts, AFlippedByteInAPartCostsItsBlockAlone) {
  Start();
  nodes_[0]->spoil_get = [](GetReply* reply, std::vector<Bytes>* segments) {
    if (reply->blocks.size() == 6) segments->front()[1000] ^= std::byte{2};  // the second part
  };
  Blocks blocks(chain_, kBytes);
  const auto results = client_->Get(ns_, blocks.items);
  for (size_t i = 0; i < chain_.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i == 1 ? Outcome::kCorrupt : Outcome::kHit) << i;
  }
}

TEST_F(Parts, PartsThatMakeNoSenseAreRefusedAndWhatCameBeforeCounts) {
  struct Lie {
    const char* name;
    std::function<void(GetReply*, std::vector<Bytes>*)> spoil;  // of the second part
  };
  const Lie lies[] = {
      {"a part that answers nothing",
       [](GetReply* reply, std::vector<Bytes>* segments) {
         for (GetReply::Block& block : reply->blocks) block = {Presence::kLater, {}};
         segments->clear();
       }},
      {"all blocks again",
       [](GetReply* reply, std::vector<Bytes>*) {
         for (int i = 0; i < 4; ++i) reply->blocks.push_back({Presence::kEvicted, {}});
       }},
      {"a block too few", [](GetReply* reply, std::vector<Bytes>*) { reply->blocks.pop_back(); }},
      {"a later block with a source",
       [](GetReply* reply, std::vector<Bytes>*) { reply->blocks[0].presence = Presence::kLater; }},
      {"a segment too many",
       [](GetReply*, std::vector<Bytes>* segments) { segments->push_back(Bytes(100)); }},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.name);
    client_.reset();
    nodes_.clear();
    Start();
    nodes_[0]->spoil_get = [&](GetReply* reply, std::vector<Bytes>* segments) {
      if (reply->blocks.size() == 6) lie.spoil(reply, segments);
    };
    Blocks blocks(chain_, kBytes);
    const auto results = client_->Get(ns_, blocks.items, {.deadline_us = 5'000'000});
    for (size_t i = 0; i < chain_.size(); ++i) {
      EXPECT_EQ(results[i].outcome == Outcome::kHit, i % 3 == 0) << i;
      EXPECT_EQ(blocks.landed[i], i % 3 == 0 ? Payload(chain_[i], kBytes) : Bytes(kBytes)) << i;
    }
    EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
    nodes_[0]->spoil_get = nullptr;
    EXPECT_TRUE(Eventually([&] {
      Blocks again(chain_, kBytes);
      return client_->Get(ns_, again.items)[1].outcome == Outcome::kHit;
    }));
  }
}

TEST_F(Parts, ABlockOfAnotherSizeInAPartIsAskedForAlone) {
  Start();
  nodes_[0]->Store(chain_[4], 0, kWholeGrid, Payload(chain_[4], 8192));
  Blocks blocks(chain_, kBytes);
  const auto results = client_->Get(ns_, blocks.items);
  for (size_t i = 0; i < chain_.size(); ++i) {
    EXPECT_EQ(results[i].outcome, i == 4 ? Outcome::kRefused : Outcome::kHit) << i;
  }
  EXPECT_EQ(client_->stats().bytes_in_flight, 0u);
}

}  // namespace
}  // namespace larder::testing
