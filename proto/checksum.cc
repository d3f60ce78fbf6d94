#include "proto/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace larder {
namespace {

// One step stays in the first or second level cache between the copy and the checksum.
constexpr size_t kCopyStepBytes = 64 * 1024;
// ISA-L takes the length as an int.
constexpr size_t kCrcStepBytes = size_t{1} << 30;

}  // namespace

uint32_t Crc32c(uint32_t crc, ByteView bytes) {
  // ISA-L works on the raw register; the standard inverts it before the first and after the last byte.
  uint32_t state = ~crc;
  while (!bytes.empty()) {
    const size_t step = std::min(bytes.size(), kCrcStepBytes);
    // ISA-L's prototype lacks a const; it only reads.
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
    state = crc32_iscsi(data, static_cast<int>(step), state);
    bytes = bytes.subspan(step);
  }
  return ~state;
}

uint32_t CopyAndCrc32c(uint32_t crc, std::byte* to, ByteView from) {
  while (!from.empty()) {
    const size_t step = std::min(from.size(), kCopyStepBytes);
    std::memcpy(to, from.data(), step);
    crc = Crc32c(crc, {to, step});
    to += step;
    from = from.subspan(step);
  }
  return crc;
}

}  // namespace larder
