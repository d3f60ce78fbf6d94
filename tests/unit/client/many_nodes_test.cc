// A client and as many nodes as a large cluster has.
#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

using ManyNodes = FakeCluster;

TEST_F(ManyNodes, SixteenThatAnswerAtOnceStayUnderTheClientsBound) {
  constexpr uint64_t kBound = 4 << 20;
  StartNodes(16);
  OpenClient({.bytes_in_flight_max = kBound, .peer_bytes_in_flight_max = kBound});
  const auto chain = Chain(512);
  const size_t bytes = 64 << 10;
  for (const ChainHash& hash : chain)
    nodes_[Order(hash)[0]]->Store(hash, 0, kWholeGrid, Payload(hash, bytes));
  for (int round = 0; round < 3; ++round) {
    Blocks blocks(chain, bytes);
    size_t hits = 0;
    for (const BlockResult& result : client_->Get(ns_, blocks.items, {.deadline_us = 30'000'000})) {
      hits += result.outcome == Outcome::kHit;
    }
    EXPECT_EQ(hits, chain.size());
    for (size_t i = 0; i < chain.size(); i += 37) EXPECT_EQ(blocks.landed[i], Payload(chain[i], bytes));
  }
  EXPECT_LE(client_->stats().bytes_in_flight_peak, kBound);
  EXPECT_GT(client_->stats().bytes_in_flight_peak, kBound / 2);
  for (const auto& node : nodes_) EXPECT_GT(node->seen(Verb::kGet), 0u);
}

TEST_F(ManyNodes, AMatchOf8192KeysOver64HomesFindsThePrefix) {
  StartNodes(64);
  OpenClient();
  const auto chain = Chain(8192);
  const size_t there = 8000;  // a gap; what lies behind it is seen, but no use
  for (size_t i = 0; i < chain.size(); ++i) {
    if (i != there) nodes_[Order(chain[i])[0]]->Store(chain[i], 0, kWholeGrid, Payload(chain[i], 64));
  }
  const MatchResult match = client_->Match(ns_, {.chain = chain}, {.deadline_us = 30'000'000});
  EXPECT_TRUE(match.status.ok()) << match.status.ToString();
  EXPECT_EQ(match.usable_length, there);
  size_t hits = 0;
  for (const Presence presence : match.presence) hits += IsHit(presence);
  EXPECT_EQ(hits, chain.size() - 1);
  for (const auto& node : nodes_) EXPECT_EQ(node->seen(Verb::kMatch), 1u);
}

}  // namespace
}  // namespace larder::testing
