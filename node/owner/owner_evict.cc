// Where a new piece's slot comes from. One eviction order for the whole node: a policy a class, compared by
// the time of the coldest entry.
//
//   1 a free slot of the class, or a new slab within the budget
//   2 what a clear left to be freed, or an empty slab of another class
//   3 when another class's coldest entry is colder than our own: its coldest slab, if at least half of its
//   pieces
//     are colder than ours (a slab that would take hot pieces with it stays)
//   4 our own coldest piece
//   5 we have none that may leave: some slab of another class that may be emptied, coldest classes first
// A slab that leaves is retired and its bytes come back with SlabGone; meanwhile no further slab is emptied
// for the same need. Each step looks at a bounded number of things, and a request has a budget of evictions.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kSlabLooks = 8;      // slabs compared before one is emptied
constexpr uint32_t kSlotSamples = 32;   // slots looked at in each
constexpr uint32_t kClassesTried = 16;  // when any slab will do
// Evictions until the next search for a colder slab, after one that found none.
constexpr uint32_t kSearchPauseMax = 64;
}  // namespace

PutState Owner::State::TakeSlot(const SlotShape& shape, SlotPlace* place) {
  if (!arena.CanEverHold(shape)) return PutState::kFull;
  uint32_t class_number = arena.ClassOf(shape);
  if (class_number == Arena::kNone && MakeClassRoom()) class_number = arena.ClassOf(shape);
  if (class_number == Arena::kNone) return PutState::kBusy;
  while (policies.size() <= class_number) policies.push_back(family->Make());
  bool taken = arena.Take(class_number, place);
  while (!taken && eviction_budget > 0 && MakeRoom(class_number)) taken = arena.Take(class_number, place);
  if (taken && ssd != nullptr && (took_slots.empty() || took_slots.back() != class_number)) {
    took_slots.push_back(class_number);
  }
  if (taken) return PutState::kTicket;
  arena.DropIfUnused(class_number);
  return eviction_budget == 0 || arena.retiring_bytes() > 0 ? PutState::kBusy : PutState::kFull;
}

// One step towards room for the class; false when nothing more can leave.
bool Owner::State::MakeRoom(uint32_t class_number) {
  if (!sweeping.empty() && sweep_budget > 0) {
    --sweep_budget;
    Sweep(kSweepPerStep);
    return true;
  }
  const uint64_t own_us = policies[class_number]->ColdestUs();
  const uint64_t needed = arena.SmallestSlabBytes(arena.classes()[class_number].shape);
  const bool coming = arena.SpareBytes() + arena.retiring_bytes() >= needed && arena.retiring_bytes() > 0;
  if (!coming && arena.empty_slabs() > 0 && RetireEmptySlab(class_number)) return true;
  if (!coming && (own_us == UINT64_MAX || slab_search_pause == 0)) {
    if (TakeColdSlab(class_number, own_us)) return true;
  }
  if (EvictFrom(class_number)) {
    slab_search_pause -= slab_search_pause > 0 ? 1 : 0;
    return true;
  }
  return !coming && TakeAnySlab(class_number);
}

