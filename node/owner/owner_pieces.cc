// The life of a piece: visible from its commit until it leaves, then hidden until its last pin ends, then
// free.
#include <cstring>

#include "node/owner/owner_state.h"

namespace larder::node {

uint64_t Owner::State::FingerprintOf(uint32_t number, const ChainHash& hash, uint16_t group) const {
  // Chain hashes are digests already, and whoever makes two alike loses a miss's reason, no more.
  uint64_t words[2];
  std::memcpy(words, hash.bytes.data(), sizeof words);
  const uint64_t mixed = (words[0] ^ name_spaces[number].fingerprint_seed) * 0x9e3779b97f4a7c15ull ^ words[1];
  return (mixed ^ mixed >> 29 ^ group) * 0xd6e8feb86659fd93ull;
}

// The pieces that answer for `ask`: one that contains it when there is one, else several.
bool Owner::State::CoverOf(uint32_t first, const Rectangle& ask, std::vector<Patch>* sources) {
  sources->clear();
  if (first == kNone) return false;
  if (index[first].rectangle.Contains(ask)) {
    sources->push_back({first, ask});
    return true;
  }
  for (uint32_t i = index[first].next_piece; i != kNone && work_left > 0;
       i = index[i].next_piece, --work_left) {
    if (!index[i].rectangle.Contains(ask)) continue;
    sources->push_back({i, ask});
    return true;
  }
  if (index[first].next_piece == kNone || work_left == 0) return false;
  std::vector<Patch> pieces;
  for (uint32_t i = first; i != kNone; i = index[i].next_piece) pieces.push_back({i, index[i].rectangle});
  return Cover(ask, pieces, &work_left, sources);
}

// Memory alone when that is enough; else one piece on SSD that is; else pieces of both.
bool Owner::State::CoverBoth(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first,
                             const Rectangle& ask, std::vector<Patch>* sources) {
  if (CoverOf(first, ask, sources)) return true;
  if (ssd == nullptr) return false;
  const uint32_t first_cold = ssd->First(name_spaces[number].ssd_space, hash, group);
  if (first_cold == kNone) return false;
  std::vector<Patch> pieces;
  for (uint32_t i = first_cold; i != kNone && work_left > 0; i = ssd->Next(i), --work_left) {
    const Rectangle& rectangle = ssd->entry(i).rectangle;
    if (rectangle.Contains(ask)) {
      sources->assign(1, {i | kSsdBit, ask});
      return true;
    }
    pieces.push_back({i | kSsdBit, rectangle});
  }
  for (uint32_t i = first; i != kNone; i = index[i].next_piece) pieces.push_back({i, index[i].rectangle});
  return work_left > 0 && Cover(ask, pieces, &work_left, sources);
}

bool Owner::State::Covered(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first,
                           const Rectangle& ask) {
  if (first != kNone && index[first].rectangle.Contains(ask)) return true;
  if (first == kNone && ssd == nullptr) return false;
  std::vector<Patch> sources;
  return CoverBoth(number, hash, group, first, ask, &sources);
}

uint32_t Owner::State::AddPiece(const BlockName& name, const Rectangle& rectangle, SlotPlace place,
                                const BlockHeader& header, uint32_t depth, bool visible) {
  const uint32_t entry = index.Add(name.space, name.hash, name.group, rectangle);
  EntryPlace& e = index.place(entry);
  e.slab = place.slab;
  e.slot = place.slot;
  e.payload_bytes = static_cast<uint32_t>(header.payload_bytes());
  e.born_s = static_cast<uint32_t>(header.created_ms / 1000);
  arena.SetOwner(place, entry);
  if (!visible) {
    PinHard(entry);
    index.Hide(entry);
    return entry;
  }
  TouchInfo info{.now_us = now_us, .depth = depth};
  info.key = FingerprintOf(name.space.number, name.hash, name.group);
  EvictionPolicy& policy = PolicyOf(entry);
  policy.Reserve(index.entry_bound());
  policy.Insert(entry, info);
  NamespaceRecord& record = name_spaces[name.space.number];
  ++record.blocks;
  record.bytes += e.payload_bytes;
  index[entry].charged = 1;
  Charge(record.tenant, arena.ShapeOf(place).slot_bytes);
  LogStored(entry);
  return entry;
}

Presence Owner::State::WhyMissing(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first) {
  if (!writing.empty() && writing.count({SpaceOf(number), hash, group}) != 0) return Presence::kWriting;
  if (first != kNone) return work_left == 0 ? Presence::kBusy : Presence::kUncovered;
  const NamespaceRecord& record = name_spaces[number];
  if (record.swept_from != 0 && index.Find({number, record.swept_from}, hash, group) != kNone) {
    return Presence::kCleared;
  }
  const Departure departure = misses.Recall(FingerprintOf(number, hash, group));
  // A clear hides what lay on SSD without a word for each block.
  const bool before_clear = departure.reason != Presence::kNeverStored && departure.left_s < record.cleared_s;
  return before_clear ? Presence::kCleared : departure.reason;
}

void Owner::State::Leave(uint32_t entry, Presence reason) {
  const Entry& e = index[entry];
  LogLeft(entry, reason);
  NamespaceRecord& record = name_spaces[e.space.number];
  if (e.space.generation == record.generation) {
    --record.blocks;
    record.bytes -= index.place(entry).payload_bytes;
  }
  const uint64_t key = FingerprintOf(e.space.number, e.hash, e.group);
  misses.Remember(key, reason, unix_ms);
  if (e.leased != 0) EndLease(entry);
  if (reason == Presence::kQuarantined) {
    RevokeBlocks(e.space.number, std::span(&e.hash, 1), std::span(&e.group, 1));
  }
  if (e.spilling == 0) {
    const bool for_memory = reason == Presence::kEvicted || reason == Presence::kNotAdmitted ||
                            reason == Presence::kDiskBehind || reason == Presence::kOverQuota;
    for_memory ? PolicyOf(entry).Evict(entry, key) : PolicyOf(entry).Remove(entry);
  } else if (reason == Presence::kRemoved) {
    // Its copy on SSD can only go once it is there, and a crash in between would bring it back.
    const uint64_t token = ++last_id;
    undurable.insert(token);
    removed_on_its_way.emplace(entry, token);
  }
  index.Hide(entry);
  if (!e.pinned()) return FreeEntry(entry);
  if (e.charged == 0 || e.hard_pins == 0) return;
  index[entry].leaving = 1;
  const SlotShape& shape = arena.ShapeOf(PlaceOf(entry));
  tenants.at(shape.tenant).leaving_bytes += shape.slot_bytes;
}

void Owner::State::EndLeaving(uint32_t entry) {
  index[entry].leaving = 0;
  const SlotShape& shape = arena.ShapeOf(PlaceOf(entry));
  tenants.at(shape.tenant).leaving_bytes -= shape.slot_bytes;
}

void Owner::State::FreeEntry(uint32_t entry) {
  const SlotShape& shape = arena.ShapeOf(PlaceOf(entry));
  if (index[entry].charged != 0) Uncharge(shape.tenant, shape.slot_bytes);
  arena.Free(PlaceOf(entry));
  index.Free(entry);
}

void Owner::State::PinHard(uint32_t entry) {
  ++index[entry].hard_pins;
  ++hard_pins;
}

void Owner::State::UnpinHard(uint32_t entry) {
  Entry& e = index[entry];
  LARDER_CHECK(e.hard_pins > 0);
  --e.hard_pins;
  --hard_pins;
  if (e.hidden == 0 || e.hard_pins != 0) return;
  if (e.leaving != 0) EndLeaving(entry);
  if (!e.pinned()) FreeEntry(entry);
}

void Owner::State::EndPin(Session* session, uint64_t handle) {
  const auto found = session->pins.find(handle);
  if (found == session->pins.end()) return;
  DropPin(found->second);
  pin_ends.erase({found->second.end_us, found->second.session, handle});
  session->pins.erase(found);
}

void Owner::State::DropPin(const SoftPin& pin) {
  tenants.at(pin.tenant).pinned_bytes -= pin.bytes;  // what is freed below may be the last of the tenant
  for (const uint32_t entry : pin.entries) {
    Entry& e = index[entry];
    LARDER_CHECK(e.soft_pins > 0);
    --e.soft_pins;
    if (e.hidden != 0 && !e.pinned()) FreeEntry(entry);
  }
}

Result<BlockHeader> Owner::State::HeaderOf(uint32_t entry) const {
  const SlotPlace place = PlaceOf(entry);
  return DecodeHeader({arena.Header(place), arena.ShapeOf(place).header_bytes});
}

// Frees what clears hid, a bounded number at a time.
void Owner::State::Sweep(uint32_t steps) {
  for (; steps > 0 && !sweeping.empty(); --steps) {
    const Space space = sweeping.front();
    const uint32_t entry = index.FirstOf(space);
    if (entry != kNone) {
      Leave(entry, Presence::kCleared);
      continue;
    }
    sweeping.pop_front();
    NamespaceRecord& record = name_spaces[space.number];
    if (record.swept_from == space.generation) record.swept_from = 0;
  }
}

// Hides all pieces of a namespace at once by its next generation; their memory comes back step by step.
uint64_t Owner::State::ClearSpace(uint32_t number, uint64_t* revoke) {
  NamespaceRecord& record = name_spaces[number];
  *revoke = RevokeSpace(number);
  const uint64_t removed = record.blocks;
  if (removed != 0) sweeping.push_back(SpaceOf(number));
  record.swept_from = removed != 0 ? record.generation : record.swept_from;
  ++record.generation;
  ++record.clear_epoch;
  record.cleared_s = static_cast<uint32_t>(unix_ms / 1000) + 1;
  record.blocks = 0;
  record.bytes = 0;
  counts.cleared += removed;
  homecoming.Cleared(record.name_space);
  if (ssd != nullptr) {
    ClearOnSsd(record.name_space, record.clear_epoch);
    record.ssd_space = ssd->OpenSpace({record.name_space, record.clear_epoch, "", ""});
    number_of_space[record.ssd_space] = number;
  }
  LogCleared(record);
  AwaitKept();
  AddForward({0, record.name_space, true, {}, {}, clears.Of(record.name_space)});
  Sweep(kSweepPerStep);
  return removed;
}

}  // namespace larder::node
