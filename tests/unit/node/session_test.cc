#include "node/session.h"

#include <random>

#include "tests/unit/node/fake_connection.h"

namespace larder::node {
namespace {

std::vector<ChainHash> SomeHashes(uint32_t count) {
  std::vector<ChainHash> hashes(count);
  for (uint32_t i = 0; i < count; ++i) hashes[i].bytes[0] = static_cast<std::byte>(i + 1);
  return hashes;
}

Match MatchOf(uint32_t count, bool in_payload) {
  Match match;
  match.groups = {0};
  match.hash_count = count;
  match.hashes_in_payload = in_payload;
  if (!in_payload) match.hashes = SomeHashes(count);
  return match;
}

Bytes HashBytes(uint32_t count) {
  const std::vector<ChainHash> hashes = SomeHashes(count);
  const auto* begin = reinterpret_cast<const std::byte*>(hashes.data());
  return Bytes(begin, begin + count * sizeof(ChainHash));
}

Bytes MatchHeader(uint64_t request_id, const Match& match) {
  return Encode(Envelope{.verb = Verb::kMatch, .request_id = request_id}, match);
}

TEST(Session, HelloSettlesVersionAndCredential) {
  SessionRig rig({{"alice", "open sesame", "tenant-a"}, {"bob", "other", ""}});
  Hello hello;
  hello.version_max = 9;
  hello.token = "open sesame";
  hello.lane = Priority::kBatch;
  rig.Receive(Verb::kHello, 5, hello);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kOk);
  EXPECT_EQ(rig.LastEnvelope().request_id, 5u);
  const HelloReply reply = rig.LastBody<HelloReply>();
  EXPECT_EQ(reply.version, kWireVersionMax);
  EXPECT_EQ(reply.node_id, "node");
  EXPECT_EQ(reply.incarnation, 42u);
  EXPECT_EQ(reply.requests_max, 4u);
  EXPECT_EQ(reply.table, rig.port.table);
  EXPECT_TRUE(rig.connection->batch);
  ASSERT_EQ(rig.port.Of<Opened>().size(), 1u);
  EXPECT_EQ(rig.port.Of<Opened>()[0].tenant, "tenant-a");
  EXPECT_EQ(rig.port.Of<Opened>()[0].writer, Sha256(AsBytes("alice")));
}

TEST(Session, WithoutCredentialsEverybodyIsAnonymous) {
  SessionRig rig;
  rig.SayHello("whatever");
  ASSERT_EQ(rig.port.Of<Opened>().size(), 1u);
  EXPECT_EQ(rig.port.Of<Opened>()[0].writer, Digest{});
  EXPECT_EQ(rig.port.Of<Opened>()[0].tenant, "");
}

TEST(Session, WrongTokenIsToldThenClosed) {
  SessionRig rig({{"alice", "open sesame", ""}});
  rig.SayHello("guess");
  EXPECT_EQ(rig.LastEnvelope().code, Code::kDenied);
  EXPECT_TRUE(rig.connection->closed.empty()) << "the answer would be lost";
  EXPECT_TRUE(rig.port.events.empty());
  rig.session->OnSent(*rig.connection, rig.connection->sent.back().token, transport::Failure::kNone);
  EXPECT_EQ(rig.connection->closed, std::vector{transport::Failure::kRefused});
  // Whatever else it says is not heard.
  rig.SayHello("open sesame");
  rig.session->OnClosed(*rig.connection, {});
  EXPECT_TRUE(rig.port.Of<Opened>().empty());
}

TEST(Session, NoCommonVersionIsUnsupported) {
  SessionRig rig;
  Hello hello;
  hello.version_min = hello.version_max = kWireVersionMax + 1;
  rig.Receive(Verb::kHello, 1, hello);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kUnsupported);
  EXPECT_NE(rig.LastBody<ErrorText>().text.find("wire versions 2 to 2"), std::string::npos);
  EXPECT_TRUE(rig.port.events.empty());
}

TEST(Session, HelloComesFirstAndOnce) {
  SessionRig rig;
  rig.Receive(Encode(Envelope{.verb = Verb::kPing, .request_id = 3}));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kDenied);
  EXPECT_TRUE(rig.port.events.empty());

  SessionRig twice;
  twice.SayHello();
  twice.SayHello();
  EXPECT_EQ(twice.LastEnvelope().code, Code::kInvalid);
  EXPECT_EQ(twice.port.Of<Opened>().size(), 1u);
  EXPECT_TRUE(twice.connection->closed.empty());
}

