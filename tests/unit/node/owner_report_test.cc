#include "proto/checksum.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct ReportTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 8 << 20;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect();
  uint32_t kv = node.OpenIdentity(a, KvIdentity(2, 2));
  Spec spec{1, 4096, {0, 2, 0, 2}};
  std::byte* payload = nullptr;
  void SetUp() override {
    const auto reserved = node.ReserveOne(a, kv, spec);
    payload = node.outbox.grants.at(reserved.ticket).slot.data;
    ASSERT_EQ(node.CommitOne(a, reserved.ticket, spec), PutState::kStored);
  }
  void TearDown() override { node.Check(); }
  uint64_t SendReport(std::vector<BlockRef> blocks) {
    return node.Send(a, Verb::kReport, Report{kv, blocks});
  }
  // What a mover does with Verify.
  void VerifyAll() {
    auto verifies = std::move(node.outbox.verifies);
    node.outbox.verifies.clear();
    for (const auto& [session, verify] : verifies) {
      bool good = true;
      size_t at = 0;
      for (const PartRecord& part : verify.parts) {
        good &= Crc32c(0, {verify.payload.data + at, part.bytes}) == part.crc32c;
        at += part.bytes;
      }
      EXPECT_EQ(at, verify.payload.bytes);
      node.Give(session, Verified{verify.token, good});
    }
  }
};

TEST_F(ReportTest, AFalseReportDropsNothing) {
  const uint64_t id = SendReport({{HashOf(1), 0, spec.rectangle}});
  EXPECT_EQ(node.owner->stats().hard_pins, 1u);
  EXPECT_FALSE(node.Answered(a, id));
  VerifyAll();
  EXPECT_EQ(node.Take<ReportReply>(a, id).value().dropped, (std::vector<uint8_t>{0}));
  EXPECT_EQ(node.MatchOne(a, kv, spec), Presence::kRam);
  EXPECT_EQ(node.owner->stats().reports_dropped, 0u);
  EXPECT_TRUE(node.owner->Idle());
}

TEST_F(ReportTest, ABadCopyIsDroppedAndRememberedAsCorrupt) {
  payload[5000] ^= std::byte{1};
  const uint64_t id = SendReport({{HashOf(1), 0, {1, 2, 0, 1}}, {HashOf(2), 0, spec.rectangle}});
  VerifyAll();
  EXPECT_EQ(node.Take<ReportReply>(a, id).value().dropped, (std::vector<uint8_t>{1, 0}));
  EXPECT_EQ(node.MatchOne(a, kv, spec), Presence::kCorrupt);
  EXPECT_EQ(node.owner->stats().reports_dropped, 1u);
  EXPECT_EQ(node.Put(a, kv, spec), PutState::kStored);
}

TEST_F(ReportTest, ABadCopyThatIsBeingSentIsInvisibleAtOnceAndFreedAfterwards) {
  node.GetOne(a, kv, spec, false);
  payload[0] ^= std::byte{1};
  SendReport({{HashOf(1), 0, spec.rectangle}});
  SendReport({{HashOf(1), 0, spec.rectangle}});  // a second reader saw it too
  VerifyAll();
  EXPECT_EQ(node.MatchOne(a, kv, spec), Presence::kCorrupt);
  EXPECT_EQ(node.owner->stats().reports_dropped, 1u);
  EXPECT_GT(node.owner->stats().slot_bytes, 0u);
  node.Give(a, Sent{node.last_token});
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
}

TEST_F(ReportTest, NothingToCheckIsAnsweredAtOnce) {
  const uint64_t id = SendReport({{HashOf(9), 0, spec.rectangle}});
  EXPECT_EQ(node.Take<ReportReply>(a, id).value().dropped, (std::vector<uint8_t>{0}));
}

TEST_F(ReportTest, AClosedSessionsCheckStillEnds) {
  payload[0] ^= std::byte{1};
  SendReport({{HashOf(1), 0, spec.rectangle}});
  node.Give(a, Closed{});
  EXPECT_EQ(node.owner->stats().hard_pins, 1u);  // somebody may still be reading
  node.Check();
  VerifyAll();
  EXPECT_EQ(node.owner->stats().hard_pins, 0u);
  EXPECT_EQ(node.owner->stats().pieces, 0u);
  node.Give(a, Verified{424242, false});  // an unknown token
}

TEST_F(ReportTest, ChecksAreBounded) {
  std::vector<BlockRef> blocks(kBlocksMax, {HashOf(1), 0, spec.rectangle});
  for (int i = 0; i < 4; ++i) SendReport(blocks);
  const uint64_t id = SendReport(blocks);
  EXPECT_EQ(node.Take<ReportReply>(a, id).status().code(), Code::kBusy);
  VerifyAll();
  blocks.push_back(blocks[0]);
  EXPECT_EQ(node.Take<ReportReply>(a, SendReport(blocks)).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder::node
