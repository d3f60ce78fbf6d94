// Match answers what is here and may pin it softly; Touch says what was used; Release gives a pin back.
#include <algorithm>
#include <numeric>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint64_t kMatchBytesMax = kMessageBytesMax - kReplyHeaderSlack;
}

void Owner::State::OnMatch(Asker& asker, const Match& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr || !CheckRectangle(asker, *record, body.rectangle)) return;
  const size_t keys = body.hashes.size(), groups = body.groups.size();
  if (groups == 0 || groups > kGroupsMax || keys > kHashesMax || keys * groups > kMatchBytesMax) {
    return Refuse(asker, Code::kInvalid,
                  "a match has 1 to " + std::to_string(kGroupsMax) + " groups and at most " +
                      std::to_string(kHashesMax) + " hashes, and hashes x groups at most " +
                      std::to_string(kMatchBytesMax) + "; split the chain");
  }
  if (rules.bypass) return AnswerBypassed(asker, keys * groups);
  MatchReply reply;
  reply.presence.resize(keys * groups);
  SoftPin pin = PinFor(asker, record->tenant, body.pin_us);
  const bool pins = pin.end_us > now_us;
  std::vector<Patch> sources;
  uint32_t first[Index::kBatch];
  uint64_t key_us[Index::kBatch];  // until a get of the key would end
  DiskBytes before{};              // of the keys so far: a get of the chain reads them first
  const ssd::Lane lane =
      asker.envelope.priority == Priority::kBatch ? ssd::Lane::kBatch : ssd::Lane::kInteractive;
  const bool asks = MayAsk(asker);
  std::vector<BlockRef> wanted;  // of other nodes
  for (size_t begin = 0; begin < keys; begin += Index::kBatch) {
    const size_t count = std::min(Index::kBatch, keys - begin);
    std::fill_n(key_us, count, get_us);
    for (size_t g = 0; g < groups; ++g) {
      const auto hashes = std::span(body.hashes).subspan(begin, count);
      index.FindBatch(SpaceOf(number), hashes, body.groups[g], first);
      for (size_t i = 0; i < count; ++i) {
        if (Drops(*record)) first[i] = Find(number, hashes[i], body.groups[g]);
        if (first[i] != kNone) continue;
        misses.Prefetch(FingerprintOf(number, hashes[i], body.groups[g]));
        if (ssd != nullptr) ssd->Prefetch(record->ssd_space, hashes[i], body.groups[g]);
      }
      for (size_t i = 0; i < count; ++i) {
        Presence presence = Presence::kNeverStored;
        const ChainHash& hash = hashes[i];
        const bool whole = first[i] != kNone && index[first[i]].rectangle.Contains(body.rectangle);
        if (whole && !pins) {
          presence = Presence::kRam;
        } else if (CoverBoth(number, hash, body.groups[g], first[i], body.rectangle, &sources)) {
          if (pins) PinMatched(sources, &pin);
          presence = Presence::kRam;
          if (const uint64_t us = ColdUs(sources, lane, &before); us != 0) {
            presence = Presence::kSsd;
            key_us[i] = std::max(key_us[i], us);
          }
        } else {
          presence = WhyMissing(number, hash, body.groups[g], first[i]);
          if (asks) NoteWanted(number, {hash, body.groups[g], body.rectangle}, presence, &wanted);
        }
        reply.presence[(begin + i) * groups + g] = static_cast<uint8_t>(presence);
      }
    }
    AddEstimates(key_us, count, &reply.estimates);
  }
  if (wanted.empty()) return AnswerMatch(asker, std::move(reply), std::move(pin));
  // Asked of other nodes and then begun anew, or answered as it is.
  if (!SetAside(asker, number, wanted, Match(body)))
    return AnswerMatch(asker, std::move(reply), std::move(pin));
  DropPin(pin);
}

// Only now it counts: one that is set aside is looked at twice.
void Owner::State::AnswerMatch(const Asker& asker, MatchReply&& reply, SoftPin&& pin) {
  if (!pin.entries.empty()) {
    reply.pin_handle = ++last_id;
    reply.pinned_bytes = pin.bytes;
    pin_ends.emplace(pin.end_us, asker.id, reply.pin_handle);
    asker.session->pins.emplace(reply.pin_handle, std::move(pin));
  }
  ++counts.matches;
  counts.match_keys += reply.presence.size();
  for (const uint8_t presence : reply.presence) {
    if (IsHit(static_cast<Presence>(presence))) {
      ++counts.match_hits;
      counts.match_ssd_hits += presence == static_cast<uint8_t>(Presence::kSsd) ? 1 : 0;
    } else {
      ++counts.miss_by_reason[presence];
    }
  }
  Answer(asker, reply);
}

// Microseconds until what lies on SSD would be there, behind what of the chain comes before it; 0: nothing
// does.
uint64_t Owner::State::ColdUs(const std::vector<Patch>& sources, ssd::Lane lane, DiskBytes* before) {
  uint64_t us = 0;
  for (const Patch& source : sources) {
    if ((source.entry & kSsdBit) == 0) continue;
    const uint32_t cold = source.entry & ~kSsdBit;
    us = std::max(us, 1 + get_us + ReadUs(cold, lane, before));
  }
  return us;
}

// Runs of keys whose times differ by less than an eighth are one.
void Owner::State::AddEstimates(const uint64_t* key_us, size_t count,
                                std::vector<MatchReply::Estimate>* estimates) {
  for (size_t i = 0; i < count; ++i) {
    const auto us = static_cast<uint32_t>(std::min<uint64_t>(key_us[i], UINT32_MAX));
    const bool same = !estimates->empty() && us >= estimates->back().us &&
                      us - estimates->back().us <= estimates->back().us / 8;
    if (same) {
      ++estimates->back().count;
    } else {
      estimates->push_back({1, us});
    }
  }
}

