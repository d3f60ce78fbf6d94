#include "node/chunked.h"

#include <sys/mman.h>

#include <cstdlib>

#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint64_t kHugePage = 2ull << 20;
constexpr uint64_t kLine = 64;
}  // namespace

// The pointer that malloc gave stands before the aligned memory.
void FreeMemory::operator()(std::byte* memory) const {
  std::free(reinterpret_cast<void**>(memory)[-1]);
}

Memory MakeMemory(uint64_t bytes, bool huge_pages) {
  const uint64_t alignment = huge_pages ? kHugePage : kLine;
  // calloc: the kernel's zero pages come one by one as they are used.
  void* raw = std::calloc(1, bytes + alignment + sizeof(void*));
  LARDER_CHECK(raw != nullptr);
  const auto at = (reinterpret_cast<uintptr_t>(raw) + sizeof(void*) + alignment - 1) / alignment * alignment;
  auto* memory = reinterpret_cast<std::byte*>(at);
  reinterpret_cast<void**>(memory)[-1] = raw;
  if (huge_pages) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is only slower
  return Memory(memory);
}

}  // namespace larder::node
