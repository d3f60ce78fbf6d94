// Quotas: what a tenant may hold in memory. One that needs more gives up its own coldest blocks, never those
// of others; what does not fit even so is refused. With an SSD tier its coldest go down before it comes to
// that.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kClassesAsked = 16;  // when the coldest class has nothing that may leave
constexpr uint32_t kSsdLooks = 4096;    // records looked at for one piece that goes down; a tenth of a ms
constexpr uint32_t kSsdSample = 16;     // of the tenant's: the coldest of so many goes
constexpr uint64_t kSearchPauseUs =
    100'000;  // after a search that found none: a tenant whose records are rare
}  // namespace

void Owner::State::Charge(uint32_t tenant, uint64_t slot_bytes) {
  tenants.at(tenant).used_bytes += slot_bytes;
}

void Owner::State::Uncharge(uint32_t tenant, uint64_t slot_bytes) {
  tenants.at(tenant).used_bytes -= slot_bytes;
  DropTenantIfUnused(tenant);
}

// What a clear left behind, or a reader holds, may outlive a tenant's last namespace.
void Owner::State::DropTenantIfUnused(uint32_t number) {
  const auto found = tenants.find(number);
  if (found->second.namespaces != 0 || found->second.used_bytes != 0) return;
  LARDER_CHECK(found->second.pinned_bytes == 0);
  crowded.erase(number);
  tenant_of.erase(found->second.name);
  tenants.erase(found);
}

TenantStats& Owner::State::CountsOf(uint32_t tenant) {
  return tenant_counts[tenants.at(tenant).number_of_limits];
}

std::vector<TenantStats> Owner::State::TenantCounts() const {
  std::vector<TenantStats> out = tenant_counts;
  for (const auto& [number, tenant] : tenants) {
    out[tenant.number_of_limits].used_bytes += tenant.used_bytes;
    out[tenant.number_of_limits].pinned_bytes += tenant.pinned_bytes;
  }
  for (const NamespaceRecord& record : name_spaces) {
    if (ssd == nullptr || record.tenant == 0) continue;
    out[tenants.at(record.tenant).number_of_limits].ssd_bytes += ssd->bytes_of(record.ssd_space);
  }
  return out;
}

// kTicket: there is room, and the caller charges what it takes. kBusy: there will be, when work that is under
// way ends: a put, a get, the scrub. kOverQuota: only pins with a clock, or nothing at all, hold it.
PutState Owner::State::TakeQuota(uint32_t number, uint64_t slot_bytes) {
  Tenant& tenant = tenants.at(number);
  tenant.last_slot_bytes = slot_bytes;
  const uint64_t quota = tenant.limits.quota_bytes;
  if (slot_bytes > quota) return PutState::kOverQuota;
  while (tenant.used_bytes > quota - slot_bytes) {
    if (!sweeping.empty() && sweep_budget > 0) {
      --sweep_budget;
      Sweep(kSweepPerStep);
    } else if (eviction_budget == 0) {
      return PutState::kBusy;
    } else if (bool working = false; !EvictOf(number, &working)) {
      working |= !sweeping.empty() || tenant.spilling_bytes != 0 || tenant.leaving_bytes != 0;
      return working || tenant.tickets != 0 ? PutState::kBusy : PutState::kOverQuota;
    }
  }
  return PutState::kTicket;
}

bool Owner::State::EvictOf(uint32_t tenant, bool* working) {
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    if (arena.classes()[i].shape.tenant != tenant || policies[i]->size() == 0) continue;
    order.emplace_back(policies[i]->ColdestUs(), i);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kClassesAsked) order.resize(kClassesAsked);
  return std::any_of(order.begin(), order.end(),
                     [&](const auto& each) { return EvictFrom(each.second, true, working); });
}

// As Spill does it for the node: down to the same shares of the quota.
void Owner::State::SpillQuota(uint32_t number) {
  if (ssd == nullptr) return;
  const Tenant& tenant = tenants.at(number);
  const uint64_t quota = tenant.limits.quota_bytes;
  const uint64_t hundredth = quota / 100;
  const auto free_soon = [&] { return quota - tenant.used_bytes + tenant.spilling_bytes; };
  if (quota == TenantLimits::kNoQuota ||
      free_soon() >= hundredth * options.spill_below_percent + tenant.last_slot_bytes) {
    return;
  }
  const uint64_t enough = hundredth * options.spill_until_percent + 2 * tenant.last_slot_bytes;
  while (free_soon() < enough && spill_pending.empty()) {
    const uint64_t room = ssd->WritableBytes(now_us);
    if (room == 0) break;
    if (!SpillBatch(std::min(room, enough - free_soon()), number)) return;
  }
  if (free_soon() < enough) crowded.insert(number);
}

void Owner::State::SpillCrowded() {
  for (const uint32_t number : std::exchange(crowded, {})) {
    const auto found = tenants.find(number);
    if (found != tenants.end() && found->second.namespaces != 0) SpillQuota(number);
  }
}

// Of namespaces that were opened since the start.
uint64_t Owner::State::SsdBytesOf(uint32_t tenant) const {
  uint64_t bytes = 0;
  for (const NamespaceRecord& record : name_spaces) {
    if (ssd != nullptr && record.tenant == tenant) bytes += ssd->bytes_of(record.ssd_space);
  }
  return bytes;
}

// Makes room for a piece of the tenant on SSD: its own cold records leave. False: there is none.
bool Owner::State::TakeSsdQuota(uint32_t number, uint64_t payload_bytes) {
  Tenant& tenant = tenants.at(number);
  const uint64_t quota = tenant.limits.ssd_quota_bytes;
  if (quota == TenantLimits::kNoQuota) return true;
  const uint64_t coming = payload_bytes + tenant.spilling_bytes;
  if (coming > quota) return false;
  uint64_t used = SsdBytesOf(number);
  uint32_t looks = std::min(kSsdLooks, ssd->entry_bound());
  if (used > quota - coming && now_us < tenant.search_ssd_us) return false;
  while (used > quota - coming) {
    const uint32_t cold = ColdOnSsd(number, &looks);
    if (cold == kNone) {
      tenant.search_ssd_us = now_us + kSearchPauseUs;
      return false;
    }
    const ssd::SsdEntry& e = ssd->entry(cold);
    used -= e.payload_bytes;
    ++counts.ssd_evicted_for_quota;
    ++CountsOf(number).evicted_for_quota;
    misses.Remember(FingerprintOf(number_of_space.at(e.space), e.hash, e.group), Presence::kOverQuota,
                    unix_ms);
    RemoveCold(cold, Presence::kOverQuota);
  }
  return true;
}

// There is no order of records of a tenant; a sample stands for it, taken in turns.
uint32_t Owner::State::ColdOnSsd(uint32_t tenant, uint32_t* looks) {
  uint32_t coldest = kNone;
  for (uint32_t seen = 0; *looks > 0 && seen < kSsdSample; --*looks) {
    if (quota_next_ssd >= ssd->entry_bound()) quota_next_ssd = 0;
    const uint32_t cold = quota_next_ssd++;
    if (!ssd->Readable(cold)) continue;
    const auto number = number_of_space.find(ssd->entry(cold).space);
    if (number == number_of_space.end() || name_spaces[number->second].tenant != tenant) continue;
    ++seen;
    if (coldest == kNone || ssd->times(cold).used_s < ssd->times(coldest).used_s) coldest = cold;
  }
  return coldest;
}

}  // namespace larder::node