TEST(Session, OnlyWhoIsNewCanBeLateWithHello) {
  SessionRig late;
  late.session->ExpireHello();
  EXPECT_EQ(late.connection->closed, std::vector{transport::Failure::kTimedOut});
  EXPECT_EQ(late.shared->hello_timeouts, 1u);
  late.SayHello();
  EXPECT_TRUE(late.port.events.empty()) << "too late is not heard";

  SessionRig open;
  open.SayHello();
  open.session->ExpireHello();
  EXPECT_TRUE(open.connection->closed.empty());
  EXPECT_EQ(open.shared->hello_timeouts, 0u);
}

TEST(Session, PingIsAnsweredWithoutTheOwner) {
  SessionRig rig;
  rig.SayHello();
  rig.Receive(Encode(Envelope{.verb = Verb::kPing, .request_id = 8}));
  EXPECT_EQ(rig.LastEnvelope().verb, Verb::kPing);
  EXPECT_EQ(rig.LastEnvelope().request_id, 8u);
  EXPECT_TRUE(rig.LastEnvelope().reply);
  EXPECT_EQ(rig.port.events.size(), 1u);
}

TEST(Session, GarbageClosesTheConnection) {
  const Bytes ping = Encode(Envelope{.verb = Verb::kPing, .request_id = 8});
  Bytes reply = ping;
  reply[0] |= std::byte{kReplyBit};
  Bytes priority = ping;
  priority[1] = std::byte{9};
  for (const Bytes& garbage :
       {Bytes{}, Bytes(3), Bytes(ping.begin(), ping.end() - 1), Pattern(40, 200), reply, priority}) {
    SessionRig rig;
    rig.SayHello();
    rig.Receive(garbage);
    EXPECT_EQ(rig.connection->closed, std::vector{transport::Failure::kProtocol});
    rig.Receive(ping);  // not heard any more
    EXPECT_EQ(rig.connection->sent.size(), 1u);
  }
}

TEST(Session, UnknownVerbsAndBadRecordsAreRefusedPolitely) {
  SessionRig rig;
  rig.SayHello();
  Bytes unknown = Encode(Envelope{.verb = Verb::kPing, .request_id = 8});
  unknown[0] = std::byte{77};
  rig.Receive(unknown);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kUnsupported);
  EXPECT_EQ(rig.LastEnvelope().request_id, 8u);
  rig.Receive(Encode(Envelope{.verb = Verb::kMatch, .request_id = 9}));  // an empty record
  EXPECT_EQ(rig.LastEnvelope().code, Code::kInvalid);
  rig.Receive(Encode(Envelope{.verb = Verb::kTable, .request_id = 10}));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kUnsupported);
  rig.Receive(MatchHeader(11, MatchOf(300, true)));  // the payload is missing
  EXPECT_EQ(rig.LastEnvelope().code, Code::kInvalid);
  EXPECT_EQ(rig.LastEnvelope().request_id, 11u);
  EXPECT_TRUE(rig.connection->closed.empty());
  EXPECT_TRUE(rig.port.Of<Request>().empty());
}

TEST(Session, OneWayVerbsAreNeverAnswered) {
  SessionRig rig;
  rig.SayHello();
  rig.port.full = true;
  rig.Receive(Verb::kTouch, 2, Touch{});
  rig.Receive(Verb::kCancel, 3, Cancel{7});
  rig.Receive(Encode(Envelope{.verb = Verb::kRelease, .request_id = 4}));  // no body
  EXPECT_EQ(rig.connection->sent.size(), 1u);
}

TEST(Session, RequestsReachTheOwnerStamped) {
  SessionRig rig;
  rig.SayHello();
  rig.port.now_us += 77;
  rig.Receive(MatchHeader(2, MatchOf(3, false)));
  ASSERT_EQ(rig.port.Of<Request>().size(), 1u);
  const Request request = rig.port.Of<Request>()[0];
  EXPECT_EQ(request.arrived_us, rig.port.now_us);
  EXPECT_EQ(request.envelope.request_id, 2u);
  EXPECT_EQ(std::get<Match>(request.body).hashes, SomeHashes(3));
}

TEST(Session, HashesLandInTheRequest) {
  SessionRig rig;
  rig.SayHello();
  EXPECT_TRUE(rig.ReceivePayload(MatchHeader(2, MatchOf(5000, true)), {HashBytes(5000)}));
  ASSERT_EQ(rig.port.Of<Request>().size(), 1u);
  EXPECT_EQ(std::get<Match>(rig.port.Of<Request>()[0].body).hashes, SomeHashes(5000));
  EXPECT_EQ(rig.shared->hash_bytes, 0u);
}

