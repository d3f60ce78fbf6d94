// What the demo stands on: contents that tell wrong bytes, a generator that repeats itself, a trace reader
// that survives bad lines, the ideal.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/demo/content.h"
#include "tests/demo/workload.h"

namespace larder::demo {
namespace {

TEST(DemoContent, EveryFlippedBitIsAWrongByte) {
  std::vector<uint64_t> words(512);
  auto* data = reinterpret_cast<std::byte*>(words.data());
  const size_t bytes = words.size() * sizeof(uint64_t);
  Fill(data, bytes, 1, 7);
  EXPECT_EQ(CountWrongBytes(data, bytes, 1, 7), 0u);
  for (size_t at = 0; at < bytes; at += 13) {
    data[at] ^= std::byte{0x10};
    EXPECT_EQ(CountWrongBytes(data, bytes, 1, 7), 1u) << at;
    data[at] ^= std::byte{0x10};
  }
}

TEST(DemoContent, AnotherBlockSeedOrPlaceIsWrongNearlyEverywhere) {
  std::vector<uint64_t> words(1024);
  auto* data = reinterpret_cast<std::byte*>(words.data());
  const size_t bytes = words.size() * sizeof(uint64_t) - 8;
  Fill(data, bytes + 8, 1, 7);
  EXPECT_GT(CountWrongBytes(data, bytes, 1, 8), bytes * 9 / 10);
  EXPECT_GT(CountWrongBytes(data, bytes, 2, 7), bytes * 9 / 10);
  EXPECT_GT(CountWrongBytes(data + 8, bytes, 1, 7), bytes * 9 / 10);
}

TEST(DemoContent, HashesDiffer) {
  std::set<ChainHash> hashes;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (uint64_t block = 0; block < 1000; ++block) hashes.insert(HashOf(seed, block));
  }
  EXPECT_EQ(hashes.size(), 4000u);
}

TEST(DemoWorkload, TheSameSeedGivesTheSameConversations) {
  const auto first = MakeConversations({.seed = 3}), again = MakeConversations({.seed = 3});
  ASSERT_EQ(first.size(), again.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].blocks, again[i].blocks);
    if (i > 0) {
      EXPECT_LE(first[i - 1].at_ms, first[i].at_ms);
    }
  }
  EXPECT_NE(first[5].blocks, MakeConversations({.seed = 4})[5].blocks);
}

TEST(DemoWorkload, IdealCountsTheLongestSeenPrefix) {
  const Ideal ideal = IdealOf({{0, {1, 2, 3}}, {1, {1, 2, 4}}, {2, {5, 2, 3}}, {3, {1, 2, 4, 6}}});
  EXPECT_EQ(ideal.hits, (std::vector<uint32_t>{0, 2, 0, 3}));
  EXPECT_EQ(ideal.blocks, 13u);
  EXPECT_EQ(ideal.distinct, 6u);
}

class DemoTrace : public testing::Test {
 protected:
  Result<std::vector<Request>> Read(const std::string& text) {
    std::ofstream(path_) << text;
    return ReadTrace(path_);
  }
  ~DemoTrace() override { std::remove(path_.c_str()); }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("demo_test_" + std::to_string(getpid()) + ".jsonl"))
          .string();
};

TEST_F(DemoTrace, IsReadInTheOrderOfTime) {
  const auto trace = Read(
      "{\"timestamp\": 3000, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": [0, 2]}\n\n"
      "{\"timestamp\": 0, \"hash_ids\": [0, 1]}\n{\"timestamp\": 1, \"hash_ids\": []}\n");
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  ASSERT_EQ(trace.value().size(), 2u);
  EXPECT_EQ(trace.value()[0].blocks, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(trace.value()[1].at_ms, 3000u);
}

TEST_F(DemoTrace, BadLinesAreNamed) {
  for (const char* bad :
       {"nonsense", "[1]", "{}", "{\"timestamp\": \"x\", \"hash_ids\": [1]}",
        "{\"timestamp\": 1, \"hash_ids\": 1}", "{\"timestamp\": 1, \"hash_ids\": [-1]}",
        "{\"timestamp\": 1, \"hash_ids\": [1.5]}", "{\"timestamp\": 1, \"hash_ids\": [\"a\"]}"}) {
    const auto trace = Read("{\"timestamp\": 0, \"hash_ids\": [0]}\n" + std::string(bad) + "\n");
    ASSERT_FALSE(trace.ok()) << bad;
    EXPECT_NE(trace.status().text().find(":2: "), std::string::npos) << trace.status().text();
  }
  EXPECT_FALSE(Read("").ok());
  EXPECT_FALSE(ReadTrace("/nowhere/trace.jsonl").ok());
}

}  // namespace
}  // namespace larder::demo
