#include "client/c/ucx_module.h"

#include <cstring>

#include "transport/ucx/ucx_transport.h"

extern "C" __attribute__((visibility("default"))) bool larder_ucx_module(
    const char* build, const larder::transport::TransportOptions* options, larder::transport::Error* error,
    larder::transport::Transport** made) {
  if (std::strcmp(build, larder::transport::kUcxModuleBuild) != 0) return false;
  *made = larder::transport::MakeUcxTransport(*options, error).release();
  return true;
}
