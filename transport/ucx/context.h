// The UCX context of one transport: its settings, and the memory registered with it.
#pragma once

#include <ucp/api/ucp.h>

#include <map>
#include <mutex>

#include "transport/transport.h"

namespace larder::transport::ucx {

class Context {
 public:
  ~Context();
  Error Open(const TransportOptions& options);
  ucp_context_h handle() const { return context_; }
  // Only TCP can carry data: then payload is sent eagerly, since a peer that dies in mid-rendezvous takes
  // this process with it (an assertion in UCX 1.13's tcp_ep.c).
  static bool IsTcpOnly(const TransportOptions& options);

  // Any thread. A registered region makes the first transfers from it as fast as the later ones.
  Error AddRegion(const Region& region);
  void RemoveRegion(const std::byte* base);

 private:
  ucp_context_h context_ = nullptr;
  std::mutex mutex_;
  std::map<const std::byte*, ucp_mem_h> regions_;
};

}  // namespace larder::transport::ucx
