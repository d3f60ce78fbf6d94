// One battery for every policy, in the node's own order of calls: puts insert without a chain, then the
// request touches the whole chain.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/unit/node/policy_cache.h"

namespace larder::node {
namespace {

// Conversations that grow behind a few shared prompts.
class Conversations {
 public:
  explicit Conversations(uint64_t seed) : random_(seed) {}
  std::vector<uint32_t> Next() {
    const uint32_t number = random_() % 3 == 0 ? static_cast<uint32_t>(chains_.size()) : Pick();
    if (number == chains_.size()) chains_.push_back({static_cast<uint32_t>(random_() % 3)});
    auto& chain = chains_[number];
    for (uint64_t i = 1 + random_() % 4; i > 0; --i) chain.push_back(next_++);
    return chain;
  }

 private:
  uint32_t Pick() {
    if (chains_.empty()) return 0;
    const size_t recent = std::min<size_t>(chains_.size(), 40);
    return static_cast<uint32_t>(chains_.size() - 1 - random_() % recent);
  }
  std::mt19937_64 random_;
  std::vector<std::vector<uint32_t>> chains_;
  uint32_t next_ = 3;
};

class Policy : public ::testing::TestWithParam<PolicyKind> {};
std::string NameOf(const ::testing::TestParamInfo<PolicyKind>& info) {
  std::string name(PolicyName(info.param));
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
}
INSTANTIATE_TEST_SUITE_P(Every, Policy, ::testing::ValuesIn(kPolicyKinds), NameOf);

TEST_P(Policy, HasANameThatLeadsBackToIt) {
  EXPECT_EQ(PolicyOfName(PolicyName(GetParam())), GetParam());
  EXPECT_EQ(PolicyOfName("no such policy"), std::nullopt);
}

TEST_P(Policy, HoldsExactlyWhatWasInsertedAndNeitherEvictedNorRemoved) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    std::mt19937_64 random(seed);
    Conversations conversations(seed);
    TestCache cache(GetParam(), 30 + random() % 200);
    uint64_t now_us = 1'000'000;
    for (int i = 0; i < 1500; ++i) {
      now_us += random() % 20'000'000;
      cache.Play(conversations.Next(), now_us);
      if (random() % 5 == 0 && cache.size() > 0) cache.Remove(cache.blocks().begin()->first);
      ASSERT_EQ(cache.policy().size(), cache.size()) << "seed " << seed;
      if (i % 100 != 0) continue;
      // A victim is an entry that is there, and its time is what classes are compared by.
      const uint32_t victim = AnyVictim(&cache.policy());
      ASSERT_NE(victim, kNone);
      ASSERT_LE(cache.policy().LastUs(victim), now_us);
    }
    std::set<uint32_t> left;
    while (cache.size() > 0) ASSERT_TRUE(left.insert(cache.Evict()).second);
    EXPECT_EQ(AnyVictim(&cache.policy()), kNone);
    EXPECT_EQ(cache.policy().ColdestUs(), UINT64_MAX);
  }
}

TEST_P(Policy, TheSameCallsGiveTheSameVictims) {
  const auto victims = [] {
    std::vector<uint32_t> out;
    Conversations conversations(7);
    TestCache cache(GetParam(), 60);
    for (uint64_t i = 1; i < 400; ++i) {
      cache.Play(conversations.Next(), i * 3'000'000);
      out.push_back(AnyVictim(&cache.policy()));
    }
    return out;
  };
  EXPECT_EQ(victims(), victims());
}

TEST_P(Policy, EvictsNothingPinnedAndLooksNoFurtherThanItMay) {
  Conversations conversations(3);
  TestCache cache(GetParam(), 200);
  for (uint64_t i = 1; i < 300; ++i) cache.Play(conversations.Next(), i * 1'000'000);
  ASSERT_EQ(cache.size(), 200u);
  uint32_t looks = 0;
  EXPECT_EQ(cache.policy().Victim([&](uint32_t) { return ++looks, false; }, 64), kNone);
  EXPECT_EQ(looks, 64u);
  looks = 0;
  EXPECT_EQ(cache.policy().Victim([&](uint32_t) { return ++looks, false; }, 4096), kNone);
  EXPECT_EQ(looks, 200u) << "every entry is looked at once";
  uint32_t n = 0;
  for (const auto& [block, slot] : cache.blocks()) {
    if (n++ % 3 == 0) cache.pinned.insert(block);
  }
  while (cache.size() > cache.pinned.size()) ASSERT_NE(cache.Evict(), kNone);
  for (const uint32_t block : cache.pinned) EXPECT_TRUE(cache.Has(block));
  EXPECT_EQ(cache.Evict(), kNone);
}

