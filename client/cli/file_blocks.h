// How larderctl keeps a file as blocks, for debugging: an index block under the file's own key, then the
// bytes in chunks of 1 MiB under keys that follow from it. The index is put last, so that a file is whole or
// not there.
//
// Index block, 64 bytes, little-endian: 8 bytes "LARDFIL1", u64 size, u32 chunk bytes, u32 zero, 32 bytes
// SHA-256 over the SHA-256 of each chunk, u64 zero.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/block_key.h"

namespace larder::cli {

inline constexpr uint32_t kFileChunkBytes = 1 << 20;
inline constexpr size_t kFileIndexBytes = 64;
inline constexpr uint64_t kFileBytesMax = 1ull << 40;

struct FileIndex {
  uint64_t bytes = 0;
  uint32_t chunk_bytes = kFileChunkBytes;
  Digest digest{};  // over the chunks' digests, in order
  uint64_t chunks() const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  uint64_t BytesOfChunk(uint64_t chunk) const;
};

Bytes EncodeFileIndex(const FileIndex& index);
Result<FileIndex> DecodeFileIndex(ByteView bytes);

ChainHash FileKey(std::string_view name);
ChainHash ChunkKey(const ChainHash& file, uint64_t chunk);

// Adds chunk after chunk.
class FileDigest {
 public:
  void Add(ByteView chunk);
  Digest digest() const { return Sha256(digests_); }

 private:
  Bytes digests_;
};

}  // namespace larder::cli
