// What engines say of a chain's future: how it moves blocks, and what it is worth.
#include <gtest/gtest.h>

#include <algorithm>
#include <queue>
#include <random>

#include "node/eviction/effective_age.h"
#include "tests/unit/node/policy_cache.h"

namespace larder::node {
namespace {

constexpr uint64_t kRetentionSecondUs = 1'000'000;
constexpr Retention kExpectations[] = {Retention::kNone, Retention::kEnded, Retention::kContinues,
                                       Retention::kNever};

class Retained : public ::testing::TestWithParam<PolicyKind> {};
INSTANTIATE_TEST_SUITE_P(Policies, Retained,
                         ::testing::Values(PolicyKind::kLru, PolicyKind::kHazard, PolicyKind::kTournament),
                         [](const auto& kind) { return std::string(PolicyName(kind.param)); });

TEST_P(Retained, WhatNeverComesAgainLeavesFirstThoughItIsTheHottest) {
  TestCache cache(GetParam(), 8);
  for (uint32_t block = 0; block < 8; ++block) cache.Play({block}, (block + 1) * kRetentionSecondUs);
  cache.Finish({7}, 9 * kRetentionSecondUs, Retention::kNever);
  cache.Play({100}, 10 * kRetentionSecondUs);
  EXPECT_FALSE(cache.Has(7));
  EXPECT_EQ(cache.size(), 8u);
}

TEST_P(Retained, AUseTakesBackWhatWasSaid) {
  TestCache cache(GetParam(), 4);
  for (uint32_t block = 0; block < 4; ++block) cache.Play({block}, (block + 1) * kRetentionSecondUs);
  cache.Finish({3}, 5 * kRetentionSecondUs, Retention::kNever);
  cache.Play({3}, 6 * kRetentionSecondUs);
  cache.Play({100}, 7 * kRetentionSecondUs);
  EXPECT_TRUE(cache.Has(3));
}

// A put says it, then its request's touch comes, which knows nothing more.
TEST_P(Retained, WhatAPutSaidHoldsThroughItsOwnRequestsTouch) {
  TestCache cache(GetParam(), 4);
  for (uint32_t block = 0; block < 4; ++block) {
    cache.Put(block, 0, (block + 1) * kRetentionSecondUs);
    if (block == 3) cache.Finish({3}, 4 * kRetentionSecondUs, Retention::kNever);
    cache.Play({block}, (block + 1) * kRetentionSecondUs);
  }
  EXPECT_EQ(cache.Evict(), 3u);
}

TEST_P(Retained, APinnedOneHidesNobody) {
  TestCache cache(GetParam(), 4);
  for (uint32_t block = 0; block < 4; ++block) cache.Play({block}, (block + 1) * kRetentionSecondUs);
  cache.Finish({2}, 5 * kRetentionSecondUs, Retention::kNever);
  cache.pinned = {2};
  EXPECT_NE(cache.Evict(), kNone);
  EXPECT_TRUE(cache.Has(2));
  cache.pinned.clear();
  EXPECT_EQ(cache.Evict(), 2u);
}

TEST(LeafFirstLru, WhatIsExpectedBackFadesAndLeavesInTheEnd) {
  TestCache cache(PolicyKind::kLru, 100);
  cache.Play({1}, 10 * kRetentionSecondUs);
  cache.Finish({1}, 10 * kRetentionSecondUs, Retention::kContinues);
  cache.Play({2}, 20 * kRetentionSecondUs);
  cache.Play({3}, 30 * kRetentionSecondUs);  // 20 s old counts as 10: of equals the one without a word leaves
  EXPECT_EQ(cache.Evict(), 2u);
  cache.Play({4}, 60 * kRetentionSecondUs);  // 50 s old counts as 25, the other is 30
  EXPECT_EQ(cache.Evict(), 3u);
  cache.Play({5}, 61 * kRetentionSecondUs);
  cache.Play({6}, 200 * kRetentionSecondUs);  // 190 s counts as 95, the next is 140
  EXPECT_EQ(cache.Evict(), 4u);
  cache.Play({7}, 300 * kRetentionSecondUs);
  cache.Finish({7}, 300 * kRetentionSecondUs, Retention::kEnded);
  cache.Play({8}, 301 * kRetentionSecondUs);
  EXPECT_EQ(cache.Evict(), 5u);
  EXPECT_EQ(cache.Evict(), 1u) << "older than twice the next one";
}

TEST(LeafFirstLru, AgreesWithANaiveSearchWhateverIsExpected) {
  struct Known {
    uint64_t last_us = 0;
    uint32_t depth = 0;
    Retention retention = Retention::kNone;
  };
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    TestCache cache(PolicyKind::kLru, 1000);
    std::map<uint32_t, Known> naive;
    std::vector<uint32_t> earlier;
    for (uint64_t now = 64; now < 400 * 64; now += 64) {
      std::vector<uint32_t> chain;
      const auto root = static_cast<uint32_t>(random() % 10 * 30);
      for (uint32_t depth = 0; depth < 1 + random() % 10; ++depth) chain.push_back(root + depth);
      cache.Play(chain, now);
      for (uint32_t depth = 0; depth < chain.size(); ++depth) naive[chain[depth]] = {now, depth, {}};
      if (random() % 2 == 0) {
        const Retention retention = kExpectations[random() % std::size(kExpectations)];
        cache.Finish(chain, now, retention);
        for (const uint32_t block : chain) naive[block].retention = retention;
      }
      if (random() % 4 == 0) {  // a request that ends after others have begun
        const Retention retention = kExpectations[random() % std::size(kExpectations)];
        cache.Finish(earlier, now, retention);
        for (const uint32_t block : earlier) {
          if (naive.contains(block)) naive[block].retention = retention;
        }
      }
      if (random() % 3 == 0) earlier = chain;
      while (naive.size() > 60) {
        const auto age = [now](const auto& entry) {
          return EffectiveAge(entry.second.retention, now - entry.second.last_us);
        };
        const uint32_t left = cache.Evict();
        const auto victim = naive.find(left);
        ASSERT_NE(victim, naive.end()) << "seed " << seed;
        for (const auto& entry : naive) {
          ASSERT_LE(age(entry), age(*victim)) << "seed " << seed << " at " << now;
          if (entry.second.last_us != victim->second.last_us) continue;
          if (entry.second.retention != victim->second.retention) continue;
          ASSERT_LE(entry.second.depth, victim->second.depth) << "seed " << seed << ": not the leaf";
        }
        naive.erase(victim);
      }
    }
  }
}

// Agents: a turn is some steps, each a tool call apart (seconds); when it ends, a person comes back after
// minutes, or never. Every step asks for the whole chain and adds to it.
uint64_t HitsOfAgents(PolicyKind kind, bool hints) {
  struct Step {
    uint64_t at_us;
    uint32_t session;
    bool operator<(const Step& other) const { return at_us > other.at_us; }
  };
  std::mt19937_64 random(7);
  TestCache cache(kind, 800);
  std::vector<std::vector<uint32_t>> chains(400);
  std::priority_queue<Step> steps;
  const auto between = [&random](uint64_t low, uint64_t high) { return low + random() % (high - low); };
  for (uint32_t s = 0; s < chains.size(); ++s) steps.push({between(1, 1200) * kRetentionSecondUs, s});
  uint64_t hits = 0;
  uint32_t next_block = 0;
  for (int played = 0; played < 20'000; ++played) {
    const Step step = steps.top();
    steps.pop();
    auto& chain = chains[step.session];
    if (chain.size() > 80) chain.clear();  // another conversation
    for (uint64_t added = between(1, 5); added > 0; --added) chain.push_back(next_block++);
    hits += cache.Play(chain, step.at_us);
    const bool ends = random() % 6 == 0, never = ends && random() % 3 == 0;
    const Retention retention = never ? Retention::kNever : ends ? Retention::kEnded : Retention::kContinues;
    const uint64_t done_us = step.at_us + between(1, 4) * kRetentionSecondUs;
    if (hints) cache.Finish(chain, done_us, retention);
    if (never) chain.clear();
    steps.push({done_us + (ends ? between(300, 3000) : between(2, 60)) * kRetentionSecondUs, step.session});
  }
  return hits;
}

TEST_P(Retained, HintsAreWorthHitsOnAgents) {
  const uint64_t without = HitsOfAgents(GetParam(), false), with = HitsOfAgents(GetParam(), true);
  RecordProperty("hits_without", std::to_string(without));
  RecordProperty("hits_with", std::to_string(with));
  std::printf("%.1f %% more hits\n", 100.0 * (static_cast<double>(with) / static_cast<double>(without) - 1));
  EXPECT_GT(with * 100, without * 115) << with << " against " << without;
}

}  // namespace
}  // namespace larder::node
