// The simulator against plain implementations on random small traces, and against published figures.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>

#include "tests/bench/sim/advise.h"
#include "tests/bench/sim/cluster.h"

namespace larder::sim {
namespace {

// Chains that share prefixes: a tree of blocks, from whose root requests walk down.
SimTrace RandomTrace(uint64_t seed, uint64_t blocks, uint32_t requests) {
  std::mt19937_64 random(seed);
  SimTraceBuilder builder("random");
  for (uint32_t r = 0; r < requests; ++r) {
    std::vector<uint64_t> chain;
    for (uint64_t block = random() % 3; block < blocks && chain.size() < 12;
         block = block * 2 + 3 + random() % 2) {
      chain.push_back(block);
      if (random() % 6 == 0) break;
    }
    builder.Add(uint64_t{r} * 1'000'000, chain);
  }
  return builder.Take();
}

// One node's plain leaf-first LRU: a list, searched.
struct PlainLru {
  std::list<uint32_t> order;  // coldest first
  size_t capacity = 0;
  bool Has(uint32_t block) const { return std::find(order.begin(), order.end(), block) != order.end(); }
  void Use(uint32_t block) {
    order.remove(block);
    order.push_back(block);
    if (order.size() > capacity) order.pop_front();
  }
};

uint64_t PlainLruHits(const SimTrace& trace, const std::vector<uint16_t>& homes, uint64_t blocks,
                      uint32_t nodes) {
  std::vector<PlainLru> caches(nodes);
  for (uint32_t n = 0; n < nodes; ++n) caches[n].capacity = blocks / nodes + (n < blocks % nodes ? 1 : 0);
  uint64_t hits = 0;
  for (const SimRequest& request : trace.requests) {
    const auto chain = trace.BlocksOf(request);
    size_t at = 0;
    while (at < chain.size() && caches[homes[chain[at]]].Has(chain[at])) ++at;
    hits += at;
    for (size_t i = chain.size(); i-- > 0;) caches[homes[chain[i]]].Use(chain[i]);
  }
  return hits;
}

ClusterOptions LruOptions(uint64_t blocks, uint32_t nodes) {
  ClusterOptions options;
  options.cache.policy = node::PolicyKind::kLru;
  options.cache.ram_blocks = blocks;
  options.nodes = nodes;
  return options;
}

TEST(Simulator, AgreesWithAPlainLruOnRandomTraces) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const SimTrace trace = RandomTrace(seed, 200, 400);
    for (const uint32_t nodes : {1u, 3u}) {
      const uint64_t blocks = 12 + seed;
      const uint64_t plain = PlainLruHits(trace, HomesOf(trace, nodes), blocks, nodes);
      EXPECT_EQ(Play(trace, LruOptions(blocks, nodes)).hits, plain) << "seed " << seed << ", nodes " << nodes;
    }
  }
}

// Every way to keep at most so many blocks, over all requests: only for tiny traces.
uint64_t BestHits(const SimTrace& trace, uint32_t blocks) {
  std::map<uint32_t, uint64_t> best = {{0, 0}};  // resident set -> most hits so far
  for (const SimRequest& request : trace.requests) {
    const auto chain = trace.BlocksOf(request);
    uint32_t asked = 0;
    for (const uint32_t block : chain) asked |= 1u << block;
    std::map<uint32_t, uint64_t> next;
    for (const auto& [resident, hits] : best) {
      uint64_t now = hits;
      for (size_t i = 0; i < chain.size() && (resident >> chain[i] & 1) != 0; ++i) ++now;
      const uint32_t all = resident | asked;
      for (uint32_t kept = all;; kept = (kept - 1) & all) {
        if (static_cast<uint32_t>(__builtin_popcount(kept)) <= blocks) {
          uint64_t& entry = next[kept];
          entry = std::max(entry, now);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(next);
  }
  uint64_t most = 0;
  for (const auto& [resident, hits] : best) most = std::max(most, hits);
  return most;
}

TEST(Simulator, MinIsTheBestThereIs) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const SimTrace trace = RandomTrace(seed, 9, 24);
    ASSERT_LE(trace.distinct, 9u);
    for (const uint32_t blocks : {1u, 2u, 4u}) {
      EXPECT_EQ(PlayMin(trace, blocks).hits, BestHits(trace, blocks))
          << "seed " << seed << ", blocks " << blocks;
    }
  }
}

TEST(Simulator, NoPolicyBeatsMinAndAllReachItWithRoomForEverything) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const SimTrace trace = RandomTrace(seed, 3000, 2000);
    for (const node::PolicyKind kind : node::kPolicyKinds) {
      ClusterOptions options = LruOptions(trace.distinct / 10, 1);
      options.cache.policy = kind;
      EXPECT_LE(Play(trace, options).hits, PlayMin(trace, options.cache.ram_blocks).hits);
      options.cache.ram_blocks = trace.distinct;
      EXPECT_EQ(Play(trace, options).hits, PlayMin(trace, trace.distinct).hits) << node::PolicyName(kind);
    }
  }
}

