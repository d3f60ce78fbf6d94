// A file of its own: liblarder.so replaces it by one that loads UCX only when it is wanted.
#include "transport/shm/shm_transport.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"
#ifdef LARDER_HAVE_UCX
#include "transport/ucx/ucx_transport.h"
#endif

namespace larder::transport {

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
