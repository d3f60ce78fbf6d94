// The transport contract in one process, one thread and virtual time, with faults on command and from a seed:
// what a simulation of a whole cluster stands on.
//
// A Network owns the clock and every event. Nothing happens by itself: Step delivers the next event and moves
// the clock to it. Handler, Acceptor and Run calls come only from inside Step, RunUntil and a transport's
// Shutdown. The same seed and the same calls give the same events (compare trace_digest()).
//
//   Network network(seed);
//   auto a = network.MakeTransport("a"), b = network.MakeTransport("b");
//   b->Listen("b:7400", &acceptor, &bound);
//   auto connection = a->Connect("b:7400", handler, {});
//   while (network.NextEventUs() <= own_timer_us) network.Step();
//
// How bytes move. A connection moves one message at a time each way: its header after the link's delay, then
// the payload by memcpy from the sender's extents into the receiver's, in steps of at most 64 KiB that take
// bytes / bytes_per_us. OnSent comes one delay after OnMessage. Messages wait in the sender's queue with the
// bounds of Limits. The clock of expire_us is now_us() here. Batch connections come after interactive ones
// among the events of one microsecond.
//
// Not thread-safe, on purpose.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace larder::transport::loopback {

class Core;

inline constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
inline constexpr uint64_t kStepBytes = 64 * 1024;

// One direction between two hosts.
struct Link {
  uint64_t delay_min_us = 5;
  uint64_t delay_max_us = 50;
  uint64_t bytes_per_us = 10'000;  // 10 GB/s; at least 1
  // Chances per million messages, drawn from the seed.
  uint32_t reset_ppm = 0;    // the connection breaks, in the middle of a payload if there is one
  uint32_t corrupt_ppm = 0;  // one bit of one payload byte arrives flipped
  uint32_t stall_ppm = 0;    // the link stands still for up to stall_max_us
  uint64_t stall_max_us = 0;
};

struct NetworkStats {
  uint64_t events = 0, resets = 0, corrupted = 0, stalls = 0, crashes = 0;
};

class Network {
 public:
  explicit Network(uint64_t seed, uint64_t start_us = 1);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // A process on `host`, alive until it is destroyed, shut down or crashed. A host may have several.
  // Addresses are any text, unique in the network; one that ends in ":0" gets a number. The Transport may
  // outlive the Network.
  std::unique_ptr<Transport> MakeTransport(const std::string& host, const Limits& limits = {},
                                           uint64_t stall_us = 2'000'000);

  uint64_t now_us() const;
  uint64_t NextEventUs() const;  // kNever when nothing is due
  bool Step();                   // false when nothing is due
  void RunUntil(uint64_t us);    // everything due by then, and the clock ends at `us`
  // Calls `work` at `us` (at once in the next Step if that is past): timers of the caller in the same order.
  void At(uint64_t us, std::function<void()> work);

  // The default of all links, and of one direction.
  void SetLinks(const Link& link);
  void SetLink(const std::string& from, const std::string& to, const Link& link);

  // Nothing passes in this direction until healed; it is not lost, it waits (closes and connects too).
  void Cut(const std::string& from, const std::string& to, bool cut);
  // The same for everything to and from a host: a pulled cable, or, as its peers see
  // it, a process that hangs.
  void Isolate(const std::string& host, bool isolated);
  // What would arrive before now + us arrives then.
  void Stall(const std::string& from, const std::string& to, uint64_t us);
  // The next message with payload that begins in this direction is broken off midway, or arrives with a bit
  // flipped.
  void ResetNext(const std::string& from, const std::string& to);
  void CorruptNext(const std::string& from, const std::string& to);
  // Kills every process on the host, now. Its handlers get no further call, not even OnClosed, and are let
  // go; its memory is neither read nor written any more when this returns. Peers get OnClosed(kPeerClosed)
  // after the link's delay. Its Transport objects stay dead; a new MakeTransport(host) is the restart.
  void Crash(const std::string& host);

  const NetworkStats& stats() const;
  // A digest over every event so far: equal for equal seeds and calls.
  uint64_t trace_digest() const;

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace larder::transport::loopback
