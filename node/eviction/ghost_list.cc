#include "node/eviction/ghost_list.h"

#include <algorithm>

namespace larder::node {

size_t GhostList::HomeOf(uint64_t key) const {
  return (key * 0x9e3779b97f4a7c15ull >> 32) & (table_.size() - 1);
}

size_t GhostList::CellOf(uint64_t key) const {
  size_t cell = HomeOf(key);
  while (table_[cell] != kNone && slots_[table_[cell]].key != key) cell = (cell + 1) & (table_.size() - 1);
  return cell;
}

void GhostList::Grow() {
  table_.assign(std::max<size_t>(16, table_.size() * 2), kNone);
  for (uint32_t slot = oldest_; slot != kNone; slot = slots_[slot].newer) {
    table_[CellOf(slots_[slot].key)] = slot;
  }
}

void GhostList::Push(uint64_t key, uint64_t value) {
  Erase(key);
  if ((size_ + 1) * 2 > table_.size()) Grow();
  uint32_t slot = free_;
  if (slot == kNone) {
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    free_ = slots_[slot].newer;
  }
  slots_[slot] = {key, value, newest_, kNone};
  (newest_ == kNone ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
  table_[CellOf(key)] = slot;
  ++size_;
}

bool GhostList::Find(uint64_t key, uint64_t* value) const {
  if (size_ == 0) return false;
  const uint32_t slot = table_[CellOf(key)];
  if (slot == kNone) return false;
  *value = slots_[slot].value;
  return true;
}

bool GhostList::Erase(uint64_t key) {
  if (size_ == 0) return false;
  const size_t cell = CellOf(key);
  const uint32_t slot = table_[cell];
  if (slot == kNone) return false;
  const Slot& s = slots_[slot];
  (s.older == kNone ? oldest_ : slots_[s.older].newer) = s.newer;
  (s.newer == kNone ? newest_ : slots_[s.newer].older) = s.older;
  EraseCell(cell);
  slots_[slot].newer = free_;
  free_ = slot;
  --size_;
  return true;
}

// Moves what follows back over the hole, so that no search ends there too early.
void GhostList::EraseCell(size_t hole) {
  const size_t mask = table_.size() - 1;
  for (size_t cell = (hole + 1) & mask; table_[cell] != kNone; cell = (cell + 1) & mask) {
    const size_t home = HomeOf(slots_[table_[cell]].key);
    if (((cell - home) & mask) < ((cell - hole) & mask)) continue;
    table_[hole] = table_[cell];
    hole = cell;
  }
  table_[hole] = kNone;
}

void GhostList::PopOldest() {
  if (oldest_ != kNone) Erase(slots_[oldest_].key);
}

}  // namespace larder::node
