// The arena: slabs of one slot size and one tenant each, made on demand within a budget.
//
// A slab is [header slots, rounded up to 4 KiB][payload slots, contiguous]. Free slots of a slab are linked
// through `owners`, which for used slots tells whose they are. The arena knows no keys and evicts nothing: it
// says what is free, the owner decides who must go. Pure but for SlabSource.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/owner/owner.h"

namespace larder::node {

// What slots of a class are for. Pieces of one namespace have few sizes, so classes are few.
struct SlotShape {
  uint32_t tenant = 0;
  uint32_t header_bytes = 0;
  uint64_t slot_bytes = 0;
  auto operator<=>(const SlotShape&) const = default;
};

// Payloads of 4 KiB and more are rounded up to 4 KiB, smaller ones to 64 bytes.
uint64_t SlotBytes(uint64_t payload_bytes);

struct SlotPlace {
  uint32_t slab = 0;
  uint32_t slot = 0;
};

class Arena {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kClassesMax = 1024;
  // Emptying a slab is one step of the owner: this bounds its length.
  static constexpr uint32_t kSlotsPerSlabMax = 4096;
  static constexpr uint32_t kTicketOwner = 0x80000000u;  // a used slot without an entry yet

  struct Slab {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    uint64_t payload_offset = 0;
    uint32_t class_number = kNone;
    uint32_t used = 0;
    uint32_t free_head = kNone;
    uint32_t class_position = 0;     // in Class::slabs
    uint32_t free_previous = kNone;  // the class's list of slabs with free slots
    uint32_t free_next = kNone;
    std::vector<uint32_t> owners;  // used: entry or kTicketOwner; free: the next free slot | kFreeBit
  };
  struct Class {
    SlotShape shape;
    bool live = false;
    std::vector<uint32_t> slabs;
    uint32_t free_slabs_head = kNone;
    uint32_t empty_slabs = 0;
    uint64_t slots = 0;
    uint64_t used_slots = 0;
  };

  Arena(uint64_t memory_bytes, uint64_t slab_bytes_target, SlabSource* source);
  ~Arena();  // retires every slab
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // The class of a shape, made when new; kNone when there are kClassesMax.
  uint32_t ClassOf(const SlotShape& shape);
  // A class without slabs is forgotten.
  void DropIfUnused(uint32_t class_number);
  // A free slot, or one of a new slab when the budget allows. False: something has to leave first.
  bool Take(uint32_t class_number, SlotPlace* place);
  void SetOwner(SlotPlace place, uint32_t owner);
  void Free(SlotPlace place);
  // The slab must be empty. Its bytes count until Gone. Its class goes with its last slab.
  void Retire(uint32_t slab);
  void Gone(std::byte* base);

  // True when a slab for at least one slot of this shape could ever be made.
  bool CanEverHold(const SlotShape& shape) const;
  // Bytes of a slab with one slot.
  uint64_t SmallestSlabBytes(const SlotShape& shape) const { return SlabBytes(shape, 1); }
  uint64_t SpareBytes() const { return memory_bytes_ - slab_bytes_; }

  std::byte* Payload(SlotPlace place) const;
  std::byte* Header(SlotPlace place) const;
  const SlotShape& ShapeOf(SlotPlace place) const { return classes_[slabs_[place.slab].class_number].shape; }
  const std::vector<Class>& classes() const { return classes_; }
  const Slab& slab(uint32_t number) const { return slabs_[number]; }
  static bool IsFree(uint32_t owner) { return (owner & kFreeBit) != 0; }

  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t slab_bytes() const { return slab_bytes_; }
  uint64_t empty_slabs() const { return empty_slabs_; }  // of all classes
  uint64_t retiring_bytes() const { return retiring_bytes_; }
  uint64_t used_slot_bytes() const { return used_slot_bytes_; }
  // What could be taken without anything leaving: free slots of any class, and what is in no slab.
  uint64_t free_bytes() const { return slot_bytes_ - used_slot_bytes_ + SpareBytes(); }
  uint64_t metadata_bytes() const;
  std::string CheckInvariants() const;

 private:
  static constexpr uint32_t kFreeBit = 0x40000000u;
  static constexpr uint32_t kFreeEnd = kFreeBit | (kFreeBit - 1);

  static uint64_t PayloadOffset(const SlotShape& shape, uint64_t slots);
  static uint64_t SlabBytes(const SlotShape& shape, uint64_t slots);
  uint64_t SlotsOfNewSlab(const SlotShape& shape) const;
  bool MakeSlab(uint32_t class_number);
  void LinkFree(uint32_t slab);
  void UnlinkFree(uint32_t slab);

  const uint64_t memory_bytes_;
  const uint64_t slab_bytes_target_;
  SlabSource* const source_;
  std::vector<Slab> slabs_;
  std::vector<uint32_t> unused_slab_numbers_;
  std::vector<Class> classes_;
  std::vector<uint32_t> unused_class_numbers_;
  std::map<SlotShape, uint32_t> class_of_shape_;
  std::unordered_map<std::byte*, uint64_t> retiring_;
  uint64_t slab_bytes_ = 0;  // retired ones included
  uint64_t retiring_bytes_ = 0;
  uint64_t used_slot_bytes_ = 0;
  uint64_t slot_bytes_ = 0;  // of all slabs
  uint64_t slots_ = 0;
  uint64_t empty_slabs_ = 0;
};

}  // namespace larder::node