TEST(Session, HashPayloadsThatDontFitTheHeaderAreRefused) {
  SessionRig rig;
  rig.SayHello();
  EXPECT_FALSE(rig.ReceivePayload(MatchHeader(2, MatchOf(500, true)), {HashBytes(499)}));
  EXPECT_EQ(rig.LastEnvelope().request_id, 2u);
  EXPECT_NE(rig.LastEnvelope().code, Code::kOk);
  EXPECT_FALSE(rig.ReceivePayload(MatchHeader(3, MatchOf(4, true)), {HashBytes(2), HashBytes(2)}));
  EXPECT_FALSE(rig.ReceivePayload(MatchHeader(4, MatchOf(4, false)), {HashBytes(4)}));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kInvalid);
  EXPECT_FALSE(rig.ReceivePayload(Encode(Envelope{.verb = Verb::kPing, .request_id = 5}), {Bytes(8)}));
  EXPECT_TRUE(rig.port.Of<Request>().empty());
}

TEST(Session, LandingHashesAreBounded) {
  SessionRig rig;
  rig.SayHello();
  rig.shared->hash_bytes_max = 320;
  EXPECT_TRUE(rig.ReceivePayload(MatchHeader(2, MatchOf(6, true)), {HashBytes(6)}, 32, false));
  EXPECT_EQ(rig.shared->hash_bytes, 192u);
  EXPECT_FALSE(rig.ReceivePayload(MatchHeader(3, MatchOf(6, true)), {HashBytes(6)}));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
  EXPECT_EQ(rig.shared->hash_bytes, 192u);
  rig.session->OnClosed(*rig.connection, {});
  EXPECT_EQ(rig.shared->hash_bytes, 0u);
}

TEST(Session, UnansweredRequestsAreBounded) {
  SessionRig rig;
  rig.SayHello();
  for (uint64_t id = 10; id < 14; ++id) rig.Receive(MatchHeader(id, MatchOf(1, false)));
  EXPECT_EQ(rig.port.Of<Request>().size(), 4u);
  rig.Receive(MatchHeader(14, MatchOf(1, false)));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
  EXPECT_EQ(rig.LastEnvelope().request_id, 14u);
  rig.OwnerAnswers(Verb::kMatch, 11);
  rig.Receive(MatchHeader(15, MatchOf(1, false)));
  EXPECT_EQ(rig.port.Of<Request>().size(), 5u);
}

TEST(Session, WaitsHaveTheirOwnBound) {
  SessionRig rig;
  rig.SayHello();
  Wait wait;
  wait.groups = {0};
  for (uint64_t id = 10; id < 13; ++id) rig.Receive(Verb::kWait, id, wait);
  EXPECT_EQ(rig.port.Of<Request>().size(), 2u);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
  for (uint64_t id = 20; id < 24; ++id) rig.Receive(MatchHeader(id, MatchOf(1, false)));
  EXPECT_EQ(rig.port.Of<Request>().size(), 6u);
  rig.OwnerAnswers(Verb::kWait, 10);
  rig.Receive(Verb::kWait, 30, wait);
  EXPECT_EQ(rig.port.Of<Request>().size(), 7u);
}

TEST(Session, ARequestIdIsUsedOnceAtATime) {
  SessionRig rig;
  rig.SayHello();
  rig.Receive(MatchHeader(10, MatchOf(1, false)));
  rig.Receive(MatchHeader(10, MatchOf(1, false)));
  EXPECT_EQ(rig.LastEnvelope().code, Code::kInvalid);
  EXPECT_EQ(rig.port.Of<Request>().size(), 1u);
}

TEST(Session, AFullOwnerIsBusy) {
  SessionRig rig;
  rig.SayHello();
  rig.port.full = true;
  for (uint64_t id = 10; id < 30; ++id) {  // refused ones don't count as unanswered
    rig.Receive(MatchHeader(id, MatchOf(1, false)));
    EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
    EXPECT_EQ(rig.LastEnvelope().request_id, id);
  }
  rig.port.full = false;
  rig.Receive(MatchHeader(40, MatchOf(1, false)));
  EXPECT_EQ(rig.port.Of<Request>().size(), 1u);
}

