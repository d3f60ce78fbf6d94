// Memory -> SSD. When little is free, in all or to a class, the coldest pieces go down in batches, in the
// background, so that a put finds a free slot. A piece on its way is in no policy and hard-pinned; gets find
// it as before. A touch meanwhile keeps it in memory. What is on SSD already leaves at once.
#include <algorithm>
#include <utility>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint64_t kBatchesInMemory = 32;  // a batch is at most this share of the memory
constexpr uint32_t kPiecesPerBatch = 4096;
}  // namespace

void Owner::State::Spill() {
  if (ssd == nullptr) return;
  WritePending();
  for (const uint32_t class_number : std::exchange(took_slots, {})) SpillClass(class_number);
  const uint64_t hundredth = options.memory_bytes / 100;
  const auto free_soon = [&] { return arena.free_bytes() + arena.retiring_bytes() + spilling_bytes; };
  // A node that is about to stop saves what it can.
  if (!save_all && free_soon() >= hundredth * options.spill_below_percent + last_slot_bytes) return;
  const uint64_t enough = hundredth * options.spill_until_percent + 2 * last_slot_bytes;
  while ((save_all || free_soon() < enough) && spill_pending.empty()) {
    // Nothing is chosen that can't be written: what has to go then goes when somebody needs its memory.
    const uint64_t room = ssd->WritableBytes(now_us);
    const uint64_t missing = save_all ? room : enough - std::min(enough, free_soon());
    const uint64_t batch = std::max(options.memory_bytes / kBatchesInMemory, missing);
    if (room == 0 || !SpillBatch(std::min(room, batch))) return;
  }
}

// Free slots of other classes are no use to a class that is full and can't grow: its next put would evict its
// own coldest piece, from the node too, while the memory as a whole has room. So a class keeps a few slots of
// its own free as the node keeps its share.
void Owner::State::SpillClass(uint32_t class_number) {
  const Arena::Class& c = arena.classes()[class_number];
  if (!spill_pending.empty()) return;
  if (!c.live || arena.SpareBytes() >= arena.SmallestSlabBytes(c.shape)) return;
  if (spilling_slots.size() < policies.size()) spilling_slots.resize(policies.size());
  const auto share = [&](uint32_t percent) { return std::max<uint64_t>(c.slots * percent / 100, 1); };
  const auto free_soon = [&] { return c.slots - c.used_slots + spilling_slots[class_number]; };
  if (free_soon() >= share(options.spill_below_percent)) return;
  uint64_t room = ssd->WritableBytes(now_us);
  while (free_soon() < share(options.spill_until_percent) && room >= c.shape.slot_bytes) {
    const uint32_t victim = policies[class_number]->Victim(
        [&](uint32_t entry) { return !index[entry].pinned(); }, kLooksPerVictim);
    if (victim == kNone) break;
    if (SpillPiece(victim)) room -= c.shape.slot_bytes;
  }
  WritePending();
}

bool Owner::State::Saving() const {
  if (!save_all || ssd == nullptr) return false;
  if (spilling_pieces != 0) return true;
  const bool empty =
      std::all_of(policies.begin(), policies.end(), [](const auto& policy) { return policy->size() == 0; });
  return !empty && ssd->WritableBytes(now_us) > 0;
}

// Chooses the coldest and hands them over; false when nothing was there to choose.
bool Owner::State::SpillBatch(uint64_t bytes, uint32_t tenant) {
  uint64_t chosen = 0;
  uint32_t pieces = 0;
  while (chosen < bytes && pieces < kPiecesPerBatch) {
    const uint32_t victim = ColdestPiece(tenant);
    if (victim == kNone) break;
    chosen += arena.ShapeOf(PlaceOf(victim)).slot_bytes;
    SpillPiece(victim);
    ++pieces;
  }
  WritePending();
  return pieces != 0;
}

// Of a tenant; 0: of all.
uint32_t Owner::State::ColdestPiece(uint32_t tenant) {
  uint32_t coldest_class = kNone;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    if (policies[i]->size() == 0) continue;
    if (tenant != 0 && arena.classes()[i].shape.tenant != tenant) continue;
    if (coldest_class == kNone || policies[i]->ColdestUs() < policies[coldest_class]->ColdestUs()) {
      coldest_class = i;
    }
  }
  if (coldest_class == kNone) return kNone;
  return policies[coldest_class]->Victim([&](uint32_t entry) { return !index[entry].pinned(); },
                                         kLooksPerVictim);
}

// A piece on SSD that holds at least this rectangle.
uint32_t Owner::State::SsdPiece(const BlockName& name, const Rectangle& rectangle) const {
  const NamespaceRecord& record = name_spaces[name.space.number];
  if (name.space.generation != record.generation) return kNone;
  for (uint32_t i = ssd->First(record.ssd_space, name.hash, name.group); i != kNone; i = ssd->Next(i)) {
    if (ssd->entry(i).rectangle.Contains(rectangle)) return i;
  }
  return kNone;
}

// Of exactly this rectangle.
uint32_t Owner::State::SsdRecord(const BlockName& name, const Rectangle& rectangle) const {
  const NamespaceRecord& record = name_spaces[name.space.number];
  if (name.space.generation != record.generation) return kNone;
  uint32_t i = ssd->First(record.ssd_space, name.hash, name.group);
  while (i != kNone && !(ssd->entry(i).rectangle == rectangle)) i = ssd->Next(i);
  return i;
}

