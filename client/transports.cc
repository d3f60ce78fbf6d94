#include "client/transports.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace larder::client {

std::shared_ptr<RegionMemory> RegionMemory::Make(size_t bytes, std::string* error) {
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > SIZE_MAX - page_bytes) {
    *error = "a buffer needs at least one byte";
    return nullptr;
  }
  std::shared_ptr<RegionMemory> memory(new RegionMemory);
  transport::Region& region = memory->region_;
  memory->bytes_ = bytes;
  region.bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  region.fd = memfd_create("larder-buffer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (region.fd < 0 || ftruncate(region.fd, static_cast<off_t>(region.bytes)) != 0 ||
      fcntl(region.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    *error = std::string("a buffer of shared memory: ") + std::strerror(errno);
    return nullptr;
  }
  void* base = mmap(nullptr, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd, 0);
  if (base == MAP_FAILED) {
    *error = std::string("mapping a buffer: ") + std::strerror(errno);
    return nullptr;
  }
  region.base = static_cast<std::byte*>(base);
  memory->mapped_ = true;
  return memory;
}

std::shared_ptr<RegionMemory> RegionMemory::Wrap(std::byte* data, size_t bytes) {
  std::shared_ptr<RegionMemory> memory(new RegionMemory);
  memory->region_ = {data, bytes, -1};
  memory->bytes_ = bytes;
  return memory;
}

RegionMemory::~RegionMemory() {
  if (mapped_) munmap(region_.base, region_.bytes);
  if (region_.fd >= 0) close(region_.fd);
}

transport::Transport* Transports::Get(const std::string& name, std::string* error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (closed_) {
    *error = "the client is being closed";
    return nullptr;
  }
  std::unique_ptr<transport::Transport>& made = transports_[name];
  if (made == nullptr) {
    transport::Error why;
    made = transport::MakeTransport(name, options_, &why);
    if (made == nullptr) {
      *error = why.text.empty() ? std::string(transport::FailureName(why.failure)) : why.text;
      return nullptr;
    }
    // A transport that can't take the region moves its bytes like any other memory's.
    for (const auto& [base, memory] : regions_) (void)made->AddRegion(memory->region());
  }
  return made.get();
}

Status Transports::Add(const std::shared_ptr<RegionMemory>& memory) {
  const std::byte* base = memory->region().base;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto after = regions_.lower_bound(base + memory->region().bytes);
  if (after != regions_.begin()) {
    const transport::Region& before = std::prev(after)->second->region();
    if (before.base + before.bytes > base) return Invalid("the memory overlaps memory that is registered");
  }
  regions_[base] = memory;
  for (const auto& [name, made] : transports_) {
    if (made != nullptr) (void)made->AddRegion(memory->region());
  }
  return Status::Ok();
}

Status Transports::RemoveForeign(const std::byte* base) {
  std::shared_ptr<RegionMemory> memory;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = regions_.find(base);
    if (found != regions_.end() && found->second->foreign()) memory = found->second;
  }
  if (memory == nullptr) return Status(Code::kNotFound, "no memory was registered at this address");
  Remove(memory);
  return Status::Ok();
}

void Transports::Remove(const std::shared_ptr<RegionMemory>& memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_.erase(memory->region().base);
  for (const auto& [name, made] : transports_) {
    if (made != nullptr) made->RemoveRegion(memory->region().base, [memory] {});
  }
}

void Transports::Shutdown() {
  std::vector<transport::Transport*> closing;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (const auto& [name, made] : transports_) {
      if (made != nullptr) closing.push_back(made.get());
    }
  }
  for (transport::Transport* made : closing) made->Shutdown();  // callbacks may want the lock meanwhile
}

}  // namespace larder::client
