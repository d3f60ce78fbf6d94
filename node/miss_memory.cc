#include "node/miss_memory.h"

#include <bit>

#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint64_t kWays = 4;
}

MissMemory::MissMemory(uint32_t entries)
    : mask_(std::bit_ceil((uint64_t{entries} + kWays - 1) / kWays + (entries == 0 ? 1 : 0)) - 1),
      memory_(std::calloc(mask_ + 2, sizeof(Set))) {
  LARDER_CHECK(memory_ != nullptr);
  const auto address = reinterpret_cast<uintptr_t>(memory_.get());
  sets_ = reinterpret_cast<Set*>((address + sizeof(Set) - 1) / sizeof(Set) * sizeof(Set));
}

void MissMemory::Remember(uint64_t fingerprint, Presence reason, uint64_t unix_ms) {
  Entry* entries = sets_[fingerprint & mask_].entries;
  uint64_t at = 0;
  while (at < kWays - 1 && entries[at].reason != 0 && entries[at].fingerprint != fingerprint) ++at;
  for (; at > 0; --at) entries[at] = entries[at - 1];
  entries[0] = {fingerprint, static_cast<uint32_t>(unix_ms / 1000), static_cast<uint32_t>(reason)};
}

Departure MissMemory::Recall(uint64_t fingerprint) const {
  for (const Entry& entry : sets_[fingerprint & mask_].entries) {
    if (entry.reason == 0) break;
    if (entry.fingerprint == fingerprint) return {static_cast<Presence>(entry.reason), entry.left_s};
  }
  return {};
}

}  // namespace larder::node
