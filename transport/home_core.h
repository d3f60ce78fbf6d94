// Where a thread runs while it moves payload to or from another thread of this machine over TCP.
//
// Over loopback the sender's core does the receiver's half of the protocol, too. Where both run on one core
// the bytes are still in its cache when they are copied out: 0.20 CPU s a GiB, against 0.33 from core to
// core. The scheduler doesn't know that, and moves one of the two to any core that is idle for a moment. So
// the thread whose side accepted the connection settles on a core, and the other side's follows it there, for
// as long as large messages move. A thread never runs where its affinity did not allow it before, and gets
// that affinity back when it is idle.
#pragma once

#include <sched.h>

#include <cstdint>

namespace larder::transport {

// Of one thread; all calls are its own.
class HomeCore {
 public:
  // The `at`th of `of` threads that settle on different cores, where there are enough.
  HomeCore(uint32_t at, uint32_t of) : at_(at), of_(of) {}
  // Stays on one of its cores, the nearest to where it is. Every kStayUs the scheduler may choose once more.
  void Settle(uint64_t now_us);
  // Goes to `core`, at most every kHoldUs: peers on several cores must not send it round.
  void Follow(int core, uint64_t now_us);
  bool staying() const { return core_ >= 0; }
  void Release();

  static constexpr uint64_t kHoldUs = 5'000;
  static constexpr uint64_t kStayUs = 2'000'000;
  static constexpr uint64_t kFreeUs = 4'000;  // at least a tick of the scheduler

 private:
  bool NoteAllowed();
  void StayOn(int core, uint64_t now_us);

  const uint32_t at_, of_;
  int core_ = -1;
  uint64_t since_us_ = 0, free_until_us_ = 0;
  cpu_set_t allowed_{};  // while staying: what the thread's affinity was before
};

}  // namespace larder::transport
