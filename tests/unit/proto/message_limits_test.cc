// Each limit of each message: at the limit it is accepted, one past it is refused, and the text says which.
#include <gtest/gtest.h>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::EnvelopeOf;
using testing::HashFrom;
using testing::RecordOf;
using testing::Sample;

template <typename Message>
Status Sent(const Message& body) {
  Message decoded;
  return Decode(RecordOf(Encode(EnvelopeOf<Message>(), body)), &decoded);
}

#define EXPECT_REFUSED(body, words)                                           \
  do {                                                                        \
    const Status status = Sent(body);                                         \
    EXPECT_EQ(status.code(), Code::kInvalid);                                 \
    EXPECT_NE(status.text().find(words), std::string::npos) << status.text(); \
  } while (false)

TEST(MessageLimits, Hello) {
  Hello body = Sample<Hello>();
  body.token = std::string(256, 'x');
  body.client_name = std::string(128, 'x');
  EXPECT_TRUE(Sent(body).ok());
  body.token.push_back('x');
  EXPECT_REFUSED(body, "token");
  body = Sample<Hello>();
  body.client_name = std::string(129, 'x');
  EXPECT_REFUSED(body, "name");
  body = Sample<Hello>();
  body.version_min = 4;
  EXPECT_REFUSED(body, "version range");
  body = Sample<Hello>();
  body.lane = Priority{2};
  EXPECT_REFUSED(body, "lane");
}

TEST(MessageLimits, HelloReplyAndTable) {
  HelloReply body = Sample<HelloReply>();
  body.node_id = std::string(129, 'x');
  EXPECT_REFUSED(body, "node id");
  TablePush push{Bytes(kTableBytesMax)};
  EXPECT_TRUE(Sent(push).ok());
}

TEST(MessageLimits, PlacesOfBlocksThatAreReadMuch) {
  GetReply body = Sample<GetReply>();
  const Bytes plain = Encode(EnvelopeOf<GetReply>(), body);
  body.places = {{0, 0b1011}, {1, UINT64_MAX}};
  const Bytes told = Encode(EnvelopeOf<GetReply>(), body);
  GetReply decoded;
  ASSERT_TRUE(Decode(RecordOf(told), &decoded).ok());
  EXPECT_EQ(decoded, body);
  ASSERT_TRUE(Decode(RecordOf(plain), &decoded).ok());
  EXPECT_TRUE(decoded.places.empty());
  body.places = {{2, 1}};
  EXPECT_REFUSED(body, "not there");
  body.places = {{0, 1}, {0, 1}, {1, 1}};
  EXPECT_REFUSED(body, "more blocks");
}

TEST(MessageLimits, NearCopies) {
  Get body = Sample<Get>();
  const Bytes plain = Encode(EnvelopeOf<Get>(), body);
  body.near = std::string(kNodeIdBytesMax, 'n');
  Get decoded;
  ASSERT_TRUE(Decode(RecordOf(Encode(EnvelopeOf<Get>(), body)), &decoded).ok());
  EXPECT_EQ(decoded, body);
  body.near.clear();
  body.asks_near = true;
  ASSERT_TRUE(Decode(RecordOf(Encode(EnvelopeOf<Get>(), body)), &decoded).ok());
  EXPECT_EQ(decoded, body);
  ASSERT_TRUE(Decode(RecordOf(plain), &decoded).ok());
  EXPECT_FALSE(decoded.asks_near);
  body.near = std::string(kNodeIdBytesMax + 1, 'n');
  EXPECT_REFUSED(body, "near node");
}

TEST(MessageLimits, Leases) {
  Reserve body = Sample<Reserve>();
  body.since_us = 7;
  body.lease_us = 60'000'000;
  Reserve decoded;
  ASSERT_TRUE(Decode(RecordOf(Encode(EnvelopeOf<Reserve>(), body)), &decoded).ok());
  EXPECT_EQ(decoded, body);
  LeaseReply reply = Sample<LeaseReply>();
  reply.blocks[0].state = LeaseState{3};
  EXPECT_REFUSED(reply, "lease state");
}

TEST(MessageLimits, Open) {
  Open body = Sample<Open>();
  body.identity = std::string(kIdentityBytesMax, 'x');
  body.tenant = std::string(kTenantBytesMax, 'x');
  EXPECT_TRUE(Sent(body).ok());
  body.identity.push_back('x');
  EXPECT_REFUSED(body, "identity");
  body = Sample<Open>();
  body.tenant = std::string(kTenantBytesMax + 1, 'x');
  EXPECT_REFUSED(body, "tenant");
}

