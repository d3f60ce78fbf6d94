#include "proto/block_key.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::DigestFrom;
using testing::HashFrom;

TEST(BlockKey, HexGoesBothWays) {
  const Digest digest = DigestFrom(0xf0);
  const std::string hex = ToHex(digest);
  EXPECT_EQ(hex, "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff000102030405060708090a0b0c0d0e0f");
  Digest back{};
  EXPECT_TRUE(FromHex(hex, &back).ok());
  EXPECT_EQ(back, digest);
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_TRUE(FromHex(upper, &back).ok());
  EXPECT_EQ(back, digest);
}

TEST(BlockKey, BadHexIsRefusedAndChangesNothing) {
  const std::string hex(64, '0');
  Digest out = DigestFrom(1);
  for (std::string bad : {std::string(), hex.substr(1), hex + "0", hex.substr(1) + "g", " " + hex.substr(1),
                          "0x" + hex.substr(2), hex.substr(1) + std::string(1, '\0')}) {
    EXPECT_EQ(FromHex(bad, &out).code(), Code::kInvalid) << bad;
  }
  EXPECT_EQ(out, DigestFrom(1));
}

// FIPS 180-2 examples.
TEST(BlockKey, Sha256KnownAnswers) {
  EXPECT_EQ(ToHex(Sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(Sha256(AsBytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256(Bytes(1'000'000, std::byte{'a'}))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// python3 -c 'import hashlib,struct; h=bytes(32)
// for i in range(3): h=hashlib.sha256(b"larder chain 1\n"+h+struct.pack("<5I",4,*range(4*i,4*i+4))).digest();
// print(h.hex())'
TEST(BlockKey, ChainHashesKnownAnswers) {
  std::vector<uint32_t> tokens(15);  // the last three make no block
  std::iota(tokens.begin(), tokens.end(), 0u);
  const std::vector<ChainHash> hashes = ChainHashes(tokens, 4);
  ASSERT_EQ(hashes.size(), 3u);
  EXPECT_EQ(ToHex(hashes[0].bytes), "7019cd06e89634b948663d672b277af8c4f67816ef0a5f72de5091b68ce09b8e");
  EXPECT_EQ(ToHex(hashes[1].bytes), "1d8fc33337a425507bc82f3c804a7dddde7783267def693c48a25013d49529f0");
  EXPECT_EQ(ToHex(hashes[2].bytes), "4d78d659d76a70d87ac045fb5a0388a75cb2a6f438276ac8e0eb6fb13eed7735");
}

TEST(BlockKey, ChainHashesCoverAllTokensBefore) {
  std::vector<uint32_t> tokens(64, 7);
  const std::vector<ChainHash> before = ChainHashes(tokens, 16);
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(ChainHashes(std::span(tokens).first(32), 16), (std::vector<ChainHash>{before[0], before[1]}));
  tokens[20] = 8;
  const std::vector<ChainHash> after = ChainHashes(tokens, 16);
  EXPECT_EQ(after[0], before[0]);
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(after[i], before[i]);
  EXPECT_NE(ChainHashes(tokens, 8)[1], after[0]);  // the block size is part of the name
}

TEST(BlockKey, ChainHashesOfNothing) {
  const std::vector<uint32_t> tokens(3);
  EXPECT_TRUE(ChainHashes(tokens, 4).empty());
  EXPECT_TRUE(ChainHashes({}, 4).empty());
  EXPECT_TRUE(ChainHashes(tokens, 0).empty());
}

// python3 -c 'import hashlib; print(hashlib.sha256(b"larder link 1\n"+bytes(range(32))+b"abc").hexdigest())'
TEST(BlockKey, NextLinkKnownAnswer) {
  EXPECT_EQ(ToHex(NextLink(HashFrom(0), AsBytes("abc")).bytes),
            "39a392b1abe699e1258209ae51b3be88ccf55a48aa0315a8b905ef8f3e723878");
}

// python3 -c 'import hashlib,struct; i=hashlib.sha256(b"kind=kv\nmodel=m%20x\n").digest()
// print(hashlib.sha256(b"larder namespace
// 1\n"+i+struct.pack("<I",4)+b"acme"+struct.pack("<I",2)+b"s1").hexdigest())'
TEST(BlockKey, NamespaceKnownAnswer) {
  Identity identity;
  ASSERT_TRUE(identity.Set("kind", "kv").ok());
  ASSERT_TRUE(identity.Set("model", "m x").ok());
  EXPECT_EQ(ToHex(NamespaceOf(identity, "acme", "s1").bytes),
            "5014c36aa1503586076b370d12077d9c11266ae001801d6c98265104443c785c");
}

TEST(BlockKey, NamespaceSeparatesTenantsSaltsAndIdentities) {
  const Identity identity = testing::SampleIdentity();
  Identity other = identity;
  ASSERT_TRUE(other.Set("weights_epoch", "1").ok());
  const Namespace base = NamespaceOf(identity, "acme", "salt");
  EXPECT_EQ(NamespaceOf(identity, "acme", "salt"), base);
  EXPECT_NE(NamespaceOf(identity, "acm", "esalt"), base);  // lengths are hashed too
  EXPECT_NE(NamespaceOf(identity, "acme", ""), base);
  EXPECT_NE(NamespaceOf(identity, "", "salt"), base);
  EXPECT_NE(NamespaceOf(other, "acme", "salt"), base);
}

TEST(BlockKey, RectanglesCountAndContain) {
  const Rectangle whole = WholeOf({80, 8});
  EXPECT_EQ(whole.parts(), 640u);
  const Rectangle some{10, 12, 2, 5};
  EXPECT_EQ(some.parts(), 6u);
  EXPECT_TRUE(whole.Contains(some));
  EXPECT_FALSE(some.Contains(whole));
  EXPECT_TRUE(some.Contains(11, 4));
  EXPECT_FALSE(some.Contains(12, 4));
  EXPECT_FALSE(some.Contains(11, 5));
  EXPECT_EQ(some.PartIndex(10, 2), 0u);
  EXPECT_EQ(some.PartIndex(11, 4), 5u);
  EXPECT_FALSE((Rectangle{1, 1, 0, 1}).valid());
  EXPECT_FALSE((Rectangle{0, 1, 2, 1}).valid());
  EXPECT_EQ((Rectangle{0, 65535, 0, 65535}).parts(), 65535u * 65535u);
}

}  // namespace
}  // namespace larder
