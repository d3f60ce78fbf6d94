#include "node/ssd/rebuild.h"

#include <unistd.h>

#include <algorithm>

#include "node/ssd/record.h"

namespace larder::node::ssd {
namespace {

constexpr uint64_t kWindowBytes = 1 << 20;
constexpr uint64_t kHeadBytesMax = RoundToPages(kPreambleBytes + 4095 * kHeaderUnitBytes);

// A window over the file, aligned for O_DIRECT. One that fails to read is a window of nothing.
class Window {
 public:
  Window(int fd, uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes), memory_(MakePages(kWindowBytes)) {}
  // `bytes` from `offset`, or less at the file's end; at most kWindowBytes.
  ByteView At(uint64_t offset, uint64_t bytes) {
    bytes = std::min(bytes, file_bytes_ - offset);
    if (offset < begin_ || offset + bytes > begin_ + held_) {
      begin_ = offset;
      const ssize_t got =
          pread(fd_, memory_.get(), std::min(std::max(bytes, Ahead(offset)), file_bytes_ - offset),
                static_cast<off_t>(offset));
      held_ = got < 0 ? 0 : static_cast<uint64_t>(got);
    }
    if (offset + bytes > begin_ + held_) return {};
    return {memory_.get() + (offset - begin_), bytes};
  }

 private:
  // Far apart, heads are read alone; close together, or while searching, with what follows.
  uint64_t Ahead(uint64_t offset) {
    const bool near = offset >= last_ && offset - last_ <= kWindowBytes / 8;
    last_ = offset;
    return near ? kWindowBytes : 2 * kPageBytes;
  }
  const int fd_;
  const uint64_t file_bytes_;
  Pages memory_;
  uint64_t begin_ = 0, held_ = 0, last_ = 0;
};

}  // namespace

std::vector<IndexRecord> ReadSegment(int fd, uint32_t segment, uint64_t segment_bytes) {
  static_assert(kHeadBytesMax <= kWindowBytes);
  std::vector<IndexRecord> records;
  Window window(fd, segment_bytes);
  uint64_t sequence = 0;
  uint32_t number = 0;
  const ByteView first = window.At(0, kPageBytes);
  if (!DecodeSegmentHeader(first, &sequence, &number) || number != segment) return records;
  for (uint64_t offset = kPageBytes; offset < segment_bytes;) {
    Preamble preamble;
    const ByteView page = window.At(offset, kPageBytes);
    IndexRecord record;
    if (page.empty() || !DecodePreamble(page, &preamble) || preamble.sequence != sequence) {
      offset += kPageBytes;
      continue;
    }
    const RecordShape shape = ShapeOf(preamble.header_bytes, preamble.payload_bytes);
    const ByteView head = window.At(offset, RoundToPages(kPreambleBytes + preamble.header_bytes));
    if (offset + shape.record_bytes > segment_bytes ||
        !RecordOf(head, segment, static_cast<uint32_t>(offset / kPageBytes), &record)) {
      offset += kPageBytes;
      continue;
    }
    records.push_back(record);
    offset += shape.record_bytes;
  }
  return records;
}

}  // namespace larder::node::ssd
