#include "transport/home_core.h"

#include <sched.h>

namespace larder::transport {

bool HomeCore::Follow(int core, uint64_t now_us) {
  if (core < 0 || core >= CPU_SETSIZE || core == sched_getcpu() || now_us - went_us_ < kHoldUs) return false;
  cpu_set_t allowed, only;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || !CPU_ISSET(core, &allowed)) return false;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return false;
  (void)sched_setaffinity(0, sizeof(allowed), &allowed);
  went_us_ = now_us;
  return true;
}

}  // namespace larder::transport
