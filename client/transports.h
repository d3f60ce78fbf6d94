// The client's transports, made on first use, and the memory that they know.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/status.h"
#include "transport/transport.h"

namespace larder::client {

// Memory for transfers: sealed against shrinking, so that a node may map it. Goes when nobody has it any
// more: neither the caller, nor an operation, nor a transport's peer.
class RegionMemory {
 public:
  // nullptr, with the reason, when there is no memory.
  static std::shared_ptr<RegionMemory> Make(size_t bytes, std::string* error);
  // The caller's own memory: never unmapped, never shown to another process.
  static std::shared_ptr<RegionMemory> Wrap(std::byte* data, size_t bytes);
  ~RegionMemory();
  RegionMemory(const RegionMemory&) = delete;
  RegionMemory& operator=(const RegionMemory&) = delete;

  const transport::Region& region() const { return region_; }
  size_t bytes() const { return bytes_; }  // as asked for
  bool foreign() const { return !mapped_; }
  bool Contains(const void* data) const {
    const auto* byte = static_cast<const std::byte*>(data);
    return region_.base <= byte && byte < region_.base + region_.bytes;
  }

 private:
  RegionMemory() = default;
  transport::Region region_;
  size_t bytes_ = 0;
  bool mapped_ = false;  // by Make
};

class Transports {
 public:
  explicit Transports(const transport::TransportOptions& options) : options_(options) {}
  ~Transports() { Shutdown(); }

  // nullptr, with the reason, when this build or machine has none of that name.
  transport::Transport* Get(const std::string& name, std::string* error);

  // kInvalid: it overlaps memory that is known.
  Status Add(const std::shared_ptr<RegionMemory>& memory);
  // Memory that RegionMemory::Wrap made; kNotFound when there is none at `base`.
  Status RemoveForeign(const std::byte* base);
  // The caller's handle is gone: no new transport learns of it, the others let go.
  void Remove(const std::shared_ptr<RegionMemory>& memory);

  // When it returns no callback comes any more. Pointers from Get stay valid as long as this object.
  void Shutdown();

 private:
  const transport::TransportOptions options_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::string, std::unique_ptr<transport::Transport>> transports_;
  std::map<const std::byte*, std::shared_ptr<RegionMemory>> regions_;  // by base
};

}  // namespace larder::client
