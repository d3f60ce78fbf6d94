// Where a thread runs while it moves payload to or from another thread of this machine over TCP.
//
// Over loopback the sender's core does the receiver's half of the protocol, too. Where both run on one core
// the bytes are still in its cache when they are copied out: 0.20 CPU s a GiB, against 0.33 from core to
// core. The scheduler doesn't know that, and moves one of the two to any core that is idle for a moment. So
// the thread of the side that dialed goes after the other's, now and then. It is not kept there: threads that
// were (the first version did that) waited for their core while others were idle, and three nodes with their
// SSDs on two cores fell behind.
#pragma once

#include <cstdint>

namespace larder::transport {

// Of one thread; all calls are its own.
class HomeCore {
 public:
  // Goes to `core`, if the thread is elsewhere, its affinity allows it, and it has not gone anywhere for
  // kHoldUs (peers on several cores must not send it round). That affinity stays as it is. Says whether it
  // went.
  bool Follow(int core, uint64_t now_us);

  static constexpr uint64_t kHoldUs = 2'000;

 private:
  uint64_t went_us_ = 0;
};

}  // namespace larder::transport
