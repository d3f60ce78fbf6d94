// How a piece lies on a disk. A segment file is
//   page 0   SegmentHeader: magic "LSG1", u32 version, u64 sequence, u32 segment, u32 crc32c of the 20 before
//   then records, each from a page's start:
//     0 u32 magic "LSR1"   4 u32 version   8 u64 sequence of the segment   16 u32 header_bytes
//    20 u32 payload_bytes 24 u32 depth    28 u32 crc32c of the 28 before
//    32 BlockHeader (proto/block_header.h), zero padded to header_bytes
//    payload: from the next page's start; one below 4 KiB follows the header at once
// Numbers are little-endian. Every record describes itself, so that a lost index entry is only a miss and a
// lost index can be made again; what is stale (an earlier life of the segment), torn or rotten is told by
// sequence and checksums.
#pragma once

#include <cstdint>
#include <span>

#include "node/ssd/disk.h"
#include "proto/block_header.h"

namespace larder::node::ssd {

inline constexpr uint32_t kPreambleBytes = 32;

struct RecordShape {
  uint64_t head_bytes = 0;      // pages with preamble and header; a small payload too
  uint64_t payload_offset = 0;  // in the record
  uint64_t record_bytes = 0;    // whole pages
  bool packed = false;          // the payload shares the head's pages
};
RecordShape ShapeOf(uint32_t header_bytes, uint32_t payload_bytes);

struct Preamble {
  uint64_t sequence = 0;
  uint32_t header_bytes = 0;
  uint32_t payload_bytes = 0;
  uint32_t depth = 0;
};
void EncodePreamble(const Preamble& preamble, std::byte* out);
bool DecodePreamble(ByteView bytes, Preamble* out);  // false: no record begins here

void EncodeSegmentHeader(uint64_t sequence, uint32_t segment, std::byte* page);
bool DecodeSegmentHeader(ByteView page, uint64_t* sequence, uint32_t* segment);

// Whether a head that was read is that of `record`: sequence, key, rectangle, sizes, checksum.
bool HeadIs(ByteView head, const IndexRecord& record, BlockHeader* header);

// The bytes of the payload that `rectangle` needs, as page-aligned runs [begin, end) of the payload;
// everything when the parts' sizes are not known or half of it is asked for anyway.
std::vector<std::pair<uint64_t, uint64_t>> CoveringPages(const IndexRecord& record,
                                                         const Rectangle& rectangle);
// Whether the parts of `rectangle` verify in a payload of which (at least) these parts are there.
bool PartsVerifyIn(const std::byte* payload, const BlockHeader& header, const Rectangle& rectangle);

// The index entry of a record whose head was read from (segment, page).
bool RecordOf(ByteView head, uint32_t segment, uint32_t page, IndexRecord* record);

}  // namespace larder::node::ssd
