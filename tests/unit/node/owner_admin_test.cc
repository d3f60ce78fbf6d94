#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct AdminTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 16 << 20;
    options.namespaces_max = 3;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect();
  void TearDown() override { node.Check(); }
  static Spec Block(uint64_t key) { return {key, 4096, {}}; }
};

TEST_F(AdminTest, OpenComputesTheNamespaceAndNumbersIt) {
  const auto identity = Identity::Parse(OpaqueIdentity());
  const auto reply = node.Ask<OpenReply>(a, Verb::kOpen, Open{OpaqueIdentity(), "t", {}});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().name_space, NamespaceOf(identity.value(), "t", ""));
  EXPECT_EQ(reply.value().clear_epoch, 0u);
  Open salted{OpaqueIdentity(), "t", Sha256(AsBytes("secret"))};
  const auto other = node.Ask<OpenReply>(a, Verb::kOpen, salted);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other.value().name_space, reply.value().name_space);
  EXPECT_NE(other.value().number, reply.value().number);
  EXPECT_EQ(node.OpenIdentity(a, OpaqueIdentity(), "t"),
            reply.value().number);  // opened twice: the same number
}

TEST_F(AdminTest, ACredentialOpensItsTenantOnly) {
  const SessionId bound = node.Connect("mine");
  EXPECT_NE(node.OpenIdentity(bound, OpaqueIdentity(), "mine"), 0u);
  EXPECT_EQ(node.Ask<OpenReply>(bound, Verb::kOpen, Open{OpaqueIdentity(), "other", {}}).status().code(),
            Code::kDenied);
}

TEST_F(AdminTest, ABadIdentityIsRefusedWithItsReason) {
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{"", "", {}}).status().code(), Code::kInvalid);
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{"kind=kv", "", {}}).status().code(), Code::kInvalid);
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{"kind=other\n", "", {}}).status().code(),
            Code::kInvalid);
  const std::string weak = "hash=sha256_64bit\nkind=kv\n";
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{weak, "", {}}).status().code(), Code::kInvalid);
  const std::string long_tenant(kTenantBytesMax + 1, 'x');
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{OpaqueIdentity(), long_tenant, {}}).status().code(),
            Code::kInvalid);
}

TEST_F(AdminTest, AnotherConnectionSeesTheSameBlocksUnderItsOwnNumber) {
  const SessionId b = node.Connect();
  node.OpenIdentity(b, OpaqueIdentity("first"));
  const uint32_t n = node.OpenIdentity(a, OpaqueIdentity()), n_b = node.OpenIdentity(b, OpaqueIdentity());
  EXPECT_NE(n, n_b);
  ASSERT_EQ(node.Put(a, n, Block(1)), PutState::kStored);
  EXPECT_EQ(node.MatchOne(b, n_b, Block(1)), Presence::kRam);
  EXPECT_EQ(node.MatchOne(b, 1, Block(1)), Presence::kNeverStored);
}

TEST_F(AdminTest, NamespacesAreBoundedAndUnusedOnesGiveWay) {
  const SessionId b = node.Connect();
  for (int i = 0; i < 3; ++i) EXPECT_NE(node.OpenIdentity(b, OpaqueIdentity(std::to_string(i)), "t"), 0u);
  ASSERT_EQ(node.Put(b, 1, Block(1)), PutState::kStored);
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{OpaqueIdentity("new"), "", {}}).status().code(),
            Code::kBusy);
  node.Give(b, Closed{});
  EXPECT_NE(node.OpenIdentity(a, OpaqueIdentity("new")), 0u);
  EXPECT_NE(node.OpenIdentity(a, OpaqueIdentity("newer")), 0u);
  // The one with a block in it stays.
  EXPECT_EQ(node.Ask<OpenReply>(a, Verb::kOpen, Open{OpaqueIdentity("newest"), "", {}}).status().code(),
            Code::kBusy);
  EXPECT_EQ(node.MatchOne(a, node.OpenIdentity(a, OpaqueIdentity("0"), "t"), Block(1)), Presence::kRam);
  EXPECT_EQ(node.owner->Namespaces().size(), 3u);
}

TEST_F(AdminTest, AForgottenNamespaceComesBackEmpty) {
  SessionId b = node.Connect();
  const uint32_t n = node.OpenIdentity(b, OpaqueIdentity("x"));
  ASSERT_EQ(node.Put(b, n, Block(1)), PutState::kStored);
  ASSERT_TRUE(node.Ask<ClearReply>(b, Verb::kClear, Clear{n}).ok());
  node.Give(b, Closed{});
  for (int i = 0; i < 3; ++i) EXPECT_NE(node.OpenIdentity(a, OpaqueIdentity(std::to_string(i))), 0u);
  node.Give(a, Closed{});
  b = node.Connect();
  const uint32_t again = node.OpenIdentity(b, OpaqueIdentity("x"));
  ASSERT_NE(again, 0u);
  EXPECT_FALSE(IsHit(node.MatchOne(b, again, Block(1))));
}

