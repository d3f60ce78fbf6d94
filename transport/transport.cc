#include "transport/transport.h"

#include <ctime>

namespace larder::transport {

std::string_view FailureName(Failure failure) {
  switch (failure) {
    case Failure::kNone:
      return "none";
    case Failure::kRefused:
      return "refused";
    case Failure::kTooLarge:
      return "too-large";
    case Failure::kBusy:
      return "busy";
    case Failure::kPeerClosed:
      return "peer-closed";
    case Failure::kTimedOut:
      return "timed-out";
    case Failure::kCancelled:
      return "cancelled";
    case Failure::kProtocol:
      return "protocol";
    case Failure::kNotSealed:
      return "not-sealed";
    case Failure::kUnreachable:
      return "unreachable";
    case Failure::kInvalid:
      return "invalid";
    case Failure::kUnsupported:
      return "unsupported";
    case Failure::kSystem:
      return "system";
  }
  return "unknown";
}

uint64_t NowUs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace larder::transport
