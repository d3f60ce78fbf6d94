// How old a block counts as, given what an engine expects of it. A factor needs no unit of time, fits a cache
// of any size, and fades: what is expected back soon leaves after twice the others' time.
#pragma once

#include <cstdint>

#include "proto/retention.h"

namespace larder::node {

inline uint64_t EffectiveAge(Retention retention, uint64_t age_us) {
  switch (retention) {
    case Retention::kEnded:
      return 2 * age_us;
    case Retention::kContinues:
      return age_us / 2;
    case Retention::kNever:
      return (uint64_t{1} << 63) + age_us;
    default:
      return age_us;
  }
}

}  // namespace larder::node
