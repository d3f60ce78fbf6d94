#include "proto/message.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::EnvelopeOf;
using testing::RecordOf;
using testing::Sample;

template <typename Message>
class EveryMessage : public ::testing::Test {};
using AllMessages =
    ::testing::Types<Hello, HelloReply, Open, OpenReply, TablePush, Match, MatchReply, Get, GetReply, Reserve,
                     ReserveReply, Data, Commit, CommitReply, Wait, WaitReply, Touch, Report, ReportReply,
                     Remove, RemoveReply, Clear, ClearReply, Cancel, ErrorText>;
TYPED_TEST_SUITE(EveryMessage, AllMessages);

// Whatever is accepted must be within limits, so encoding it again gives something that is accepted and
// equal.
template <typename Message>
void AcceptedMeansSound(ByteView record) {
  Message body;
  if (!Decode(record, &body).ok()) return;
  const Bytes again = Encode(EnvelopeOf<Message>(), body);
  Message same;
  const Status status = Decode(RecordOf(again), &same);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(same, body);
}

TYPED_TEST(EveryMessage, RoundTrips) {
  const Envelope sent = EnvelopeOf<TypeParam>();
  const TypeParam body = Sample<TypeParam>();
  const Bytes message = Encode(sent, body);
  Envelope envelope;
  ByteView record;
  ASSERT_TRUE(DecodeEnvelope(message, &envelope, &record).ok());
  EXPECT_EQ(envelope.verb, sent.verb);
  EXPECT_EQ(envelope.reply, sent.reply);
  EXPECT_EQ(envelope.priority, sent.priority);
  EXPECT_EQ(envelope.code, sent.code);
  EXPECT_EQ(envelope.deadline_us, sent.deadline_us);
  EXPECT_EQ(envelope.request_id, sent.request_id);
  EXPECT_EQ(record.size(), message.size() - 28);
  TypeParam decoded;
  const Status status = Decode(record, &decoded);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(decoded, body);
}

TYPED_TEST(EveryMessage, IgnoresNewerFields) {
  Bytes message = Encode(EnvelopeOf<TypeParam>(), Sample<TypeParam>());
  const ByteView record = RecordOf(message);
  Bytes longer(record.begin(), record.end());
  longer.insert(longer.end(), 11, std::byte{0xee});
  TypeParam decoded;
  ASSERT_TRUE(Decode(longer, &decoded).ok());
  EXPECT_EQ(decoded, Sample<TypeParam>());
}

TYPED_TEST(EveryMessage, RefusesEachTruncation) {
  const Bytes message = Encode(EnvelopeOf<TypeParam>(), Sample<TypeParam>());
  const ByteView record = RecordOf(message);
  for (size_t bytes = 0; bytes < record.size(); ++bytes) {
    TypeParam decoded;
    const Status status = Decode(record.first(bytes), &decoded);
    ASSERT_EQ(status.code(), Code::kInvalid) << bytes;
  }
  for (size_t bytes = 0; bytes < message.size(); ++bytes) {
    Envelope envelope;
    ByteView cut;
    ASSERT_FALSE(DecodeEnvelope(ByteView(message).first(bytes), &envelope, &cut).ok()) << bytes;
  }
}

TYPED_TEST(EveryMessage, SurvivesMutation) {
  const Bytes message = Encode(EnvelopeOf<TypeParam>(), Sample<TypeParam>());
  const ByteView good = RecordOf(message);
  std::mt19937 random(20'240'601);
  for (int round = 0; round < 4000; ++round) {
    Bytes record(good.begin(), good.end());
    const int changes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random() % record.size();
      switch (random() % 4) {
        case 0:
          record[at] = static_cast<std::byte>(random());
          break;
        case 1:
          record[at] ^= std::byte(1 << random() % 8);
          break;
        case 2:
          record[at] = random() % 2 ? std::byte{0xff} : std::byte{0};
          break;
        default:
          record.resize(at + 1);
          break;
      }
    }
    ASSERT_NO_FATAL_FAILURE(AcceptedMeansSound<TypeParam>(record));
  }
}

