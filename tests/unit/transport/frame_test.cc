// Frames from strangers, and the walk over extents.
#include "transport/socket/frame.h"

#include <gtest/gtest.h>

#include <random>

#include "transport/extent_cursor.h"

namespace larder::transport {
namespace {

FrameHeader Frame(FrameType type, uint32_t header_bytes, uint32_t segments, uint64_t payload_bytes,
                  uint64_t number = 0) {
  FrameHeader frame;
  frame.type = type;
  frame.header_bytes = header_bytes;
  frame.segments = segments;
  frame.payload_bytes = payload_bytes;
  frame.number = number;
  return frame;
}

TEST(Frame, ChecksWhatAPeerSends) {
  const Limits limits;
  const uint32_t header_max = limits.header_bytes_max, segments_max = limits.segments_max;
  const uint64_t payload_max = limits.payload_bytes_max;
  const struct {
    FrameHeader frame;
    bool shm;
    Failure expected;
  } cases[] = {
      {Frame(FrameType::kMessage, 0, 0, 0), false, Failure::kNone},
      {Frame(FrameType::kMessage, header_max, segments_max, payload_max), false, Failure::kNone},
      {Frame(FrameType::kMessage, header_max + 1, 0, 0), false, Failure::kTooLarge},
      {Frame(FrameType::kMessage, 0, segments_max + 1, 0), false, Failure::kTooLarge},
      {Frame(FrameType::kMessage, 0, 1, payload_max + 1), false, Failure::kTooLarge},
      {Frame(FrameType::kMessage, 0, 1, ~uint64_t{0}), true, Failure::kTooLarge},
      {Frame(FrameType::kMessage, 0, 0, 1), false, Failure::kProtocol},
      {Frame(FrameType::kMessage, 0, 0, 0, 1), false, Failure::kProtocol},
      {Frame(FrameType::kData, 0, 1, 1, 1), true, Failure::kNone},
      {Frame(FrameType::kData, 0, 1, 1, 1), false, Failure::kProtocol},
      {Frame(FrameType::kData, 0, 0, 0, 1), true, Failure::kProtocol},
      {Frame(FrameType::kData, 0, kDescriptorsMax + 1, 1, 1), true, Failure::kProtocol},
      {Frame(FrameType::kData, 1, 1, 1, 1), true, Failure::kProtocol},
      {Frame(FrameType::kAck, 0, 0, 0, 1), true, Failure::kNone},
      {Frame(FrameType::kAck, 0, 0, 0, 1), false, Failure::kProtocol},
      {Frame(FrameType::kAck, 1, 0, 0, 1), true, Failure::kProtocol},
      {Frame(FrameType::kRegion, 0, 1, 4096, 1), true, Failure::kProtocol},
      {Frame(static_cast<FrameType>(0), 0, 0, 0), true, Failure::kProtocol},
      {Frame(static_cast<FrameType>(99), 0, 0, 0), false, Failure::kProtocol},
  };
  for (const auto& one : cases) {
    const Error error = CheckFrame(one.frame, limits, one.shm);
    EXPECT_EQ(error.failure, one.expected) << static_cast<int>(one.frame.type) << ": " << error.text;
    EXPECT_EQ(error.text.empty(), error.ok());
  }
  FrameHeader stranger;
  stranger.magic = 0x20544547;  // "GET "
  EXPECT_EQ(CheckFrame(stranger, limits, false).failure, Failure::kProtocol);
  FrameHeader newer;
  newer.version = 2;
  EXPECT_EQ(CheckFrame(newer, limits, false).failure, Failure::kProtocol);
}

TEST(Frame, BodiesThatPassAreSmall) {
  std::mt19937_64 random(11);
  const Limits limits;
  for (int i = 0; i < 200'000; i++) {
    FrameHeader frame =
        Frame(static_cast<FrameType>(random() % 8), static_cast<uint32_t>(random() >> (32 + random() % 32)),
              static_cast<uint32_t>(random() >> (32 + random() % 32)), random() >> (random() % 64));
    if (!CheckFrame(frame, limits, random() % 2 == 0).ok()) continue;
    ASSERT_LE(BodyBytes(frame), limits.header_bytes_max + limits.segments_max * 8);
  }
}

TEST(ExtentCursor, WalksOverEmptyExtentsAndSegments) {
  std::byte memory[100];
  LandSegments list;
  list.Add(std::span<const Extent>());
  list.Add(Extent{memory, 10});
  list.Add(Extent{memory + 10, 0});
  const Extent three[] = {{memory + 20, 0}, {memory + 30, 5}, {memory + 40, 7}};
  list.Add(std::span<const Extent>(three));
  std::vector<uint64_t> bytes;
  uint64_t total = 0;
  ASSERT_TRUE(SegmentBytes(list, &bytes, &total));
  EXPECT_EQ(bytes, (std::vector<uint64_t>{0, 10, 0, 12}));
  EXPECT_EQ(total, 22u);
  ExtentCursor<Extent> cursor(&list);
  EXPECT_EQ(cursor.segment(), 1u);
  EXPECT_EQ(cursor.Here().data, memory);
  cursor.Advance(4);
  EXPECT_EQ(cursor.Here().data, memory + 4);
  EXPECT_EQ(cursor.segment_offset(), 4u);
  cursor.Advance(6);
  EXPECT_EQ(cursor.segment(), 3u);
  EXPECT_EQ(cursor.segment_offset(), 0u);
  EXPECT_EQ(cursor.Here().data, memory + 30);
  cursor.Advance(5);
  EXPECT_EQ(cursor.segment_offset(), 5u);
  EXPECT_EQ(cursor.Here().data, memory + 40);
  cursor.Advance(7);
  EXPECT_TRUE(cursor.done());
}

TEST(ExtentCursor, RefusesListsThatDoNotFit) {
  std::byte memory[8];
  std::vector<uint64_t> bytes;
  uint64_t total = 0;
  LandSegments list;
  list.Add(Extent{memory, 8});
  list.counts[0] = 2;
  EXPECT_FALSE(SegmentBytes(list, &bytes, &total));
  list.counts[0] = 0;
  EXPECT_FALSE(SegmentBytes(list, &bytes, &total));
  list.clear();
  list.Add(Extent{memory, ~size_t{0}});
  list.Add(Extent{memory, 2});
  EXPECT_FALSE(SegmentBytes(list, &bytes, &total));
}

}  // namespace
}  // namespace larder::transport
