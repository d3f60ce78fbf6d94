#include "node/owner/arena.h"

#include <algorithm>

#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLine = 64;
constexpr uint64_t kSlabBytesMin = 4ull << 20;

uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
}  // namespace

uint64_t SlotBytes(uint64_t payload_bytes) {
  return RoundUp(payload_bytes, payload_bytes < kPage ? kLine : kPage);
}

Arena::Arena(uint64_t memory_bytes, uint64_t slab_bytes_target, SlabSource* source)
    : memory_bytes_(memory_bytes),
      slab_bytes_target_(slab_bytes_target != 0 ? slab_bytes_target
                                                : std::max(memory_bytes / 64, kSlabBytesMin)),
      source_(source) {}

Arena::~Arena() {
  for (const Class& c : classes_) {
    for (const uint32_t slab : c.slabs) source_->Retire(slabs_[slab].base, slabs_[slab].bytes);
  }
}

uint64_t Arena::PayloadOffset(const SlotShape& shape, uint64_t slots) {
  return RoundUp(slots * shape.header_bytes, kPage);
}

uint64_t Arena::SlabBytes(const SlotShape& shape, uint64_t slots) {
  return PayloadOffset(shape, slots) + RoundUp(slots * shape.slot_bytes, kPage);
}

bool Arena::CanEverHold(const SlotShape& shape) const {
  return SlabBytes(shape, 1) <= memory_bytes_;
}

// The whole number of slots nearest to the target; what the budget leaves when that is less.
uint64_t Arena::SlotsOfNewSlab(const SlotShape& shape) const {
  const uint64_t each = shape.slot_bytes + shape.header_bytes;
  uint64_t slots = std::clamp<uint64_t>((slab_bytes_target_ + each / 2) / each, 1, kSlotsPerSlabMax);
  const uint64_t spare = SpareBytes();
  if (SlabBytes(shape, slots) <= spare) return slots;
  slots = std::min(slots, spare / each);
  while (slots > 0 && SlabBytes(shape, slots) > spare) --slots;
  return slots;
}

uint32_t Arena::ClassOf(const SlotShape& shape) {
  if (const auto known = class_of_shape_.find(shape); known != class_of_shape_.end()) return known->second;
  uint32_t number = 0;
  if (!unused_class_numbers_.empty()) {
    number = unused_class_numbers_.back();
    unused_class_numbers_.pop_back();
  } else if (classes_.size() < kClassesMax) {
    number = static_cast<uint32_t>(classes_.size());
    classes_.emplace_back();
  } else {
    return kNone;
  }
  classes_[number] = Class{};
  classes_[number].shape = shape;
  classes_[number].live = true;
  class_of_shape_[shape] = number;
  return number;
}

void Arena::DropIfUnused(uint32_t class_number) {
  Class& c = classes_[class_number];
  if (!c.live || !c.slabs.empty()) return;
  class_of_shape_.erase(c.shape);
  c.live = false;
  unused_class_numbers_.push_back(class_number);
}

void Arena::LinkFree(uint32_t slab) {
  Class& c = classes_[slabs_[slab].class_number];
  slabs_[slab].free_previous = kNone;
  slabs_[slab].free_next = c.free_slabs_head;
  if (c.free_slabs_head != kNone) slabs_[c.free_slabs_head].free_previous = slab;
  c.free_slabs_head = slab;
}

void Arena::UnlinkFree(uint32_t slab) {
  const Slab& s = slabs_[slab];
  Class& c = classes_[s.class_number];
  (s.free_previous == kNone ? c.free_slabs_head : slabs_[s.free_previous].free_next) = s.free_next;
  if (s.free_next != kNone) slabs_[s.free_next].free_previous = s.free_previous;
}

bool Arena::MakeSlab(uint32_t class_number) {
  const SlotShape& shape = classes_[class_number].shape;
  const uint64_t slots = SlotsOfNewSlab(shape);
  if (slots == 0) return false;
  const uint64_t bytes = SlabBytes(shape, slots);
  std::byte* base = source_->Make(bytes);
  if (base == nullptr) return false;
  uint32_t number = 0;
  if (unused_slab_numbers_.empty()) {
    number = static_cast<uint32_t>(slabs_.size());
    slabs_.emplace_back();
  } else {
    number = unused_slab_numbers_.back();
    unused_slab_numbers_.pop_back();
  }
  Slab& s = slabs_[number];
  s = Slab{};
  s.base = base;
  s.bytes = bytes;
  s.payload_offset = PayloadOffset(shape, slots);
  s.class_number = class_number;
  s.owners.resize(slots);
  for (uint32_t i = 0; i < slots; ++i) s.owners[i] = kFreeBit | (i + 1);
  s.owners.back() = kFreeEnd;
  s.free_head = 0;
  Class& c = classes_[class_number];
  s.class_position = static_cast<uint32_t>(c.slabs.size());
  c.slabs.push_back(number);
  c.slots += slots;
  ++c.empty_slabs;
  ++empty_slabs_;
  LinkFree(number);
  slab_bytes_ += bytes;
  slots_ += slots;
  slot_bytes_ += slots * classes_[class_number].shape.slot_bytes;
  return true;
}

