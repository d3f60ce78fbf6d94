// Places that were lost and got back: what is here of such a slot from before the loss may have been removed
// at whoever had the place meanwhile. It is served to nobody from the moment on that the place is back:
// whoever looks it up finds it gone, and a walk over both tiers frees what nobody looks up.
#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kLostLooksPerStep = 4096;  // entry numbers, used or not: half a millisecond
constexpr uint32_t kLostPerStep = 512;        // about 100 us
constexpr uint64_t kOldStepUs = 1'000;        // between two steps of the walk
constexpr uint64_t kLoadingUs = 100'000;      // until the disks' indexes are here
}  // namespace

bool Owner::State::Old(uint32_t number, const ChainHash& hash, uint32_t born_s) const {
  return places.Old(name_spaces[number].replicas, SlotOf(hash), born_s);
}

void Owner::State::DropOld(uint32_t entry) {
  ++counts.place_lost;
  Leave(entry, Presence::kPlaceLost);
}

void Owner::State::DropOldCold(uint32_t cold) {
  const ssd::SsdEntry& e = ssd->entry(cold);
  ++counts.place_lost;
  if (const auto number = number_of_space.find(e.space); number != number_of_space.end()) {
    misses.Remember(FingerprintOf(number->second, e.hash, e.group), Presence::kPlaceLost, unix_ms);
  }
  RemoveCold(cold, Presence::kPlaceLost);
}

// A new piece is dated behind what went with its place, which is up to a second ahead.
uint64_t Owner::State::BirthMs(uint32_t number, const ChainHash& hash) const {
  return std::max(steady_ms(), uint64_t{places.BeforeS(name_spaces[number].replicas, SlotOf(hash))} * 1000);
}

// Another node says, by what it puts, that the place is this node's again, before the table does.
void Owner::State::ExpectPlace(uint32_t number, const ChainHash& hash) {
  const bool back = places.Expect(name_spaces[number].replicas, SlotOf(hash), steady_ms() / 1000);
  if (back) BeginDropOld();
}

void Owner::State::BeginDropOld() {
  old_left = places.any();
  old_next = old_next_ssd = 0;
  old_us = old_left ? now_us : UINT64_MAX;
}

void Owner::State::DropOldStep() {
  if (now_us < old_us) return;
  uint32_t leaves = kLostPerStep;
  for (uint32_t i = 0; i < kLostLooksPerStep && leaves > 0 && old_next < index.entry_bound(); ++i) {
    const uint32_t entry = old_next++;
    const Entry& e = index[entry];
    if (e.hidden != 0 || !Old(e.space.number, e.hash, index.place(entry).born_s)) continue;
    DropOld(entry);
    --leaves;
  }
  const bool loaded = ssd == nullptr || ssd->loaded();
  for (uint32_t i = 0;
       ssd != nullptr && i < kLostLooksPerStep && leaves > 0 && old_next_ssd < ssd->entry_bound(); ++i) {
    const uint32_t cold = old_next_ssd++;
    if (!ssd->Readable(cold) || !OldCold(cold)) continue;
    DropOldCold(cold);
    --leaves;
  }
  const bool memory_done = old_next >= index.entry_bound();
  const bool ssd_done = ssd == nullptr || old_next_ssd >= ssd->entry_bound();
  old_left = !memory_done || !ssd_done || !loaded;
  old_us = !old_left ? UINT64_MAX : now_us + (memory_done && ssd_done ? kLoadingUs : kOldStepUs);
  // What an index brought in may have numbers that were looked at already.
  if (old_left && ssd_done && !loaded) old_next_ssd = 0;
}

// Of a namespace that nobody has opened yet the tenant says how many places there are.
bool Owner::State::OldCold(uint32_t cold) const {
  const ssd::SsdEntry& e = ssd->entry(cold);
  const uint16_t slot = SlotOf(e.hash);
  const uint32_t born_s = ssd->times(cold).created_s;
  if (const auto number = number_of_space.find(e.space); number != number_of_space.end()) {
    return places.Old(name_spaces[number->second].replicas, slot, born_s);
  }
  const ssd::SpaceRecord& record = ssd->space_record(e.space);
  if (record.identity.empty()) return places.OldUnderAny(slot, born_s);
  return places.Old(tenant_limits[LimitsOf(tenant_limits, record.tenant)].replicas, slot, born_s);
}

// What was put in that life may be dated a second ahead, as its places are, and so is the clock of this one
// from now on: a block from then that is younger than the clock says nothing of the places noted then.
void Owner::RestorePlaces(PlaceTimes places, uint64_t now_us, uint64_t unix_ms) {
  State& state = *state_;
  state.SetClock(now_us, unix_ms);
  const uint64_t latest_ms = uint64_t{places.latest_s()} * 1000;
  if (latest_ms > state.steady_ms()) state.ahead_ms += latest_ms - state.steady_ms();
  state.began_s = std::max<uint64_t>(state.began_s, places.latest_s() + 1);
  state.places = std::move(places);
  state.BeginDropOld();
}

std::optional<PlaceTimes> Owner::FollowPlaces(SlotSets held, uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  if (!state_->places.Follow(std::move(held), clock_s())) return std::nullopt;
  state_->BeginDropOld();
  return state_->places;
}

PlaceTimes Owner::LosePlaces(uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  state_->places.LoseAll(clock_s());
  state_->BeginDropOld();
  return state_->places;
}

}  // namespace larder::node
