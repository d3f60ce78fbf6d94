// Larder's C++ client. Finds blocks by the hash of the prefix that they encode, pulls them into the caller's
// memory and verifies every byte there, and puts blocks that a prefill computed.
//
// Promises. No call throws, logs, aborts, installs a signal handler, or blocks past its deadline. A dead,
// slow or full node is a miss (or a put that is not stored) with its reason, never an error of the whole
// batch. A block whose bytes do not verify is reported to its node and is never handed out as a hit.
//
// Threads. A Client may be used from any thread at the same time. Completions arrive on a CompletionQueue; no
// user code runs on the client's own threads.
//
// Memory. Extents passed to Get and Put belong to the library from the call (Submit) until the operation has
// completed, also when it was cancelled or ran out of time: it completes only once no byte can land any more.
// Sources of a Put must not change in between. Memory from AllocateBuffer moves without a copy over shm.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "proto/block_key.h"
#include "proto/message.h"
#include "proto/status.h"

namespace larder {

struct ClientOptions {
  std::vector<std::string> seeds;     // "host:port" of any nodes; the rest of the table comes from them
  std::string transport = "auto";     // "auto", "tcp", "shm", "ucx": one for all peers
  std::string token;                  // credential; empty: anonymous
  std::string client_name;            // for people
  int io_threads = 2;                 // 1..16
  uint32_t connections_per_peer = 2;  // of each priority class, opened on first use; 1..8
  uint32_t replicas = 1;              // copies that puts make and gets look for; 1..4
  uint64_t bytes_in_flight_max = 256ull << 20;  // of all peers; beyond it operations wait their turn
  uint64_t peer_bytes_in_flight_max = 64ull << 20;
  uint32_t operations_max = 4096;  // submitted and not completed; beyond it Submit answers kBusy
  uint64_t default_deadline_us = 5'000'000;
  uint64_t connect_timeout_us = 1'000'000;  // also for a sign of life while answers are due; 1 s at least
  uint64_t backoff_min_us = 50'000;         // a peer that failed is left alone for so long, doubling up to
  uint64_t backoff_max_us = 2'000'000;
  bool verify = true;  // false only to measure what verification costs
  uint32_t spin_us = 0;
};

struct CallOptions {
  uint64_t deadline_us = 0;  // from now; 0: the client's default
  Priority priority = Priority::kInteractive;
};

enum class Outcome : uint8_t {
  kHit = 0,
  kMiss = 1,     // `reason` says why
  kCorrupt = 2,  // every copy that was read failed verification
  kRefused = 3,  // the node said no (bound reached, denied)
  kTimedOut = 4,
};
std::string_view OutcomeName(Outcome outcome);

// Reading memory: segments of a block's packed payload `[layer][head group]...` of the asked rectangle, in
// order.
struct MutableExtent {
  void* data = nullptr;
  size_t bytes = 0;
};
struct ConstExtentRef {
  const void* data = nullptr;
  size_t bytes = 0;
};

// A namespace that was opened; cheap to copy, valid as long as its client.
struct NamespaceHandle {
  uint32_t index = UINT32_MAX;
  Namespace name_space;
  Grid grid;
  bool valid() const { return index != UINT32_MAX; }
};

// A group of the engine's KV cache. A full-attention group needs every block of a prefix, a sliding window
// only the last `window_blocks` of it.
struct GroupSpec {
  uint16_t group = 0;
  uint32_t window_blocks = 0;  // 0: full attention
};

struct MatchRequest {
  std::span<const ChainHash> chain;  // in order, at most kHashesMax
  std::vector<GroupSpec> groups = {{}};
  Rectangle rectangle;  // ignored when `whole`
  bool whole = true;    // the whole grid
  uint64_t pin_us = 0;  // 0: no pin
};
struct MatchResult {
  Status status;                      // not ok: nothing could be asked at all (bad arguments, busy)
  uint32_t usable_length = 0;         // longest prefix usable by every group
  std::vector<Presence> presence;     // [key][group]; kUnreachable where a home did not answer
  std::vector<uint32_t> estimate_us;  // [key]: until a get of the block would end; 0: unknown
  uint64_t pin = 0;                   // Release it; 0: nothing pinned
};

// The longest L such that every full group has blocks 0..L-1 and every window group has its last
// min(window, L) blocks before L. present: [key][group], non-zero where there.
uint32_t UsableLength(std::span<const Presence> presence, size_t keys, std::span<const GroupSpec> groups);

struct GetItem {
  ChainHash hash;
  uint16_t group = 0;
  Rectangle rectangle;  // ignored when `whole`
  bool whole = true;
  std::vector<MutableExtent> extents;  // add up to the payload of the rectangle
};
struct BlockResult {
  Outcome outcome = Outcome::kMiss;
  Presence reason = Presence::kNeverStored;  // of a hit: the tier that it came from
  uint64_t bytes = 0;                        // of a hit
  Digest writer{};                           // of a hit: who wrote it (first piece)
  uint64_t created_ms = 0;                   // of a hit: by the node's clock (oldest piece)
};

struct PutItem {
  ChainHash hash;
  uint16_t group = 0;
  Rectangle rectangle;
  bool whole = true;
  std::vector<ConstExtentRef> extents;  // the packed payload
  // Bytes of each part in PartIndex order, as runs; empty: all parts are equal.
  std::vector<PartRun> parts;
  std::vector<ChainHash> constituents;     // engine's own hashes, when the block is made of several
  uint32_t depth = 0;                      // position in its chain, for eviction order
  Retention retention = Retention::kNone;  // told to its nodes once it is there
};
struct PutResult {
  PutState state = PutState::kBusy;  // the best of its copies
  Status why;                        // when not stored, exists or differs
  uint32_t copies = 0;               // nodes that have it now
  bool there() const { return IsThere(state); }
};

struct WaitRequest {  // of a prefetch too
  std::span<const ChainHash> chain;
  std::vector<GroupSpec> groups = {{}};  // windows count as full here
  Rectangle rectangle;
  bool whole = true;
};

struct TouchRequest {  // once a request, when it knows what it used
  std::span<const ChainHash> chain;
  std::vector<uint16_t> groups = {0};
  uint32_t usable_length = 0;  // of the chain, what was there when the request came: Match's answer
  // What the engine knows of the chain's future: moves its blocks in the order in which they leave, until
  // their next use; pins nothing.
  Retention retention = Retention::kNone;
  bool finishes = false;  // only that: the use was told by an earlier touch
};

struct ReportRequest {  // blocks whose content a caller found to be wrong, beyond what checksums see
  std::span<const ChainHash> hashes;
  std::vector<uint16_t> groups = {0};
  Rectangle rectangle;
  bool whole = true;
};

using OperationId = uint64_t;  // 0: none

enum class CompletionKind : uint8_t { kMatch = 1, kWait = 2, kGet = 3, kPut = 4, kOther = 5, kPrefetch = 6 };

struct Completion {
  CompletionKind kind = CompletionKind::kOther;  // kOther: of the library itself, never in a queue
  OperationId id = 0;
  uint64_t user_data = 0;
  Status status;                    // of the operation as a whole
  MatchResult match;                // of SubmitMatch
  std::vector<BlockResult> blocks;  // of SubmitGet, in the order of its items
  std::vector<PutResult> puts;      // of SubmitPut
  uint32_t leading = 0;             // of SubmitWait: leading blocks that are there
  // Of SubmitPrefetch: blocks in memory. Of Remove, Clear and Ping inside the library: blocks; microseconds.
  uint64_t count = 0;
};

// Completed operations, in the order of completion. Bounded by operations_max: every operation has its place.
class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  // Readable while something is there. Not to be read or closed by the caller.
  virtual int event_fd() const = 0;
  // Up to `max` completions; waits for the first one until timeout_us (0: not at all).
  virtual std::vector<Completion> Poll(size_t max, uint64_t timeout_us) = 0;
};

