#include "transport/home_core.h"

#include <cstdlib>

namespace larder::transport {

bool HomeCore::NoteAllowed() {
  return staying() || sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0;
}

void HomeCore::StayOn(int core, uint64_t now_us) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof(only), &only) != 0) return;
  core_ = core;
  since_us_ = now_us;
}

void HomeCore::Settle(uint64_t now_us) {
  if (staying() && now_us - since_us_ > kStayUs) {
    Release();
    free_until_us_ = now_us + kFreeUs;
  }
  if (staying() || now_us < free_until_us_ || !NoteAllowed()) return;
  const int here = sched_getcpu();
  int nearest = -1;
  uint32_t rank = 0;
  for (int core = 0; core < CPU_SETSIZE; core++) {
    if (!CPU_ISSET(core, &allowed_)) continue;
    const bool mine = rank++ % of_ == at_;
    if (mine && (nearest < 0 || std::abs(core - here) < std::abs(nearest - here))) nearest = core;
  }
  if (nearest >= 0) StayOn(nearest, now_us);
}

void HomeCore::Follow(int core, uint64_t now_us) {
  if (core < 0 || core >= CPU_SETSIZE || core == core_) return;
  if (staying() && now_us - since_us_ < kHoldUs) return;
  if (NoteAllowed() && CPU_ISSET(core, &allowed_)) StayOn(core, now_us);
}

void HomeCore::Release() {
  if (!staying()) return;
  core_ = -1;
  (void)sched_setaffinity(0, sizeof(allowed_), &allowed_);
}

}  // namespace larder::transport