bool Arena::Take(uint32_t class_number, SlotPlace* place) {
  if (classes_[class_number].free_slabs_head == kNone && !MakeSlab(class_number)) return false;
  Class& c = classes_[class_number];
  const uint32_t number = c.free_slabs_head;
  Slab& s = slabs_[number];
  if (s.used == 0) --c.empty_slabs, --empty_slabs_;
  *place = {number, s.free_head};
  const uint32_t next = s.owners[s.free_head];
  s.owners[s.free_head] = kTicketOwner;
  if (next == kFreeEnd) {
    UnlinkFree(number);
    s.free_head = kNone;
  } else {
    s.free_head = next & ~kFreeBit;
  }
  ++s.used;
  ++c.used_slots;
  used_slot_bytes_ += c.shape.slot_bytes;
  return true;
}

void Arena::SetOwner(SlotPlace place, uint32_t owner) {
  Slab& s = slabs_[place.slab];
  LARDER_CHECK(!IsFree(s.owners[place.slot]) && !IsFree(owner));
  s.owners[place.slot] = owner;
}

void Arena::Free(SlotPlace place) {
  Slab& s = slabs_[place.slab];
  LARDER_CHECK(!IsFree(s.owners[place.slot]));
  Class& c = classes_[s.class_number];
  s.owners[place.slot] = s.free_head == kNone ? kFreeEnd : (kFreeBit | s.free_head);
  if (s.free_head == kNone) LinkFree(place.slab);
  s.free_head = place.slot;
  --s.used;
  if (s.used == 0) ++c.empty_slabs, ++empty_slabs_;
  --c.used_slots;
  used_slot_bytes_ -= c.shape.slot_bytes;
}

void Arena::Retire(uint32_t slab) {
  Slab& s = slabs_[slab];
  LARDER_CHECK(s.used == 0 && s.base != nullptr);
  const uint32_t class_number = s.class_number;
  Class& c = classes_[class_number];
  UnlinkFree(slab);
  --c.empty_slabs;
  --empty_slabs_;
  c.slabs[s.class_position] = c.slabs.back();
  slabs_[c.slabs.back()].class_position = s.class_position;
  c.slabs.pop_back();
  std::byte* base = s.base;
  const uint64_t bytes = s.bytes;
  slots_ -= s.owners.size();
  c.slots -= s.owners.size();
  slot_bytes_ -= s.owners.size() * c.shape.slot_bytes;
  s = Slab{};
  unused_slab_numbers_.push_back(slab);
  DropIfUnused(class_number);
  // The source may report the slab gone before Retire returns.
  retiring_[base] = bytes;
  retiring_bytes_ += bytes;
  source_->Retire(base, bytes);
}

void Arena::Gone(std::byte* base) {
  const auto retiring = retiring_.find(base);
  if (retiring == retiring_.end()) return;
  slab_bytes_ -= retiring->second;
  retiring_bytes_ -= retiring->second;
  retiring_.erase(retiring);
}

std::byte* Arena::Payload(SlotPlace place) const {
  const Slab& s = slabs_[place.slab];
  return s.base + s.payload_offset + place.slot * classes_[s.class_number].shape.slot_bytes;
}

std::byte* Arena::Header(SlotPlace place) const {
  const Slab& s = slabs_[place.slab];
  return s.base + place.slot * uint64_t{classes_[s.class_number].shape.header_bytes};
}

uint64_t Arena::metadata_bytes() const {
  return slots_ * sizeof(uint32_t) + slabs_.capacity() * sizeof(Slab);
}

std::string Arena::CheckInvariants() const {
  uint64_t slab_bytes = retiring_bytes_, used_bytes = 0, slots = 0, all_empty = 0;
  for (const Class& c : classes_) {
    if (!c.live && !c.slabs.empty()) return "a dead class has slabs";
    uint64_t used = 0, empty = 0, with_free = 0, listed = 0, class_slots = 0;
    for (const uint32_t number : c.slabs) {
      const Slab& s = slabs_[number];
      uint32_t slab_used = 0, free_listed = 0;
      for (const uint32_t owner : s.owners) slab_used += IsFree(owner) ? 0 : 1;
      if (slab_used != s.used) return "a slab's used slots and their count disagree";
      for (uint32_t i = s.free_head; i != kNone; ++free_listed) {
        if (!IsFree(s.owners[i])) return "a used slot is in the free list";
        i = s.owners[i] == kFreeEnd ? kNone : s.owners[i] & ~kFreeBit;
      }
      if (free_listed + slab_used != s.owners.size()) return "free and used slots are not all slots";
      used += slab_used;
      empty += slab_used == 0 ? 1 : 0;
      with_free += free_listed > 0 ? 1 : 0;
      slab_bytes += s.bytes;
      slots += s.owners.size();
      class_slots += s.owners.size();
    }
    for (uint32_t i = c.free_slabs_head; i != kNone; i = slabs_[i].free_next) ++listed;
    if (class_slots != c.slots || used != c.used_slots || empty != c.empty_slabs || with_free != listed) {
      return "a class's counts and its slabs disagree";
    }
    used_bytes += used * c.shape.slot_bytes;
    all_empty += empty;
  }
  if (slab_bytes != slab_bytes_ || slab_bytes_ > memory_bytes_)
    return "slab bytes disagree or pass the memory";
  if (all_empty != empty_slabs_) return "empty slabs and their count disagree";
  if (used_bytes != used_slot_bytes_ || slots != slots_) return "used slot bytes disagree";
  return {};
}

}  // namespace larder::node
