// Blocks that are read much: their home says which nodes have copies, and readers take turns.
#include <atomic>

#include "client/core/hot_hints.h"
#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

constexpr size_t kHotBytes = 4096;

class Hot : public FakeCluster {
 protected:
  // The block at its home, which says that the places of `mask` have it, and at those of `there`.
  void Make(size_t nodes, uint64_t mask, uint64_t there) {
    StartNodes(nodes);
    OpenClient();
    chain_ = Chain(1);
    const NodeTable table = client_->table();
    for (const uint16_t node : OrderOf(table, SlotOf(chain_[0]), 64)) order_.push_back(node);
    for (size_t i = 0; i < order_.size(); ++i) {
      if ((there >> i & 1) != 0) At(i).Store(chain_[0], 0, kWholeGrid, Payload(chain_[0], kHotBytes));
    }
    mask_ = mask;
    At(0).spoil_get = [this](GetReply* reply, std::vector<Bytes>*) {
      if (mask_ != 0) reply->places = {{0, mask_}};
    };
  }
  FakeNode& At(size_t position) { return *nodes_[order_[position]]; }
  size_t Gets(size_t position) { return At(position).seen(Verb::kGet); }
  BlockResult Get(uint64_t deadline_us = 4'000'000) {
    Blocks blocks(chain_, kHotBytes);
    const BlockResult result = client_->Get(ns_, blocks.items, {.deadline_us = deadline_us})[0];
    const bool right = result.outcome != Outcome::kHit || blocks.landed[0] == Payload(chain_[0], kHotBytes);
    EXPECT_TRUE(right);
    return result;
  }
  void GetMany(int times) {
    for (int i = 0; i < times; ++i) ASSERT_EQ(Get().outcome, Outcome::kHit);
  }

  std::vector<ChainHash> chain_;
  std::vector<size_t> order_;
  std::atomic<uint64_t> mask_{0};
};

TEST_F(Hot, ReadersTakeTheirTurnAtEachPlace) {
  Make(6, 0b1011, 0b1011);
  GetMany(1 + 30);
  EXPECT_EQ(Gets(0), 11u);
  EXPECT_EQ(Gets(1), 10u);
  EXPECT_EQ(Gets(2), 0u);
  EXPECT_EQ(Gets(3), 10u);
}

TEST_F(Hot, WhatItsHomeSaysLastCounts) {
  Make(4, 0b11, 0b111);
  GetMany(9);
  EXPECT_EQ(Gets(2), 0u);
  mask_ = 0b101;
  GetMany(2);  // the home is among them
  const size_t before = Gets(1);
  GetMany(20);
  EXPECT_EQ(Gets(1), before);
  EXPECT_GE(Gets(2), 9u);
  mask_ = 0;  // it has cooled
  GetMany(2);
  const size_t cooled = Gets(2);
  GetMany(20);
  EXPECT_EQ(Gets(2), cooled);
}

// Its lease has ended there, or it was evicted.
TEST_F(Hot, ACopyThatHasGoneIsNoMiss) {
  Make(4, 0b1111, 0b0011);
  GetMany(40);
  EXPECT_EQ(client_->stats().misses, 0u);
  EXPECT_EQ(client_->stats().hits, 40u);
  EXPECT_GT(Gets(2) + Gets(3), 0u);
}

TEST_F(Hot, AMissIsOneWhenItsHomeSaysSo) {
  Make(4, 0b11, 0b11);
  GetMany(4);
  nodes_[order_[0]]->spoil_get = [](GetReply* reply, std::vector<Bytes>* segments) {
    reply->blocks[0] = {Presence::kRemoved, {}};
    segments->clear();
  };
  nodes_[order_[1]]->spoil_get = [](GetReply* reply, std::vector<Bytes>* segments) {
    reply->blocks[0] = {Presence::kExpired, {}};
    segments->clear();
  };
  for (int i = 0; i < 4; ++i) {
    const BlockResult result = Get();
    EXPECT_EQ(result.outcome, Outcome::kMiss);
    EXPECT_EQ(result.reason, Presence::kRemoved);
  }
  EXPECT_EQ(client_->stats().misses, 4u);
}

