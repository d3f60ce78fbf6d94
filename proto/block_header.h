// The self-describing header of a piece: kept beside the payload in memory, before it on a disk.
//
// Composed by the node that stores the piece: `writer` is the credential that wrote, `created_ms` the
// node's clock. Layout (version 1, little-endian; offsets in bytes):
//    0 u32 magic "LBH1"        4 u16 version            6 u16 codec
//    8 u32 header_bytes (whole header, padded to 8)    12 u32 parts
//   16 u8[32] namespace       48 u8[32] chain hash     80 u16 group   82 u16 flags
//   84 u16 layer_begin, layer_end, head_begin, head_end
//   92 u32 clear_epoch        96 u64 payload_bytes    104 u64 created_ms (Unix)
//  112 u8[32] writer         144 parts x {u32 bytes, u32 crc32c}
//  then u32 codec data length + bytes, u32 constituents + 32 bytes each,
//  then extensions {u16 type, u32 length, bytes} up to header_bytes - 4, zero padded (type 0 ends);
//  last 4 bytes: CRC-32C over all before. An older reader skips extensions it doesn't know.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/block_key.h"

namespace larder {

inline constexpr uint32_t kPartsMax = 4096;              // a piece
inline constexpr uint64_t kPieceBytesMax = 512ull << 20;  // payload of a piece
inline constexpr uint32_t kPiecesPerKeyMax = 1024;
inline constexpr uint32_t kConstituentsMax = 256;
inline constexpr uint32_t kCodecBytesMax = 64 * 1024;

struct PartRecord {
  uint32_t bytes = 0;
  uint32_t crc32c = 0;
  auto operator<=>(const PartRecord&) const = default;
};

struct BlockHeader {
  uint16_t codec = 0;  // 0: bytes as the engine laid them out
  uint16_t flags = 0;
  Namespace name_space;
  ChainHash hash;
  uint16_t group = 0;
  Rectangle rectangle;
  uint32_t clear_epoch = 0;
  uint64_t created_ms = 0;
  Digest writer{};
  std::vector<PartRecord> parts;  // in PartIndex order
  Bytes codec_data;
  std::vector<ChainHash> constituents;

  uint64_t payload_bytes() const;
  bool operator==(const BlockHeader&) const = default;
};

// Bytes of the encoded header for so many parts, without codec data and constituents (a multiple of 8).
size_t HeaderBytes(uint32_t parts, size_t codec_bytes = 0, size_t constituents = 0);

// Appends. The caller has checked the limits (LARDER_CHECK).
void EncodeHeader(const BlockHeader& header, Bytes* out);

// Survives any input: kCorrupt for a bad magic, size, limit or CRC; kUnsupported for a newer version.
Result<BlockHeader> DecodeHeader(ByteView bytes);

}  // namespace larder