TEST(Session, RepliesLeaveWithTheirBytesAndTokensComeBack) {
  SessionRig rig;
  rig.SayHello();
  const Bytes payload = Pattern(100, 1);
  Reply reply;
  reply.header = Encode(ReplyTo(Envelope{.verb = Verb::kGet, .request_id = 4}), GetReply{});
  reply.segments.Add({payload.data(), payload.size()});
  reply.token = 9;
  reply.expire_us = 1234;
  rig.session->Deliver(Reply(reply));
  ASSERT_EQ(rig.connection->sent.size(), 2u);
  EXPECT_EQ(rig.connection->sent[1].token, 9u);
  EXPECT_EQ(rig.connection->sent[1].expire_us, 1234u);
  EXPECT_EQ(rig.connection->sent[1].segments.extents[0].data, payload.data());
  EXPECT_TRUE(rig.port.Of<Sent>().empty());
  rig.session->OnSent(*rig.connection, 9, transport::Failure::kTimedOut);
  ASSERT_EQ(rig.port.Of<Sent>().size(), 1u);
  EXPECT_EQ(rig.port.Of<Sent>()[0].token, 9u);
}

// The owner's replies to one get, of which the first can't be sent.
TEST(Session, AnAnswerWhosePartCanNotBeSentEndsWithAnError) {
  SessionRig rig;
  rig.SayHello();
  Get get;
  get.blocks.resize(2);
  get.blocks[0].rectangle = get.blocks[1].rectangle = {0, 1, 0, 1};
  rig.Receive(Verb::kGet, 4, get);
  const Bytes payload = Pattern(100, 1);
  const auto part = [&](uint64_t token, bool more) {
    Reply reply;
    reply.header = Encode(ReplyTo(Envelope{.verb = Verb::kGet, .request_id = 4}), GetReply{});
    reply.segments.Add({payload.data(), payload.size()});
    reply.token = token;
    reply.more = more;
    rig.session->Deliver(std::move(reply));
  };
  rig.connection->send_result = transport::Failure::kBusy;
  part(7, true);
  rig.connection->send_result = transport::Failure::kNone;
  part(8, true);
  EXPECT_EQ(rig.connection->sent.size(), 1u);  // Hello's
  rig.Receive(Verb::kGet, 4, get);             // the number is in use until the last reply
  EXPECT_EQ(rig.LastEnvelope().code, Code::kInvalid);
  part(9, false);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
  EXPECT_EQ(rig.LastEnvelope().request_id, 4u);
  EXPECT_EQ(rig.connection->sent.size(), 3u);
  ASSERT_EQ(rig.port.Of<Sent>().size(), 3u);
  EXPECT_EQ(rig.port.Of<Sent>()[1].token, 8u);
  rig.Receive(Verb::kGet, 4, get);
  EXPECT_EQ(rig.port.Of<Request>().size(), 2u);
}

TEST(Session, ARequestIsUnansweredUntilTheLastOfItsReplies) {
  SessionRig rig;
  rig.SayHello();
  Get get;
  get.blocks.resize(1);
  get.blocks[0].rectangle = {0, 1, 0, 1};
  for (uint64_t id = 1; id <= 4; ++id) rig.Receive(Verb::kGet, id, get);
  const Bytes header = Encode(ReplyTo(Envelope{.verb = Verb::kGet, .request_id = 1}), GetReply{});
  rig.session->Deliver(Reply{header, {}, 0, 0, true});
  rig.Receive(Verb::kGet, 5, get);
  EXPECT_EQ(rig.LastEnvelope().code, Code::kBusy);
  rig.session->Deliver(Reply{header, {}, 0, 0, false});
  rig.Receive(Verb::kGet, 6, get);
  EXPECT_EQ(rig.port.Of<Request>().size(), 5u);
}

TEST(Session, APeerThatDoesNotReadIsClosed) {
  SessionRig rig;
  rig.SayHello();
  const Bytes payload = Pattern(100, 1);
  Reply reply;
  reply.header = Encode(ReplyTo(Envelope{.verb = Verb::kGet, .request_id = 4}), GetReply{});
  reply.segments.Add({payload.data(), payload.size()});
  reply.token = 9;
  rig.connection->send_result = transport::Failure::kBusy;
  rig.session->Deliver(std::move(reply));
  EXPECT_EQ(rig.port.Of<Sent>().size(), 1u);
  EXPECT_EQ(rig.connection->closed, std::vector{transport::Failure::kTimedOut});
}