struct ClientStats {
  uint64_t gets = 0, hits = 0, misses = 0, corrupt = 0, refused = 0, timed_out = 0, bytes_pulled = 0;
  uint64_t puts = 0, stored = 0, exists = 0, differs = 0, not_stored = 0, bytes_put = 0;
  uint64_t matches = 0, waits = 0, prefetches = 0, reconnects = 0, peers_down = 0, reports = 0;
  uint64_t local_hits = 0;  // of the hits, those from a node on this host
  uint64_t bytes_in_flight = 0, bytes_in_flight_peak = 0, operations = 0;
  uint64_t miss_by_reason[256] = {};
};

struct PeerInfo {
  NodeRecord record;
  std::string transport;  // as used: "tcp", "shm", "ucx"
  bool connected = false;
  uint64_t retry_in_us = 0;
  std::string last_error;
};

// Memory for transfers: page-aligned, known to the transports (no copy over shm, registered for RDMA). The
// memory lives until both the Buffer and every operation on it are gone.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::byte* data() const = 0;
  virtual size_t bytes() const = 0;
};

class Client {
 public:
  // Asks the seeds for the node table until one answers or `deadline_us` (0: the default) has passed.
  static Result<std::unique_ptr<Client>> Open(const ClientOptions& options, uint64_t deadline_us = 0);
  // Cancels what is under way; returns once no byte can land in the caller's memory any more.
  virtual ~Client() = default;

