// The regions of this process that may be shown to peers, and which connections have shown them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/transport.h"

namespace larder::transport {

class ShmConnection;

// One region. Kept by the table and by each connection that has passed it on.
struct SharedRegion {
  SharedRegion() = default;
  ~SharedRegion();  // closes fd
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  uint64_t id = 0;
  const std::byte* base = nullptr;
  size_t bytes = 0;
  int fd = -1;  // our own duplicate

  // With the table's mutex.
  bool removed = false;
  std::map<const ShmConnection*, std::weak_ptr<ShmConnection>> holders;  // peers that may have it mapped
  std::function<void()> released;
};

// Any thread.
class RegionTable {
 public:
  Error Add(const Region& region);
  // Takes the region out; the connections that hold it tell their peers to unmap it.
  void Remove(const std::byte* base, std::function<void()> released);
  // The region in which `data` lies, or nullptr.
  std::shared_ptr<SharedRegion> Find(const std::byte* data);
  // The connection is about to pass the region on. False: it was removed meanwhile.
  bool Hold(const std::shared_ptr<SharedRegion>& region, const std::shared_ptr<ShmConnection>& connection);
  // The connection's peer has no mapping of it any more.
  void LetGo(const std::shared_ptr<SharedRegion>& region, const ShmConnection* connection);

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<SharedRegion>> by_base_;
  uint64_t next_id_ = 1;
};

}  // namespace larder::transport
