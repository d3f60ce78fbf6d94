// Inside of the loopback network: clock, events, links, processes. See loopback.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/loopback/loopback.h"

namespace larder::transport::loopback {

class LoopbackConnection;

// One transport's share of the network. Dead for good once `alive` is false.
struct Process {
  std::string host;
  Limits limits;
  uint64_t stall_us = 0;
  bool alive = true;
  std::map<uint64_t, std::shared_ptr<LoopbackConnection>> connections;
  TransportStats stats;
};

struct Listener {
  std::shared_ptr<Process> process;
  Acceptor* acceptor = nullptr;
};

// What the seed, or a command, has in store for one message.
struct Fate {
  uint64_t reset_at_byte = kNever;    // of the payload; 0 also for messages without one
  uint64_t corrupt_at_byte = kNever;  // of the payload
  unsigned corrupt_bit = 0;
};

class Core {
 public:
  Core(uint64_t seed, uint64_t start_us) : random_state_(seed), now_us_(start_us) {}

  uint64_t now_us() const { return now_us_; }
  uint64_t NextEventUs() const { return events_.empty() ? kNever : events_.front().at_us; }
  bool Step();
  void RunUntil(uint64_t us);

  void Post(uint64_t at_us, bool batch, std::function<void()> work);
  // Post after the delay of a link plus `extra_us`, subject to its cuts and stalls.
  void Deliver(const std::string& from, const std::string& to, uint64_t extra_us, bool batch,
               std::function<void()> work);
  // The same without a delay of its own: further bytes of a message whose first are through.
  void DeliverBytes(const std::string& from, const std::string& to, uint64_t bytes, bool batch,
                    std::function<void()> work);
  Fate DrawFate(const std::string& from, const std::string& to, uint64_t payload_bytes);

  void SetDefault(const Link& link) { default_link_ = link; }
  void SetLink(const std::string& from, const std::string& to, const Link& link);
  void Cut(const std::string& from, const std::string& to, bool cut);
  void Isolate(const std::string& host, bool isolated);
  void Stall(const std::string& from, const std::string& to, uint64_t us);
  void ResetNext(const std::string& from, const std::string& to) { StateOf(from, to).reset_next = true; }
  void CorruptNext(const std::string& from, const std::string& to) { StateOf(from, to).corrupt_next = true; }
  void Crash(const std::string& host);
  void End();  // the Network is going away: everything dies, nothing is held

  uint64_t Random(uint64_t bound);  // 0..bound-1; 0 for bound 0
  uint64_t NextId() { return ++last_id_; }
  void Trace(uint64_t word);
  uint64_t trace_digest() const { return trace_digest_; }
  NetworkStats& stats() { return stats_; }
  std::map<std::string, Listener>& listeners() { return listeners_; }
  std::vector<std::shared_ptr<Process>>& processes() { return processes_; }

 private:
  void Kill(Process& process);

  struct Event {
    uint64_t at_us;
    bool batch;
    uint64_t sequence;
    std::function<void()> work;
    bool operator<(const Event& other) const {  // later is less: the heap's front is the next
      if (at_us != other.at_us) return at_us > other.at_us;
      if (batch != other.batch) return batch;
      return sequence > other.sequence;
    }
  };
  struct LinkState {
    bool own = false;  // has a Link of its own
    Link link;
    bool cut = false, reset_next = false, corrupt_next = false;
    uint64_t stalled_until_us = 0;
    std::deque<std::pair<bool, std::function<void()>>> held;  // (batch, work) that met a cut
  };
  using LinkKey = std::pair<std::string, std::string>;

  LinkState& StateOf(const std::string& from, const std::string& to) { return links_[{from, to}]; }
  const Link& LinkOf(const std::string& from, const std::string& to);
  bool IsCut(const std::string& from, const std::string& to);
  void Pass(const LinkKey& key, bool batch, std::function<void()> work);
  void ReleaseHeld();
  bool Chance(uint32_t ppm) { return ppm != 0 && Random(1'000'000) < ppm; }

  uint64_t random_state_;
  uint64_t now_us_;
  uint64_t sequence_ = 0;
  uint64_t last_id_ = 0;
  uint64_t trace_digest_ = 0xcbf29ce484222325ull;
  std::vector<Event> events_;  // a heap
  Link default_link_;
  std::map<LinkKey, LinkState> links_;
  std::set<std::string> isolated_;
  std::map<std::string, Listener> listeners_;
  std::vector<std::shared_ptr<Process>> processes_;
  NetworkStats stats_;
};

}  // namespace larder::transport::loopback
