#include "node/owner/miss_memory.h"

namespace larder::node {

MissMemory::MissMemory(uint32_t entries) : sets_(entries) {}

void MissMemory::Remember(uint64_t fingerprint, Presence reason, uint64_t unix_ms) {
  Entry* entries = sets_.SetOf(fingerprint);
  size_t at = 0;
  while (at < sets_.kWays - 1 && entries[at].reason != 0 && entries[at].fingerprint != fingerprint) ++at;
  for (; at > 0; --at) entries[at] = entries[at - 1];
  entries[0] = {fingerprint, static_cast<uint32_t>(unix_ms / 1000), static_cast<uint32_t>(reason)};
}

Departure MissMemory::Recall(uint64_t fingerprint) const {
  const Entry* entries = sets_.SetOf(fingerprint);
  for (size_t i = 0; i < sets_.kWays; ++i) {
    const Entry& entry = entries[i];
    if (entry.reason == 0) break;
    if (entry.fingerprint == fingerprint) return {static_cast<Presence>(entry.reason), entry.left_s};
  }
  return {};
}

}  // namespace larder::node
