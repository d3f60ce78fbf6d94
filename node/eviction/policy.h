// A policy decides which piece leaves next. It is a pure class: it knows entry numbers and touches, no keys,
// no bytes, no clock, no threads, so that the trace simulator runs the very code that the node runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace larder::node {

// What a touch or insert says about an entry. Touches carry chain root, depth and usable length, so that a
// node which holds every sixteenth block of a chain still knows which blocks are leaves.
struct TouchInfo {
  uint64_t now_us = 0;
  uint64_t root = 0;           // names the chain; 0: unknown
  uint32_t depth = 0;          // position in the chain
  uint32_t usable_length = 0;  // blocks of the chain that the request could use; 0: unknown
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // Entries are small numbers that the index reuses; Reserve tells their bound before one is used.
  virtual void Reserve(uint32_t entries) = 0;
  virtual void Insert(uint32_t entry, const TouchInfo& info) = 0;
  virtual void Touch(uint32_t entry, const TouchInfo& info) = 0;
  virtual void Remove(uint32_t entry) = 0;
  // The coldest entry that `may_leave` allows, looking at no more than `look_max` entries; UINT32_MAX: none.
  // Does not remove it.
  virtual uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) = 0;
  // Time of the coldest entry's last touch, to compare classes; UINT64_MAX when empty.
  virtual uint64_t ColdestUs() const = 0;
  // Time of an inserted entry's last touch, to compare slabs.
  virtual uint64_t LastUs(uint32_t entry) const = 0;
  virtual uint64_t size() const = 0;
  virtual uint64_t metadata_bytes() const = 0;
};

// Least recently used; of one request's blocks the deepest is the colder one. Callers touch a chain deepest
// first: then each touch is O(1). A touch that comes in another order with an equal time walks at most 1,024
// entries to its place.
std::unique_ptr<EvictionPolicy> MakeLeafFirstLru();

// Storage of list links, 16 bytes an entry, that several policies share: an entry is in one of them at a
// time.
class LruLinks;
std::shared_ptr<LruLinks> MakeLruLinks();
uint64_t LruLinksBytes(const LruLinks& links);
// Hints before a batch of touches: an entry's links, and once those came, its neighbours'.
void PrefetchLinks(const LruLinks& links, uint32_t entry);
void PrefetchNeighbours(const LruLinks& links, uint32_t entry);
std::unique_ptr<EvictionPolicy> MakeLeafFirstLru(std::shared_ptr<LruLinks> links);

}  // namespace larder::node
