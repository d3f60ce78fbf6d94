#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct WaitTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 4 << 20;
    options.waits_per_session_max = 4;
    options.waited_keys_max = 100;
    return options;
  }
  TestOwner node{Options()};
  SessionId writer = node.Connect(), reader = node.Connect();
  uint32_t n = node.OpenIdentity(writer, OpaqueIdentity()), n_r = node.OpenIdentity(reader, OpaqueIdentity());
  void TearDown() override { node.Check(); }
  Wait For(uint64_t from, uint64_t count, uint32_t leading = 0) {
    Wait wait;
    wait.number = n_r;
    wait.groups = {0};
    wait.leading = leading;
    for (uint64_t i = from; i < from + count; ++i) wait.hashes.push_back(HashOf(i));
    return wait;
  }
  PutState Put(uint64_t key) { return node.Put(writer, n, {key, 64 * 1024, {}}); }
};

TEST_F(WaitTest, WhatIsThereAlreadyIsAnsweredAtOnce) {
  ASSERT_EQ(Put(0), PutState::kStored);
  ASSERT_EQ(Put(1), PutState::kStored);
  EXPECT_EQ(node.Ask<WaitReply>(reader, Verb::kWait, For(0, 2)).value().leading, 2u);
}

TEST_F(WaitTest, AnswersWhenTheLastLeadingBlockIsCommittedInWhateverOrder) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 3), 10'000'000);
  Put(2);
  Put(0);
  EXPECT_FALSE(node.Answered(reader, id));
  EXPECT_EQ(node.owner->stats().waits_open, 1u);
  Put(1);
  EXPECT_EQ(node.Take<WaitReply>(reader, id).value().leading, 3u);
  EXPECT_EQ(node.owner->stats().waits_open, 0u);
}

TEST_F(WaitTest, ForKeysThatNobodyHasReservedYet) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(50, 1));
  EXPECT_EQ(node.owner->NextTimerUs(), UINT64_MAX);  // no deadline
  Put(50);
  EXPECT_TRUE(node.Answered(reader, id));
}

TEST_F(WaitTest, AnswersAtSoManyLeadingBlocks) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 5, 2), 10'000'000);
  Put(0);
  EXPECT_FALSE(node.Answered(reader, id));
  Put(1);
  EXPECT_EQ(node.Take<WaitReply>(reader, id).value().leading, 2u);
}

TEST_F(WaitTest, AtTheDeadlineItAnswersWithWhatIsThere) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 3), 1000);
  Put(0);
  node.Advance(999);
  EXPECT_FALSE(node.Answered(reader, id));
  node.Advance(1);
  EXPECT_EQ(node.Take<WaitReply>(reader, id).value().leading, 1u);
  EXPECT_EQ(node.owner->stats().waits_timed_out, 1u);
}

TEST_F(WaitTest, EvictionOfAnEarlierKeyDoesNotMatter) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 2), 10'000'000);
  Put(0);
  ASSERT_TRUE(node.Ask<RemoveReply>(writer, Verb::kRemove, Remove{n, {0}, {HashOf(0)}}).ok());
  Put(1);
  EXPECT_EQ(node.Take<WaitReply>(reader, id).value().leading, 2u);
}

TEST_F(WaitTest, WaitsForEveryGroupAndTheWholeRectangle) {
  const uint32_t kv = node.OpenIdentity(writer, KvIdentity(2, 1)),
                 kv_r = node.OpenIdentity(reader, KvIdentity(2, 1));
  Wait wait;
  wait.number = kv_r;
  wait.groups = {0, 7};
  wait.rectangle = {0, 2, 0, 1};
  wait.hashes = {HashOf(1)};
  const uint64_t id = node.Send(reader, Verb::kWait, wait);
  node.Put(writer, kv, {1, 64, {0, 2, 0, 1}, 0, 0});
  node.Put(writer, kv, {1, 64, {0, 1, 0, 1}, 0, 7});
  EXPECT_FALSE(node.Answered(reader, id));
  node.Put(writer, kv, {1, 64, {1, 2, 0, 1}, 0, 7});
  EXPECT_TRUE(node.Answered(reader, id));
}

TEST_F(WaitTest, OneCommitWakesAllThatWaitForIt) {
  const uint64_t first = node.Send(reader, Verb::kWait, For(0, 1));
  const uint64_t second = node.Send(writer, Verb::kWait, For(0, 1));
  const uint64_t third = node.Send(reader, Verb::kWait, For(0, 2));
  Put(0);
  EXPECT_TRUE(node.Answered(reader, first));
  EXPECT_TRUE(node.Answered(writer, second));
  EXPECT_FALSE(node.Answered(reader, third));
}

TEST_F(WaitTest, GoesOnThroughAClear) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 1));
  ASSERT_TRUE(node.Ask<ClearReply>(writer, Verb::kClear, Clear{n}).ok());
  Put(0);
  EXPECT_TRUE(node.Answered(reader, id));
}

TEST_F(WaitTest, CancelAnswersWithWhatIsThere) {
  const uint64_t id = node.Send(reader, Verb::kWait, For(0, 2));
  Put(0);
  node.Send(writer, Verb::kCancel, Cancel{id});  // not this session's
  EXPECT_FALSE(node.Answered(reader, id));
  node.Send(reader, Verb::kCancel, Cancel{id});
  EXPECT_EQ(node.Take<WaitReply>(reader, id).value().leading, 1u);
  node.Send(reader, Verb::kCancel, Cancel{id});
}

TEST_F(WaitTest, WaitsEndWithTheirSession) {
  node.Send(reader, Verb::kWait, For(0, 2), 1000);
  node.Give(reader, Closed{});
  EXPECT_EQ(node.owner->stats().waits_open, 0u);
  EXPECT_EQ(node.owner->NextTimerUs(), UINT64_MAX);
  Put(0);
}

TEST_F(WaitTest, WaitsOfASessionAndKeysOfTheNodeAreBounded) {
  for (int i = 0; i < 4; ++i) node.Send(reader, Verb::kWait, For(10, 1));
  EXPECT_EQ(node.Ask<WaitReply>(reader, Verb::kWait, For(10, 1)).status().code(), Code::kBusy);
  EXPECT_EQ(node.Ask<WaitReply>(writer, Verb::kWait, For(0, 97)).status().code(), Code::kBusy);
  const uint64_t fits = node.Send(writer, Verb::kWait, For(0, 96));
  EXPECT_FALSE(node.Answered(writer, fits));
  EXPECT_EQ(node.owner->stats().busy_answers, 2u);
}

TEST_F(WaitTest, BadWaitsAreInvalid) {
  EXPECT_EQ(node.Ask<WaitReply>(reader, Verb::kWait, For(0, 0)).status().code(), Code::kInvalid);
  EXPECT_EQ(node.Ask<WaitReply>(reader, Verb::kWait, For(0, 2, 3)).status().code(), Code::kInvalid);
  Wait wait = For(0, 1);
  wait.groups.clear();
  EXPECT_EQ(node.Ask<WaitReply>(reader, Verb::kWait, wait).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder::node
