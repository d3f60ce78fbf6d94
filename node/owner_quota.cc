// Quotas: what a tenant may hold in memory. One that needs more gives up its own coldest blocks, never those
// of others; what does not fit even so is refused. With an SSD tier its coldest go down before it comes to
// that.
#include <algorithm>

#include "node/owner_state.h"

namespace larder::node {

namespace {
constexpr uint32_t kClassesAsked = 16;  // when the coldest class has nothing that may leave
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
  return out;
}

// kTicket: there is room, and the caller charges what it takes. kBusy: there will be.
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
    } else if (!EvictOf(number)) {
      return sweeping.empty() && tenant.spilling_bytes == 0 ? PutState::kOverQuota : PutState::kBusy;
    }
  }
  return PutState::kTicket;
}

bool Owner::State::EvictOf(uint32_t tenant) {
  std::vector<std::pair<uint64_t, uint32_t>> order;
  for (uint32_t i = 0; i < policies.size(); ++i) {
    if (arena.classes()[i].shape.tenant != tenant || policies[i]->size() == 0) continue;
    order.emplace_back(policies[i]->ColdestUs(), i);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kClassesAsked) order.resize(kClassesAsked);
  return std::any_of(order.begin(), order.end(),
                     [&](const auto& each) { return EvictFrom(each.second, true); });
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

}  // namespace larder::node
