// What counts as hot, how many places it ought to have, when it cools.
#include "node/owner/hot_blocks.h"

#include <gtest/gtest.h>

#include <random>

namespace larder::node {
namespace {

constexpr uint64_t kHotSecondUs = 1'000'000;

BlockName NameOf(uint64_t number) {
  BlockName name;
  name.space = {1, 1};
  name.hash.bytes[0] = static_cast<std::byte>(number);
  return name;
}
uint64_t KeyOf(uint64_t number) {
  return (number + 1) * 0x9e3779b97f4a7c15ull;
}

TEST(HotBlocks, WhatIsReadMoreThanItsShareIsFoundAmongMany) {
  HotBlocks hot(63, 10, 1);
  std::mt19937_64 random(3);
  for (uint64_t i = 0; i < 200'000; ++i) {
    const bool one = random() % 5 == 0;  // a fifth of all reads
    const uint64_t block = one ? 1'000'000 : random() % 100'000;
    hot.Read(KeyOf(block), static_cast<uint32_t>(block), 1);
  }
  const std::vector<HotBlocks::Hot> found = hot.Hottest();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].key, KeyOf(1'000'000));
  EXPECT_EQ(found[0].entry, 1'000'000u);
  EXPECT_NEAR(found[0].reads, 40'000, 2'000);
}