// RAM above SSD, by the rules: a block that leaves RAM is written unless its copy is there; the second hit on
// SSD brings it back, its copy stays.
TEST(Simulator, AgreesWithAPlainTwoTierCacheOnRandomTraces) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const SimTrace trace = RandomTrace(seed, 300, 500);
    for (const bool twice : {false, true}) {
      ClusterOptions options = LruOptions(10, 1);
      options.cache.ssd_blocks = 25;
      options.cache.admission = twice ? Admission::kTwice : Admission::kAlways;
      std::map<uint32_t, std::pair<uint64_t, int64_t>> ram, ssd;  // block -> time, -depth
      std::map<uint32_t, uint32_t> uses, ssd_hits;
      uint64_t hits = 0, writes = 0;
      const auto coldest = [](auto& tier) {
        return std::min_element(tier.begin(), tier.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; });
      };
      for (const SimRequest& request : trace.requests) {
        const auto chain = trace.BlocksOf(request);
        size_t usable = 0;
        while (usable < chain.size() && (ram.contains(chain[usable]) || ssd.contains(chain[usable])))
          ++usable;
        hits += usable;
        for (size_t i = chain.size(); i-- > 0;) {
          const uint32_t block = chain[i];
          const std::pair<uint64_t, int64_t> stamp{request.now_us, -static_cast<int64_t>(i)};
          ++uses[block];
          const bool on_ssd = ssd.contains(block);
          if (on_ssd) ssd[block] = stamp;
          if (ram.contains(block) || !on_ssd) {
            ram[block] = stamp;
          } else if (i < usable && ++ssd_hits[block] == 2) {
            ssd_hits[block] = 0;
            ram[block] = stamp;
          }
          if (ram.size() > 10) {
            const auto victim = coldest(ram);
            if (!ssd.contains(victim->first) && (!twice || uses[victim->first] > 1)) {
              ssd.insert(*victim);
              ++writes;
            }
            ram.erase(victim);
          }
          if (ssd.size() > 25) {
            const auto victim = coldest(ssd);
            ssd_hits[victim->first] = 0;
            ssd.erase(victim);
          }
        }
      }
      const PlayResult result = Play(trace, options);
      EXPECT_EQ(result.hits, hits) << "seed " << seed;
      EXPECT_EQ(result.ssd_writes, writes) << "seed " << seed;
    }
  }
}

