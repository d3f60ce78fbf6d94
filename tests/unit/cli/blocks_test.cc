// Files as blocks, identities from flags, and columns.
#include <gtest/gtest.h>

#include <random>

#include "client/cli/file_blocks.h"
#include "client/cli/name_space.h"
#include "client/cli/text_table.h"

namespace larder::cli {
namespace {

TEST(FileIndex, ReadsBackAndRefusesWhatItIsNot) {
  FileIndex index;
  index.bytes = 5 * kFileChunkBytes + 17;
  index.digest = Sha256(AsBytes("x"));
  const Bytes bytes = EncodeFileIndex(index);
  ASSERT_EQ(bytes.size(), kFileIndexBytes);
  const FileIndex read = DecodeFileIndex(bytes).value();
  EXPECT_EQ(read.bytes, index.bytes);
  EXPECT_EQ(read.digest, index.digest);
  EXPECT_EQ(read.chunks(), 6u);
  EXPECT_EQ(read.BytesOfChunk(4), kFileChunkBytes);
  EXPECT_EQ(read.BytesOfChunk(5), 17u);
  EXPECT_EQ(read.BytesOfChunk(6), 0u);
  for (size_t length = 0; length < bytes.size(); length++) {
    EXPECT_FALSE(DecodeFileIndex(ByteView(bytes).first(length)).ok()) << length;
  }
  std::mt19937_64 random(64);
  for (int i = 0; i < 10'000; i++) {
    Bytes broken = bytes;
    broken[random() % 24] = static_cast<std::byte>(random());
    const Result<FileIndex> decoded = DecodeFileIndex(broken);
    if (decoded.ok()) {
      EXPECT_LE(decoded->bytes, kFileBytesMax);
      EXPECT_GE(decoded->chunk_bytes, 4096u);
    }
  }
}

TEST(FileIndex, AnEmptyFileHasNoChunks) {
  EXPECT_EQ(FileIndex{}.chunks(), 0u);
}

TEST(FileIndex, KeysAreDistinctAndStable) {
  const ChainHash file = FileKey("a");
  EXPECT_NE(file, FileKey("b"));
  EXPECT_NE(ChunkKey(file, 0), ChunkKey(file, 1));
  EXPECT_NE(ChunkKey(file, 0), file);
  EXPECT_EQ(FileKey("a"), file);
}

TEST(Identity, ComesFromTextJsonAndFields) {
  EXPECT_EQ(IdentityFrom("", {}).value().CanonicalText(), "kind=opaque\nmodel=larderctl\n");
  const Identity json =
      IdentityFrom(R"({"kind":"kv","layers":32,"model":"m"})", {"layers=16", "model="}).value();
  EXPECT_EQ(json.CanonicalText(), "kind=kv\nlayers=16\n");
  EXPECT_EQ(IdentityFrom("kind=kv\nlayers=16\n", {}).value().digest(), json.digest());
  EXPECT_EQ(IdentityFrom("layers=16, kind=kv", {}).value().digest(), json.digest());
  for (const char* bad : {"{", "[]", "{\"kind\":[]}", "{\"kind\":1.5}", "layers", "{\"Kind\":\"kv\"}"}) {
    EXPECT_FALSE(IdentityFrom(bad, {}).ok()) << bad;
  }
  EXPECT_FALSE(IdentityFrom("", {"layers"}).ok());
}

TEST(TextTable, AlignsWithoutTrailingSpaces) {
  TextTable table;
  table.Row({"a", "bbb", "c"});
  table.Row({"aaaa", "b"});
  EXPECT_EQ(table.Text(), "a     bbb  c\naaaa  b\n");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(PrettyUs(85), "85 us");
  EXPECT_EQ(PrettyUs(1250), "1.2 ms");
  EXPECT_EQ(PrettyAge(90'000), "90s");
  EXPECT_EQ(PrettyAge(7'200'000), "2h");
}

}  // namespace
}  // namespace larder::cli