// A pin of nothing yet; one that may not be ends now.
SoftPin Owner::State::PinFor(const Asker& asker, uint32_t tenant, uint32_t pin_us) const {
  SoftPin pin;
  pin.session = asker.id;
  pin.tenant = tenant;
  const uint64_t most_us = std::min(options.pin_us_max, tenants.at(tenant).limits.pin_us_max);
  const bool full = asker.session->pins.size() >= kPinsPerSessionMax;
  pin.end_us = full ? now_us : now_us + std::min<uint64_t>(pin_us, most_us);
  return pin;
}

uint64_t Owner::State::PinnedMax(const Tenant& tenant) const {
  const TenantLimits& limits = tenant.limits;
  const uint64_t node_max = options.pinned_bytes_per_tenant_max != 0 ? options.pinned_bytes_per_tenant_max
                                                                     : options.memory_bytes / 2;
  if (limits.pinned_bytes_max != TenantLimits::kAsTheNode) return std::min(node_max, limits.pinned_bytes_max);
  return limits.quota_bytes == TenantLimits::kNoQuota ? node_max : std::min(node_max, limits.quota_bytes / 2);
}

// Pins what a hit needs, unless the tenant's cap is reached: then the hit is answered all the same.
void Owner::State::PinMatched(const std::vector<Patch>& sources, SoftPin* pin) {
  Tenant& tenant = tenants.at(pin->tenant);
  const uint64_t cap = PinnedMax(tenant);
  for (const Patch& source : sources) {
    if ((source.entry & kSsdBit) != 0) continue;  // nothing to pin there
    const uint64_t bytes = arena.ShapeOf(PlaceOf(source.entry)).slot_bytes;
    if (tenant.pinned_bytes + bytes > cap) continue;
    tenant.pinned_bytes += bytes;
    pin->bytes += bytes;
    pin->entries.push_back(source.entry);
    ++index[source.entry].soft_pins;
  }
}

// Stamps what a request used, the deepest block first, so that its root ends up the hottest. No reply.
void Owner::State::OnTouch(Asker& asker, const Touch& body) {
  if (asker.envelope.verb == Verb::kRelease) EndPin(asker.session, body.pin_handle);
  if (body.hashes.empty()) return;
  uint32_t number = 0;
  if (NamespaceFor(asker, body.number, &number) == nullptr) return;
  if (body.groups.size() > kGroupsMax || body.hashes.size() > kHashesMax) return;
  ++(body.finishes ? counts.turns_finished : counts.touches);
  if (family->observes()) ObserveChain(body, number);
  TouchInfo info{now_us, body.root, 0, body.usable_length, body.chain_length, 0, body.retention};
  uint32_t first[Index::kBatch];
  const bool has_depths = body.depths.size() == body.hashes.size();
  for (size_t end = body.hashes.size(); end > 0;) {
    const size_t count = std::min(Index::kBatch, end);
    end -= count;
    for (const uint16_t group : body.groups) {
      index.FindBatch(SpaceOf(number), std::span(body.hashes).subspan(end, count), group, first);
      for (size_t i = 0; i < count; ++i) {
        if (first[i] == kNone) continue;
        index.PrefetchPlace(first[i]);
        family->Prefetch(first[i]);
      }
      for (size_t i = 0; i < count; ++i) {
        if (first[i] != kNone) family->PrefetchNeighbours(first[i]);
      }
      for (size_t i = count; i-- > 0;) {
        if (first[i] == kNone && ssd != nullptr && !body.finishes)
          WarmSsd(number, body.hashes[end + i], group);
        if (first[i] == kNone) continue;
        info.depth = has_depths ? body.depths[end + i] : static_cast<uint32_t>(end + i);
        info.key = FingerprintOf(number, body.hashes[end + i], group);
        for (uint32_t piece = first[i]; piece != kNone && work_left > 0; piece = index[piece].next_piece) {
          TouchPiece(piece, info, body.finishes);
          if (piece != first[i]) --work_left;
        }
      }
    }
  }
}

void Owner::State::TouchPiece(uint32_t piece, const TouchInfo& info, bool finishes) {
  Entry& e = index[piece];
  if (!finishes) e.used = e.warm = 1;
  if (e.spilling != 0) return;
  if (finishes) {
    PolicyOf(piece).Expect(piece, info.retention);
  } else {
    PolicyOf(piece).Touch(piece, info);
  }
}

// Policies that learn hear of the whole share of the chain, also of what is not here any more.
void Owner::State::ObserveChain(const Touch& body, uint32_t number) {
  std::vector<uint64_t> keys(body.hashes.size());
  std::vector<uint32_t> depths = body.depths;
  if (depths.size() != keys.size()) {
    depths.resize(keys.size());
    std::iota(depths.begin(), depths.end(), 0u);
  }
  for (const uint16_t group : body.groups) {
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = FingerprintOf(number, body.hashes[i], group);
    const ChainTouch touch{now_us, body.root ^ group, body.usable_length, body.chain_length, keys,
                           depths, body.retention};
    body.finishes ? family->ObserveEnd(touch) : family->Observe(touch);
  }
}

void Owner::State::WarmSsd(uint32_t number, const ChainHash& hash, uint16_t group) {
  for (uint32_t i = ssd->First(name_spaces[number].ssd_space, hash, group); i != kNone && work_left > 0;
       i = ssd->Next(i), --work_left) {
    ssd->Warm(i, now_us);
  }
}

}  // namespace larder::node
