// Read-only mappings of peers' memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "transport/transport.h"

namespace larder::transport {

class Mapping {
 public:
  Mapping(const std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  const std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  const std::byte* const base_;
  const size_t bytes_;
};

// Shares one mapping among all connections of one process. Any thread.
class MappingCache {
 public:
  // Maps `bytes` of a memfd that process `peer` passed to us; fd stays the caller's. kNotSealed: it could be
  // shrunk while we read (which would kill this process), or is smaller than claimed. peer 0: unknown, not
  // shared.
  Error Map(pid_t peer, int fd, uint64_t bytes, std::shared_ptr<const Mapping>* mapping);

 private:
  using Key = std::tuple<pid_t, dev_t, ino_t>;
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<const Mapping>> known_;
};

}  // namespace larder::transport