TEST(MessageLimits, Match) {
  Match body = Sample<Match>();
  body.hashes.assign(kHashesInlineMax, HashFrom(1));
  body.groups.assign(kGroupsMax, 1);
  body.pin_us = kPinUsMax;
  EXPECT_TRUE(Sent(body).ok());
  body.hashes.push_back(HashFrom(2));
  EXPECT_REFUSED(body, "inline");
  body.hashes.clear();
  body.hashes_in_payload = true;
  body.hash_count = kHashesMax;
  EXPECT_TRUE(Sent(body).ok());
  body.hash_count = kHashesMax + 1;
  EXPECT_REFUSED(body, "65536");
  body = Sample<Match>();
  body.groups.assign(kGroupsMax + 1, 1);
  EXPECT_REFUSED(body, "groups");
  body.groups.clear();
  EXPECT_REFUSED(body, "group");
  body = Sample<Match>();
  body.pin_us = kPinUsMax + 1;
  EXPECT_REFUSED(body, "pin");
  for (const Rectangle& bad : {Rectangle{1, 1, 0, 1}, Rectangle{2, 1, 0, 1}, Rectangle{0, 1, 3, 3},
                               Rectangle{0, 4097, 0, 1}, Rectangle{0, 65535, 0, 65535}}) {
    body = Sample<Match>();
    body.rectangle = bad;
    EXPECT_REFUSED(body, "rectangle");
  }
}

TEST(MessageLimits, HashCountFollowsTheHashes) {
  Match body = Sample<Match>();
  body.hash_count = 0;  // the encoder counts
  Match decoded;
  ASSERT_TRUE(Decode(RecordOf(Encode(EnvelopeOf<Match>(), body)), &decoded).ok());
  EXPECT_EQ(decoded.hash_count, 3u);
  body.hashes_in_payload = true;
  ASSERT_TRUE(Decode(RecordOf(Encode(EnvelopeOf<Match>(), body)), &decoded).ok());
  EXPECT_EQ(decoded.hash_count, 3u);
  EXPECT_TRUE(decoded.hashes.empty());
}

TEST(MessageLimits, MatchReplyOfTheLargestRequestFits) {
  MatchReply body;
  body.presence.assign(size_t{kHashesMax} * kGroupsMax, 65);
  body.estimates.assign(kHashesMax, {1, 5});
  EXPECT_TRUE(Sent(body).ok());
  EXPECT_LE(Encode(EnvelopeOf<MatchReply>(), body).size(), kMessageBytesMax);
  body.estimates[0].count = 2;
  EXPECT_REFUSED(body, "estimates");
  body.estimates.assign(2, {0x80000000, 0});
  EXPECT_REFUSED(body, "estimates");
  body.estimates.clear();
  body.presence.push_back(0);
  EXPECT_REFUSED(body, "keys and groups");
}

TEST(MessageLimits, Blocks) {
  Get get = Sample<Get>();
  get.blocks.assign(kBlocksMax, get.blocks[0]);
  EXPECT_TRUE(Sent(get).ok());
  get.blocks.push_back(get.blocks[0]);
  EXPECT_REFUSED(get, "1024 blocks");
  Report report{1, get.blocks};
  EXPECT_REFUSED(report, "1024 blocks");
  EXPECT_REFUSED(ReportReply{std::vector<uint8_t>(kBlocksMax + 1)}, "1024 blocks");
  EXPECT_REFUSED(ReportReply{{2}}, "flag");
  EXPECT_REFUSED(Data{std::vector<uint64_t>(kBlocksMax + 1)}, "1024 tickets");
  EXPECT_REFUSED(CommitReply{std::vector<PutState>(kBlocksMax + 1)}, "1024 blocks");
  EXPECT_REFUSED(CommitReply{{PutState{11}}}, "state");
  EXPECT_REFUSED(ReserveReply{std::vector<ReserveReply::Block>(kBlocksMax + 1)}, "1024 blocks");
  EXPECT_REFUSED((ReserveReply{{{PutState{11}, 1}}}), "state");
  EXPECT_REFUSED(Commit{std::vector<Commit::Block>(kBlocksMax + 1)}, "1024 blocks");
  EXPECT_REFUSED((Commit{{{1, std::vector<uint32_t>(kPartsMax + 1)}}}), "4096 parts");
}

TEST(MessageLimits, GetReply) {
  GetReply body = Sample<GetReply>();
  body.blocks[0].sources[0].parts.pop_back();
  EXPECT_REFUSED(body, "parts and rectangle");
  body = Sample<GetReply>();
  body.blocks[0].sources.clear();
  EXPECT_REFUSED(body, "hit");
  body = Sample<GetReply>();
  body.blocks[0].presence = Presence::kEvicted;
  EXPECT_REFUSED(body, "hit");
  body = Sample<GetReply>();
  body.blocks[0].presence = Presence{200};  // a reason that came later is a miss all the same
  body.blocks[0].sources.clear();
  EXPECT_TRUE(Sent(body).ok());
  body = Sample<GetReply>();
  body.blocks[0].sources[0].parts = {{1u << 29, 0}, {(1u << 29) - 4196, 0}};
  EXPECT_TRUE(Sent(body).ok());
  body.blocks[0].sources[0].parts[1].bytes += 1;
  EXPECT_REFUSED(body, "1 GiB");
  body = Sample<GetReply>();
  body.blocks[0].sources.assign(kPiecesPerKeyMax + 1, body.blocks[0].sources[0]);
  EXPECT_REFUSED(body, "1024 sources");
}

