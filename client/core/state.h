// What the core keeps of peers, connections and requests. Only the core touches these.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/core/operation.h"

namespace larder::client {

struct Link;
struct Peer;

inline constexpr uint32_t kNoNamespace = UINT32_MAX;
inline constexpr size_t kLanes = 2;

// One request, from when it is due until its answer. Waiting in its peer's lane while `link` is null, then
// owned by the link. Without an operation its answer is thrown away (Open and Ping of the link itself apart).
struct Call {
  Verb verb = Verb::kPing;
  Operation* operation = nullptr;
  Peer* peer = nullptr;
  Link* link = nullptr;
  uint32_t name_space = kNoNamespace;
  uint64_t request_id = 0;
  uint64_t sent_us = 0;
  uint64_t window_bytes = 0;    // payload that it adds to its link's window
  uint64_t held_bytes = 0;      // of the budgets of bytes in flight
  std::vector<uint32_t> items;  // get, put: indices into the operation; of a get, what no reply has answered
  KeySubset keys;               // match, wait, remove
  uint64_t landing_id = 0;      // get: while its payload lands
  std::shared_ptr<Landing> landing;
  uint64_t steps_seen = UINT64_MAX;  // of the landing, when it was looked at last
  bool given_up = false;             // the landing: it stood still
  std::vector<uint64_t> tokens;      // put: of its Data messages
  std::shared_ptr<std::atomic<bool>> stop;
  std::string refused;    // get: why its payload was not let in
  bool nonsense = false;  // get: no honest node says that
  bool link_transport_shm = false;
  bool forgotten = false;          // counted as such by its link
  std::vector<uint32_t> ticketed;  // put: items with a ticket, in the order of the Commit
};

// What one operation has to move to or from one peer; cut into calls chunk by chunk.
struct Share {
  Operation* operation = nullptr;
  std::vector<uint32_t> items;
  size_t next = 0;
  uint64_t chunk_bytes = 0;
  bool near = false;  // asks for near copies
};

// A one-way message that waits for a link.
struct Notice {
  Verb verb = Verb::kTouch;
  uint32_t name_space = kNoNamespace;
  LinkId only_link = 0;  // 0: any
  Touch touch;
  std::vector<BlockRef> blocks;  // report
};

struct NamespaceOnLink {
  enum class State : uint8_t { kUnknown, kOpening, kOpen, kRefused } state = State::kUnknown;
  uint32_t number = 0;
};

struct Link {
  enum class State : uint8_t { kConnecting, kGreeting, kReady, kClosing };
  LinkId id = 0;
  Peer* peer = nullptr;  // null: a seed that has not said who it is
  Endpoint endpoint;
  Priority lane = Priority::kInteractive;
  uint32_t loop = 0;  // the I/O thread it lives on
  State state = State::kConnecting;
  bool greeted = false;  // was ready before it began to close
  uint32_t requests_max = 1;
  uint64_t batch_bytes_max = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Call>> calls;
  uint32_t bulk_calls = 0;  // gets and puts that somebody waits for
  uint32_t forgotten = 0;   // calls that nobody waits for any more
  uint64_t window_bytes = 0;
  std::vector<NamespaceOnLink> namespaces;
  std::string node_id;                     // as it said in Hello
  bool near = false;                       // keeps near copies
  std::optional<NodeRecord> introduction;  // its own record in its own table
  // Signs of life: looked at while answers are due, never when idle.
  uint64_t received = 0;
  uint64_t progress_seen = 0;
  uint64_t worked_us = 0;  // when it answered a request last
  bool check_armed = false;
  bool ping_sent = false;
};

struct Lane {
  std::vector<Link*> links;
  std::deque<std::unique_ptr<Call>> waiting;
  std::deque<Share> shares;
  std::deque<Notice> notices;
  uint64_t retry_us = 0;  // no further link before; the ones that are up go on
};

struct Peer {
  NodeRecord record;
  bool introduced = false;  // `record` comes from the node itself
  bool retired = false;     // not in the table any more
  bool avoid_shm = false;   // could not be reached that way since it was introduced last
  bool avoid_ucx = false;
  bool down = false;  // left alone until retry_us, then probed
  bool near = false;  // keeps near copies and gives them, as it said when it greeted last
  bool late = false;  // left a get without a sign of work: other copies are asked first, until it answers
  Presence down_reason = Presence::kUnreachable;
  bool was_up = false;
  uint64_t known_us = 0;  // since when this life of it has been connected without a break; 0: it is not
  bool dirty = false;     // to be pumped before the core returns
  bool hungry = false;    // stopped by the budget of all peers
  uint64_t retry_us = 0;
  uint64_t backoff_us = 0;
  std::string last_error;
  uint32_t hang_ups = 0;  // connections in a row that were closed before they had greeted
  uint64_t bytes_in_flight = 0;
  Lane lanes[kLanes];
};

}  // namespace larder::client
