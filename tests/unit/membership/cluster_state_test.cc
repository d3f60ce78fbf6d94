#include "node/membership/cluster_state.h"

#include <gtest/gtest.h>

namespace larder::node {
namespace {

constexpr uint64_t kGraceUs = 1000;

NodeRecord Record(const std::string& id, NodeState state = NodeState::kActive) {
  NodeRecord record;
  record.id = id;
  record.incarnation = 7;
  record.data_address = "127.0.0.1:7400";
  record.state = state;
  return record;
}

class State : public ::testing::Test {
 protected:
  void Add(const std::string& id, bool live, uint64_t now_us = 1) {
    state.Put(state.MemberKey(id), EncodeMember(Record(id)), 5, now_us);
    if (live) state.Put(state.LiveKey(id), "7", 6, now_us);
  }
  ClusterState state{"c"};
};

TEST_F(State, TheTableIsTheMembersUnderTheKeptVersion) {
  Add("b", true);
  Add("a", false);
  state.Put(state.EpochKey(), "42", 9, 1);
  const NodeTable table = state.Table();
  EXPECT_EQ(table.epoch, 42u);
  ASSERT_EQ(table.nodes.size(), 2u);
  EXPECT_EQ(table.nodes[0], Record("a"));
  EXPECT_EQ(table.nodes[1], Record("b"));
  EXPECT_EQ(state.live(), 1u);
  EXPECT_EQ(state.epoch_revision(), 9);
}

TEST_F(State, AMemberIsAbsentOnlyAfterTheGrace) {
  for (const char* id : {"a", "b", "c"}) Add(id, true);
  EXPECT_TRUE(state.Absent(1'000'000, kGraceUs).empty());
  state.Delete(state.LiveKey("b"), 500);
  EXPECT_TRUE(state.Absent(500 + kGraceUs - 1, kGraceUs).empty());
  EXPECT_EQ(state.Absent(500 + kGraceUs, kGraceUs), std::vector<std::string>{"b"});
  state.Put(state.LiveKey("b"), "8", 11, 900);
  EXPECT_TRUE(state.Absent(1'000'000, kGraceUs).empty());
  state.Delete(state.LiveKey("b"), 2000);
  EXPECT_TRUE(state.Absent(2000 + kGraceUs - 1, kGraceUs).empty()) << "the time counts from the last loss";
}

TEST_F(State, WhenMostVanishAtOnceNobodyIsAbsent) {
  for (const char* id : {"a", "b", "c", "d", "e"}) Add(id, true);
  for (const char* id : {"a", "b", "c"}) state.Delete(state.LiveKey(id), 1);
  EXPECT_TRUE(state.Absent(1'000'000, kGraceUs).empty());
  state.Put(state.LiveKey("c"), "8", 11, 2);
  EXPECT_EQ(state.Absent(1'000'000, kGraceUs), (std::vector<std::string>{"a", "b"}));
}

TEST_F(State, ThoseWhoAreAwayDoNotCount) {
  for (const char* id : {"a", "b"}) Add(id, true);
  for (const char* id : {"x", "y", "z"}) {
    state.Put(state.MemberKey(id), EncodeMember(Record(id, NodeState::kAway)), 5, 1);
  }
  state.Delete(state.LiveKey("a"), 1);
  EXPECT_EQ(state.Absent(1'000'000, kGraceUs), std::vector<std::string>{"a"});
}

TEST_F(State, WhileNobodyLookedNobodyWasMissing) {
  Add("a", false, 1);
  Add("b", true, 1);
  state.BeginSync();
  Add("a", false, 1'000'000);
  Add("b", true, 1'000'000);
  state.EndSync(1'000'000);
  EXPECT_TRUE(state.Absent(1'000'000 + kGraceUs - 1, kGraceUs).empty());
  EXPECT_EQ(state.Absent(1'000'000 + kGraceUs, kGraceUs), std::vector<std::string>{"a"});
}

TEST_F(State, ALiveKeyMayComeBeforeItsRecord) {
  state.Put(state.LiveKey("a"), "7", 5, 1);
  Add("a", false);
  ASSERT_NE(state.Find("a"), nullptr);
  EXPECT_EQ(state.Find("a")->live, "7");
}

TEST_F(State, WhatIsNotARecordIsNobody) {
  Add("a", true);
  state.Put(state.MemberKey("a"), "nonsense", 8, 2);
  EXPECT_EQ(state.Find("a"), nullptr);
  state.Put(state.MemberKey("b"), EncodeMember(Record("c")), 8, 2);
  EXPECT_EQ(state.Find("b"), nullptr) << "a record under another's key";
  state.Put("/larder/other/members/d", EncodeMember(Record("d")), 8, 2);
  state.Put(state.EpochKey(), "-3", 9, 2);
  EXPECT_EQ(state.members().size(), 0u);
  EXPECT_EQ(state.epoch(), 0u);
}

TEST_F(State, MembersAreBounded) {
  for (uint32_t i = 0; i < kNodesMax + 10; ++i) {
    const std::string id = "n" + std::to_string(i);
    state.Put(state.LiveKey(id), "7", 5, 1);
    state.Put(state.MemberKey(id), EncodeMember(Record(id)), 5, 1);
  }
  EXPECT_EQ(state.members().size(), kNodesMax);
}

}  // namespace
}  // namespace larder::node