TEST(MessageLimits, Reserve) {
  Reserve body = Sample<Reserve>();
  Reserve::Block& block = body.blocks[1];
  block.codec_data.resize(kCodecBytesMax);
  block.constituents.resize(kConstituentsMax);
  block.parts = {{1, 1u << 28}, {1, 1u << 28}};
  EXPECT_TRUE(Sent(body).ok());
  block.parts[1].bytes += 1;
  EXPECT_REFUSED(body, "512 MiB");
  block.parts = {{1, 5}};
  EXPECT_REFUSED(body, "parts and rectangle");
  block.parts = {{1, 5}, {0, 7}, {1, 5}};
  EXPECT_REFUSED(body, "empty run");
  block.parts = {{0xffffffff, 0}, {3, 0}};  // 2 when added up in 32 bits
  EXPECT_REFUSED(body, "4096 parts");
  block.parts = {{2, 5}};
  block.codec_data.resize(kCodecBytesMax + 1);
  EXPECT_REFUSED(body, "codec");
  block.codec_data.clear();
  block.constituents.resize(kConstituentsMax + 1);
  EXPECT_REFUSED(body, "constituents");
  body = Sample<Reserve>();
  body.blocks.assign(kBlocksMax + 1, body.blocks[0]);
  EXPECT_REFUSED(body, "1024 blocks");
}

TEST(MessageLimits, Move) {
  Move move = Sample<Move>();
  move.blocks.assign(kBlocksMax, move.blocks[0]);
  EXPECT_TRUE(Sent(move).ok());
  move.blocks.push_back(move.blocks[0]);
  EXPECT_REFUSED(move, "1024 blocks");

  MoveReply reply = Sample<MoveReply>();
  reply.blocks.assign(kBlocksMax + 1, reply.blocks[1]);
  EXPECT_REFUSED(reply, "1024 blocks");
  reply = Sample<MoveReply>();
  reply.blocks[0].pieces.resize(kPiecesPerKeyMax + 1);
  EXPECT_REFUSED(reply, "1024 pieces");
  reply = Sample<MoveReply>();
  reply.blocks[0].pieces[0].header.resize(kBlockHeaderBytesMax + 1);
  EXPECT_REFUSED(reply, "256 KiB");
  reply = Sample<MoveReply>();
  reply.blocks[0].pieces.clear();
  EXPECT_REFUSED(reply, "hit without piece");
}

TEST(MessageLimits, WaitTouchRemove) {
  Wait wait = Sample<Wait>();
  wait.leading = wait.hash_count;
  EXPECT_TRUE(Sent(wait).ok());
  wait.leading += 1;
  EXPECT_REFUSED(wait, "leading");
  EXPECT_REFUSED(WaitReply{kHashesMax + 1}, "leading");

  Prefetch prefetch = Sample<Prefetch>();
  prefetch.hashes_in_payload = true;
  prefetch.hashes.clear();
  prefetch.hash_count = kBlocksMax / 2 + 1;  // of two groups
  EXPECT_REFUSED(prefetch, "1024 blocks");
  EXPECT_REFUSED(PrefetchReply{kBlocksMax + 1}, "more blocks");

  Touch touch = Sample<Touch>();
  touch.depths = {16, 16};
  EXPECT_REFUSED(touch, "ascend");
  touch.depths = {16};
  EXPECT_REFUSED(touch, "one depth a hash");
  touch = Sample<Touch>();
  touch.groups.clear();
  EXPECT_REFUSED(touch, "group");
  EXPECT_TRUE(Sent(Touch{3, 9}).ok());  // a Release without hints

  Remove remove = Sample<Remove>();
  remove.hashes.resize(kHashesMax / 4);
  EXPECT_TRUE(Sent(remove).ok());
  EXPECT_LE(Encode(EnvelopeOf<Remove>(), remove).size(), kMessageBytesMax);
  remove.hashes.resize(kHashesMax / 4 + 1);
  EXPECT_REFUSED(remove, "16384");
}

TEST(MessageLimits, ErrorTextIsCutNotRefused) {
  ErrorText decoded;
  const Bytes message = Encode(EnvelopeOf<ErrorText>(), ErrorText{std::string(5000, 'x')});
  ASSERT_TRUE(Decode(RecordOf(message), &decoded).ok());
  EXPECT_EQ(decoded.text.size(), kErrorTextBytesMax);
}

// A count of 4 billion in a tiny record must not take memory.
TEST(MessageLimits, CountsAreCheckedAgainstTheRecord) {
  Bytes record;
  Writer writer(&record);
  writer.U32(kBlocksMax);
  Data data;
  EXPECT_EQ(Decode(record, &data).code(), Code::kInvalid);
  EXPECT_TRUE(data.tickets.empty());
  GetReply reply;
  EXPECT_EQ(Decode(record, &reply).code(), Code::kInvalid);
  EXPECT_TRUE(reply.blocks.empty());
}

}  // namespace
}  // namespace larder
