#include "node/owner/miss_memory.h"

#include <gtest/gtest.h>

namespace larder::node {
namespace {

TEST(MissMemory, RemembersTheLastReasonAndWhen) {
  MissMemory memory(1000);
  EXPECT_EQ(memory.Recall(12345).reason, Presence::kNeverStored);
  memory.Remember(12345, Presence::kEvicted, 1'700'000'000'999);
  EXPECT_EQ(memory.Recall(12345).reason, Presence::kEvicted);
  EXPECT_EQ(memory.Recall(12345).left_s, 1'700'000'000u);
  memory.Remember(12345, Presence::kRemoved, 1'700'000'007'000);
  EXPECT_EQ(memory.Recall(12345).reason, Presence::kRemoved);
  EXPECT_EQ(memory.Recall(12345).left_s, 1'700'000'007u);
}

TEST(MissMemory, ForgetsTheOldestRatherThanGrowsAndNeverMixesUpKeys) {
  MissMemory memory(1024);
  EXPECT_EQ(memory.bytes(), 1024u * 16);
  const auto key = [](uint64_t i) { return i << 32 | 7; };  // all of one set
  for (uint64_t i = 1; i <= 4; ++i) memory.Remember(key(i), Presence::kEvicted, i);
  EXPECT_EQ(memory.Recall(key(5)).reason, Presence::kNeverStored);
  memory.Remember(key(1), Presence::kExpired, 5);  // the latest now
  memory.Remember(key(5), Presence::kCorrupt, 6);
  EXPECT_EQ(memory.Recall(key(2)).reason, Presence::kNeverStored);
  EXPECT_EQ(memory.Recall(key(1)).reason, Presence::kExpired);
  EXPECT_EQ(memory.Recall(key(3)).reason, Presence::kEvicted);
  EXPECT_EQ(memory.Recall(key(4)).reason, Presence::kEvicted);
  EXPECT_EQ(memory.Recall(key(5)).reason, Presence::kCorrupt);
}

TEST(MissMemory, EvenOneEntryWorks) {
  for (const uint32_t entries : {0u, 1u, 5u}) {
    MissMemory memory(entries);
    memory.Remember(99, Presence::kCleared, 1000);
    EXPECT_EQ(memory.Recall(99).reason, Presence::kCleared) << entries;
  }
}

}  // namespace
}  // namespace larder::node
