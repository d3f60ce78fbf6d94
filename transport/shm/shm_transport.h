// shm: peers on one host. Memory that was made known with AddRegion is read by the receiver where it lies.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace larder::transport {

std::unique_ptr<Transport> MakeShmTransport(const TransportOptions& options, Error* error);

}  // namespace larder::transport
