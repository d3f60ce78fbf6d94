// The ucx backend: RDMA between registered buffers (rc, ud, dc); on one host UCX's own shared memory.
//
// One UCX context, one UCX worker a thread. A message is an active message with its header, then one active
// message for each MiB of payload, by rendezvous: the receiver reads it straight into its destination. Both
// ends of such a fragment must be contiguous, else UCX or we copy (TransportStats don't show it: plan for one
// extent a segment).
//
// UCX over TCP is for tests: its server can be crashed by a dying client, and its software RMA lets a peer
// write any address of the process. UCX's shared memory is for tests and comparisons: a peer that dies while
// it writes into a worker's queue leaves that worker deaf. So both are chosen only where there is no RDMA
// device, and TCP then on the loopback interface only, unless TransportOptions says otherwise; with an RDMA
// device the default is rc,ud,dc,self, and the shm backend serves peers of the same host.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace larder::transport {

// nullptr with an error when UCX can't be had with these options. Uses threads, limits, stall_us, spin_us,
// device and ucx_tls; settings that Larder depends on win over UCX_* of the environment.
std::unique_ptr<Transport> MakeUcxTransport(const TransportOptions& options, Error* error);

}  // namespace larder::transport
