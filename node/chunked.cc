#include "node/chunked.h"

#include <sys/mman.h>

#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2ull << 20;
}  // namespace

void FreeMemory::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

Memory MakeMemory(uint64_t bytes, bool huge_pages) {
  bytes = (bytes + kPage - 1) / kPage * kPage;
  const bool huge = huge_pages && bytes >= kHugePage;
  const uint64_t slack = huge ? kHugePage - kPage : 0;
  void* const raw = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LARDER_CHECK(raw != MAP_FAILED);
  auto* memory = static_cast<std::byte*>(raw);
  if (huge) {
    const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(raw) % kHugePage) % kHugePage;
    if (before != 0) munmap(memory, before);
    memory += before;
    if (before != slack) munmap(memory + bytes, slack - before);
    madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is only slower
  }
  return Memory(memory, FreeMemory{bytes});
}

}  // namespace larder::node
