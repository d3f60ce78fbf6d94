#include "node/eviction/chain_history.h"

#include <algorithm>

namespace larder::node {

size_t ChainHistory::HomeOf(uint64_t key) const {
  return (key * 0x9e3779b97f4a7c15ull >> 32) & (table_.size() - 1);
}

size_t ChainHistory::CellOf(uint64_t key) const {
  size_t cell = HomeOf(key);
  while (table_[cell] != kNone && entries_[table_[cell]].key != key) cell = (cell + 1) & (table_.size() - 1);
  return cell;
}

uint32_t ChainHistory::Find(uint64_t key) const {
  return table_.empty() ? kNone : table_[CellOf(key)];
}

void ChainHistory::Clear() {
  entries_.clear();
  table_.assign(table_.size(), kNone);
  oldest_ = newest_ = kNone;
}

void ChainHistory::EraseCell(size_t hole) {
  const size_t mask = table_.size() - 1;
  for (size_t cell = (hole + 1) & mask; table_[cell] != kNone; cell = (cell + 1) & mask) {
    const size_t home = HomeOf(entries_[table_[cell]].key);
    if (((cell - home) & mask) < ((cell - hole) & mask)) continue;
    table_[hole] = table_[cell];
    hole = cell;
  }
  table_[hole] = kNone;
}

void ChainHistory::Grow() {
  table_.assign(std::max<size_t>(64, table_.size() * 2), kNone);
  for (uint32_t i = 0; i < entries_.size(); ++i) table_[CellOf(entries_[i].key)] = i;
}

void ChainHistory::Unlink(uint32_t entry) {
  const Entry& e = entries_[entry];
  (e.older == kNone ? oldest_ : entries_[e.older].newer) = e.newer;
  (e.newer == kNone ? newest_ : entries_[e.newer].older) = e.older;
}

void ChainHistory::LinkNewest(uint32_t entry) {
  entries_[entry].older = newest_;
  entries_[entry].newer = kNone;
  (newest_ == kNone ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

uint32_t ChainHistory::Add(uint64_t key) {
  uint32_t entry = oldest_;
  if (full()) {
    EraseCell(CellOf(entries_[entry].key));
    Unlink(entry);
    entries_[entry] = {};
  } else {
    if ((entries_.size() + 1) * 2 > table_.size()) Grow();
    entry = static_cast<uint32_t>(entries_.size());
    entries_.emplace_back();
  }
  entries_[entry].key = key;
  table_[CellOf(key)] = entry;
  LinkNewest(entry);
  return entry;
}

void ChainHistory::MakeNewest(uint32_t entry) {
  Unlink(entry);
  LinkNewest(entry);
}

}  // namespace larder::node
