// What the ucx backend puts into its active messages, and the bounds on what a peer may have on the way.
// Little-endian, like every machine with an RDMA card that we know.
//
// A message is one kFrame (header FrameHeader; data: u64 bytes of each segment, the message header, and the
// payload itself if it is at most kInlineBytes), then its fragments in order, each a kFragment (header
// FragmentHeader; data: bytes of one segment). Fragments tile the segments in order; empty segments have
// none. The acceptor's first word is a kWelcome (header WelcomeHeader).
#pragma once

#include <cstdint>

namespace larder::transport::ucx {

inline constexpr unsigned kFrame = 1, kFragment = 2, kWelcome = 3, kHello = 4;  // active message ids
inline constexpr uint32_t kMagic = 0x3158554c;                                  // "LUX1"

struct FrameHeader {
  uint32_t magic = kMagic;
  uint32_t segments = 0;
  uint64_t sequence = 0;  // of the message on its connection and direction, from 1
  uint32_t header_bytes = 0;
  uint32_t inline_bytes = 0;  // 0 or all of the payload
};
static_assert(sizeof(FrameHeader) == 24);

struct FragmentHeader {
  uint32_t magic = kMagic;
  uint32_t index = 0;  // within its message, from 0
  uint64_t sequence = 0;
};
static_assert(sizeof(FragmentHeader) == 16);

struct HelloHeader {
  uint32_t magic = kMagic;
  uint32_t zero = 0;
};

inline constexpr uint64_t kInlineBytes = 8 * 1024;
inline constexpr uint64_t kRendezvousBytes = 8 * 1024;  // fragments from here on are read by the receiver
inline constexpr uint64_t kGatherBytes = 64 * 1024;     // small extents are sent together, up to here
inline constexpr uint64_t kFragmentBytes = 1024 * 1024;
inline constexpr uint64_t kBatchFragmentBytes = 256 * 1024;

// A sender keeps these, a receiver closes on what goes far beyond.
inline constexpr uint32_t kSendsInFlight = 64;     // active messages not yet completed
inline constexpr uint32_t kMessagesInFlight = 64;  // from the oldest message not yet completed on
inline constexpr uint64_t kFrameBytesInFlight = 4 * 1024 * 1024;  // of those messages; one more may pass it
// Eager messages complete before they are received: one step of UCX may bring a socket's whole buffer of them
// (64 KiB, a small one takes 48 bytes), on top of those that wait.
inline constexpr uint32_t kEarlyMessagesMax = 64 * kMessagesInFlight;
inline constexpr uint32_t kEarlyFragmentsMax = 4 * kSendsInFlight;

}  // namespace larder::transport::ucx
