#include "proto/checksum.h"

#include <gtest/gtest.h>

#include <random>

namespace larder {
namespace {

// Bit by bit, straight from the polynomial: slow, and independent of ISA-L.
uint32_t ReferenceCrc(ByteView bytes) {
  uint32_t crc = 0xffffffff;
  for (std::byte byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

Bytes Random(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes out(bytes);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

// RFC 3720 B.4 and the customary check value.
TEST(Checksum, KnownAnswers) {
  Bytes ascending(32), descending(32);
  for (uint8_t i = 0; i < 32; ++i) {
    ascending[i] = std::byte{i};
    descending[i] = std::byte(31 - i);
  }
  constexpr uint8_t kReadCommand[] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                      0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                      0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(Crc32c(0, {}), 0u);
  EXPECT_EQ(Crc32c(0, AsBytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(0, Bytes(32)), 0x8a9136aau);
  EXPECT_EQ(Crc32c(0, Bytes(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(0, ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(0, descending), 0x113fdb5cu);
  EXPECT_EQ(Crc32c(0, std::as_bytes(std::span(kReadCommand))), 0xd9963a56u);
}

TEST(Checksum, AgreesWithTheReferenceAtEveryLengthAndOffset) {
  const Bytes bytes = Random(1024, 1);
  for (size_t length = 0; length <= 600; ++length) {
    const ByteView view = ByteView(bytes).subspan(length % 17, length);
    ASSERT_EQ(Crc32c(0, view), ReferenceCrc(view)) << length;
  }
}

TEST(Checksum, ContinuesAnywhere) {
  const Bytes bytes = Random(300, 2);
  const uint32_t whole = Crc32c(0, bytes);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    ASSERT_EQ(Crc32c(Crc32c(0, ByteView(bytes).first(cut)), ByteView(bytes).subspan(cut)), whole) << cut;
  }
}

TEST(Checksum, CopyChecksWhatWasCopied) {
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{200'000}}) {
    const Bytes from = Random(bytes, 3);
    Bytes to(bytes);
    EXPECT_EQ(CopyAndCrc32c(7, to.data(), from), Crc32c(7, from)) << bytes;
    EXPECT_EQ(to, from) << bytes;
  }
}

}  // namespace
}  // namespace larder
