// The frames of a stream socket, for tcp and shm. All numbers little-endian.
//
//   frame header, 32 bytes | body
//   kMessage  body: segments x u64 (bytes of each), then header_bytes of message header; over tcp
//             payload_bytes of payload follow, over shm they come as kData frames
//   kData     shm: segments x Descriptor; payload_bytes is their sum; number counts from 1
//   kAck      shm: all kData up to number are copied
//   kRegion   shm: number is a new region's id, payload_bytes its size; one descriptor travels with it
//   kUnmap    shm: unmap region `number`; answered by kUnmapped
//   kUnmapped
// Everything here comes from a stranger: CheckFrame is asked before any memory is taken.
#pragma once

#include <bit>
#include <cstdint>
#include <string>

#include "transport/transport.h"

namespace larder::transport {

static_assert(std::endian::native == std::endian::little, "frames are copied as they lie in memory");

enum class FrameType : uint8_t { kMessage = 1, kData = 2, kAck = 3, kRegion = 4, kUnmap = 5, kUnmapped = 6 };

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x3152444c;  // "LDR1"
  static constexpr uint8_t kVersion = 1;

  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  FrameType type = FrameType::kMessage;
  uint16_t reserved = 0;
  uint32_t header_bytes = 0;
  uint32_t segments = 0;
  uint64_t payload_bytes = 0;
  uint64_t number = 0;
};
static_assert(sizeof(FrameHeader) == 32);

// Where a part of a payload lies in a region the receiver has mapped.
struct Descriptor {
  uint64_t region = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
static_assert(sizeof(Descriptor) == 24);

constexpr uint32_t kDescriptorsMax = 1024;  // of one kData frame
// Header and segment table of the first message over an accepted connection: whoever it is has introduced
// itself to nobody yet, and thousands of them may begin what they never end.
constexpr size_t kFirstBodyBytesMax = 128 * 1024;

// ok(), or kProtocol / kTooLarge with a text. With it, BodyBytes(frame) is small enough to be taken.
Error CheckFrame(const FrameHeader& frame, const Limits& limits, bool shm);
// Bytes of the body that follow the frame header, without a tcp payload.
size_t BodyBytes(const FrameHeader& frame);

}  // namespace larder::transport
