#include "proto/block_header.h"

#include "proto/checksum.h"

namespace larder {
namespace {

constexpr uint32_t kMagic = 0x3148424c;  // "LBH1"
constexpr uint16_t kVersion = 1;
constexpr size_t kFixedBytes = 144;
constexpr size_t kCrcBytes = 4;
// 4,096 parts, the codec data and the constituents are 106,656 bytes; the rest is for extensions.
constexpr size_t kHeaderBytesMax = 256 * 1024;

static_assert(sizeof(PartRecord) == 8 && sizeof(ChainHash) == 32);

Status Corrupt(std::string_view what) {
  return {Code::kCorrupt, "block header: " + std::string(what)};
}

// Skips records that this version does not know; only their framing is checked.
bool SkipExtensions(Reader* reader) {
  while (reader->ok() && reader->left() >= 2) {
    if (reader->U16() != 0) {
      reader->View(reader->U32());
      continue;
    }
    while (reader->left() > 0) {
      if (reader->U8() != 0) return false;
    }
  }
  while (reader->ok() && reader->left() > 0) {
    if (reader->U8() != 0) return false;
  }
  return reader->ok();
}

bool WithinLimits(const BlockHeader& header) {
  return header.rectangle.valid() && header.parts.size() == header.rectangle.parts() &&
         header.parts.size() <= kPartsMax && header.payload_bytes() <= kPieceBytesMax &&
         header.codec_data.size() <= kCodecBytesMax && header.constituents.size() <= kConstituentsMax;
}

}  // namespace

uint64_t BlockHeader::payload_bytes() const {
  uint64_t bytes = 0;
  for (const PartRecord& part : parts) bytes += part.bytes;
  return bytes;
}

size_t HeaderBytes(uint32_t parts, size_t codec_bytes, size_t constituents) {
  const size_t bytes = kFixedBytes + size_t{parts} * sizeof(PartRecord) + 4 + codec_bytes + 4 +
                       constituents * sizeof(ChainHash) + kCrcBytes;
  return (bytes + 7) / 8 * 8;
}

void EncodeHeader(const BlockHeader& header, Bytes* out) {
  LARDER_CHECK(WithinLimits(header));
  const size_t begin = out->size();
  const size_t header_bytes = HeaderBytes(static_cast<uint32_t>(header.parts.size()),
                                          header.codec_data.size(), header.constituents.size());
  out->reserve(begin + header_bytes);
  Writer writer(out);
  writer.U32(kMagic);
  writer.U16(kVersion);
  writer.U16(header.codec);
  writer.U32(static_cast<uint32_t>(header_bytes));
  writer.U32(static_cast<uint32_t>(header.parts.size()));
  writer.View(header.name_space.bytes);
  writer.View(header.hash.bytes);
  writer.U16(header.group);
  writer.U16(header.flags);
  writer.U16(header.rectangle.layer_begin);
  writer.U16(header.rectangle.layer_end);
  writer.U16(header.rectangle.head_begin);
  writer.U16(header.rectangle.head_end);
  writer.U32(header.clear_epoch);
  writer.U64(header.payload_bytes());
  writer.U64(header.created_ms);
  writer.View(header.writer);
  writer.Raw(header.parts.data(), header.parts.size() * sizeof(PartRecord));
  writer.U32(static_cast<uint32_t>(header.codec_data.size()));
  writer.View(header.codec_data);
  writer.U32(static_cast<uint32_t>(header.constituents.size()));
  writer.Raw(header.constituents.data(), header.constituents.size() * sizeof(ChainHash));
  out->resize(begin + header_bytes - kCrcBytes);  // zero padding: an extension of type 0
  writer.U32(Crc32c(0, ByteView(*out).subspan(begin)));
}

Result<BlockHeader> DecodeHeader(ByteView bytes) {
  // Magic, version, header_bytes and the last four bytes mean the same in every version, so that a newer
  // header is told from a damaged one.
  Reader fixed(bytes);
  const uint32_t magic = fixed.U32();
  const uint16_t version = fixed.U16();
  BlockHeader header;
  header.codec = fixed.U16();
  const uint32_t header_bytes = fixed.U32();
  const uint32_t parts = fixed.U32();
  if (!fixed.ok() || magic != kMagic) return Corrupt("no magic");
  if (header_bytes > bytes.size() || header_bytes > kHeaderBytesMax || header_bytes % 8 != 0 ||
      header_bytes < HeaderBytes(0)) {
    return Corrupt("impossible size");
  }
  const ByteView body = bytes.first(header_bytes - kCrcBytes);
  if (Crc32c(0, body) != Reader(bytes.subspan(body.size())).U32()) return Corrupt("bad checksum");
  if (version != kVersion) {
    return Status(Code::kUnsupported, "block header: version " + std::to_string(version) + " is newer");
  }
  if (parts > kPartsMax) return Corrupt("too many parts");

  Reader reader(body.subspan(16));
  reader.Raw(header.name_space.bytes.data(), header.name_space.bytes.size());
  reader.Raw(header.hash.bytes.data(), header.hash.bytes.size());
  header.group = reader.U16();
  header.flags = reader.U16();
  header.rectangle.layer_begin = reader.U16();
  header.rectangle.layer_end = reader.U16();
  header.rectangle.head_begin = reader.U16();
  header.rectangle.head_end = reader.U16();
  header.clear_epoch = reader.U32();
  const uint64_t payload_bytes = reader.U64();
  header.created_ms = reader.U64();
  reader.Raw(header.writer.data(), header.writer.size());
  const ByteView part_bytes = reader.View(parts * sizeof(PartRecord));
  const ByteView codec_data = reader.View(reader.U32());
  const uint32_t constituents = reader.U32();
  if (!reader.ok() || constituents > kConstituentsMax) return Corrupt("impossible lengths");
  const ByteView constituent_bytes = reader.View(constituents * sizeof(ChainHash));
  if (!SkipExtensions(&reader)) return Corrupt("impossible lengths");

  header.parts.resize(parts);
  Reader(part_bytes).Raw(header.parts.data(), part_bytes.size());
  header.codec_data.assign(codec_data.begin(), codec_data.end());
  header.constituents.resize(constituents);
  Reader(constituent_bytes).Raw(header.constituents.data(), constituent_bytes.size());
  if (!WithinLimits(header)) return Corrupt("a limit is passed");
  if (header.payload_bytes() != payload_bytes) return Corrupt("part sizes and payload size differ");
  return header;
}

}  // namespace larder