TEST_P(Policy, WhatIsDeferredHidesNobody) {
  TestCache cache(GetParam(), 300);
  for (uint32_t block = 0; block < 300; ++block) cache.Put(block, 0, 1'000'000 + block * 100);
  std::set<uint32_t> coldest;
  for (int i = 0; i < 100; ++i) {
    const uint32_t slot = cache.policy().Victim([&](uint32_t s) { return !coldest.contains(s); }, 300);
    coldest.insert(slot);
  }
  for (const uint32_t slot : coldest) cache.policy().Defer(slot, 100'000'000);
  const uint32_t victim = cache.policy().Victim([&](uint32_t s) { return !coldest.contains(s); }, 64);
  EXPECT_NE(victim, kNone);
}

TEST_P(Policy, OfOneRequestTheLeafLeavesBeforeItsParent) {
  TestCache cache(GetParam(), 64);
  std::vector<uint32_t> chain;
  for (uint32_t block = 0; block < 40; ++block) chain.push_back(block);
  cache.Play(chain, 5'000'000);
  for (uint32_t block = 40; block-- > 0;) ASSERT_EQ(cache.Evict(), block);
}

TEST_P(Policy, TheTouchAfterAnInsertIsNoSecondUse) {
  // Blocks that were put and touched by one request each, against one that was used by two.
  TestCache cache(GetParam(), 100);
  cache.Play({1000}, 1'000'000);
  cache.Play({1000}, 20'000'000);
  cache.Play({1000}, 40'000'000);
  for (uint32_t block = 0; block < 30; ++block) cache.Play({block}, 41'000'000 + block);
  // By time alone it is the coldest; what the hazard thinks of it, nothing has taught it yet.
  const bool by_time = GetParam() == PolicyKind::kLru || cache.family().observes();
  for (int i = 0; i < 20; ++i) {
    const uint32_t victim = cache.Evict();
    ASSERT_TRUE(by_time || victim != 1000u);
  }
}