TEST(HotBlocks, TheHotterTheMorePlacesInPowersOfTwo) {
  HotBlocks hot(63, 10, 1);
  for (int i = 0; i < 1000; ++i) hot.Read(KeyOf(1), 1, 1);
  EXPECT_EQ(hot.PlacesFor(100, 1), 1u);  // its share is a tenth of what is served
  EXPECT_EQ(hot.PlacesFor(101, 1), 2u);
  EXPECT_EQ(hot.PlacesFor(201, 1), 4u);
  EXPECT_EQ(hot.PlacesFor(201, 2), 4u);
  EXPECT_EQ(hot.PlacesFor(5000, 4), 64u);  // others' reads of its copies count
  EXPECT_EQ(hot.PlacesFor(50'000, 4), 64u);
  EXPECT_EQ(HotBlocks(2, 10, 1).PlacesFor(5000, 1), 3u);  // one more than copies_max
}

TEST(HotBlocks, FewReadsAreNobodysBurden) {
  HotBlocks hot(63, 10, 1);
  for (uint32_t i = 1; i < HotBlocks::kReadsMin; ++i) hot.Read(KeyOf(1), 1, 1);
  EXPECT_TRUE(hot.Hottest().empty());
  hot.Read(KeyOf(1), 1, 1);
  EXPECT_EQ(hot.Hottest().size(), 1u);
}

TEST(HotBlocks, ItCoolsBelowAQuarterOfWhatItsPlacesAreFor) {
  HotBlocks hot(63, 10, 1);
  for (int i = 0; i < 1000; ++i) hot.ServeCopy(1);
  EXPECT_EQ(hot.PlacesFor(801, 16), 16u);
  EXPECT_EQ(hot.PlacesFor(401, 16), 16u);
  EXPECT_EQ(hot.PlacesFor(301, 16), 16u);
  EXPECT_EQ(hot.PlacesFor(300, 16), 8u);
  EXPECT_EQ(hot.PlacesFor(100, 4), 4u);
  EXPECT_EQ(hot.PlacesFor(7, 2), 1u);  // so few that nobody is there to read
}

TEST(HotBlocks, ReadsAndWhatTheyAreAShareOfFadeTogether) {
  HotBlocks hot(63, 10, 1);
  for (int i = 0; i < 1600; ++i) hot.Read(KeyOf(1), 1, 1);
  hot.AddReads(KeyOf(1), 400);
  hot.AddReads(KeyOf(2), 400);  // nobody has read it here: it is not counted
  EXPECT_EQ(hot.ReadsOf(KeyOf(1)), 2000u);
  EXPECT_EQ(hot.ReadsOf(KeyOf(2)), 0u);
  hot.ServeCopy(2 * HotBlocks::kHalfLifeUs + 1);
  EXPECT_EQ(hot.ReadsOf(KeyOf(1)), 500u);
  EXPECT_EQ(hot.PlacesFor(500, 1), 16u);  // of 401
  hot.ServeCopy(20 * HotBlocks::kHalfLifeUs);
  EXPECT_EQ(hot.ReadsOf(KeyOf(1)), 0u);
}

TEST(HotBlocks, ReadersAreSentOnlyWhereACopyIsAndMayBeRead) {
  HotBlocks hot(63, 10, 1);
  EXPECT_EQ(hot.MaskOf(NameOf(1), 5), 0u);
  HotBlocks::Copied* copied = hot.Make(NameOf(1), KeyOf(1));
  copied->places = 4;
  copied->holders = {{1, "b", {}, 100, 0, true},
                     {2, "c", {}, 100, 0, false},  // not yet there
                     {3, "d", {}, 50, 0, true},
                     {5, "e", {}, 100, 0, true}};  // of when it was hotter
  EXPECT_EQ(hot.MaskOf(NameOf(1), 5), 0b1011u);
  EXPECT_EQ(hot.MaskOf(NameOf(1), 50), 0b0011u);
  EXPECT_EQ(hot.MaskOf(NameOf(1), 100), 0u);
  EXPECT_EQ(hot.MaskOf(NameOf(2), 5), 0u);
  EXPECT_EQ(hot.copies(5), 3u);
}

TEST(HotBlocks, WhoseLeaseHasEndedIsForgotten) {
  HotBlocks hot(63, 10, 1);
  HotBlocks::Copied* copied = hot.Make(NameOf(1), KeyOf(1));
  copied->holders = {{1, "b", {}, 100, 0, true}, {2, "c", {}, 200, 0, true}};
  hot.Forget(150);
  ASSERT_NE(hot.Find(NameOf(1)), nullptr);
  EXPECT_EQ(hot.Find(NameOf(1))->holders.size(), 1u);
  EXPECT_EQ(hot.Take(NameOf(1), 199).size(), 1u);
  EXPECT_EQ(hot.Find(NameOf(1)), nullptr);
  hot.Make(NameOf(1), KeyOf(1));
  hot.Forget(150);
  EXPECT_TRUE(hot.copied().empty());
}

TEST(HotBlocks, SoManyBlocksHaveCopiesAndNoMore) {
  HotBlocks hot(63, 10, 1);
  BlockName name = NameOf(0);
  for (uint64_t i = 0; i < HotBlocks::kCopiedMax; ++i) {
    name.space.number = static_cast<uint32_t>(i);
    ASSERT_NE(hot.Make(name, i), nullptr);
  }
  EXPECT_NE(hot.Make(name, 1), nullptr);  // known already
  name.space.number = 5000;
  EXPECT_EQ(hot.Make(name, 1), nullptr);
  EXPECT_EQ(HotBlocks(0, 10, 1).on(), false);
}

TEST(HotBlocks, AReaderWhoCannotBeCountedChangesNothing) {
  HotBlocks hot(63, 10, 1);
  // Five keys of one set of four: the least read wears off.
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; keys.size() < 5; ++i) keys.push_back(i << 50 | 1);
  for (size_t k = 0; k < 4; ++k) {
    for (size_t i = 0; i < 10 * (k + 1); ++i) hot.Read(keys[k], 1, kHotSecondUs);
  }
  for (int i = 0; i < 9; ++i) hot.Read(keys[4], 1, kHotSecondUs);
  EXPECT_EQ(hot.ReadsOf(keys[0]), 1u);
  EXPECT_EQ(hot.ReadsOf(keys[4]), 0u);
  hot.Read(keys[4], 1, kHotSecondUs);
  EXPECT_EQ(hot.ReadsOf(keys[0]), 0u);
  EXPECT_EQ(hot.ReadsOf(keys[4]), 1u);
  EXPECT_EQ(hot.ReadsOf(keys[3]), 40u);
}

}  // namespace
}  // namespace larder::node
