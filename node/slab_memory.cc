#include "node/slab_memory.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace larder::node {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kHugePageBytes = 2ull << 20;
constexpr uint64_t kTouchStepBytes = 2ull << 20;
// Rounding a slab up to whole huge pages may waste this share of it.
constexpr uint64_t kHugeWasteDivisor = 32;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

uint64_t FreeHugePages() {
  std::FILE* file = std::fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
  if (file == nullptr) return 0;
  unsigned long long pages = 0;
  if (std::fscanf(file, "%llu", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages;
}

// Registering with a network card touches and pins every page, so that waits until they have been touched.
bool RegistersSlowly(const transport::Transport& transport) {
  return transport.name() == "ucx";
}

bool MapsRegions(const transport::Transport* transport) {
  return transport->name() == "shm";
}

// The word in brackets says what is chosen.
bool Transparent(const char* path) {
  std::FILE* file = std::fopen(path, "re");
  if (file == nullptr) return false;
  char text[128] = {};
  const size_t bytes = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  return bytes != 0 && std::strstr(text, "[never]") == nullptr && std::strstr(text, "[deny]") == nullptr;
}

}  // namespace

SlabMemory::SlabMemory(const SlabMemoryOptions& options, std::vector<transport::Transport*> transports,
                       Background* background, std::function<void(std::byte*)> gone)
    : options_(options),
      transports_(std::move(transports)),
      background_(background),
      gone_(std::move(gone)),
      shared_(std::any_of(transports_.begin(), transports_.end(), MapsRegions)) {}

SlabMemory::~SlabMemory() {
  for (const auto& [base, slab] : slabs_) UnmapSlab(*slab);
}

std::byte* SlabMemory::Make(uint64_t bytes) {
  const uint64_t huge_bytes = RoundUp(bytes, kHugePageBytes);
  std::shared_ptr<Slab> slab;
  if (options_.huge_pages && huge_bytes - bytes <= bytes / kHugeWasteDivisor &&
      FreeHugePages() >= huge_bytes / kHugePageBytes) {
    slab = MapShared(huge_bytes, true);
  }
  const uint64_t page_bytes = RoundUp(bytes, kPageBytes);
  if (slab == nullptr) slab = shared_ ? MapShared(page_bytes, false) : MapPrivate(page_bytes);
  if (slab == nullptr) return nullptr;
  if (slab->huge) huge_used_.store(true, std::memory_order_relaxed);
  for (transport::Transport* transport : transports_) {
    if (RegistersSlowly(*transport)) continue;
    // Unregistered memory works as well, only slower: no reason to go without the slab.
    (void)transport->AddRegion({slab->base, slab->bytes, slab->fd});
  }
  slabs_.emplace(slab->base, slab);
  background_->Post([this, slab] { TouchStep(slab); });
  return slab->base;
}

std::shared_ptr<SlabMemory::Slab> SlabMemory::MapShared(uint64_t bytes, bool huge) {
  const unsigned huge_flags = huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0u;
  const int fd = memfd_create("larder-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge_flags);
  if (fd < 0) return nullptr;
  void* base = MAP_FAILED;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    // For huge pages this reserves them: it fails here, never with SIGBUS later.
    base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  // From here on nobody can shrink it under a reader or map it writable: our map is the only one.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (base == MAP_FAILED || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    if (base != MAP_FAILED) munmap(base, bytes);
    close(fd);
    return nullptr;
  }
  madvise(base, bytes, MADV_DONTFORK);
  if (!huge && options_.huge_pages) madvise(base, bytes, MADV_HUGEPAGE);  // where shared memory may have them
  auto slab = std::make_shared<Slab>();
  slab->base = static_cast<std::byte*>(base);
  slab->bytes = bytes;
  slab->fd = fd;
  slab->huge = huge;
  return slab;
}

std::shared_ptr<SlabMemory::Slab> SlabMemory::MapPrivate(uint64_t bytes) {
  // From a boundary of huge pages on, so that only its last page can be a small one.
  const uint64_t mapped_bytes = bytes + kHugePageBytes;
  void* mapped = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const uint64_t start = reinterpret_cast<uintptr_t>(mapped);
  const uint64_t before = RoundUp(start, kHugePageBytes) - start;
  std::byte* const base = static_cast<std::byte*>(mapped) + before;
  if (before != 0) munmap(mapped, before);
  munmap(base + bytes, mapped_bytes - before - bytes);
  madvise(base, bytes, MADV_DONTFORK);
  if (options_.huge_pages) madvise(base, bytes, MADV_HUGEPAGE);
  auto slab = std::make_shared<Slab>();
  slab->base = base;
  slab->bytes = bytes;
  return slab;
}

const char* SlabMemory::huge_pages() const {
  if (huge_used_.load(std::memory_order_relaxed)) return "2MiB";
  const char* path = shared_ ? "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
                             : "/sys/kernel/mm/transparent_hugepage/enabled";
  return options_.huge_pages && Transparent(path) ? "transparent" : "none";
}

void SlabMemory::TouchStep(const std::shared_ptr<Slab>& slab) {
  if (slab->retired) return;
  if (!options_.prefault || slab->touched_bytes == slab->bytes) return AddSlowRegions(slab);
  const uint64_t step = std::min(kTouchStepBytes, slab->bytes - slab->touched_bytes);
  // Both leave contents alone, whoever writes there meanwhile. Without memory the rest comes up when it is
  // used.
  if (madvise(slab->base + slab->touched_bytes, step, MADV_POPULATE_WRITE) != 0 &&
      fallocate(slab->fd, 0, static_cast<off_t>(slab->touched_bytes), static_cast<off_t>(step)) != 0) {
    return AddSlowRegions(slab);
  }
  slab->touched_bytes += step;
  prefaulted_bytes_.fetch_add(step, std::memory_order_relaxed);
  background_->Post([this, slab] { TouchStep(slab); });
}

void SlabMemory::AddSlowRegions(const std::shared_ptr<Slab>& slab) {
  for (transport::Transport* transport : transports_) {
    if (RegistersSlowly(*transport)) (void)transport->AddRegion({slab->base, slab->bytes, slab->fd});
  }
}

void SlabMemory::Retire(std::byte* base, uint64_t) {
  const auto found = slabs_.find(base);
  LARDER_CHECK(found != slabs_.end());
  const std::shared_ptr<Slab> slab = found->second;
  slab->retired = true;
  // There, so that it comes after a registration that is under way.
  background_->Post([this, slab] { RemoveRegions(slab); });
}

void SlabMemory::RemoveRegions(const std::shared_ptr<Slab>& slab) {
  slab->unreleased = static_cast<uint32_t>(transports_.size()) + 1;
  const auto released = [this, slab] {
    if (slab->unreleased.fetch_sub(1) == 1) background_->Post([this, slab] { GiveBack(slab); });
  };
  for (transport::Transport* transport : transports_) transport->RemoveRegion(slab->base, released);
  released();
}

void SlabMemory::GiveBack(const std::shared_ptr<Slab>& slab) {
  prefaulted_bytes_.fetch_sub(slab->touched_bytes, std::memory_order_relaxed);
  // The pages go, the addresses stay taken.
  mmap(slab->base, slab->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (slab->fd >= 0) close(slab->fd);
  slab->fd = -1;
  gone_(slab->base);
}

void SlabMemory::Unmap(std::byte* base) {
  const auto found = slabs_.find(base);
  LARDER_CHECK(found != slabs_.end());
  UnmapSlab(*found->second);
  slabs_.erase(found);
}

void SlabMemory::UnmapSlab(const Slab& slab) {
  munmap(slab.base, slab.bytes);
  if (slab.fd >= 0) close(slab.fd);
}

}  // namespace larder::node