// Every class is in use: the coldest of those with one slab gives way.
bool Owner::State::MakeClassRoom() {
  uint32_t coldest = kNone;
  uint64_t coldest_us = 0;
  const auto& classes = arena.classes();
  for (uint32_t i = 0; i < classes.size(); ++i) {
    if (classes[i].slabs.size() != 1 || !MayEmpty(classes[i].slabs[0])) continue;
    const uint64_t us = classes[i].used_slots == 0 ? 0 : policies[i]->ColdestUs();
    if (coldest != kNone && us >= coldest_us) continue;
    coldest = i;
    coldest_us = us;
  }
  if (coldest == kNone) return false;
  EmptySlab(classes[coldest].slabs[0]);
  return true;
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

// `working`: set when a piece is pinned only by work that will end.
bool Owner::State::EvictFrom(uint32_t class_number, bool for_quota, bool* working) {
  EvictionPolicy& policy = *policies[class_number];
  std::vector<uint32_t> pinned;
  const auto may_leave = [&](uint32_t entry) {
    if (!index[entry].pinned()) return true;
    if (working != nullptr) *working |= index[entry].soft_pins == 0;
    pinned.push_back(entry);
    return false;
  };
  for (uint32_t round = 0; round < kVictimRounds; ++round) {
    pinned.clear();
    const uint32_t victim = policy.Victim(may_leave, kLooksPerVictim);
    if (victim != kNone) {
      --eviction_budget;
      Evict(victim, for_quota);
      return true;
    }
    if (pinned.size() < kLooksPerVictim) return false;  // that was all of them
    // Somebody is about to read these: that is a use. Out of the way, or they would hide what may leave.
    for (const uint32_t entry : pinned) policy.Defer(entry, now_us);
  }
  return false;
}

// Out of memory, and out of the node unless SSD has it.
void Owner::State::Evict(uint32_t entry, bool for_quota) {
  const Entry& e = index[entry];
  const uint64_t bytes = index.place(entry).payload_bytes;
  ++counts.evicted;
  counts.evicted_bytes += bytes;
  if (for_quota) {
    ++counts.evicted_for_quota;
    ++CountsOf(arena.ShapeOf(PlaceOf(entry)).tenant).evicted_for_quota;
    return Leave(entry, Presence::kOverQuota);
  }
  const bool dropped =
      ssd != nullptr && e.leased == 0 && SsdPiece({e.space, e.hash, e.group}, e.rectangle) == kNone;
  if (dropped) {
    ++counts.dropped;
    counts.dropped_bytes += bytes;
  }
  Leave(entry, dropped ? Presence::kDiskBehind : Presence::kEvicted);
}

// The coldest slab of the class whose coldest entry is the coldest, if most of it is colder than the given
// time.
bool Owner::State::TakeColdSlab(uint32_t for_class, uint64_t colder_than_us) {
  uint32_t coldest_class = kNone;
  uint64_t coldest_us = colder_than_us;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    const uint64_t us = i == for_class ? UINT64_MAX : policies[i]->ColdestUs();
    if (us >= coldest_us) continue;
    coldest_us = us;
    coldest_class = i;
  }
  if (coldest_class == kNone) return false;
  const uint32_t slab = ColdestSlabOf(coldest_class, colder_than_us, kSlotSamples / 2);
  if (slab == kNone) {
    // The search costs more than an eviction; a class churns a small share of itself before the next one.
    slab_search_pause =
        static_cast<uint32_t>(std::min<uint64_t>(policies[for_class]->size() / 16, kSearchPauseMax));
    return false;
  }
  EmptySlab(slab);
  return true;
}

bool Owner::State::TakeAnySlab(uint32_t for_class) {
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    if (i != for_class && policies[i]->size() > 0) order.emplace_back(policies[i]->ColdestUs(), i);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kClassesTried) order.resize(kClassesTried);
  for (const auto& [us, class_number] : order) {
    const uint32_t slab = ColdestSlabOf(class_number, now_us, 0);
    if (slab == kNone) continue;
    EmptySlab(slab);
    return true;
  }
  return false;
}

void Owner::State::EmptySlab(uint32_t slab) {
  const auto slots = static_cast<uint32_t>(arena.slab(slab).owners.size());
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const uint32_t owner = arena.slab(slab).owners[slot];
    if (Arena::IsFree(owner)) continue;
    Evict(owner);
  }
  eviction_budget -= std::min(eviction_budget, slots);
  arena.Retire(slab);
}

// Of a few slabs, the one of the coldest entry among them, that with the most pieces colder than the given
// time; at least so many of kSlotSamples.
uint32_t Owner::State::ColdestSlabOf(uint32_t class_number, uint64_t colder_than_us, uint32_t share_min) {
  const auto& slabs = arena.classes()[class_number].slabs;
  const uint32_t first = policies[class_number]->Victim([](uint32_t) { return true; }, 1);
  uint32_t best = kNone;
  uint32_t best_share = 0;
  const auto look = [&](uint32_t slab) {
    const uint32_t share = ColderShare(slab, colder_than_us);
    if (share < share_min || (best != kNone && share <= best_share) || !MayEmpty(slab)) return;
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
    } else if (owner != Arena::kTicketOwner && index[owner].hidden == 0 && index[owner].spilling == 0) {
      colder += policy.LastUs(owner) < colder_than_us ? 1 : 0;
    }
  }
  return colder;
}

}  // namespace larder::node
