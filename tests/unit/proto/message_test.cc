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

// One message type behind function pointers, so that each test exists once, not once a type.
struct Kind {
  std::string_view name;
  Bytes sample;       // a whole encoded message
  Envelope envelope;  // that it was encoded with
  Status (*decode)(ByteView record);
  bool (*is_sample)(ByteView record);  // decodes to the sample
  // Whatever is accepted must be within limits: encoded again it is accepted and equal.
  bool (*is_refused_or_sound)(ByteView record);
};

template <typename Message>
Kind KindOf(std::string_view name) {
  return {name,
          Encode(EnvelopeOf<Message>(), Sample<Message>()),
          EnvelopeOf<Message>(),
          [](ByteView record) {
            Message body;
            return Decode(record, &body);
          },
          [](ByteView record) {
            Message body;
            return Decode(record, &body).ok() && body == Sample<Message>();
          },
          [](ByteView record) {
            Message body, same;
            if (!Decode(record, &body).ok()) return true;
            const Bytes again = Encode(EnvelopeOf<Message>(), body);
            return Decode(RecordOf(again), &same).ok() && same == body;
          }};
}

std::vector<Kind> EveryKind() {
  std::vector<Kind> kinds;
#define LARDER_ADD(Name) kinds.push_back(KindOf<Name>(#Name));
  LARDER_MESSAGES(LARDER_ADD)
#undef LARDER_ADD
  return kinds;
}

// Numbers travel, names stand in metrics and scripts: neither changes, new ones are added at the end.
TEST(Presence, NumbersAndNamesAreFixed) {
  const std::pair<int, std::string_view> fixed[] = {
      {0, "ram"},          {1, "ssd"},          {64, "writing"},     {65, "never-stored"}, {66, "evicted"},
      {67, "expired"},     {68, "cleared"},     {69, "removed"},     {70, "not-admitted"}, {71, "corrupt"},
      {72, "quarantined"}, {73, "uncovered"},   {74, "timed-out"},   {75, "unreachable"},  {76, "busy"},
      {77, "refused"},     {78, "disk-behind"}, {79, "evicted-ssd"}, {80, "disk-lost"},    {81, "bypassed"},
      {82, "over-quota"},  {83, "place-lost"},  {84, "later"}};
  for (const auto& [number, name] : fixed) EXPECT_EQ(PresenceName(static_cast<Presence>(number)), name);
}

TEST(EveryMessage, RoundTrips) {
  for (const Kind& kind : EveryKind()) {
    SCOPED_TRACE(kind.name);
    Envelope envelope;
    ByteView record;
    ASSERT_TRUE(DecodeEnvelope(kind.sample, &envelope, &record).ok());
    EXPECT_EQ(envelope.verb, kind.envelope.verb);
    EXPECT_EQ(envelope.reply, kind.envelope.reply);
    EXPECT_EQ(envelope.priority, kind.envelope.priority);
    EXPECT_EQ(envelope.code, kind.envelope.code);
    EXPECT_EQ(envelope.deadline_us, kind.envelope.deadline_us);
    EXPECT_EQ(envelope.request_id, kind.envelope.request_id);
    EXPECT_EQ(record.size(), kind.sample.size() - 28);
    EXPECT_TRUE(kind.is_sample(record)) << kind.decode(record).ToString();
  }
}

TEST(EveryMessage, IgnoresNewerFields) {
  for (const Kind& kind : EveryKind()) {
    const ByteView record = RecordOf(kind.sample);
    Bytes longer(record.begin(), record.end());
    longer.insert(longer.end(), 16, std::byte{0});  // where some have fields that older peers don't send
    longer.insert(longer.end(), 11, std::byte{0xee});
    EXPECT_TRUE(kind.is_sample(longer)) << kind.name;
  }
}

TEST(Touch, TellsTheLengthOfItsChainWhenItIsKnown) {
  Touch touch = Sample<Touch>();
  const Bytes unknown = Encode(EnvelopeOf<Touch>(), touch);
  touch.chain_length = 40;
  const Bytes known = Encode(EnvelopeOf<Touch>(), touch);
  EXPECT_EQ(known.size(), unknown.size() + 4);
  Touch back;
  ASSERT_TRUE(Decode(RecordOf(known), &back).ok());
  EXPECT_EQ(back, touch);
  ASSERT_TRUE(Decode(RecordOf(unknown), &back).ok());
  EXPECT_EQ(back.chain_length, 0u);
}