TEST(Session, AnAnswerBeyondTheLimitsBecomesAnError) {
  SessionRig rig;
  rig.SayHello();
  rig.connection->send_result = transport::Failure::kTooLarge;
  // The error itself would be too large as well for this connection; a real one takes it.
  rig.session->Deliver(Reply{Encode(ReplyTo(Envelope{.verb = Verb::kGet, .request_id = 4})), {}, 9, 0});
  EXPECT_EQ(rig.port.Of<Sent>().size(), 1u);
  EXPECT_EQ(rig.connection->closed.size(), 1u);
}

TEST(Session, TheTableIsPushedToThoseWhoSaidHello) {
  SessionRig rig;
  rig.session->PushTable();
  EXPECT_TRUE(rig.connection->sent.empty());
  rig.SayHello();
  rig.port.table = Bytes(9, std::byte{1});
  rig.session->PushTable();
  EXPECT_EQ(rig.LastEnvelope().verb, Verb::kTable);
  EXPECT_EQ(rig.LastEnvelope().request_id, 0u);
  EXPECT_EQ(rig.LastBody<TablePush>().table, rig.port.table);
}

TEST(Session, ChecksWhatTheOwnerAsksToVerify) {
  SessionRig rig;
  rig.SayHello();
  Bytes payload = Pattern(300, 3);
  const std::vector<PartRecord> parts = {{100, Crc32c(0, ByteView(payload).first(100))},
                                         {200, Crc32c(0, ByteView(payload).last(200))}};
  rig.session->Deliver(Verify{5, {payload.data(), payload.size()}, parts});
  payload[250] ^= std::byte{1};
  rig.session->Deliver(Verify{6, {payload.data(), payload.size()}, parts});
  const std::vector<Verified> verified = rig.port.Of<Verified>();
  ASSERT_EQ(verified.size(), 2u);
  EXPECT_TRUE(verified[0].good);
  EXPECT_FALSE(verified[1].good);
}

TEST(Session, NothingIsDoneAfterClosing) {
  SessionRig rig;
  rig.SayHello();
  rig.session->OnClosed(*rig.connection, {});
  EXPECT_EQ(rig.port.Of<Closed>().size(), 1u);
  rig.OwnerAnswers(Verb::kMatch, 3);
  rig.session->PushTable();
  EXPECT_EQ(rig.connection->sent.size(), 1u);
}

// Valid messages, mutated: the session may refuse or close, never crash, and keeps its bounds.
TEST(Session, SurvivesMutatedMessages) {
  constexpr uint64_t kSeed = 20240607;
  std::mt19937_64 random(kSeed);
  Reserve reserve;
  reserve.blocks.resize(3);
  for (auto& block : reserve.blocks) block.parts = {{1, 4096}};
  Commit commit;
  commit.blocks = {{7, {1, 2}}, {8, {3}}};
  Touch touch;
  touch.hashes = SomeHashes(4);
  touch.hash_count = 4;
  touch.depths = {1, 2, 3, 4};
  const auto envelope = [](Verb verb) { return Envelope{.verb = verb, .request_id = 9}; };
  const std::vector<Bytes> seeds = {
      Encode(envelope(Verb::kMatch), MatchOf(5, false)), Encode(envelope(Verb::kMatch), MatchOf(64, true)),
      Encode(envelope(Verb::kReserve), reserve),         Encode(envelope(Verb::kCommit), commit),
      Encode(envelope(Verb::kData), Data{{7, 8}}),       Encode(envelope(Verb::kTouch), touch),
      Encode(envelope(Verb::kHello), Hello{}),           Encode(envelope(Verb::kCancel), Cancel{4})};
  for (int round = 0; round < 8000; ++round) {
    SessionRig rig;
    rig.SayHello();
    rig.session->Deliver(Grant{7, {}, {}});
    Bytes message = seeds[random() % seeds.size()];
    for (uint64_t flips = random() % 4; flips > 0; --flips) {
      message[random() % message.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    if (random() % 4 == 0) message.resize(random() % (message.size() + 1));
    if (random() % 2 == 0) {
      rig.ReceivePayload(message, {Bytes(random() % 3 == 0 ? 2048 : random() % 100)});
    } else {
      rig.Receive(message);
    }
    ASSERT_LE(rig.connection->sent.size(), 2u) << "seed " << kSeed << " round " << round;
    ASSERT_EQ(rig.shared->hash_bytes, 0u) << "seed " << kSeed << " round " << round;
  }
}

}  // namespace
}  // namespace larder::node