TYPED_TEST(EveryMessage, SurvivesNoise) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Bytes record(random() % 200);
    // Small bytes make plausible counts.
    for (std::byte& byte : record) byte = static_cast<std::byte>(random() % 3 ? random() % 3 : random());
    ASSERT_NO_FATAL_FAILURE(AcceptedMeansSound<TypeParam>(record));
  }
}

TEST(Envelope, WithoutABody) {
  const Envelope sent{Verb::kPing, true, Priority::kInteractive, Code::kOk, 0, 5};
  const Bytes message = Encode(sent);
  EXPECT_EQ(message.size(), 28u);
  Envelope envelope;
  ByteView record;
  ASSERT_TRUE(DecodeEnvelope(message, &envelope, &record).ok());
  EXPECT_TRUE(record.empty());
  EXPECT_TRUE(envelope.reply);
  EXPECT_EQ(envelope.request_id, 5u);
}

TEST(Envelope, UnknownVerbIsUnsupportedAndNamesItsRequest) {
  for (uint8_t verb : std::initializer_list<uint8_t>{0, 17, 127}) {
    Bytes message = Encode({Verb::kGet, false, Priority::kBatch, Code::kOk, 9, 77});
    message[0] = std::byte{verb};
    Envelope envelope;
    ByteView record;
    EXPECT_EQ(DecodeEnvelope(message, &envelope, &record).code(), Code::kUnsupported);
    EXPECT_EQ(envelope.request_id, 77u);
    EXPECT_FALSE(envelope.reply);
  }
}

TEST(Envelope, OtherVersionsAreUnsupportedExceptInHello) {
  for (uint8_t version : std::initializer_list<uint8_t>{0, 2}) {
    Bytes message = Encode({Verb::kGet});
    message[16] = std::byte{version};
    Envelope envelope;
    ByteView record;
    EXPECT_EQ(DecodeEnvelope(message, &envelope, &record).code(), Code::kUnsupported);
    message[0] = static_cast<std::byte>(Verb::kHello);
    EXPECT_TRUE(DecodeEnvelope(message, &envelope, &record).ok());
  }
}

TEST(Envelope, OddFields) {
  Bytes message = Encode({Verb::kGet});
  Envelope envelope;
  ByteView record;
  message[1] = std::byte{2};
  EXPECT_EQ(DecodeEnvelope(message, &envelope, &record).code(), Code::kInvalid);
  message[1] = std::byte{0};
  message[3] = std::byte{1};  // a code that a newer peer may know
  EXPECT_TRUE(DecodeEnvelope(message, &envelope, &record).ok());
  EXPECT_EQ(envelope.code, Code::kInternal);
  EXPECT_FALSE(DecodeEnvelope(Bytes(kMessageBytesMax + 1), &envelope, &record).ok());
}

TEST(Names, AreAllThere) {
  std::set<std::string_view> presences, states;
  for (int value = 0; value < 256; ++value) presences.insert(PresenceName(static_cast<Presence>(value)));
  for (int value = 0; value < 256; ++value) states.insert(PutStateName(static_cast<PutState>(value)));
  EXPECT_EQ(presences.size(), 17u);  // with "unknown"
  EXPECT_EQ(states.size(), 11u);
}

TEST(Hashes, PayloadRoundTripsAndIsChecked) {
  const std::vector<ChainHash> hashes = {testing::HashFrom(1), testing::HashFrom(2)};
  const ByteView payload = std::as_bytes(std::span(hashes));
  std::vector<ChainHash> out;
  ASSERT_TRUE(DecodeHashes(payload, 2, &out).ok());
  EXPECT_EQ(out, hashes);
  EXPECT_TRUE(DecodeHashes({}, 0, &out).ok());
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(DecodeHashes(payload, 1, &out).code(), Code::kInvalid);
  EXPECT_EQ(DecodeHashes(payload, 3, &out).code(), Code::kInvalid);
  EXPECT_EQ(DecodeHashes(payload, 0xffffffff, &out).code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder
