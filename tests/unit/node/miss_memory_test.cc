#include "node/miss_memory.h"

#include <gtest/gtest.h>

namespace larder::node {
namespace {

TEST(MissMemory, RemembersTheLastReason) {
  MissMemory memory(1000);
  EXPECT_EQ(memory.Recall(12345), Presence::kNeverStored);
  memory.Remember(12345, Presence::kEvicted);
  EXPECT_EQ(memory.Recall(12345), Presence::kEvicted);
  memory.Remember(12345, Presence::kRemoved);
  EXPECT_EQ(memory.Recall(12345), Presence::kRemoved);
}

TEST(MissMemory, ForgetsRatherThanGrowsAndNeverMixesUpKeys) {
  MissMemory memory(1024);
  EXPECT_EQ(memory.bytes(), 1024u * 8);
  const uint64_t first = 0x1234500000000007, same_cell = 0x7777700000000007;
  memory.Remember(first, Presence::kEvicted);
  EXPECT_EQ(memory.Recall(same_cell), Presence::kNeverStored);
  memory.Remember(same_cell, Presence::kCorrupt);
  EXPECT_EQ(memory.Recall(first), Presence::kNeverStored);
  EXPECT_EQ(memory.Recall(same_cell), Presence::kCorrupt);
}

TEST(MissMemory, EvenOneEntryWorks) {
  MissMemory memory(0);
  memory.Remember(99, Presence::kCleared);
  EXPECT_EQ(memory.Recall(99), Presence::kCleared);
}

}  // namespace
}  // namespace larder::node
