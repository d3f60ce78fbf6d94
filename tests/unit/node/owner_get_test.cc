#include <algorithm>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

struct GetTest : ::testing::Test {
  static OwnerOptions Options() {
    OwnerOptions options;
    options.memory_bytes = 64 << 20;
    return options;
  }
  TestOwner node{Options()};
  SessionId a = node.Connect();
  uint32_t kv = node.OpenIdentity(a, KvIdentity(4, 4));
  void TearDown() override { node.Check(); }

  // What the asked rectangle holds, from the same function that wrote it.
  static std::vector<std::byte> Expected(const Spec& spec, const std::vector<GetReply::Source>& sources) {
    std::vector<std::byte> bytes;
    for (const auto& source : sources) {
      for (uint16_t l = source.rectangle.layer_begin; l < source.rectangle.layer_end; ++l) {
        for (uint16_t h = source.rectangle.head_begin; h < source.rectangle.head_end; ++h) {
          const auto part = PartBytes(spec, l, h);
          bytes.insert(bytes.end(), part.begin(), part.end());
        }
      }
    }
    return bytes;
  }
};

TEST_F(GetTest, AWholePieceIsOneExtent) {
  const Spec spec{1, 8192, {0, 4, 0, 4}};
  ASSERT_EQ(node.Put(a, kv, spec), PutState::kStored);
  const Pulled pulled = node.GetOne(a, kv, spec);
  EXPECT_EQ(pulled.extents, 1u);
  EXPECT_EQ(pulled.payload, Expected(spec, pulled.sources));
}

TEST_F(GetTest, ASubRectangleIsOneSegmentOfMergedExtents) {
  ASSERT_EQ(node.Put(a, kv, {1, 8192, {0, 4, 0, 4}}), PutState::kStored);
  const Spec layers{1, 8192, {1, 3, 0, 4}};
  Pulled pulled = node.GetOne(a, kv, layers);
  EXPECT_EQ(pulled.extents, 1u);  // whole layers lie together
  EXPECT_EQ(pulled.payload, Expected(layers, pulled.sources));
  const Spec heads{1, 8192, {0, 4, 1, 3}};
  pulled = node.GetOne(a, kv, heads);
  EXPECT_EQ(pulled.sources.size(), 1u);
  EXPECT_EQ(pulled.extents, 4u);  // one a layer
  EXPECT_EQ(pulled.payload, Expected(heads, pulled.sources));
  EXPECT_TRUE(pulled.checksums_good);
}

TEST_F(GetTest, WhatFourRanksWroteTwoRanksRead) {
  for (uint16_t rank = 0; rank < 4; ++rank) {
    ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 4, rank, static_cast<uint16_t>(rank + 1)}}), PutState::kStored);
  }
  const Spec half{1, 4096, {0, 4, 0, 2}};
  const Pulled pulled = node.GetOne(a, kv, half);
  EXPECT_EQ(pulled.presence, Presence::kRam);
  ASSERT_EQ(pulled.sources.size(), 2u);
  EXPECT_FALSE(pulled.sources[0].rectangle.Contains(pulled.sources[1].rectangle));
  EXPECT_EQ(pulled.payload, Expected(half, pulled.sources));
}

TEST_F(GetTest, PiecesThatDoNotCoverTheAskAreAMissThatSaysSo) {
  ASSERT_EQ(node.Put(a, kv, {1, 4096, {0, 2, 0, 4}}), PutState::kStored);
  EXPECT_EQ(node.GetOne(a, kv, {1, 4096, {0, 4, 0, 4}}).presence, Presence::kUncovered);
  EXPECT_EQ(node.MatchOne(a, kv, {1, 4096, {0, 4, 0, 4}}), Presence::kUncovered);
  EXPECT_EQ(node.owner->stats().miss_by_reason[static_cast<int>(Presence::kUncovered)], 2u);
}

TEST_F(GetTest, HardPinsLastUntilSentAndKeepTheBytes) {
  const Spec spec{1, 4096, {0, 4, 0, 4}};
  ASSERT_EQ(node.Put(a, kv, spec), PutState::kStored);
  node.GetOne(a, kv, spec, false);
  const uint64_t token = node.last_token;
  EXPECT_EQ(node.owner->stats().hard_pins, 1u);
  EXPECT_FALSE(node.owner->Idle());
  Remove remove{kv, {0}, {HashOf(1)}};
  ASSERT_EQ(node.Ask<RemoveReply>(a, Verb::kRemove, remove).value().removed, 1u);
  EXPECT_EQ(node.MatchOne(a, kv, spec), Presence::kRemoved);  // invisible at once
  EXPECT_EQ(node.owner->stats().slot_bytes, 16u * 4096);      // and there until it was sent
  node.Check();
  node.Give(a, Sent{token + 1000});  // an unknown token is ignored
  EXPECT_EQ(node.owner->stats().hard_pins, 1u);
  node.Give(a, Sent{token});
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  node.Give(a, Sent{token});
  EXPECT_TRUE(node.owner->Idle());
}

TEST_F(GetTest, ClosingASessionEndsItsHardPins) {
  const Spec spec{1, 4096, {0, 4, 0, 4}};
  ASSERT_EQ(node.Put(a, kv, spec), PutState::kStored);
  node.GetOne(a, kv, spec, false);
  node.GetOne(a, kv, spec, false);
  EXPECT_EQ(node.owner->stats().hard_pins, 2u);
  node.Give(a, Closed{});
  EXPECT_EQ(node.owner->stats().hard_pins, 0u);
  node.Give(a, Sent{node.last_token});  // late
}

