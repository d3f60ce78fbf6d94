#include "client/cli/file_blocks.h"

#include <algorithm>

#include "proto/block_header.h"

namespace larder::cli {
namespace {
constexpr std::string_view kMagic = "LARDFIL1";
}

uint64_t FileIndex::BytesOfChunk(uint64_t chunk) const {
  const uint64_t begin = chunk * chunk_bytes;
  return std::min<uint64_t>(chunk_bytes, bytes - std::min(bytes, begin));
}

Bytes EncodeFileIndex(const FileIndex& index) {
  Bytes out;
  Writer writer(&out);
  writer.View(AsBytes(kMagic));
  writer.U64(index.bytes);
  writer.U32(index.chunk_bytes);
  writer.U32(0);
  writer.View(index.digest);
  writer.U64(0);
  return out;
}

Result<FileIndex> DecodeFileIndex(ByteView bytes) {
  Reader reader(bytes);
  const ByteView magic = reader.View(kMagic.size());
  FileIndex index;
  index.bytes = reader.U64();
  index.chunk_bytes = reader.U32();
  reader.U32();
  reader.Raw(index.digest.data(), index.digest.size());
  reader.U64();
  const bool good =
      reader.ok() && std::equal(magic.begin(), magic.end(), AsBytes(kMagic).begin(), AsBytes(kMagic).end()) &&
      index.bytes <= kFileBytesMax && index.chunk_bytes >= 4096 && index.chunk_bytes <= kPieceBytesMax;
  if (!good) return Status(Code::kCorrupt, "the block there is no index of a file");
  return index;
}

ChainHash FileKey(std::string_view name) {
  return NextLink({}, AsBytes("larderctl file\n" + std::string(name)));
}

ChainHash ChunkKey(const ChainHash& file, uint64_t chunk) {
  Bytes bytes;
  Writer(&bytes).U64(chunk);
  return NextLink(file, bytes);
}

void FileDigest::Add(ByteView chunk) {
  const Digest digest = Sha256(chunk);
  digests_.insert(digests_.end(), digest.begin(), digest.end());
}

}  // namespace larder::cli
