#include "node/miss_memory.h"

#include <bit>

namespace larder::node {

namespace {
// The low bits choose the cell, so what identifies the key within it are the others.
constexpr uint64_t kTagMask = ~uint64_t{0xff};
uint64_t TagOf(uint64_t fingerprint) {
  return (fingerprint >> 4) & kTagMask;
}
}  // namespace

MissMemory::MissMemory(uint32_t entries) : cells_(std::bit_ceil(uint64_t{entries == 0 ? 1 : entries})) {}

void MissMemory::Remember(uint64_t fingerprint, Presence reason) {
  cells_[fingerprint & (cells_.size() - 1)] = TagOf(fingerprint) | static_cast<uint8_t>(reason);
}

Presence MissMemory::Recall(uint64_t fingerprint) const {
  const uint64_t cell = cells_[fingerprint & (cells_.size() - 1)];
  if (cell == 0 || (cell & kTagMask) != TagOf(fingerprint)) return Presence::kNeverStored;
  return static_cast<Presence>(cell & 0xff);
}

}  // namespace larder::node