bool Owner::State::SpillPiece(uint32_t victim) {
  Entry& e = index[victim];
  const uint64_t payload_bytes = index.place(victim).payload_bytes;
  const BlockName name{e.space, e.hash, e.group};
  if (e.space.generation != name_spaces[e.space.number].generation) {
    Leave(victim, Presence::kCleared);  // a clear that is still being swept
    return false;
  }
  if (Expired(e.space.number, index.place(victim).born_s)) {
    Expire(victim);
    return false;
  }
  if (e.leased != 0) {  // its home has it
    Leave(victim, Presence::kEvicted);
    return false;
  }
  if (SsdPiece(name, e.rectangle) != kNone) {
    ++counts.spilled_clean;
    Leave(victim, Presence::kEvicted);
    return false;
  }
  const SlotPlace place = PlaceOf(victim);
  const SlotShape& shape = arena.ShapeOf(place);
  const uint64_t fingerprint = FingerprintOf(e.space.number, e.hash, e.group);
  if (!HeaderOf(victim).ok()) {
    Leave(victim, Presence::kCorrupt);
    return false;
  }
  if (!TakeSsdQuota(shape.tenant, payload_bytes)) {
    ++counts.not_admitted;
    Leave(victim, Presence::kOverQuota);
    return false;
  }
  if (!ssd->Fits(shape.header_bytes, static_cast<uint32_t>(payload_bytes)) ||
      !admission.Admit(fingerprint, e.used != 0)) {
    ++counts.not_admitted;
    Leave(victim, Presence::kNotAdmitted);
    return false;
  }
  const uint32_t depth = PolicyOf(victim).DepthOf(victim);
  PolicyOf(victim).Evict(victim, fingerprint);
  e.spilling = 1;
  e.warm = 0;
  PinHard(victim);
  ++spilling_pieces;
  spilling_bytes += shape.slot_bytes;
  tenants.at(shape.tenant).spilling_bytes += shape.slot_bytes;
  const uint32_t class_number = arena.slab(place.slab).class_number;
  if (spilling_slots.size() <= class_number) spilling_slots.resize(class_number + 1);
  ++spilling_slots[class_number];
  spill_pending.push_back({victim,
                           name_spaces[e.space.number].ssd_space,
                           depth,
                           {arena.Header(place), shape.header_bytes},
                           arena.Payload(place)});
  return true;
}

void Owner::State::WritePending() {
  while (!spill_pending.empty()) {
    size_t taken = ssd->Write(spill_pending);
    // What no disk will ever take ends here: answers may wait for it. So does a piece that rots while it
    // waits.
    const bool lost = taken == 0 && ssd->Lost();
    if (lost) taken = spill_pending.size();
    const bool rotten = taken == 0 && !HeaderOf(static_cast<uint32_t>(spill_pending.front().token)).ok();
    if (rotten) taken = 1;
    if (taken == 0) return;
    const auto end = spill_pending.begin() + static_cast<std::ptrdiff_t>(taken);
    std::vector<ssd::TierPiece> failed;
    if (lost || rotten) failed.assign(spill_pending.begin(), end);
    spill_pending.erase(spill_pending.begin(), end);
    for (const ssd::TierPiece& piece : failed) OnWritten(piece.token, false);
  }
}

void Owner::State::OnWritten(uint64_t token, bool stored) {
  const auto entry = static_cast<uint32_t>(token);
  Entry& e = index[entry];
  LARDER_CHECK(e.spilling != 0);
  const uint64_t payload_bytes = index.place(entry).payload_bytes;
  const SlotShape& shape = arena.ShapeOf(PlaceOf(entry));
  spilling_bytes -= shape.slot_bytes;
  tenants.at(shape.tenant).spilling_bytes -= shape.slot_bytes;
  --spilling_slots[arena.slab(PlaceOf(entry).slab).class_number];
  --spilling_pieces;
  if (stored) {
    ++counts.spilled;
    LogWritten(entry);
    counts.spilled_bytes += payload_bytes;
  } else {
    ++counts.spill_failed;
  }
  if (e.hidden == 0) {
    if (stored && (e.warm != 0 || e.soft_pins != 0)) {
      TouchInfo info{.now_us = now_us, .depth = PolicyOf(entry).DepthOf(entry)};
      info.key = FingerprintOf(e.space.number, e.hash, e.group);
      PolicyOf(entry).Insert(entry, info);
    } else {
      if (!stored) ++counts.dropped, counts.dropped_bytes += payload_bytes;
      Leave(entry, stored ? Presence::kEvicted : Presence::kDiskBehind);
    }
  } else if (stored) {
    // It left while it was being written: what is on SSD now goes too.
    const uint32_t cold = SsdRecord({e.space, e.hash, e.group}, e.rectangle);
    if (cold != kNone) RemoveCold(cold, Presence::kRemoved);
  }
  if (const auto removed = removed_on_its_way.find(entry); removed != removed_on_its_way.end()) {
    const uint64_t answer = removed->second;
    removed_on_its_way.erase(removed);
    stored ? ssd->Barrier(answer) : OnDurable(answer);
  }
  e.spilling = 0;
  UnpinHard(entry);
}

}  // namespace larder::node
