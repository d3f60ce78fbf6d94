// tcp: the default wherever there is no RDMA.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace larder::transport {

std::unique_ptr<Transport> MakeTcpTransport(const TransportOptions& options, Error* error);

}  // namespace larder::transport
