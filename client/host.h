// Facts about the machine that decide between transports.
#pragma once

#include <string>

namespace larder::client {

// Equal for processes on one host, different across reboots; empty where the system does not tell. Nodes put
// the same text into their record.
std::string HostId();

// An RDMA device is there, so that ucx is worth trying.
bool HasRdmaDevice();

}  // namespace larder::client
