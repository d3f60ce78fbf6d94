// Operations of the client: what the caller asked, copied, and how far it is. Built outside of the core (and
// of any lock) by the Make functions, which check the arguments; then owned by the core.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/core/effects.h"

namespace larder::client {

struct Call;

enum class Kind : uint8_t { kOpen, kMatch, kGet, kPut, kWait, kPrefetch, kRemove, kClear, kPing };

struct Operation {
  explicit Operation(Kind of) : kind(of) {}
  virtual ~Operation() = default;

  const Kind kind;
  OperationId id = 0;
  uint64_t user_data = 0;
  std::shared_ptr<CompletionSink> sink;
  uint32_t name_space = 0;  // index of the namespace in the client
  Priority priority = Priority::kInteractive;
  uint64_t deadline_us = 0;                  // on the core's clock
  std::vector<std::shared_ptr<void>> holds;  // memory of the library that lives until completion

  Status status;
  uint64_t open_items = 0;   // items (blocks, copies, parts, nodes) without an outcome
  uint32_t sends = 0;        // payloads of the caller's memory that transports may still read
  uint32_t landings = 0;     // the same, that transports may still write
  bool ending = false;       // deadline or cancel: no new calls, only waits for its memory
  bool halted = false;       // what waited was dropped, what is on the wire goes on, no other copy is asked
  std::vector<Call*> calls;  // on the wire
};

// A run of a chain's keys that one home answers for. Its keys are at `indices` of the chain (all, in order,
// when empty and count is the chain's length).
struct KeySubset {
  std::vector<uint32_t> indices;
  bool all = false;
  uint32_t level = 0;  // which copy is asked: 0 the home
};

struct MatchOperation : Operation {
  MatchOperation() : Operation(Kind::kMatch) {}
  std::shared_ptr<const std::vector<ChainHash>> chain;  // shared with messages that are being sent
  std::vector<GroupSpec> groups;
  std::vector<uint16_t> group_numbers;
  Rectangle rectangle;
  uint32_t pin_us = 0;
  std::vector<Presence> presence;  // [key][group]; kTimedOut until there is an answer
  std::vector<uint32_t> estimate_us;
  struct NodePin {
    LinkId link = 0;
    uint64_t handle = 0;
  };
  std::vector<NodePin> pins;
};

struct GetTarget {
  BlockRef ref;
  uint32_t first_extent = 0;
  uint32_t extent_count = 0;
  uint64_t bytes = 0;
  uint8_t copy = 0;      // of its order, that is asked now
  uint8_t repeats = 0;   // times the same copy was asked again
  bool alone = false;    // in a request of its own: its size did not fit
  bool away = false;     // asked of a node that has it because it is read much, or that may have a near copy
  bool near = false;     // the latter
  bool no_near = false;  // that one has been asked
  bool at_home = false;  // one of those did not have it: its own places are asked
  bool settled = false;
  bool corrupt = false;   // a copy failed verification
  bool answered = false;  // `reason` comes from a node
};
struct GetOperation : Operation {
  GetOperation() : Operation(Kind::kGet) {}
  std::vector<GetTarget> targets;
  std::vector<transport::Extent> extents;
  std::vector<BlockResult> results;
  uint64_t begin_us = 0;
  uint64_t late_us = 0;  // when it looks for other copies; 0: never
};

struct PutSource {
  BlockRef ref;
  uint32_t first_extent = 0;
  uint32_t extent_count = 0;
  uint64_t bytes = 0;
  std::vector<PartRun> parts;
  std::vector<ChainHash> constituents;
  uint32_t depth = 0;
  Retention retention = Retention::kNone;
  uint32_t open_copies = 0;
  bool answered = false;
};
struct PutOperation : Operation {
  PutOperation() : Operation(Kind::kPut) {}
  std::vector<PutSource> sources;
  std::vector<transport::ConstExtent> extents;
  std::vector<PutResult> results;
};

// Every group of every key of a chain.
struct ChainOperation : Operation {
  using Operation::Operation;
  std::shared_ptr<const std::vector<ChainHash>> chain;  // shared with messages that are being sent
  std::vector<uint16_t> groups;
  Rectangle rectangle;
};

struct WaitOperation : ChainOperation {
  WaitOperation() : ChainOperation(Kind::kWait) {}
  uint32_t leading = 0;  // upper bound so far
};

struct PrefetchOperation : ChainOperation {
  PrefetchOperation() : ChainOperation(Kind::kPrefetch) {}
  uint64_t blocks = 0;  // in memory, of those that were answered for
};

struct RemoveOperation : Operation {
  RemoveOperation() : Operation(Kind::kRemove) {}
  std::vector<ChainHash> hashes;
  std::vector<uint16_t> groups;
  uint32_t removed = 0;
};

struct ClearOperation : Operation {
  ClearOperation() : Operation(Kind::kClear) {}
  uint64_t stamp_ms = 0;  // Unix, when it was cleared: the same for all nodes
  uint64_t removed = 0;
  std::vector<std::string> failed_nodes;  // "id: why"
};

struct PingOperation : Operation {
  PingOperation() : Operation(Kind::kPing) {}
  std::string node_id;
  uint64_t round_trip_us = 0;
};

struct OpenOperation : Operation {
  OpenOperation() : Operation(Kind::kOpen) {}
};

// A namespace as the client opened it.
struct ClientNamespace {
  std::string identity;  // canonical text
  std::string tenant;
  Digest salt_digest{};
  Namespace name_space;
  Grid grid;
};

// Each checks limits and sizes: kInvalid says what is wrong and how to mend it.
Result<std::unique_ptr<Operation>> MakeMatch(const NamespaceHandle& ns, const MatchRequest& request);
Result<std::unique_ptr<Operation>> MakeGet(const NamespaceHandle& ns, std::span<const GetItem> items);
Result<std::unique_ptr<Operation>> MakePut(const NamespaceHandle& ns, std::span<const PutItem> items);
Result<std::unique_ptr<Operation>> MakeWait(const NamespaceHandle& ns, const WaitRequest& request);
Result<std::unique_ptr<Operation>> MakePrefetch(const NamespaceHandle& ns, const WaitRequest& request);
// The blocks that a report names.
Result<std::vector<BlockRef>> BlocksOf(const NamespaceHandle& ns, const ReportRequest& request);
Result<std::unique_ptr<Operation>> MakeRemove(const NamespaceHandle& ns, std::span<const ChainHash> hashes,
                                              std::span<const uint16_t> groups);

}  // namespace larder::client
