// Time to live: a block of a tenant with a ttl is not served once so much time has passed since it was put.
// Whoever looks it up then finds it gone; a slow walk frees what nobody looks up.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kLooksPerStep = 1024;    // entry numbers, used or not
constexpr uint32_t kLeavesPerStep = 128;    // about 25 us
constexpr uint64_t kExpireStepUs = 10'000;  // between two steps of a walk
constexpr uint64_t kPauseUsMin = 100'000;   // between two walks
constexpr uint64_t kPauseUsMax = 60'000'000;
constexpr uint64_t kWalksPerTtl = 16;
}  // namespace

// Between events the machine's clock is taken to go on with ours.
void Owner::State::SetClock(uint64_t given_us) {
  if (given_us <= now_us) return;
  unix_ms += given_us / 1000 - now_us / 1000;
  now_us = given_us;
}

// Of the two clocks the one that has gone further holds: time that this process slept through counts, and
// setting the machine's clock back takes nothing from an age.
void Owner::State::SetClock(uint64_t given_us, uint64_t given_unix_ms) {
  SetClock(given_us);
  unix_ms = given_unix_ms;
  const uint64_t now_ms = now_us / 1000;
  if (unix_ms > now_ms) ahead_ms = std::max(ahead_ms, unix_ms - now_ms);
  if (began_s == 0) began_s = steady_ms() / 1000;
}

// A clock that was set back while the node was down shows up here: it is no earlier than the newest block.
void Owner::State::SetClockToSsd() {
  const uint64_t newest_ms = uint64_t{ssd->newest_s()} * 1000;
  if (newest_ms <= steady_ms()) return;
  const uint64_t behind_ms = newest_ms - steady_ms();
  ahead_ms += behind_ms;
  places.Shift(began_s, behind_ms / 1000 + 1);
}

bool Owner::State::Expired(uint32_t number, uint32_t born_s) const {
  const uint64_t ttl_ms = name_spaces[number].ttl_ms;
  return ttl_ms != 0 && uint64_t{born_s} * 1000 + ttl_ms <= steady_ms();
}

void Owner::State::Expire(uint32_t entry) {
  ++counts.expired;
  counts.expired_bytes += index.place(entry).payload_bytes;
  ++CountsOf(arena.ShapeOf(PlaceOf(entry)).tenant).expired;
  Leave(entry, Presence::kExpired);
}

void Owner::State::ExpireCold(uint32_t number, uint32_t cold) {
  const ssd::SsdEntry& e = ssd->entry(cold);
  ++counts.expired;
  counts.expired_bytes += e.payload_bytes;
  ++CountsOf(name_spaces[number].tenant).expired;
  misses.Remember(FingerprintOf(number, e.hash, e.group), Presence::kExpired, unix_ms);
  RemoveCold(cold, Presence::kExpired);
}

// The first piece of a key in memory. Pieces on both tiers whose time is over, and those on SSD that a
// quarantine names or that went with their place, have left before. What FindBatch found is looked up again
// with it, since a key may stand twice in a list.
uint32_t Owner::State::Find(uint32_t number, const ChainHash& hash, uint16_t group) {
  uint32_t first = index.Find(SpaceOf(number), hash, group);
  const NamespaceRecord& record = name_spaces[number];
  if (!Drops(record)) return first;
  // Beyond the event's work nobody looks at a piece on SSD, nor at any but the first in memory.
  for (uint32_t i = ssd == nullptr ? kNone : ssd->First(record.ssd_space, hash, group);
       i != kNone && work_left > 0; --work_left) {
    const uint32_t next = ssd->Next(i);
    if (BannedCold(i)) {
      DropBannedCold(number, i);
    } else if (old_left && Old(number, hash, ssd->times(i).created_s)) {
      DropOldCold(i);
    } else if (Expired(number, ssd->times(i).created_s)) {
      ExpireCold(number, i);
    }
    i = next;
  }
  while (first != kNone && DropIfOver(first)) first = index.Find(SpaceOf(number), hash, group);
  if (first == kNone) return first;
  for (uint32_t i = index[first].next_piece; i != kNone && work_left > 0; --work_left) {
    const uint32_t next = index[i].next_piece;
    DropIfOver(i);
    i = next;
  }
  return first;
}

// True: its time, or that of its place, is over, and it has left.
bool Owner::State::DropIfOver(uint32_t entry) {
  if (Old(entry)) {
    DropOld(entry);
    return true;
  }
  if (!Expired(index[entry].space.number, index.place(entry).born_s)) return false;
  Expire(entry);
  return true;
}

// A step over memory and SSD side by side; a walk is over when both are. Between walks is a pause, so that
// what is over lies about for about a sixteenth of the shortest ttl.
void Owner::State::ExpireStep() {
  if (now_us < expire_us) return;
  const bool memory_done = ExpireMemory();
  const bool ssd_done = ExpireSsd();
  const bool done = memory_done && ssd_done;
  if (done) expire_next = expire_next_ssd = 0;
  expire_us = now_us + (done ? expire_pause_us : kExpireStepUs);
}

bool Owner::State::ExpireMemory() {
  uint32_t left = kLeavesPerStep;
  for (uint32_t i = 0; i < kLooksPerStep && left > 0 && expire_next < index.entry_bound(); ++i) {
    const uint32_t entry = expire_next++;
    const Entry& e = index[entry];
    if (e.hidden != 0 || !Expired(e.space.number, index.place(entry).born_s)) continue;
    Expire(entry);
    --left;
  }
  return expire_next >= index.entry_bound();
}

// Of namespaces that were opened since the start: the tenants of the others are not known, nor served.
bool Owner::State::ExpireSsd() {
  if (ssd == nullptr) return true;
  uint32_t left = kLeavesPerStep;
  for (uint32_t i = 0; i < kLooksPerStep && left > 0 && expire_next_ssd < ssd->entry_bound(); ++i) {
    const uint32_t cold = expire_next_ssd++;
    if (!ssd->Readable(cold)) continue;
    const auto number = number_of_space.find(ssd->entry(cold).space);
    if (number == number_of_space.end() || !Expired(number->second, ssd->times(cold).created_s)) continue;
    ExpireCold(number->second, cold);
    --left;
  }
  return expire_next_ssd >= ssd->entry_bound();
}

// The walk begins with the first namespace that needs it.
void Owner::State::BeginExpiring(uint64_t ttl_us) {
  const uint64_t pause_us = std::clamp(ttl_us / kWalksPerTtl, kPauseUsMin, kPauseUsMax);
  expire_pause_us = std::min(expire_pause_us, pause_us);
  expire_us = std::min(expire_us, now_us + expire_pause_us);
}

}  // namespace larder::node
