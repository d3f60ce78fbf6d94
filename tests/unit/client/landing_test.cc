#include "client/core/landing.h"

#include <gtest/gtest.h>

#include <numeric>

#include "proto/checksum.h"

namespace larder::client {
namespace {

using transport::Extent;

struct Random {
  uint64_t state;
  uint64_t operator()(uint64_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % bound;
  }
};

std::vector<Extent> CutAtRandom(Bytes& memory, Random& random) {
  std::vector<Extent> extents;
  for (size_t at = 0; at < memory.size();) {
    const size_t bytes = std::min<size_t>(memory.size() - at, 1 + random(2000));
    extents.push_back({memory.data() + at, bytes});
    at += bytes;
  }
  return extents;
}

// A block with parts of random sizes, cut into sources by layers and heads at random, landed in random
// extents and steps: byte for byte what it should be.
void LandOnce(uint64_t seed) {
  Random random{seed};
  const Rectangle ask = {static_cast<uint16_t>(random(3)), static_cast<uint16_t>(4 + random(5)),
                         static_cast<uint16_t>(random(2)), static_cast<uint16_t>(3 + random(3))};
  std::vector<Bytes> parts(ask.parts());
  Bytes whole;
  for (Bytes& part : parts) {
    part.resize(random(6) == 0 ? 0 : 1 + random(700));
    for (std::byte& byte : part) byte = static_cast<std::byte>(random(256));
    whole.insert(whole.end(), part.begin(), part.end());
  }
  if (whole.empty()) return;
  // Sources: bands of layers, some of them cut by heads.
  GetReply reply;
  reply.blocks.resize(1);
  reply.blocks[0].presence = Presence::kRam;
  std::vector<Bytes> segments;
  for (uint16_t layer = ask.layer_begin; layer < ask.layer_end;) {
    const auto next = static_cast<uint16_t>(std::min<uint64_t>(ask.layer_end, layer + 1 + random(4)));
    const auto cut = static_cast<uint16_t>(ask.head_begin + random(ask.head_end - ask.head_begin));
    for (const auto& [head_begin, head_end] :
         {std::pair{ask.head_begin, cut}, std::pair{cut, ask.head_end}}) {
      if (head_begin == head_end) continue;
      GetReply::Source source;
      source.rectangle = {layer, next, head_begin, head_end};
      Bytes segment;
      for (uint16_t l = layer; l < next; ++l) {
        for (uint16_t h = head_begin; h < head_end; ++h) {
          const Bytes& part = parts[ask.PartIndex(l, h)];
          source.parts.push_back({static_cast<uint32_t>(part.size()), Crc32c(0, part)});
          segment.insert(segment.end(), part.begin(), part.end());
        }
      }
      reply.blocks[0].sources.push_back(source);
      segments.push_back(segment);
    }
    layer = next;
  }
  Bytes memory(whole.size());
  const std::vector<Extent> extents = CutAtRandom(memory, random);
  std::vector<uint64_t> segment_bytes;
  for (const Bytes& segment : segments) segment_bytes.push_back(segment.size());
  const LandingTarget target{ask, extents};
  transport::LandSegments places;
  ASSERT_TRUE(PlanLanding(reply, {&target, 1}, segment_bytes, &places).ok()) << seed;
  ASSERT_EQ(places.size(), segments.size());
  Landing landing(reply, true);
  EXPECT_EQ(landing.whole(0), false);
  size_t extent = 0;
  for (uint32_t segment = 0; segment < segments.size(); ++segment) {
    uint64_t offset = 0;
    for (uint32_t i = 0; i < places.counts[segment]; ++i, ++extent) {
      const Extent& to = places.extents[extent];
      ASSERT_LE(offset + to.bytes, segments[segment].size());
      std::memcpy(to.data, segments[segment].data() + offset, to.bytes);
      for (size_t done = 0; done < to.bytes;) {
        const size_t step = std::min<size_t>(to.bytes - done, 1 + random(900));
        landing.OnBytes(segment, offset + done, {to.data + done, step});
        done += step;
      }
      offset += to.bytes;
    }
    ASSERT_EQ(offset, segments[segment].size());
  }
  EXPECT_EQ(memory, whole) << seed;
  EXPECT_TRUE(landing.whole(0)) << seed;
  EXPECT_TRUE(landing.good(0)) << seed;
}

TEST(Landing, ScattersAnySourcesIntoAnyExtents) {
  for (uint64_t seed = 1; seed <= 500; ++seed) LandOnce(seed);
}

GetReply OneBlock(const Bytes& payload, uint32_t parts) {
  GetReply reply;
  reply.blocks.resize(1);
  reply.blocks[0].presence = Presence::kRam;
  GetReply::Source source;
  source.rectangle = {0, static_cast<uint16_t>(parts), 0, 1};
  const size_t part_bytes = payload.size() / parts;
  for (uint32_t part = 0; part < parts; ++part) {
    source.parts.push_back({static_cast<uint32_t>(part_bytes),
                            Crc32c(0, ByteView(payload).subspan(part * part_bytes, part_bytes))});
  }
  reply.blocks[0].sources.push_back(source);
  return reply;
}

TEST(Landing, FindsEveryFlippedByte) {
  Bytes payload(640);
  std::iota(reinterpret_cast<uint8_t*>(payload.data()), reinterpret_cast<uint8_t*>(payload.data()) + 640,
            uint8_t{3});
  const GetReply reply = OneBlock(payload, 5);
  for (size_t at = 0; at < payload.size(); ++at) {
    Bytes spoilt = payload;
    spoilt[at] ^= std::byte{0x10};
    Landing landing(reply, true);
    landing.OnBytes(0, 0, ByteView(spoilt).first(200));
    landing.OnBytes(0, 200, ByteView(spoilt).subspan(200));
    EXPECT_TRUE(landing.whole(0));
    EXPECT_FALSE(landing.good(0)) << at;
  }
}

TEST(Landing, IsNotWholeWhenStepsAreMissingRepeatedOrTooLong) {
  const Bytes payload(600, std::byte{9});
  const GetReply reply = OneBlock(payload, 3);
  Landing missing(reply, true);
  missing.OnBytes(0, 0, ByteView(payload).first(599));
  EXPECT_FALSE(missing.whole(0));
  Landing gap(reply, true);
  gap.OnBytes(0, 0, ByteView(payload).first(300));
  gap.OnBytes(0, 301, ByteView(payload).first(299));
  EXPECT_FALSE(gap.good(0));
  Landing repeated(reply, true);
  repeated.OnBytes(0, 0, ByteView(payload).first(300));
  repeated.OnBytes(0, 0, ByteView(payload).first(300));
  repeated.OnBytes(0, 300, ByteView(payload).first(300));
  EXPECT_FALSE(repeated.good(0));
  const Bytes longer(700, std::byte{9});
  Landing too_long(reply, true);
  too_long.OnBytes(0, 0, longer);
  too_long.OnBytes(7, 0, longer);
  EXPECT_FALSE(too_long.good(0));
}

}  // namespace
}  // namespace larder::client
