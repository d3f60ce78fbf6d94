#include "proto/block_header.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::ExtendedHeaderBytes;
using testing::FullHeader;
using testing::PlainHeader;
using testing::SealHeader;

Bytes Encoded(const BlockHeader& header) {
  Bytes bytes;
  EncodeHeader(header, &bytes);
  return bytes;
}

template <typename T>
void Poke(Bytes* bytes, size_t at, T value) {
  std::memcpy(bytes->data() + at, &value, sizeof value);
}

TEST(BlockHeader, RoundTrip) {
  for (const BlockHeader& header : {PlainHeader(), FullHeader()}) {
    const Bytes bytes = Encoded(header);
    EXPECT_EQ(bytes.size(), HeaderBytes(static_cast<uint32_t>(header.parts.size()), header.codec_data.size(),
                                        header.constituents.size()));
    EXPECT_EQ(bytes.size() % 8, 0u);
    const Result<BlockHeader> decoded = DecodeHeader(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(decoded.value(), header);
  }
}

TEST(BlockHeader, EveryPaddingLengthRoundTrips) {
  BlockHeader header = PlainHeader();
  for (int codec_bytes = 0; codec_bytes < 17; ++codec_bytes) {
    const Bytes bytes = Encoded(header);
    ASSERT_EQ(bytes.size() % 8, 0u);
    const Result<BlockHeader> decoded = DecodeHeader(bytes);
    ASSERT_TRUE(decoded.ok());
    ASSERT_EQ(decoded.value(), header);
    header.codec_data.push_back(std::byte(codec_bytes));
  }
}

TEST(BlockHeader, LargestRoundTrips) {
  BlockHeader header = PlainHeader();
  header.rectangle = {0, 512, 0, 8};
  header.parts.assign(kPartsMax, {kPieceBytesMax / kPartsMax, 3});
  header.codec_data.assign(kCodecBytesMax, std::byte{1});
  header.constituents.assign(kConstituentsMax, header.hash);
  const Result<BlockHeader> decoded = DecodeHeader(Encoded(header));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value(), header);
  EXPECT_EQ(decoded.value().payload_bytes(), kPieceBytesMax);
}

TEST(BlockHeader, FollowedByOtherBytesAndAppended) {
  Bytes bytes = Encoded(FullHeader());
  const size_t first_bytes = bytes.size();
  EncodeHeader(PlainHeader(), &bytes);
  EXPECT_EQ(DecodeHeader(bytes).value(), FullHeader());
  EXPECT_EQ(DecodeHeader(ByteView(bytes).subspan(first_bytes)).value(), PlainHeader());
}

TEST(BlockHeader, EachFlippedBitIsRejected) {
  const Bytes good = Encoded(FullHeader());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    const Result<BlockHeader> decoded = DecodeHeader(bytes);
    ASSERT_FALSE(decoded.ok()) << bit;
    ASSERT_EQ(decoded.status().code(), Code::kCorrupt) << bit;
  }
}

TEST(BlockHeader, EachTruncationIsRejected) {
  const Bytes good = Encoded(FullHeader());
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    ASSERT_EQ(DecodeHeader(ByteView(good).first(bytes)).status().code(), Code::kCorrupt) << bytes;
  }
}

TEST(BlockHeader, UnknownExtensionsAreSkipped) {
  const Result<BlockHeader> decoded = DecodeHeader(ExtendedHeaderBytes());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded.value(), FullHeader());
}

TEST(BlockHeader, NewerVersionIsUnsupportedNotCorrupt) {
  Bytes bytes = Encoded(PlainHeader());
  Poke<uint16_t>(&bytes, 4, 2);
  SealHeader(&bytes);
  EXPECT_EQ(DecodeHeader(bytes).status().code(), Code::kUnsupported);
}

// A valid checksum proves nothing about who wrote it: every limit is checked behind it.
TEST(BlockHeader, SealedNonsenseIsRejected) {
  const size_t codec_at = 144 + 6 * 8;
  const size_t constituents_at = codec_at + 4 + 6;
  const size_t extensions_at = constituents_at + 4 + 3 * 32;
  const std::pair<const char*, std::function<void(Bytes*)>> kCases[] = {
      {"magic", [](Bytes* b) { Poke<uint32_t>(b, 0, 0x3248424c); }},
      {"parts past the limit", [](Bytes* b) { Poke<uint32_t>(b, 12, 0xffffffff); }},
      {"parts and rectangle differ", [](Bytes* b) { Poke<uint16_t>(b, 86, 13); }},
      {"no parts", [](Bytes* b) { Poke<uint32_t>(b, 12, 0); }},
      {"empty rectangle", [](Bytes* b) { Poke<uint16_t>(b, 86, 10); }},
      {"turned rectangle", [](Bytes* b) { Poke<uint16_t>(b, 84, 14); }},
      {"payload size", [](Bytes* b) { Poke<uint64_t>(b, 96, 5); }},
      {"part over the piece limit",
       [](Bytes* b) {
         Poke<uint32_t>(b, 144, 0xffffffff);
         Poke<uint64_t>(b, 96, 0xffffffffull + 4096 + 4096 + 2048 + 1);
       }},
      {"codec data past the end", [=](Bytes* b) { Poke<uint32_t>(b, codec_at, 0xffffffff); }},
      {"codec data takes the rest", [=](Bytes* b) { Poke<uint32_t>(b, codec_at, 100); }},
      {"constituents past the limit", [=](Bytes* b) { Poke<uint32_t>(b, constituents_at, 257); }},
      {"constituents past the end", [=](Bytes* b) { Poke<uint32_t>(b, constituents_at, 200); }},
      {"padding not zero", [](Bytes* b) { b->at(b->size() - 5) = std::byte{1}; }},
      {"extension past the end",
       [=](Bytes* b) {
         b->resize(b->size() + 16);
         Poke<uint16_t>(b, extensions_at, 9);
         Poke<uint32_t>(b, extensions_at + 2, 0xffffffff);
       }},
      {"size not padded", [](Bytes* b) { b->resize(b->size() + 4); }},
      {"longer than any header", [](Bytes* b) { b->resize(256 * 1024 + 8); }},
  };
  ASSERT_EQ((extensions_at + 4 + 7) / 8 * 8, Encoded(FullHeader()).size());
  for (const auto& [name, spoil] : kCases) {
    Bytes bytes = Encoded(FullHeader());
    spoil(&bytes);
    SealHeader(&bytes);
    EXPECT_EQ(DecodeHeader(bytes).status().code(), Code::kCorrupt) << name;
  }
}

TEST(BlockHeader, SizesAddUp) {
  EXPECT_EQ(HeaderBytes(0), 160u);
  EXPECT_EQ(HeaderBytes(1), 168u);
  EXPECT_EQ(HeaderBytes(640), 144u + 5120 + 16);
  EXPECT_EQ(HeaderBytes(1, 5, 2), 144u + 8 + 4 + 5 + 4 + 64 + 4 + 7);
}

TEST(BlockHeaderDeathTest, EncodeRefusesBrokenInvariants) {
  BlockHeader header = FullHeader();
  header.parts.pop_back();
  Bytes bytes;
  EXPECT_DEATH(EncodeHeader(header, &bytes), "broken invariant");
}

}  // namespace
}  // namespace larder