TEST_F(GetTest, ABatchOverTheBytesOfAMessageIsBusyForTheRest) {
  OwnerOptions options;
  options.memory_bytes = 2ull << 30;
  options.slab_bytes_target = 512ull << 20;
  TestOwner big(options);
  const SessionId s = big.Connect();
  const uint32_t files = big.OpenIdentity(s, OpaqueIdentity());
  Get get;
  get.number = files;
  for (uint64_t key = 0; key < 3; ++key) {
    // Committed without writing: nobody reads the payload here.
    const auto reserved = big.ReserveOne(s, files, {key, 500u << 20, {}});
    ASSERT_EQ(reserved.state, PutState::kTicket);
    Committed committed;
    committed.blocks.push_back({reserved.ticket, true, true, {1}});
    big.Give(s, committed);
    big.outbox.replies.clear();
    get.blocks.push_back({HashOf(key), 0, {}});
  }
  const auto reply = big.Ask<GetReply>(s, Verb::kGet, get);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().blocks[0].presence, Presence::kRam);
  EXPECT_EQ(reply.value().blocks[1].presence, Presence::kRam);
  EXPECT_EQ(reply.value().blocks[2].presence, Presence::kBusy);
  EXPECT_EQ(big.owner->stats().hard_pins, 2u);
  big.Check();
}

TEST_F(GetTest, AReplyHeaderStaysWithinItsLimit) {
  const uint32_t grid = node.OpenIdentity(a, KvIdentity(64, 64));
  Get get;
  get.number = grid;
  for (uint64_t key = 0; key < 80; ++key) {  // 4,096 parts each: 32 KiB of records
    ASSERT_EQ(node.Put(a, grid, {key, 64, {0, 64, 0, 64}}), PutState::kStored);
    get.blocks.push_back({HashOf(key), 0, {0, 64, 0, 64}});
  }
  const uint64_t id = node.Send(a, Verb::kGet, get);
  EXPECT_LE(node.outbox.replies.at({a, id}).header.size(), kMessageBytesMax);
  const auto reply = node.Take<GetReply>(a, id);
  ASSERT_TRUE(reply.ok());
  size_t hits = 0;
  for (const auto& block : reply.value().blocks) {
    hits += block.presence == Presence::kRam ? 1 : 0;
  }
  EXPECT_GT(hits, 55u);
  EXPECT_LT(hits, 80u);
  for (size_t i = 0; i < 80; ++i) {
    EXPECT_EQ(reply.value().blocks[i].presence, i < hits ? Presence::kRam : Presence::kBusy);
  }
}

TEST_F(GetTest, ADamagedHeaderIsADroppedPieceAndNeverABadAnswer) {
  const Spec spec{1, 4096, {0, 4, 0, 4}};
  const auto reserved = node.ReserveOne(a, kv, spec);
  std::byte* payload = node.outbox.grants.at(reserved.ticket).slot.data;
  ASSERT_EQ(node.CommitOne(a, reserved.ticket, spec), PutState::kStored);
  // The first slot's header is at the front of the slab that the payload is in.
  std::byte* slab = *std::prev(node.slabs.live.upper_bound(payload));
  slab[60] ^= std::byte{1};
  EXPECT_EQ(node.GetOne(a, kv, spec).presence, Presence::kCorrupt);
  EXPECT_EQ(node.MatchOne(a, kv, spec), Presence::kCorrupt);
  EXPECT_EQ(node.owner->stats().pieces, 0u);
  EXPECT_EQ(node.Put(a, kv, spec), PutState::kStored);
}

TEST_F(GetTest, BadRequestsAreAnsweredWithWhatToDo) {
  Get get;
  get.number = kv;
  EXPECT_EQ(node.Ask<GetReply>(a, Verb::kGet, get).status().code(), Code::kInvalid);  // no blocks
  get.blocks.push_back({HashOf(1), 0, {0, 9, 0, 1}});
  EXPECT_EQ(node.Ask<GetReply>(a, Verb::kGet, get).status().code(), Code::kInvalid);  // outside the grid
  get.blocks[0].rectangle = {};
  get.number = 99;
  EXPECT_EQ(node.Ask<GetReply>(a, Verb::kGet, get).status().code(), Code::kNotFound);
  get.number = 0;
  EXPECT_EQ(node.Ask<GetReply>(a, Verb::kGet, get).status().code(), Code::kNotFound);
  get.number = kv;
  get.blocks.resize(kBlocksMax + 1);
  EXPECT_EQ(node.Ask<GetReply>(a, Verb::kGet, get).status().code(), Code::kInvalid);
}

TEST_F(GetTest, ADeadlineThatPassedBeforeTheRequestIsTimedOut) {
  Request request;
  request.envelope = {Verb::kGet, false, Priority::kInteractive, Code::kOk, 1000, 77};
  request.arrived_us = node.now_us - 1001;
  request.body = Get{kv, 0, {{HashOf(1), 0, {}}}};
  node.Give(a, request);
  EXPECT_EQ(node.Take<GetReply>(a, 77).status().code(), Code::kTimedOut);
  EXPECT_EQ(node.owner->stats().expired_requests, 1u);
}

TEST_F(GetTest, AReplyExpiresWithItsRequest) {
  const uint64_t id = node.Send(a, Verb::kGet, Get{kv, 0, {{HashOf(1), 0, {}}}}, 5000);
  EXPECT_EQ(node.outbox.replies.at({a, id}).expire_us, node.now_us + 5000);
}

TEST_F(GetTest, EventsOfAClosedSessionAreIgnored) {
  node.Give(a, Closed{});
  node.Send(a, Verb::kGet, Get{kv, 0, {{HashOf(1), 0, {}}}});
  node.Give(a, Stopped{1});
  node.Give(a, Progress{1});
  node.Give(a, Closed{});
  EXPECT_EQ(node.owner->stats().sessions, 0u);
}

}  // namespace
}  // namespace larder::node
