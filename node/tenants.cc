#include "node/tenants.h"

#include <unordered_set>

#include "proto/block_key.h"
#include "proto/units.h"

namespace larder::node {

namespace {
constexpr uint64_t kTtlUsMin = 1'000'000;
constexpr uint64_t kPinUsMaxMax = 600'000'000;
constexpr uint64_t kTtlUsMax = 87'600ull * 3'600'000'000;  // ten years
}  // namespace

TenantLimits LimitsOf(const std::vector<TenantLimits>& all, std::string_view name) {
  TenantLimits limits;
  for (const TenantLimits& each : all) {
    if (each.name == name) return each;
    if (each.name == kOtherTenants) limits = each;
  }
  limits.name = name;
  return limits;
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
