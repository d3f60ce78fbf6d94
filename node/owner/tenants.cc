#include "node/owner/tenants.h"

#include <algorithm>
#include <unordered_set>

#include "node/owner/replica_places.h"
#include "proto/block_key.h"
#include "proto/units.h"

namespace larder::node {

namespace {
constexpr uint64_t kTtlUsMin = 1'000'000;
constexpr uint64_t kPinUsMaxMax = 600'000'000;
constexpr uint64_t kTtlUsMax = 87'600ull * 3'600'000'000;  // ten years
}  // namespace

std::vector<TenantLimits> WithOthers(std::vector<TenantLimits> all) {
  const bool there = std::ranges::find(all, kOtherTenants, &TenantLimits::name) != all.end();
  if (!there) all.push_back({.name = std::string(kOtherTenants)});
  return all;
}

size_t LimitsOf(const std::vector<TenantLimits>& all_with_others, std::string_view name) {
  const auto of = [&](std::string_view each) {
    return std::ranges::find(all_with_others, each, &TenantLimits::name) - all_with_others.begin();
  };
  const auto own = static_cast<size_t>(of(name));
  return own < all_with_others.size() ? own : static_cast<size_t>(of(kOtherTenants));
}

Status CheckTenants(const std::vector<TenantLimits>& all) {
  if (all.size() > kTenantLimitsMax) {
    return Invalid("there are " + std::to_string(all.size()) + " tenants; at most " +
                   std::to_string(kTenantLimitsMax) + " can have limits, give the rest those of \"*\"");
  }
  std::unordered_set<std::string_view> names;
  for (const TenantLimits& each : all) {
    const std::string which = "tenant \"" + each.name + "\"";
    if (each.name.size() > kTenantBytesMax) return Invalid(which + ": a name has at most 128 characters");
    if (!names.insert(each.name).second) return Invalid(which + " is there twice; keep one of the two");
    if (each.ttl_us != 0 && (each.ttl_us < kTtlUsMin || each.ttl_us > kTtlUsMax)) {
      return Invalid(which + ": ttl may be 1s..87600h, or 0 for no end");
    }
    if (each.replicas < 1 || each.replicas > kReplicasMax) {
      return Invalid(which + ": replicas may be 1.." + std::to_string(kReplicasMax));
    }
    if (each.pin_us_max != TenantLimits::kAsTheNode && each.pin_us_max > kPinUsMaxMax) {
      return Invalid(which + ": pin_max may be 0..10m");
    }
    if (each.pinned_bytes_max != TenantLimits::kAsTheNode && each.pinned_bytes_max > each.quota_bytes) {
      return Invalid(which + ": pinned is more than its quota, which counts what is pinned too; lower it");
    }
  }
  return Status::Ok();
}

}  // namespace larder::node
