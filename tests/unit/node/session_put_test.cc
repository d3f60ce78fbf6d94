// The put half of a session: tickets, landing, checksums, commit, revocation.
#include "tests/unit/node/fake_connection.h"

namespace larder::node {
namespace {

using transport::Failure;

// A session with two granted slots: ticket 7 of 300 + 700 bytes, ticket 8 of 500 in one part.
class SessionPut : public ::testing::Test {
 protected:
  void SetUp() override {
    rig.SayHello();
    rig.session->Deliver(Grant{7, {slot7.data(), slot7.size()}, {{1, 300}, {1, 700}}});
    rig.session->Deliver(Grant{8, {slot8.data(), slot8.size()}, {{1, 500}}});
    rig.port.events.clear();
  }
  static Bytes DataHeader(std::vector<uint64_t> tickets) {
    return Encode(Envelope{.verb = Verb::kData, .request_id = 2}, Data{std::move(tickets)});
  }
  void SendCommit(std::vector<Commit::Block> blocks) {
    rig.Receive(Verb::kCommit, 3, Commit{std::move(blocks)});
  }
  Committed TheCommitted() {
    const std::vector<Committed> all = rig.port.Of<Committed>();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Committed{} : all[0];
  }
  std::vector<uint32_t> Crcs7() const {
    return {Crc32c(0, ByteView(bytes7).first(300)), Crc32c(0, ByteView(bytes7).last(700))};
  }
  std::vector<uint32_t> Crcs8() const { return {Crc32c(0, bytes8)}; }

  SessionRig rig;
  Bytes slot7 = Bytes(1000), slot8 = Bytes(500);
  const Bytes bytes7 = Pattern(1000, 7), bytes8 = Pattern(500, 8);
};

TEST_F(SessionPut, BytesLandInSlotsAndVerify) {
  for (const size_t step : {size_t{1}, size_t{299}, size_t{300}, size_t{333}, size_t{1000}}) {
    SessionRig other;
    other.SayHello();
    other.session->Deliver(Grant{7, {slot7.data(), slot7.size()}, {{1, 300}, {1, 700}}});
    ASSERT_TRUE(other.ReceivePayload(DataHeader({7}), {bytes7}, step));
    other.Receive(Verb::kCommit, 3, Commit{{{7, Crcs7()}}});
    ASSERT_EQ(other.port.Of<Committed>().size(), 1u);
    EXPECT_TRUE(other.port.Of<Committed>()[0].blocks[0].verified) << step;
  }
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({8, 7}), {bytes8, bytes7}));
  SendCommit({{7, Crcs7()}, {8, Crcs8()}});
  const Committed committed = TheCommitted();
  ASSERT_EQ(committed.blocks.size(), 2u);
  EXPECT_EQ(committed.envelope.request_id, 3u);
  for (const Committed::Block& block : committed.blocks) {
    EXPECT_TRUE(block.landed);
    EXPECT_TRUE(block.verified);
  }
  EXPECT_EQ(committed.blocks[0].crc32c, Crcs7());
  EXPECT_EQ(slot7, bytes7);
  EXPECT_EQ(slot8, bytes8);
}

TEST_F(SessionPut, WhatTheWriterDidNotSayIsNotVerified) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7, 8}), {bytes7, bytes8}));
  std::vector<uint32_t> wrong = Crcs7();
  wrong[1] ^= 1;
  SendCommit({{7, wrong}, {8, {}}});
  const Committed committed = TheCommitted();
  EXPECT_TRUE(committed.blocks[0].landed);
  EXPECT_FALSE(committed.blocks[0].verified);
  EXPECT_EQ(committed.blocks[0].crc32c, Crcs7());
  EXPECT_FALSE(committed.blocks[1].verified);
}

TEST_F(SessionPut, WithoutBytesNothingHasLanded) {
  SendCommit({{7, Crcs7()}});
  EXPECT_FALSE(TheCommitted().blocks[0].landed);
  EXPECT_FALSE(TheCommitted().blocks[0].verified);
}

TEST_F(SessionPut, TicketsThatNobodyGrantedAreExpired) {
  SendCommit({{99, {1}}, {98, {}}});
  EXPECT_TRUE(rig.port.events.empty());
  EXPECT_EQ(rig.LastBody<CommitReply>().states, std::vector(2, PutState::kExpired));
  // And again: the answer freed its place among the unanswered.
  for (int i = 0; i < 10; ++i) SendCommit({{99, {1}}});
  EXPECT_EQ(rig.LastEnvelope().code, Code::kOk);
  // One ticket, named twice: the second is gone with the first.
  SendCommit({{7, {}}, {7, {}}});
  EXPECT_EQ(TheCommitted().blocks.size(), 2u);
}

// One dead ticket took all blocks of its message with it: a batch lost what had come in time.
TEST_F(SessionPut, OneDeadTicketHarmsNoOtherBlockOfItsMessage) {
  const Bytes long_gone = Bytes(200'001, std::byte{9});
  rig.session->Deliver(Revoke{7});
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({99, 8, 7}), {long_gone, bytes8, bytes7}));
  SendCommit({{99, {}}, {8, Crcs8()}, {7, Crcs7()}});
  ASSERT_EQ(rig.port.Of<Committed>().size(), 1u);
  const Committed committed = rig.port.Of<Committed>()[0];
  ASSERT_EQ(committed.blocks.size(), 3u);
  EXPECT_FALSE(committed.blocks[0].landed);
  EXPECT_TRUE(committed.blocks[1].verified);
  EXPECT_FALSE(committed.blocks[2].landed);
}

