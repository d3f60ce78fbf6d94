#include "transport/socket/frame.h"

namespace larder::transport {

namespace {
Error Protocol(std::string text) {
  return {Failure::kProtocol, std::move(text)};
}
}  // namespace

Error CheckFrame(const FrameHeader& frame, const Limits& limits, bool shm) {
  if (frame.magic != FrameHeader::kMagic) {
    return Protocol("the peer doesn't speak Larder's data protocol: is this its data port?");
  }
  if (frame.version != FrameHeader::kVersion || frame.reserved != 0) {
    return Protocol("the peer speaks frame version " + std::to_string(frame.version) + ", this build " +
                    std::to_string(FrameHeader::kVersion) + ": update the older one");
  }
  switch (frame.type) {
    case FrameType::kMessage:
      if (frame.header_bytes > limits.header_bytes_max || frame.segments > limits.segments_max ||
          frame.payload_bytes > limits.payload_bytes_max) {
        return {Failure::kTooLarge,
                "the peer sends a message over the limits: " + std::to_string(frame.header_bytes) +
                    " header bytes, " + std::to_string(frame.segments) + " segments, " +
                    std::to_string(frame.payload_bytes) + " payload bytes"};
      }
      if (frame.number != 0) return Protocol("a message frame with a number");
      if (frame.segments == 0 && frame.payload_bytes != 0) return Protocol("payload without segments");
      return {};
    case FrameType::kData:
      if (!shm) break;
      if (frame.segments == 0 || frame.segments > kDescriptorsMax || frame.header_bytes != 0) {
        return Protocol("a data frame with " + std::to_string(frame.segments) + " descriptors");
      }
      return {};
    case FrameType::kRegion:
    case FrameType::kAck:
    case FrameType::kUnmap:
    case FrameType::kUnmapped:
      if (!shm) break;
      if (frame.segments != 0 || frame.header_bytes != 0) return Protocol("a control frame with a body");
      return {};
  }
  return Protocol("frame type " + std::to_string(static_cast<int>(frame.type)) + " is unknown here");
}

size_t BodyBytes(const FrameHeader& frame) {
  switch (frame.type) {
    case FrameType::kMessage:
      return size_t{frame.segments} * sizeof(uint64_t) + frame.header_bytes;
    case FrameType::kData:
      return size_t{frame.segments} * sizeof(Descriptor);
    default:
      return 0;
  }
}

}  // namespace larder::transport
