#include "transport/loopback/core.h"

#include <algorithm>

#include "transport/loopback/connection.h"

namespace larder::transport::loopback {

bool Core::Step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end());
  const Event event = std::move(events_.back());
  events_.pop_back();
  now_us_ = std::max(now_us_, event.at_us);
  ++stats_.events;
  Trace(now_us_);
  event.work();
  return true;
}

void Core::RunUntil(uint64_t us) {
  while (NextEventUs() <= us) Step();
  now_us_ = std::max(now_us_, us);
}

void Core::Post(uint64_t at_us, bool batch, std::function<void()> work) {
  events_.push_back({std::max(at_us, now_us_), batch, ++sequence_, std::move(work)});
  std::push_heap(events_.begin(), events_.end());
}

void Core::Deliver(const std::string& from, const std::string& to, uint64_t extra_us, bool batch,
                   std::function<void()> work) {
  const Link& link = LinkOf(from, to);
  const uint64_t spread_us =
      link.delay_max_us > link.delay_min_us ? link.delay_max_us - link.delay_min_us : 0;
  const uint64_t delay_us = link.delay_min_us + Random(spread_us + 1) + extra_us;
  Post(now_us_ + delay_us, batch, [this, key = LinkKey{from, to}, batch, work = std::move(work)]() mutable {
    Pass(key, batch, std::move(work));
  });
}

void Core::DeliverBytes(const std::string& from, const std::string& to, uint64_t bytes, bool batch,
                        std::function<void()> work) {
  const uint64_t rate = std::max<uint64_t>(LinkOf(from, to).bytes_per_us, 1);
  Post(now_us_ + bytes / rate, batch,
       [this, key = LinkKey{from, to}, batch, work = std::move(work)]() mutable {
         Pass(key, batch, std::move(work));
       });
}

// At the far end of a link: run the work, or wait for the end of a cut or stall.
void Core::Pass(const LinkKey& key, bool batch, std::function<void()> work) {
  LinkState& state = StateOf(key.first, key.second);
  if (IsCut(key.first, key.second)) {
    state.held.emplace_back(batch, std::move(work));
  } else if (state.stalled_until_us > now_us_) {
    Post(state.stalled_until_us, batch,
         [this, key, batch, work = std::move(work)]() mutable { Pass(key, batch, std::move(work)); });
  } else {
    work();
  }
}

Fate Core::DrawFate(const std::string& from, const std::string& to, uint64_t payload_bytes) {
  Fate fate;
  const Link link = LinkOf(from, to);
  LinkState& state = StateOf(from, to);
  const bool reset = Chance(link.reset_ppm);
  const bool corrupt = Chance(link.corrupt_ppm);
  if (Chance(link.stall_ppm)) {
    ++stats_.stalls;
    Stall(from, to, 1 + Random(link.stall_max_us));
  }
  if (reset || (state.reset_next && payload_bytes != 0)) {
    if (!reset) state.reset_next = false;
    fate.reset_at_byte = Random(payload_bytes);
  }
  if (payload_bytes != 0 && (corrupt || state.corrupt_next)) {
    if (!corrupt) state.corrupt_next = false;
    fate.corrupt_at_byte = Random(payload_bytes);
    fate.corrupt_bit = static_cast<unsigned>(Random(8));
  }
  return fate;
}

void Core::SetLink(const std::string& from, const std::string& to, const Link& link) {
  LinkState& state = StateOf(from, to);
  state.own = true;
  state.link = link;
}

const Link& Core::LinkOf(const std::string& from, const std::string& to) {
  const auto found = links_.find({from, to});
  return found != links_.end() && found->second.own ? found->second.link : default_link_;
}

bool Core::IsCut(const std::string& from, const std::string& to) {
  return StateOf(from, to).cut || isolated_.count(from) != 0 || isolated_.count(to) != 0;
}

void Core::Cut(const std::string& from, const std::string& to, bool cut) {
  StateOf(from, to).cut = cut;
  if (!cut) ReleaseHeld();
}

void Core::Isolate(const std::string& host, bool isolated) {
  if (isolated) {
    isolated_.insert(host);
  } else {
    isolated_.erase(host);
    ReleaseHeld();
  }
}

void Core::Stall(const std::string& from, const std::string& to, uint64_t us) {
  LinkState& state = StateOf(from, to);
  state.stalled_until_us = std::max(state.stalled_until_us, now_us_ + us);
}

// Everything that waited goes on in the order in which it met the cut.
void Core::ReleaseHeld() {
  for (auto& [key, state] : links_) {
    if (state.held.empty() || IsCut(key.first, key.second)) continue;
    auto held = std::move(state.held);
    state.held.clear();
    for (auto& [batch, work] : held) {
      Post(now_us_, batch, [this, key = key, batch = batch, work = std::move(work)]() mutable {
        Pass(key, batch, std::move(work));
      });
    }
  }
}

void Core::Crash(const std::string& host) {
  ++stats_.crashes;
  for (auto found = listeners_.begin(); found != listeners_.end();) {
    found = found->second.process->host == host ? listeners_.erase(found) : std::next(found);
  }
  for (const auto& process : processes_) {
    if (process->host == host) Kill(*process);
  }
  std::erase_if(processes_, [](const auto& process) { return !process->alive; });
}

void Core::Kill(Process& process) {
  process.alive = false;
  const auto connections = std::move(process.connections);
  process.connections.clear();
  for (const auto& [id, connection] : connections) connection->Die();
}

void Core::End() {
  listeners_.clear();
  for (const auto& process : processes_) Kill(*process);
  processes_.clear();
  events_.clear();
  links_.clear();
}

// SplitMix64 (Steele, Lea, Flood 2014).
uint64_t Core::Random(uint64_t bound) {
  random_state_ += 0x9e3779b97f4a7c15ull;
  uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return bound == 0 ? 0 : z % bound;
}

// FNV-1a over 64-bit words.
void Core::Trace(uint64_t word) {
  trace_digest_ = (trace_digest_ ^ word) * 0x100000001b3ull;
}

}  // namespace larder::transport::loopback
