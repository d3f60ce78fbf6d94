// Where a new piece's slot comes from. One eviction order for the whole node: a policy a class, compared by
// the time of the coldest entry.
//
//   1 a free slot of the class, or a new slab within the budget
//   2 an empty slab of another class
//   3 when another class's coldest entry is colder than our own: its coldest slab, if at least half of its
//   pieces
//     are colder than ours (a slab that would take hot pieces with it stays)
//   4 our own coldest piece
//   5 we have none that may leave: some slab of the coldest class that has an unpinned one
// A slab that leaves is retired and its bytes come back with SlabGone; meanwhile no further slab is emptied
// for the same need.
#include <algorithm>

#include "node/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kSlabLooks = 8;     // slabs compared before one is emptied
constexpr uint32_t kSlotSamples = 32;  // slots looked at in each
}  // namespace

PutState Owner::State::TakeSlot(const SlotShape& shape, SlotPlace* place) {
  if (!arena.CanEverHold(shape)) return PutState::kFull;
  const uint32_t class_number = arena.ClassOf(shape);
  if (class_number == Arena::kNone) return PutState::kBusy;
  while (policies.size() <= class_number) policies.push_back(MakeLeafFirstLru(links));
  bool taken = arena.Take(class_number, place);
  while (!taken && eviction_budget > 0 && MakeRoom(class_number)) taken = arena.Take(class_number, place);
  if (taken) return PutState::kTicket;
  arena.DropIfUnused(class_number);
  return eviction_budget == 0 || arena.retiring_bytes() > 0 ? PutState::kBusy : PutState::kFull;
}

// One step towards room for the class; false when nothing more can leave.
bool Owner::State::MakeRoom(uint32_t class_number) {
  const uint64_t own_us = policies[class_number]->ColdestUs();
  const uint64_t needed = arena.SmallestSlabBytes(arena.classes()[class_number].shape);
  const bool coming = arena.SpareBytes() + arena.retiring_bytes() >= needed && arena.retiring_bytes() > 0;
  if (!coming) {
    if (RetireEmptySlab(class_number)) return true;
    if (TakeColdSlab(class_number, own_us, false)) return true;
  }
  if (EvictFrom(class_number)) return true;
  return !coming && TakeColdSlab(class_number, UINT64_MAX, true);
}

bool Owner::State::RetireEmptySlab(uint32_t but_class) {
  const auto& classes = arena.classes();
  for (uint32_t i = 0; i < classes.size(); ++i) {
    if (i == but_class || !classes[i].live || classes[i].empty_slabs == 0) continue;
    for (const uint32_t slab : classes[i].slabs) {
      if (arena.slab(slab).used != 0) continue;
      arena.Retire(slab);
      --eviction_budget;
      return true;
    }
  }
  return false;
}

bool Owner::State::EvictFrom(uint32_t class_number) {
  EvictionPolicy& policy = *policies[class_number];
  std::vector<uint32_t> pinned;
  const auto may_leave = [&](uint32_t entry) {
    if (!index[entry].pinned()) return true;
    pinned.push_back(entry);
    return false;
  };
  for (uint32_t round = 0; round < kVictimRounds; ++round) {
    pinned.clear();
    const uint32_t victim = policy.Victim(may_leave, kLooksPerVictim);
    if (victim != kNone) {
      ++counts.evicted;
      counts.evicted_bytes += index.place(victim).payload_bytes;
      --eviction_budget;
      Leave(victim, Presence::kEvicted);
      return true;
    }
    if (pinned.size() < kLooksPerVictim) return false;  // that was all of them
    // Somebody is about to read these: that is a use. Out of the way, or they would hide what may leave.
    for (const uint32_t entry : pinned) policy.Touch(entry, {now_us, 0, 0, 0});
  }
  return false;
}

// Empties one slab of the class whose coldest entry is the coldest, when it is colder than `colder_than_us`.
bool Owner::State::TakeColdSlab(uint32_t for_class, uint64_t colder_than_us, bool any) {
  uint32_t coldest_class = kNone;
  uint64_t coldest_us = colder_than_us;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    if (i == for_class) continue;
    const uint64_t us = policies[i]->ColdestUs();
    if (us < coldest_us) {
      coldest_us = us;
      coldest_class = i;
    }
  }
  if (coldest_class == kNone) return false;
  const uint32_t slab = ColdestSlabOf(coldest_class, colder_than_us, any);
  if (slab == kNone) return false;
  const uint32_t slots = static_cast<uint32_t>(arena.slab(slab).owners.size());
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const uint32_t owner = arena.slab(slab).owners[slot];
    if (Arena::IsFree(owner)) continue;
    ++counts.evicted;
    counts.evicted_bytes += index.place(owner).payload_bytes;
    Leave(owner, Presence::kEvicted);
  }
  eviction_budget -= std::min(eviction_budget, std::max(slots, 1u));
  arena.Retire(slab);
  return true;
}

// Of a few slabs, the one of the coldest entry among them, that with the most pieces colder than the given
// time.
uint32_t Owner::State::ColdestSlabOf(uint32_t class_number, uint64_t colder_than_us, bool any) {
  const auto& slabs = arena.classes()[class_number].slabs;
  const uint32_t first = policies[class_number]->Victim([](uint32_t) { return true; }, 1);
  uint32_t best = kNone;
  uint32_t best_share = 0;
  const auto look = [&](uint32_t slab) {
    const uint32_t share = any ? ColderShare(slab, now_us) + 1 : ColderShare(slab, colder_than_us);
    if (share <= best_share || (!any && share * 2 < kSlotSamples) || !MayEmpty(slab)) return;
    best = slab;
    best_share = share;
  };
  look(index.place(first).slab);
  for (uint32_t i = 0; i < std::min<size_t>(kSlabLooks, slabs.size()); ++i) {
    look(slabs[slab_cursor++ % slabs.size()]);
  }
  return best;
}

bool Owner::State::MayEmpty(uint32_t slab) const {
  for (const uint32_t owner : arena.slab(slab).owners) {
    if (Arena::IsFree(owner)) continue;
    if (owner == Arena::kTicketOwner || index[owner].pinned()) return false;
  }
  return true;
}

// Of kSlotSamples slots spread over the slab, how many are free or hold a piece colder than the given time.
uint32_t Owner::State::ColderShare(uint32_t slab, uint64_t colder_than_us) const {
  const Arena::Slab& s = arena.slab(slab);
  const EvictionPolicy& policy = *policies[s.class_number];
  uint32_t colder = 0;
  for (uint32_t i = 0; i < kSlotSamples; ++i) {
    const uint32_t owner = s.owners[uint64_t{i} * s.owners.size() / kSlotSamples];
    if (Arena::IsFree(owner)) {
      ++colder;
    } else if (owner != Arena::kTicketOwner && index[owner].hidden == 0) {
      colder += policy.LastUs(owner) < colder_than_us ? 1 : 0;
    }
  }
  return colder;
}

}  // namespace larder::node