TEST_F(AdminTest, RemoveTakesAllPiecesOfItsKeys) {
  const uint32_t kv = node.OpenIdentity(a, KvIdentity(2, 1));
  ASSERT_EQ(node.Put(a, kv, {1, 64, {0, 1, 0, 1}}), PutState::kStored);
  ASSERT_EQ(node.Put(a, kv, {1, 64, {1, 2, 0, 1}}), PutState::kStored);
  ASSERT_EQ(node.Put(a, kv, {2, 64, {1, 2, 0, 1}}), PutState::kStored);
  const auto reply =
      node.Ask<RemoveReply>(a, Verb::kRemove, Remove{kv, {0, 1}, {HashOf(1), HashOf(5), HashOf(1)}});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().removed, 2u);
  EXPECT_EQ(node.MatchOne(a, kv, {1, 64, {0, 1, 0, 1}}), Presence::kRemoved);
  EXPECT_EQ(node.MatchOne(a, kv, {2, 64, {1, 2, 0, 1}}), Presence::kRam);
}

TEST_F(AdminTest, ClearHidesEverythingAtOnceAndFreesItInSteps) {
  const uint32_t n = node.OpenIdentity(a, OpaqueIdentity("n")),
                 other = node.OpenIdentity(a, OpaqueIdentity("o"));
  for (uint64_t key = 0; key < 2000; ++key) ASSERT_EQ(node.Put(a, n, {key, 64, {}}), PutState::kStored);
  ASSERT_EQ(node.Put(a, other, Block(1)), PutState::kStored);
  const auto reply = node.Ask<ClearReply>(a, Verb::kClear, Clear{n});
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().removed, 2000u);
  EXPECT_EQ(reply.value().clear_epoch, 1u);
  for (const uint64_t key : {0, 1000, 1999})
    EXPECT_EQ(node.MatchOne(a, n, {key, 64, {}}), Presence::kCleared);
  EXPECT_EQ(node.owner->stats().pieces, 1u);
  node.Check();
  EXPECT_LE(node.owner->NextTimerUs(), node.now_us);          // there is more to free
  ASSERT_EQ(node.Put(a, n, {5, 64, {}}), PutState::kStored);  // the new generation's own
  while (node.owner->NextTimerUs() <= node.now_us) {
    node.owner->OnTimer(node.now_us);
    node.Check();
  }
  EXPECT_EQ(node.owner->stats().slot_bytes, 64u + 4096);
  EXPECT_EQ(node.MatchOne(a, n, {5, 64, {}}), Presence::kRam);
  EXPECT_EQ(node.MatchOne(a, n, {6, 64, {}}), Presence::kCleared);
  EXPECT_EQ(node.MatchOne(a, other, Block(1)), Presence::kRam);
}

TEST_F(AdminTest, APinnedPieceOfAClearedNamespaceIsFreedWhenItsPinsEnd) {
  const uint32_t n = node.OpenIdentity(a, OpaqueIdentity());
  ASSERT_EQ(node.Put(a, n, Block(1)), PutState::kStored);
  uint64_t handle = 0;
  node.MatchOne(a, n, Block(1), &handle, 1'000'000);
  node.GetOne(a, n, Block(1), false);
  ASSERT_TRUE(node.Ask<ClearReply>(a, Verb::kClear, Clear{n}).ok());
  EXPECT_FALSE(IsHit(node.MatchOne(a, n, Block(1))));
  node.Release(a, handle);
  EXPECT_EQ(node.owner->stats().slot_bytes, 4096u);
  node.Check();
  node.Give(a, Sent{node.last_token});
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
}

TEST_F(AdminTest, AdminsClearFindsTheNamespaceByName) {
  const auto open = node.Ask<OpenReply>(a, Verb::kOpen, Open{OpaqueIdentity(), "t", {}});
  ASSERT_EQ(node.Put(a, open.value().number, Block(1)), PutState::kStored);
  const auto info = node.owner->Namespaces();
  ASSERT_EQ(info.size(), 1u);
  EXPECT_EQ(info[0].tenant, "t");
  EXPECT_EQ(info[0].identity, OpaqueIdentity());
  EXPECT_EQ(info[0].blocks, 1u);
  EXPECT_EQ(info[0].bytes, 4096u);
  EXPECT_EQ(node.owner->ClearNamespace(info[0].name_space).value(), 1u);
  EXPECT_EQ(node.owner->ClearNamespace(Namespace{}).status().code(), Code::kNotFound);
  EXPECT_EQ(node.owner->Namespaces()[0].clear_epoch, 1u);
}

}  // namespace
}  // namespace larder::node
