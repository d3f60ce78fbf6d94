#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "node/eviction/policy.h"

namespace larder::node {
namespace {

uint32_t AnyVictim(EvictionPolicy* policy) {
  return policy->Victim([](uint32_t) { return true; }, 64);
}

TEST(LeafFirstLru, TheLeastRecentlyTouchedLeavesFirst) {
  const auto policy = MakeLeafFirstLru();
  policy->Reserve(3);
  for (uint32_t i = 0; i < 3; ++i) policy->Insert(i, {10 + i, 0, 0, 0});
  policy->Touch(0, {20, 0, 0, 0});
  EXPECT_EQ(AnyVictim(policy.get()), 1u);
  EXPECT_EQ(policy->ColdestUs(), 11u);
  EXPECT_EQ(policy->LastUs(0), 20u);
}

TEST(LeafFirstLru, OfOneRequestTheDeepestIsTheColdestInWhateverOrderItIsTouched) {
  std::vector<uint32_t> order(100);
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(1);
  for (int round = 0; round < 3; ++round) {
    if (round == 1) std::reverse(order.begin(), order.end());
    if (round == 2) std::shuffle(order.begin(), order.end(), random);
    const auto policy = MakeLeafFirstLru();
    policy->Reserve(100);
    for (const uint32_t i : order) policy->Insert(i, {7, 0, i, 0});
    for (uint32_t i = 100; i-- > 0;) {
      ASSERT_EQ(AnyVictim(policy.get()), i);
      policy->Remove(i);
    }
    EXPECT_EQ(policy->ColdestUs(), UINT64_MAX);
    EXPECT_EQ(AnyVictim(policy.get()), UINT32_MAX);
  }
}

TEST(LeafFirstLru, LooksAtNoMoreThanItMay) {
  const auto policy = MakeLeafFirstLru();
  policy->Reserve(100);
  for (uint32_t i = 0; i < 100; ++i) policy->Insert(i, {i, 0, 0, 0});
  uint32_t looks = 0;
  EXPECT_EQ(policy->Victim([&](uint32_t) { return ++looks, false; }, 64), UINT32_MAX);
  EXPECT_EQ(looks, 64u);
  EXPECT_EQ(policy->Victim([](uint32_t i) { return i == 63; }, 64), 63u);
}

TEST(LeafFirstLru, PoliciesShareLinksWithoutMeeting) {
  const auto links = MakeLruLinks();
  const auto a = MakeLeafFirstLru(links), b = MakeLeafFirstLru(links);
  a->Reserve(4);
  a->Insert(0, {1, 0, 0, 0});
  b->Insert(1, {2, 0, 0, 0});
  a->Insert(2, {3, 0, 0, 0});
  a->Remove(0);
  EXPECT_EQ(AnyVictim(a.get()), 2u);
  EXPECT_EQ(AnyVictim(b.get()), 1u);
  EXPECT_EQ(LruLinksBytes(*links), 4u * 16);
}

// The plainest LRU there is: a list of (time, -depth, key), searched and sorted.
struct NaiveLru {
  std::set<std::tuple<uint64_t, int64_t, uint32_t>> order;
  std::vector<std::tuple<uint64_t, int64_t, uint32_t>> of;
  explicit NaiveLru(size_t keys) : of(keys, {0, 0, UINT32_MAX}) {}
  bool Has(uint32_t key) const { return std::get<2>(of[key]) == key; }
  void Touch(uint32_t key, uint64_t now, uint32_t depth) {
    if (Has(key)) order.erase(of[key]);
    of[key] = {now, -int64_t{depth}, key};
    order.insert(of[key]);
  }
  uint32_t Evict() {
    const auto victim = *order.begin();
    order.erase(order.begin());
    of[std::get<2>(victim)] = {0, 0, UINT32_MAX};
    return std::get<2>(victim);
  }
};

TEST(LeafFirstLru, AgreesWithANaiveImplementationOnRandomChains) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    constexpr uint32_t kKeys = 300;
    const size_t capacity = 20 + random() % 100;
    const auto policy = MakeLeafFirstLru();
    policy->Reserve(kKeys);
    NaiveLru naive(kKeys);
    for (uint64_t now = 1; now < 300; ++now) {
      // A chain: a run of keys that starts at one of few roots, so that requests share prefixes.
      const auto root = static_cast<uint32_t>(random() % 10 * 30);
      const auto length = static_cast<uint32_t>(1 + random() % 30);
      for (uint32_t depth = length; depth-- > 0;) {
        const uint32_t key = root + depth;
        if (naive.Has(key)) {
          policy->Touch(key, {now, root + 1, depth, length});
        } else {
          policy->Insert(key, {now, root + 1, depth, length});
        }
        naive.Touch(key, now, depth);
      }
      while (naive.order.size() > capacity) {
        const uint32_t expected = naive.Evict();
        ASSERT_EQ(AnyVictim(policy.get()), expected) << "seed " << seed << " request " << now;
        policy->Remove(expected);
      }
      ASSERT_EQ(policy->size(), naive.order.size());
    }
  }
}

}  // namespace
}  // namespace larder::node
