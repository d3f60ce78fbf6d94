#include "node/owner/index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr Space kSpace{1, 1};

TEST(Index, FindsWhatWasAddedAndNothingElse) {
  Index index(1);
  EXPECT_EQ(index.Find(kSpace, HashOf(1), 0), Index::kNone);
  const uint32_t entry = index.Add(kSpace, HashOf(1), 0, {});
  EXPECT_EQ(index.Find(kSpace, HashOf(1), 0), entry);
  EXPECT_EQ(index.Find(kSpace, HashOf(1), 1), Index::kNone);
  EXPECT_EQ(index.Find(kSpace, HashOf(2), 0), Index::kNone);
  EXPECT_EQ(index.Find({2, 1}, HashOf(1), 0), Index::kNone);
}

TEST(Index, TheNextGenerationOfANamespaceSeesNothingOfTheLast) {
  Index index(1);
  const uint32_t entry = index.Add({5, 1}, HashOf(1), 0, {});
  EXPECT_EQ(index.Find({5, 2}, HashOf(1), 0), Index::kNone);
  EXPECT_EQ(index.FirstOf({5, 1}), entry);
  EXPECT_EQ(index.FirstOf({5, 2}), Index::kNone);
}

TEST(Index, PiecesOfAKeyHangTogetherWhicheverLeavesFirst) {
  for (int leaving = 0; leaving < 3; ++leaving) {
    Index index(1);
    std::vector<uint32_t> entries;
    for (uint16_t head = 0; head < 3; ++head) {
      entries.push_back(index.Add(kSpace, HashOf(1), 0, {0, 1, head, static_cast<uint16_t>(head + 1)}));
    }
    index.Hide(entries[leaving]);
    EXPECT_EQ(index.CheckInvariants(), "");
    std::set<uint32_t> found;
    for (uint32_t i = index.Find(kSpace, HashOf(1), 0); i != Index::kNone; i = index[i].next_piece)
      found.insert(i);
    entries.erase(entries.begin() + leaving);
    EXPECT_EQ(found, std::set<uint32_t>(entries.begin(), entries.end()));
  }
}

TEST(Index, AgreesWithAMapThroughRandomAddsAndRemovals) {
  std::mt19937_64 random(11);
  Index index(7);
  std::map<std::pair<uint64_t, uint16_t>, uint32_t> model;
  for (int step = 0; step < 60'000; ++step) {
    const uint64_t key = random() % 20'000;
    const auto group = static_cast<uint16_t>(random() % 2);
    const auto found = model.find({key, group});
    const uint32_t expected = found == model.end() ? Index::kNone : found->second;
    ASSERT_EQ(index.Find(kSpace, HashOf(key), group), expected) << "step " << step;
    if (expected == Index::kNone) {
      model[{key, group}] = index.Add(kSpace, HashOf(key), group, {});
    } else if (random() % 4 == 0) {
      index.Hide(expected);
      index.Free(expected);
      model.erase(found);
    }
    if (step % 10'000 == 0) {
      ASSERT_EQ(index.CheckInvariants(), "");
    }
  }
  EXPECT_EQ(index.visible(), model.size());
  EXPECT_EQ(index.CheckInvariants(), "");
}

// While the table grows, keys are in the old one or the new one.
TEST(Index, FindsEveryKeyAtEverySizeWhileItGrows) {
  Index index(9);
  std::vector<ChainHash> hashes;
  std::vector<uint32_t> entries;
  for (uint64_t i = 0; i < 3000; ++i) {
    hashes.push_back(HashOf(i));
    entries.push_back(index.Add(kSpace, hashes.back(), 0, {}));
    if (i % 97 != 0) continue;
    for (uint64_t k = 0; k <= i; ++k)
      ASSERT_EQ(index.Find(kSpace, hashes[k], 0), entries[k]) << i << " " << k;
    ASSERT_EQ(index.Find(kSpace, HashOf(i + 1'000'000), 0), Index::kNone);
  }
}

TEST(Index, ABatchFindsWhatSingleLookupsFind) {
  std::mt19937_64 random(5);
  Index index(3);
  uint64_t added = 0;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 50; ++i) index.Add(kSpace, HashOf(added++), 0, {});
    std::vector<ChainHash> hashes;
    for (size_t i = 0; i < 1 + random() % Index::kBatch; ++i)
      hashes.push_back(HashOf(random() % (2 * added)));
    std::vector<uint32_t> found(hashes.size());
    index.FindBatch(kSpace, hashes, 0, found.data());
    for (size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(found[i], index.Find(kSpace, hashes[i], 0));
  }
}

TEST(Index, EntryNumbersAreReused) {
  Index index(1);
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint32_t entry = index.Add(kSpace, HashOf(i), 0, {});
    index.Hide(entry);
    index.Free(entry);
  }
  EXPECT_EQ(index.entry_bound(), 1u);
}

}  // namespace
}  // namespace larder::node
