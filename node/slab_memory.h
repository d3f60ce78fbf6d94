// Slabs of a node, known to every transport. Where clients of this host map them (shm), each is one memfd,
// sealed, mapped writable here and read-only there. A node without shm has them in private memory, which gets
// huge pages on an ordinary machine; shared memory does not unless the machine is told to.
//
// A slab is made in microseconds; its pages are touched afterwards in steps by the background thread, which
// never changes a byte, so the node serves from it at once. A retired slab stays mapped until no peer maps it
// any more; then its pages are given back at once, its addresses only in Unmap, so that no new slab gets the
// base of one that the owner still counts.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/background.h"
#include "node/owner/owner.h"

namespace larder::node {

struct SlabMemoryOptions {
  bool huge_pages = true;  // of 2 MiB, where enough are free
  bool prefault = true;
};

class SlabMemory final : public SlabSource {
 public:
  // `gone(base)`: a retired slab's memory is free; on the background thread. The receiver calls Unmap(base)
  // and tells the owner, on the owner's thread. Transports and background outlive the slabs' use (see Stop).
  SlabMemory(const SlabMemoryOptions& options, std::vector<transport::Transport*> transports,
             Background* background, std::function<void(std::byte*)> gone);
  ~SlabMemory() override;  // unmaps everything; the transports are shut down and the background has stopped

  // The owner's thread.
  std::byte* Make(uint64_t bytes) override;
  void Retire(std::byte* base, uint64_t bytes) override;
  void Unmap(std::byte* base);

  // Any thread.
  uint64_t prefaulted_bytes() const { return prefaulted_bytes_.load(std::memory_order_relaxed); }
  // "2MiB": reserved ones are in use; "transparent": asked for, the kernel gives what it has; or "none".
  const char* huge_pages() const;

 private:
  struct Slab {
    std::byte* base = nullptr;
    uint64_t bytes = 0;  // mapped; a multiple of the page size
    int fd = -1;         // of shared memory
    bool huge = false;
    uint64_t touched_bytes = 0;  // the background's
    std::atomic<bool> retired{false};
    std::atomic<uint32_t> unreleased{0};  // transports that may still have it mapped
  };

  std::shared_ptr<Slab> MapShared(uint64_t bytes, bool huge);
  std::shared_ptr<Slab> MapPrivate(uint64_t bytes);
  void TouchStep(const std::shared_ptr<Slab>& slab);
  void AddSlowRegions(const std::shared_ptr<Slab>& slab);
  void RemoveRegions(const std::shared_ptr<Slab>& slab);
  void GiveBack(const std::shared_ptr<Slab>& slab);
  static void UnmapSlab(const Slab& slab);

  const SlabMemoryOptions options_;
  const std::vector<transport::Transport*> transports_;
  Background* const background_;
  const std::function<void(std::byte*)> gone_;
  const bool shared_;
  std::atomic<uint64_t> prefaulted_bytes_{0};
  std::atomic<bool> huge_used_{false};
  // The owner's thread. Shared, because steps of the background may still wait for a slab that is gone.
  std::unordered_map<std::byte*, std::shared_ptr<Slab>> slabs_;
};

}  // namespace larder::node
