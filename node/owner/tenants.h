// What a tenant may use of a node, and for how long: as an operator configured it, by the tenant's name.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace larder::node {

struct TenantLimits {
  static constexpr uint64_t kNoQuota = UINT64_MAX;
  static constexpr uint64_t kAsTheNode = UINT64_MAX;

  std::string name;                     // as clients open it; "*": every tenant without limits of its own
  uint64_t ttl_us = 0;                  // blocks are not served for longer after they were put; 0: no end
  uint64_t quota_bytes = kNoQuota;      // slots in memory; 0: nothing is taken
  uint64_t ssd_quota_bytes = kNoQuota;  // payload on SSD; 0: nothing goes there
  // Of pins by matches, within the node's own limits. `pinned_bytes` left alone beside a quota: half of that.
  uint64_t pin_us_max = kAsTheNode;  // 0: none
  uint64_t pinned_bytes_max = kAsTheNode;
  // Copies that its clients make of each block (their own option of this name): what repair restores.
  uint32_t replicas = 1;

  bool operator==(const TenantLimits&) const = default;
};

inline constexpr std::string_view kOtherTenants = "*";
inline constexpr size_t kTenantLimitsMax = 1024;

// The same with limits for all others, which has none when they are not there.
std::vector<TenantLimits> WithOthers(std::vector<TenantLimits> all);
// Which of them are those of `name`.
size_t LimitsOf(const std::vector<TenantLimits>& all_with_others, std::string_view name);

// Names are there once and short enough, numbers within their ranges.
Status CheckTenants(const std::vector<TenantLimits>& all);

}  // namespace larder::node