  // Local: nodes are told on first use. salt: the tenant's secret; it never leaves the process.
  virtual Result<NamespaceHandle> OpenNamespace(const Identity& identity, std::string_view tenant = "",
                                                std::string_view salt = "") = 0;

  // Blocking calls.
  virtual MatchResult Match(const NamespaceHandle& ns, const MatchRequest& request,
                            const CallOptions& = {}) = 0;
  virtual std::vector<BlockResult> Get(const NamespaceHandle& ns, std::span<const GetItem> items,
                                       const CallOptions& = {}) = 0;
  virtual std::vector<PutResult> Put(const NamespaceHandle& ns, std::span<const PutItem> items,
                                     const CallOptions& = {}) = 0;
  // Leading blocks of the chain that are there when all are, or at the deadline.
  virtual uint32_t Wait(const NamespaceHandle& ns, const WaitRequest& request, const CallOptions& = {}) = 0;

  // Moves blocks from their nodes' SSDs into their memory, for a request that waits its turn: when all are
  // there, or at the deadline. Blocks (keys times groups) that are in memory then; a get after it is quick,
  // but nothing is pinned. kBusy when operations_max is reached.
  virtual Result<uint64_t> Prefetch(const NamespaceHandle& ns, const WaitRequest& request,
                                    const CallOptions& = {}) = 0;

  // One way: sent at once, not answered.
  virtual void Touch(const NamespaceHandle& ns, const TouchRequest& request) = 0;
  virtual void Release(uint64_t pin) = 0;
  // One way too: every node that may have a copy checks its bytes, and drops them only if they are bad.
  virtual Status Report(const NamespaceHandle& ns, const ReportRequest& request) = 0;

  virtual Result<uint32_t> Remove(const NamespaceHandle& ns, std::span<const ChainHash> hashes,
                                  std::span<const uint16_t> groups, const CallOptions& = {}) = 0;
  // On every node of the table: blocks removed, and an error that names the nodes that did not answer.
  virtual Result<uint64_t> Clear(const NamespaceHandle& ns, const CallOptions& = {}) = 0;

  // The same, asynchronous. Items are copied, what their extents point to is not. kBusy when operations_max
  // is reached. `queue` outlives the operation.
  virtual std::unique_ptr<CompletionQueue> MakeQueue() = 0;
  virtual Result<OperationId> SubmitMatch(CompletionQueue* queue, uint64_t user_data,
                                          const NamespaceHandle& ns, const MatchRequest& request,
                                          const CallOptions& = {}) = 0;
  virtual Result<OperationId> SubmitGet(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                        std::span<const GetItem> items, const CallOptions& = {}) = 0;
  virtual Result<OperationId> SubmitPut(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                        std::span<const PutItem> items, const CallOptions& = {}) = 0;
  virtual Result<OperationId> SubmitWait(CompletionQueue* queue, uint64_t user_data,
                                         const NamespaceHandle& ns, const WaitRequest& request,
                                         const CallOptions& = {}) = 0;
  virtual Result<OperationId> SubmitPrefetch(CompletionQueue* queue, uint64_t user_data,
                                             const NamespaceHandle& ns, const WaitRequest& request,
                                             const CallOptions& = {}) = 0;
  // It completes soon with kCancelled (or with what it already had).
  virtual void Cancel(OperationId id) = 0;
  // Drops what of it no node was asked for yet; what is under way goes on to its end. No connection is closed
  // for it, so neighbours don't notice. Completes with kCancelled when something was dropped.
  virtual void CancelWaiting(OperationId id) = 0;

  virtual Result<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes) = 0;
  // Makes memory of the caller's known to transports that gain by it (RDMA: registered once, not at each
  // use). It stays the caller's; it must be there until UnregisterMemory, and no operation may use it any
  // more by then. kInvalid when it overlaps memory that is known already.
  virtual Status RegisterMemory(void* data, size_t bytes) = 0;
  virtual Status UnregisterMemory(void* data) = 0;

  // Round trip to one node of the table, microseconds.
  virtual Result<uint64_t> Ping(const std::string& node_id, const CallOptions& = {}) = 0;
  virtual NodeTable table() const = 0;
  virtual std::vector<PeerInfo> peers() const = 0;
  virtual ClientStats stats() const = 0;
};

}  // namespace larder
