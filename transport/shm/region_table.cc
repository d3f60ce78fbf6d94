#include "transport/shm/region_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "transport/shm/shm_connection.h"
#include "transport/socket/socket.h"

namespace larder::transport {

SharedRegion::~SharedRegion() {
  if (fd >= 0) close(fd);
}

Error RegionTable::Add(const Region& region) {
  if (region.base == nullptr || region.bytes == 0) return {Failure::kInvalid, "an empty region"};
  if (region.fd < 0) return {};  // memory that can't be shown: it is copied when it is sent
  const int seals = fcntl(region.fd, F_GET_SEALS);
  struct stat file {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return {Failure::kNotSealed, "a region's memfd must be sealed with F_SEAL_SHRINK: peers refuse it else"};
  }
  if (fstat(region.fd, &file) != 0 || static_cast<uint64_t>(file.st_size) < region.bytes) {
    return {Failure::kInvalid, "a region's memfd is smaller than the region"};
  }
  auto entry = std::make_shared<SharedRegion>();
  entry->base = region.base;
  entry->bytes = region.bytes;
  entry->fd = fcntl(region.fd, F_DUPFD_CLOEXEC, 0);
  if (entry->fd < 0) return {Failure::kSystem, "cannot duplicate a region's memfd: " + ErrnoText(errno)};
  std::lock_guard<std::mutex> lock(mutex_);
  const auto after = by_base_.lower_bound(region.base + region.bytes);
  if (after != by_base_.begin()) {
    const SharedRegion& before = *std::prev(after)->second;
    if (before.base + before.bytes > region.base) return {Failure::kInvalid, "a region overlaps another"};
  }
  entry->id = next_id_++;
  by_base_.emplace(region.base, std::move(entry));
  return {};
}

void RegionTable::Remove(const std::byte* base, std::function<void()> released) {
  std::vector<std::shared_ptr<ShmConnection>> holders;
  std::shared_ptr<SharedRegion> region;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = by_base_.find(base);
    if (it != by_base_.end()) {
      region = std::move(it->second);
      by_base_.erase(it);
      region->removed = true;
      if (!region->holders.empty()) region->released = std::move(released);
      for (const auto& [raw, weak] : region->holders) {
        if (auto connection = weak.lock()) holders.push_back(std::move(connection));
      }
    }
  }
  // A holder that closes lets go by itself.
  for (const auto& connection : holders) connection->AskToUnmap(region);
  if (released) released();  // not moved away: nobody holds it
}

std::shared_ptr<SharedRegion> RegionTable::Find(const std::byte* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = by_base_.upper_bound(data);
  if (it == by_base_.begin()) return nullptr;
  --it;
  return data < it->first + it->second->bytes ? it->second : nullptr;
}

bool RegionTable::Hold(const std::shared_ptr<SharedRegion>& region,
                       const std::shared_ptr<ShmConnection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (region->removed) return false;
  region->holders.emplace(connection.get(), connection);
  return true;
}

void RegionTable::LetGo(const std::shared_ptr<SharedRegion>& region, const ShmConnection* connection) {
  std::function<void()> released;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    region->holders.erase(connection);
    if (region->holders.empty()) released.swap(region->released);
  }
  if (released) released();
}

}  // namespace larder::transport