TEST(Simulator, CopiesOfHotBlocksSpreadTheirReads) {
  SimTraceBuilder builder("hot");
  std::mt19937_64 random(1);
  for (uint64_t r = 0; r < 20'000; ++r) builder.Add(r * 1000, std::vector<uint64_t>{0, 1 + random() % 500});
  const SimTrace trace = builder.Take();
  ClusterOptions options = LruOptions(2000, 8);
  const double without = Play(trace, options).load_max_over_mean;
  options.hot_copies = 4;
  const double with = Play(trace, options).load_max_over_mean;
  EXPECT_GT(without, 4);
  EXPECT_LT(with, 1.6);
}

TEST(Simulator, AdviceHasACellForEverySizeAndAPicture) {
  const SimTrace trace = RandomTrace(1, 500, 300);
  const Advice advice = Advise(trace);
  ASSERT_EQ(advice.cells.size(), advice.ssd_percent.size());
  for (const auto& row : advice.cells) EXPECT_EQ(row.size(), advice.ram_percent.size());
  EXPECT_NEAR(advice.cells.back().back().hit_percent(), advice.ideal_percent, 2);
  EXPECT_NE(AdviceTable(advice).find("no SSD"), std::string::npos);
  const std::string svg = AdviceSvg(advice);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

struct Published {
  const char* trace;
  std::map<node::PolicyKind, std::vector<double>> hits;
  std::vector<double> min;
  double two_tiers_hits, two_tiers_writes, twice_writes;
  double gain;  // of the default over LRU in the mean of the sizes; 1.8 in the mean of both traces
};
constexpr double kSizes[] = {1, 2, 5, 10, 20, 40};
const Published kPublished[] = {
    {"conversation_trace",
     {{node::PolicyKind::kLru, {5.2, 7.9, 19.6, 27.9, 34.5, 36.0}},
      {node::PolicyKind::kS3Fifo, {7.5, 10.7, 18.7, 24.5, 32.8, 35.8}},
      {node::PolicyKind::kArc, {6.5, 9.0, 21.0, 28.4, 32.0, 36.0}}},
     {24.6, 31.4, 36.6, 36.6, 36.6, 36.6},
     35.2,
     0.98,
     0.30,
     2.35},
    {"synthetic_trace",
     {{node::PolicyKind::kLru, {3.8, 7.8, 15.7, 26.2, 39.3, 54.5}},
      {node::PolicyKind::kS3Fifo, {3.8, 7.6, 15.4, 26.1, 38.3, 54.3}},
      {node::PolicyKind::kArc, {4.2, 8.2, 16.3, 26.6, 40.6, 57.2}}},
     {18.5, 26.1, 39.6, 50.6, 60.8, 64.0},
     42.8,
     1.58,
     0.65,
     1.25},
};

uint64_t BlocksOf(const SimTrace& trace, double percent) {
  return static_cast<uint64_t>(trace.distinct * percent / 100 + 0.5);
}

class PublishedTrace : public ::testing::TestWithParam<Published> {
 protected:
  void SetUp() override {
    const std::string path = std::string(LARDER_TRACES) + "/" + GetParam().trace + ".jsonl";
    if (access(path.c_str(), R_OK) != 0) {
      GTEST_SKIP() << "no trace at " << path << ": the published figures were NOT checked";
    }
    auto read = ReadSimTrace(path);
    ASSERT_TRUE(read.ok()) << read.status().text();
    trace_ = std::move(read).value();
  }
  SimTrace trace_;
};
INSTANTIATE_TEST_SUITE_P(Both, PublishedTrace, ::testing::ValuesIn(kPublished),
                         [](const auto& parameter) { return std::string(parameter.param.trace); });

TEST_P(PublishedTrace, TextbookPoliciesAndMinHitWhatWasPublished) {
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    const uint64_t blocks = BlocksOf(trace_, kSizes[i]);
    for (const auto& [kind, hits] : GetParam().hits) {
      ClusterOptions options = LruOptions(blocks, 1);
      options.cache.policy = kind;
      EXPECT_NEAR(Play(trace_, options).hit_percent(), hits[i], 0.5)
          << node::PolicyName(kind) << " at " << kSizes[i] << " %";
    }
    EXPECT_NEAR(PlayMin(trace_, blocks).hit_percent(), GetParam().min[i], 0.1);
  }
}

TEST_P(PublishedTrace, TheDefaultPolicyIsBetterThanLeafFirstLru) {
  double gain = 0;
  for (const double size : kSizes) {
    ClusterOptions options = LruOptions(BlocksOf(trace_, size), 1);
    const double lru = Play(trace_, options).hit_percent();
    options.cache.policy = node::kPolicyDefault;
    const double ours = Play(trace_, options).hit_percent();
    EXPECT_GE(ours, lru - 0.2) << size << " %";
    gain += ours - lru;
  }
  EXPECT_GE(gain / std::size(kSizes), GetParam().gain);
}

TEST_P(PublishedTrace, TwoTiersHitAndWriteWhatWasPublished) {
  for (const bool twice : {false, true}) {
    ClusterOptions options = LruOptions(BlocksOf(trace_, 5), 1);
    options.cache.policy = node::kPolicyDefault;
    options.cache.ssd_blocks = BlocksOf(trace_, 20);
    options.cache.admission = twice ? Admission::kTwice : Admission::kAlways;
    const PlayResult result = Play(trace_, options);
    if (twice) {
      EXPECT_LE(result.ssd_writes_per_block(), GetParam().twice_writes);
    } else {
      EXPECT_GE(result.hit_percent(), GetParam().two_tiers_hits);
      EXPECT_LE(result.ssd_writes_per_block(), GetParam().two_tiers_writes);
    }
  }
}

}  // namespace
}  // namespace larder::sim
