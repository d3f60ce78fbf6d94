// Between liblarder and its module with the UCX transport. Both come from one build: C++ types pass between
// them.
#pragma once

#include "transport/transport.h"

#define LARDER_UCX_MODULE "liblarder-ucx.so.0"

namespace larder::transport {

inline constexpr char kUcxModuleEntry[] = "larder_ucx_module";
inline constexpr char kUcxModuleBuild[] = LARDER_VERSION " " __VERSION__;

// False: `build` is not its own, nothing was done. Else *made is what MakeUcxTransport returned.
using UcxModuleEntry = bool (*)(const char* build, const TransportOptions* options, Error* error,
                                Transport** made);

}  // namespace larder::transport
