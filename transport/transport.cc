#include "transport/transport.h"

#include <ctime>

#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#ifdef LARDER_HAVE_UCX
#include "transport/ucx/ucx_transport.h"
#endif

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

std::unique_ptr<Transport> MakeTransport(std::string_view name, const TransportOptions& options,
                                         Error* error) {
  if (name == "tcp") return MakeTcpTransport(options, error);
  if (name == "shm") return MakeShmTransport(options, error);
  if (name == "ucx") {
#ifdef LARDER_HAVE_UCX
    return MakeUcxTransport(options, error);
#else
    if (error != nullptr) *error = {Failure::kUnsupported, "this build has no UCX; use --transport tcp"};
    return nullptr;
#endif
  }
  if (error != nullptr) {
    *error = {Failure::kInvalid, "unknown transport '" + std::string(name) + "'; there are tcp, shm and ucx"};
  }
  return nullptr;
}

}  // namespace larder::transport