TEST_F(SessionPut, ATicketThatIsNamedTwiceLandsOnce) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7, 7}), {bytes7, Bytes(bytes7.size())}));
  SendCommit({{7, Crcs7()}});
  EXPECT_TRUE(TheCommitted().blocks[0].verified);
}

TEST_F(SessionPut, ASegmentOfAnotherSizeDoesNotLand) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7, 8}), {bytes7, Bytes(499)}));
  SendCommit({{7, Crcs7()}, {8, Crcs8()}});
  EXPECT_TRUE(TheCommitted().blocks[0].verified);
  EXPECT_FALSE(TheCommitted().blocks[1].landed);
}

TEST_F(SessionPut, PayloadsThatNoTicketWaitsForAreRefusedWhole) {
  EXPECT_FALSE(rig.ReceivePayload(DataHeader({98, 99}), {bytes7, bytes8}));
  EXPECT_FALSE(rig.ReceivePayload(DataHeader({7, 8}), {bytes7}));
  EXPECT_TRUE(rig.ReceivePayload(DataHeader({7}), {bytes7}));
  EXPECT_FALSE(rig.ReceivePayload(DataHeader({7}), {bytes8})) << "it has landed already";
  EXPECT_TRUE(rig.port.events.empty());
  EXPECT_EQ(rig.connection->sent.size(), 1u) << "data is not answered";

  SessionRig before_hello;
  EXPECT_FALSE(before_hello.ReceivePayload(DataHeader({7}), {bytes7}));
}

TEST_F(SessionPut, ARevokedTicketStopsAtOnceWhenNothingLands) {
  rig.session->Deliver(Revoke{7});
  ASSERT_EQ(rig.port.Of<Stopped>().size(), 1u);
  EXPECT_EQ(rig.port.Of<Stopped>()[0].ticket, 7u);
  EXPECT_TRUE(rig.connection->diverted.empty());
  EXPECT_FALSE(rig.ReceivePayload(DataHeader({7}), {bytes7}));
}

TEST_F(SessionPut, ARevokedTicketStopsWhenItsLandingIsDiverted) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7, 8}), {bytes7, bytes8}, 100, false));
  rig.session->Deliver(Revoke{7});
  EXPECT_EQ(rig.connection->diverted, std::vector{rig.last_landing});
  EXPECT_TRUE(rig.port.Of<Stopped>().empty()) << "bytes may still land";
  EXPECT_FALSE(rig.ReceivePayload(DataHeader({7}), {bytes7}));
  rig.session->OnDiverted(*rig.connection, rig.last_landing);
  ASSERT_EQ(rig.port.Of<Stopped>().size(), 1u);
  rig.session->OnMessage(*rig.connection, DataHeader({7, 8}), rig.last_landing, false);
  EXPECT_EQ(rig.port.Of<Stopped>().size(), 1u);
  // Its neighbour did not land; it may come again, and is checked from its first byte.
  EXPECT_TRUE(rig.ReceivePayload(DataHeader({8}), {bytes8}));
  SendCommit({{8, Crcs8()}});
  EXPECT_TRUE(TheCommitted().blocks[0].verified);
}

TEST_F(SessionPut, ALandingThatEndsBeforeItsDivertStopsToo) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7}), {bytes7}, 100, false));
  const uint64_t landing = rig.last_landing;
  rig.session->Deliver(Revoke{7});
  rig.session->OnMessage(*rig.connection, DataHeader({7}), landing, true);
  EXPECT_EQ(rig.port.Of<Stopped>().size(), 1u);
  rig.session->OnDiverted(*rig.connection, landing);
  EXPECT_EQ(rig.port.Of<Stopped>().size(), 1u);
  SendCommit({{7, Crcs7()}});
  EXPECT_EQ(rig.LastBody<CommitReply>().states, std::vector{PutState::kExpired});
}

TEST_F(SessionPut, ACommitAheadOfItsBytesBreaksTheConnection) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7}), {bytes7}, 100, false));
  SendCommit({{7, Crcs7()}});
  EXPECT_TRUE(rig.port.Of<Committed>().empty()) << "the slot would be free while bytes land in it";
  EXPECT_EQ(rig.connection->closed, std::vector{Failure::kProtocol});
}

TEST_F(SessionPut, ProgressIsToldOnceASecond) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7}), {bytes7}, 1, false));
  rig.port.now_us += 999'999;
  rig.session->OnBytes(*rig.connection, rig.last_landing, 0, 0, {});
  EXPECT_TRUE(rig.port.events.empty());
  rig.port.now_us += 1;
  for (int i = 0; i < 5; ++i) rig.session->OnBytes(*rig.connection, rig.last_landing, 0, 0, {});
  EXPECT_EQ(rig.port.Of<Progress>().size(), 2u) << "the ticket that lands and the one behind it";
  // A ticket that never gets its bytes can't live on others' for ever.
  rig.port.events.clear();
  rig.port.now_us += 40'000'000;
  rig.session->OnBytes(*rig.connection, rig.last_landing, 0, 0, {});
  ASSERT_EQ(rig.port.Of<Progress>().size(), 1u);
  EXPECT_EQ(rig.port.Of<Progress>()[0].ticket, 7u);
}

TEST_F(SessionPut, ClosingGivesEverythingBackWithOneEvent) {
  ASSERT_TRUE(rig.ReceivePayload(DataHeader({7, 8}), {bytes7, bytes8}, 100, false));
  rig.port.events.clear();
  rig.session->OnClosed(*rig.connection, {});
  ASSERT_EQ(rig.port.events.size(), 1u);
  EXPECT_EQ(rig.port.Of<Closed>().size(), 1u);
}

}  // namespace
}  // namespace larder::node
