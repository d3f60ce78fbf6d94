// What the threads that move bytes and the owner's thread ask of the scheduler.
#pragma once

namespace larder::transport {

// Names the calling thread (15 characters at most) and asks for short turns on the processor, so that two
// such threads on one core take turns within a message instead of after one: a peer that waits for its first
// byte must not wait until another peer's last one is sent. A wish: kernels before 6.12 do without, and what
// the process's user has set (policy, nice, affinity) stays.
void NameServingThread(const char* name);

}  // namespace larder::transport