TEST_F(Hot, ADeadOrCorruptCopyCostsNoHit) {
  Make(4, 0b1111, 0b1111);
  GetMany(8);
  At(1).spoil_get = [](GetReply*, std::vector<Bytes>* segments) { segments->at(0).back() ^= std::byte{1}; };
  nodes_[order_[2]].reset(new FakeNode("other"));  // its address is gone
  GetMany(24);
  EXPECT_EQ(client_->stats().corrupt, 0u);
  EXPECT_EQ(client_->stats().misses, 0u);
  EXPECT_GT(Gets(3), 4u);
}

// A stopped holder costs a quarter of the deadline, once.
TEST_F(Hot, AHolderThatDoesNotAnswerIsLeftForTheHome) {
  Make(3, 0b11, 0b11);
  GetMany(4);
  At(1).manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Get(4'000'000).outcome, Outcome::kHit);
  EXPECT_EQ(client_->stats().timed_out, 0u);
}

// It may have been restarted: then it knows nothing of copies, and would tell nobody what is removed.
TEST_F(Hot, AHomeThatHangsUpIsAskedAgainBeforeItsCopiesAre) {
  Make(3, 0b111, 0b111);
  GetMany(9);
  mask_ = 0;
  At(0).HangUp();
  EXPECT_TRUE(Eventually([&] { return At(0).connections() == 0; }));
  const auto home_hears = [&] {
    const size_t copies = Gets(1) + Gets(2), before = Gets(0);
    (void)Get();
    return Gets(0) > before && Gets(1) + Gets(2) == copies;
  };
  EXPECT_TRUE(Eventually(home_hears));
  const size_t copies = Gets(1) + Gets(2);
  GetMany(20);
  EXPECT_EQ(Gets(1) + Gets(2), copies);
}

TEST_F(Hot, NonsenseAboutPlacesHarmsNobody) {
  Make(3, UINT64_MAX, 0b001);
  GetMany(10);
  mask_ = 0b110;  // without the home
  GetMany(10);
  mask_ = uint64_t{1} << 63 | 1;  // there are no such nodes
  GetMany(10);
  EXPECT_EQ(client_->stats().misses, 0u);
}

NodeTable TableOfFour(uint64_t epoch) {
  NodeTable table;
  table.epoch = epoch;
  for (const char* id : {"a", "b", "c", "d"}) {
    NodeRecord record;
    record.id = id;
    table.nodes.push_back(record);
  }
  return table;
}

TEST(HotHints, AreBoundedAndEndWithTheirTable) {
  client::HotHints hints(0);
  const NodeTable table = TableOfFour(3);
  const auto chain = Chain(client::HotHints::kHintsMax + 10);
  for (const ChainHash& hash : chain) hints.Note({0, 0, hash}, 0b11, table);
  EXPECT_EQ(hints.size(), client::HotHints::kHintsMax);
  const client::HotHints::Key key{0, 0, chain.back()};
  EXPECT_EQ(hints.Turn(key, 3).size(), 2u);
  EXPECT_TRUE(hints.Turn({1, 0, chain.back()}, 3).empty());
  EXPECT_TRUE(hints.Turn(key, 4).empty());
  EXPECT_TRUE(hints.Turn(key, 3).empty());
  hints.Note(key, 0b1, table);
  EXPECT_TRUE(hints.Turn(key, 3).empty());
}

TEST(HotHints, ReadersBeginAtDifferentPlaces) {
  const auto chain = Chain(1);
  std::vector<size_t> first(4);
  for (uint64_t seed = 0; seed < 40; ++seed) {
    client::HotHints hints(seed);
    hints.Note({0, 0, chain[0]}, 0b1111, TableOfFour(1));
    ++first[hints.Turn({0, 0, chain[0]}, 1).at(0)];
  }
  EXPECT_EQ(first, std::vector<size_t>(4, 10));
}

}  // namespace
}  // namespace larder::testing