TEST(Clear, TellsItsStampAndOlderPeersDoNot) {
  Clear clear = Sample<Clear>();
  const Bytes older = Encode(EnvelopeOf<Clear>(), clear);
  clear.stamp_ms = 1'800'000'000'000;
  const Bytes stamped = Encode(EnvelopeOf<Clear>(), clear);
  EXPECT_EQ(stamped.size(), older.size() + 8);
  Clear back;
  ASSERT_TRUE(Decode(RecordOf(stamped), &back).ok());
  EXPECT_EQ(back, clear);
  ASSERT_TRUE(Decode(RecordOf(older), &back).ok());
  EXPECT_EQ(back.stamp_ms, 0u);
}

TEST(Touch, TellsWhatIsExpectedOnlyWhenSomethingIs) {
  Touch touch = Sample<Touch>();
  touch.chain_length = 0;
  const Bytes silent = Encode(EnvelopeOf<Touch>(), touch);
  touch.retention = Retention::kContinues;
  touch.finishes = true;
  const Bytes told = Encode(EnvelopeOf<Touch>(), touch);
  EXPECT_EQ(told.size(), silent.size() + 6);
  Touch back;
  ASSERT_TRUE(Decode(RecordOf(told), &back).ok());
  EXPECT_EQ(back, touch);
  Bytes later = told;  // a later version's word for what this one does not know
  later[later.size() - 2] = std::byte{17};
  ASSERT_TRUE(Decode(RecordOf(later), &back).ok());
  EXPECT_EQ(back.retention, Retention::kNone);
}

TEST(EveryMessage, RefusesEachTruncation) {
  for (const Kind& kind : EveryKind()) {
    const ByteView record = RecordOf(kind.sample);
    for (size_t bytes = 0; bytes < record.size(); ++bytes) {
      ASSERT_EQ(kind.decode(record.first(bytes)).code(), Code::kInvalid) << kind.name << " cut to " << bytes;
    }
    for (size_t bytes = 0; bytes < kind.sample.size(); ++bytes) {
      Envelope envelope;
      ByteView cut;
      ASSERT_FALSE(DecodeEnvelope(ByteView(kind.sample).first(bytes), &envelope, &cut).ok())
          << kind.name << " cut to " << bytes;
    }
  }
}

TEST(EveryMessage, SurvivesMutation) {
  std::mt19937 random(20'240'601);
  for (const Kind& kind : EveryKind()) {
    const ByteView good = RecordOf(kind.sample);
    for (int round = 0; round < 4000; ++round) {
      Bytes record(good.begin(), good.end());
      const int changes = 1 + static_cast<int>(random() % 4);
      for (int i = 0; i < changes; ++i) {
        const size_t at = random() % record.size();
        const auto kind_of_change = random() % 4;
        if (kind_of_change == 0) record[at] = static_cast<std::byte>(random());
        if (kind_of_change == 1) record[at] ^= std::byte(1 << random() % 8);
        if (kind_of_change == 2) record[at] = random() % 2 ? std::byte{0xff} : std::byte{0};
        if (kind_of_change == 3) record.resize(at + 1);
      }
      ASSERT_TRUE(kind.is_refused_or_sound(record)) << kind.name << " round " << round;
    }
  }
}

TEST(EveryMessage, SurvivesNoise) {
  std::mt19937 random(7);
  for (const Kind& kind : EveryKind()) {
    for (int round = 0; round < 2000; ++round) {
      Bytes record(random() % 200);
      // Small bytes make plausible counts.
      for (std::byte& byte : record) byte = static_cast<std::byte>(random() % 3 ? random() % 3 : random());
      ASSERT_TRUE(kind.is_refused_or_sound(record)) << kind.name << " round " << round;
    }
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
  for (uint8_t verb : std::initializer_list<uint8_t>{0, 20, 127}) {
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
  EXPECT_EQ(presences.size(), 24u);  // with "unknown"
  EXPECT_EQ(states.size(), 12u);
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
