#include "node/ssd/record.h"

#include <algorithm>
#include <cstring>

#include "proto/checksum.h"

namespace larder::node::ssd {
namespace {

constexpr uint32_t kRecordMagic = 0x3152534c;   // "LSR1"
constexpr uint32_t kSegmentMagic = 0x3147534c;  // "LSG1"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kHeaderBytesMax = 4095 * kHeaderUnitBytes;

void Put(const Bytes& bytes, std::byte* out) {
  std::memcpy(out, bytes.data(), bytes.size());
}

void AddCrc(Bytes* bytes) {
  const uint32_t crc = Crc32c(0, *bytes);
  Writer(bytes).U32(crc);
}

bool Uniform(const std::vector<PartRecord>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const PartRecord& part) { return part.bytes == parts[0].bytes; });
}

}  // namespace

RecordShape ShapeOf(uint32_t header_bytes, uint32_t payload_bytes) {
  RecordShape shape;
  const uint64_t head = uint64_t{kPreambleBytes} + header_bytes;
  shape.packed = payload_bytes < kPageBytes;
  shape.payload_offset = shape.packed ? head : RoundToPages(head);
  shape.head_bytes = RoundToPages(head + (shape.packed ? payload_bytes : 0));
  shape.record_bytes = RoundToPages(shape.payload_offset + payload_bytes);
  return shape;
}

void EncodePreamble(const Preamble& preamble, std::byte* out) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U32(kRecordMagic);
  writer.U32(kVersion);
  writer.U64(preamble.sequence);
  writer.U32(preamble.header_bytes);
  writer.U32(preamble.payload_bytes);
  writer.U32(preamble.depth);
  AddCrc(&bytes);
  static_assert(kPreambleBytes == 32);
  Put(bytes, out);
}

bool DecodePreamble(ByteView bytes, Preamble* out) {
  if (bytes.size() < kPreambleBytes) return false;
  Reader reader(bytes);
  const uint32_t magic = reader.U32(), version = reader.U32();
  out->sequence = reader.U64();
  out->header_bytes = reader.U32();
  out->payload_bytes = reader.U32();
  out->depth = reader.U32();
  return magic == kRecordMagic && version == kVersion &&
         reader.U32() == Crc32c(0, bytes.first(kPreambleBytes - 4)) && out->header_bytes <= kHeaderBytesMax &&
         out->payload_bytes <= kPieceBytesMax;
}

void EncodeSegmentHeader(uint64_t sequence, uint32_t segment, std::byte* page) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U32(kSegmentMagic);
  writer.U32(kVersion);
  writer.U64(sequence);
  writer.U32(segment);
  AddCrc(&bytes);
  bytes.resize(kPageBytes);
  Put(bytes, page);
}

bool DecodeSegmentHeader(ByteView page, uint64_t* sequence, uint32_t* segment) {
  Reader reader(page);
  const uint32_t magic = reader.U32(), version = reader.U32();
  *sequence = reader.U64();
  *segment = reader.U32();
  const uint32_t crc = reader.U32();
  return reader.ok() && magic == kSegmentMagic && version == kVersion && crc == Crc32c(0, page.first(20));
}

bool HeadIs(ByteView head, const IndexRecord& record, BlockHeader* header) {
  Preamble preamble;
  if (!DecodePreamble(head, &preamble) || preamble.sequence != record.sequence ||
      preamble.header_bytes != record.header_bytes || preamble.payload_bytes != record.payload_bytes ||
      head.size() < kPreambleBytes + uint64_t{record.header_bytes}) {
    return false;
  }
  Result<BlockHeader> decoded = DecodeHeader(head.subspan(kPreambleBytes, record.header_bytes));
  if (!decoded.ok()) return false;
  *header = std::move(decoded).value();
  return header->name_space == record.name_space && header->hash == record.hash &&
         header->group == record.group && header->rectangle == record.rectangle &&
         header->clear_epoch == record.clear_epoch && header->payload_bytes() == record.payload_bytes;
}

std::vector<std::pair<uint64_t, uint64_t>> CoveringPages(const IndexRecord& record,
                                                         const Rectangle& rectangle) {
  const uint64_t whole = RoundToPages(record.payload_bytes);
  const uint32_t parts = record.rectangle.parts();
  if (!record.uniform || uint64_t{rectangle.parts()} * 2 >= parts || record.payload_bytes < kPageBytes) {
    return {{0, whole}};
  }
  const uint64_t part_bytes = record.payload_bytes / parts;
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  for (uint16_t layer = rectangle.layer_begin; layer < rectangle.layer_end; ++layer) {
    const uint64_t first = record.rectangle.PartIndex(layer, rectangle.head_begin);
    const uint64_t count = rectangle.head_end - rectangle.head_begin;
    const uint64_t begin = first * part_bytes / kPageBytes * kPageBytes;
    const uint64_t end = std::min(whole, RoundToPages((first + count) * part_bytes));
    if (!runs.empty() && begin <= runs.back().second) {
      runs.back().second = std::max(runs.back().second, end);
    } else {
      runs.emplace_back(begin, end);
    }
  }
  return runs;
}

bool PartsVerifyIn(const std::byte* payload, const BlockHeader& header, const Rectangle& rectangle) {
  uint64_t offset = 0;
  for (uint16_t layer = header.rectangle.layer_begin; layer < header.rectangle.layer_end; ++layer) {
    for (uint16_t head = header.rectangle.head_begin; head < header.rectangle.head_end; ++head) {
      const PartRecord& part = header.parts[header.rectangle.PartIndex(layer, head)];
      if (rectangle.Contains(layer, head) && Crc32c(0, {payload + offset, part.bytes}) != part.crc32c) {
        return false;
      }
      offset += part.bytes;
    }
  }
  return true;
}

bool RecordOf(ByteView head, uint32_t segment, uint32_t page, IndexRecord* record) {
  Preamble preamble;
  if (!DecodePreamble(head, &preamble) || head.size() < kPreambleBytes + uint64_t{preamble.header_bytes}) {
    return false;
  }
  const Result<BlockHeader> decoded = DecodeHeader(head.subspan(kPreambleBytes, preamble.header_bytes));
  if (!decoded.ok() || decoded.value().payload_bytes() != preamble.payload_bytes) return false;
  const BlockHeader& header = decoded.value();
  record->segment = segment;
  record->page = page;
  record->sequence = preamble.sequence;
  record->name_space = header.name_space;
  record->hash = header.hash;
  record->rectangle = header.rectangle;
  record->clear_epoch = header.clear_epoch;
  record->payload_bytes = preamble.payload_bytes;
  record->header_bytes = preamble.header_bytes;
  record->created_s = static_cast<uint32_t>(header.created_ms / 1000);
  record->depth = preamble.depth;
  record->writer_tag = WriterTag(header.writer);
  record->group = header.group;
  record->uniform = Uniform(header.parts);
  return true;
}

}  // namespace larder::node::ssd