TEST_P(Policy, MemoryIsBoundedByWhatItHoldsHoweverMuchItSaw) {
  TestCache cache(GetParam(), 500);
  const auto play = [&](uint32_t from, uint32_t to) {
    for (uint32_t block = from; block < to; block += 4) {
      cache.Play({block, block + 1, block + 2, block + 3}, uint64_t{block} * 1000 + 1'000'000);
    }
  };
  play(0, 200'000);
  const uint64_t before = cache.metadata_bytes();
  play(200'000, 400'000);
  EXPECT_LE(cache.metadata_bytes(), before + 4096);
  // Learned policies begin with a history of fixed size; see node/owner/DESIGN.md.
  EXPECT_LE(before, uint64_t{500} * 200 + (16 << 20));
}

TEST_P(Policy, ClassesOfAFamilyDoNotMeet) {
  const auto family = MakePolicyFamily(GetParam());
  const auto a = family->Make(), b = family->Make();
  a->Reserve(4);
  b->Reserve(4);
  a->Insert(0, {.now_us = 1'000'000, .key = 10});
  b->Insert(1, {.now_us = 2'000'000, .key = 11});
  a->Insert(2, {.now_us = 3'000'000, .key = 12});
  a->Remove(0);
  EXPECT_EQ(AnyVictim(a.get()), 2u);
  EXPECT_EQ(AnyVictim(b.get()), 1u);
  EXPECT_EQ(a->size() + b->size(), 2u);
}

TEST_P(Policy, HitsMoreThanChanceWouldOnConversations) {
  Conversations conversations(11);
  TestCache cache(GetParam(), 150);
  std::mt19937_64 random(1);
  uint64_t hits = 0, references = 0, now_us = 1'000'000;
  for (int i = 0; i < 3000; ++i) {
    const auto chain = conversations.Next();
    hits += cache.Play(chain, now_us += 1'000'000);
    references += chain.size();
  }
  EXPECT_GT(hits * 10, references * 2) << hits << " of " << references;
}

constexpr uint64_t kTickUs = 64;  // what a policy's stamps tell apart

// The plainest LRU there is: a list of (time, -depth, key), searched and sorted.
struct NaiveLru {
  std::set<std::tuple<uint64_t, int64_t, uint32_t>> order;
  std::vector<std::tuple<uint64_t, int64_t, uint32_t>> of;
  explicit NaiveLru(size_t keys) : of(keys, {0, 0, kNone}) {}
  bool Has(uint32_t key) const { return std::get<2>(of[key]) == key; }
  void Touch(uint32_t key, uint64_t now, uint32_t depth) {
    if (Has(key)) order.erase(of[key]);
    of[key] = {now, -int64_t{depth}, key};
    order.insert(of[key]);
  }
  uint32_t Evict() {
    const auto victim = *order.begin();
    order.erase(order.begin());
    of[std::get<2>(victim)] = {0, 0, kNone};
    return std::get<2>(victim);
  }
};

TEST(LeafFirstLru, AgreesWithANaiveImplementationOnRandomChains) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    constexpr uint32_t kKeys = 300;
    const size_t capacity = 20 + random() % 100;
    const auto family = MakeLeafFirstLru();
    const auto policy = family->Make();
    policy->Reserve(kKeys);
    NaiveLru naive(kKeys);
    for (uint64_t now = kTickUs; now < 300 * kTickUs; now += kTickUs) {
      // A chain: a run of keys that starts at one of few roots, so that requests share prefixes.
      const auto root = static_cast<uint32_t>(random() % 10 * 30);
      const auto length = static_cast<uint32_t>(1 + random() % 30);
      std::vector<uint32_t> depths(length);
      for (uint32_t i = 0; i < length; ++i) depths[i] = length - 1 - i;
      if (seed % 3 == 1) std::reverse(depths.begin(), depths.end());
      if (seed % 3 == 2) std::shuffle(depths.begin(), depths.end(), random);
      for (const uint32_t depth : depths) {
        const uint32_t key = root + depth;
        if (naive.Has(key)) {
          policy->Touch(key, {now, root + 1, depth, length, length, key});
        } else {
          policy->Insert(key, {now, root + 1, depth, length, length, key});
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

// LRU-2 by its definition: last use but one, searched. Time and history without bounds.
TEST(Lru2, AgreesWithANaiveImplementationOnRandomKeys) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    constexpr uint32_t kKeys = 60;
    const auto family = MakeLru2();
    const auto policy = family->Make();
    policy->Reserve(kKeys);
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> resident;  // key -> last but one, last
    for (uint64_t now = kTickUs; now < 3000 * kTickUs; now += kTickUs) {
      const auto key = static_cast<uint32_t>(std::min(random() % kKeys, random() % kKeys));
      const TouchInfo info{now, 0, 0, 1, 1, key};
      const auto found = resident.find(key);
      if (found != resident.end()) {
        policy->Touch(key, info);
        found->second = {found->second.second, now};
      } else {
        policy->Insert(key, info);
        resident[key] = {0, now};
      }
      if (resident.size() <= 20) continue;
      const auto expected = std::min_element(
          resident.begin(), resident.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
      ASSERT_EQ(AnyVictim(policy.get()), expected->first) << "seed " << seed;
      policy->Remove(expected->first);
      resident.erase(expected);
    }
  }
}

// What is used again and again stays through a scan of things used once, once the hazard has learned.
TEST(ReuseHazard, LearnsThatWhatWasUsedOnceSeldomReturns) {
  for (const PolicyKind kind : {PolicyKind::kHazard, PolicyKind::kTournament}) {
    TestCache cache(kind, 100);
    uint64_t now_us = 1'000'000;
    uint32_t next = 1000;
    uint64_t hits = 0, asked = 0;
    for (int round = 0; round < 400; ++round) {
      // Fifty chains in turn, of which a cache of 100 could hold all; between two uses of one, 200 strangers.
      const auto chain = static_cast<uint32_t>(round % 50);
      const uint32_t usable = cache.Play({chain}, now_us += 1'000'000);
      if (round >= 200) {
        hits += usable;
        ++asked;
      }
      for (int i = 0; i < 4; ++i) cache.Play({next++}, now_us += 1'000'000);
    }
    EXPECT_GT(hits * 10, asked * 9) << PolicyName(kind) << ": " << hits << " of " << asked;
  }
}

TEST(Tournament, TellsWhomItFollows) {
  const auto family = MakeTournament();
  EXPECT_EQ(family->following(), "hazard");
  EXPECT_EQ(MakeArc()->following(), "arc");
}

}  // namespace
}  // namespace larder::node
