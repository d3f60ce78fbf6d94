// The node table, and which node is home to a block: weighted rendezvous in integers.
//
// Source: design.md section 2, formats.md "Names and numbers". Pinned by golden vectors; algorithm 1.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/block_key.h"

namespace larder {

inline constexpr uint32_t kSlots = 65536;
inline constexpr uint32_t kNodesMax = 4096;
inline constexpr uint32_t kWeightMax = 1u << 16;
inline constexpr uint32_t kNodeIdBytesMax = 128;
inline constexpr size_t kTableBytesMax = 2044 * 1024;  // encoded; fits a message (4,096 nodes of 500 bytes)

enum class NodeState : uint8_t { kJoining = 0, kActive = 1, kDraining = 2, kAway = 3 };

struct NodeRecord {
  std::string id;            // stable across restarts; 1..128 bytes of [A-Za-z0-9._:@/-] and []
  uint64_t incarnation = 0;  // new at each start
  std::string data_address;  // host:port
  std::string control_address;
  std::string http_address;
  std::string host_id;      // equal on one host (boot id); decides shm
  std::string shm_path;     // Unix socket; empty when shm is off
  std::string ucx_address;  // host:port of the ucx listener; empty when none
  uint32_t weight = 1;      // 1..kWeightMax
  std::string zone;
  NodeState state = NodeState::kActive;
  uint16_t wire_min = 1;
  uint16_t wire_max = 1;
  std::string build;
  bool operator==(const NodeRecord&) const = default;
};

// Version = (epoch, digest): the higher epoch wins; an equal epoch with another digest is a finding of
// `larderctl doctor`.
struct NodeTable {
  uint64_t epoch = 0;
  uint16_t algorithm = 1;
  std::vector<NodeRecord> nodes;  // sorted by id, unique

  void Normalize();  // sorts, drops doubles (the higher incarnation stays)
  // Over what decides where a block is and nothing else: epoch, algorithm, and of each node id, data address,
  // weight and state. Nodes with one static list have one digest, though each knows only its own sockets,
  // ports and build; a restart or an upgrade changes none.
  Digest digest() const;
  bool operator==(const NodeTable&) const = default;
};

void EncodeTable(const NodeTable& table, Bytes* out);
Result<NodeTable> DecodeTable(ByteView bytes);

// A static list's entry `id@host:port*weight`; `id@` and `*weight` may be missing: the id defaults to the
// address text, the weight to 1. "[::1]:7400" is an address too.
Result<NodeRecord> ParseNodeEntry(std::string_view text);

// Top 16 bits of XXH3-64 over the 32 bytes of the chain hash.
uint16_t SlotOf(const ChainHash& hash);

// The order of nodes for each slot, computed once a table version. Nodes that are away or joining are left
// out; draining ones stay in (readers), ordered as ever. Immutable; share it freely between threads.
class Placement {
 public:
  Placement() = default;
  explicit Placement(const NodeTable& table, uint32_t order_length = 4);
  // Indices into table.nodes, best first; at most order_length. Empty when there are no nodes.
  std::span<const uint16_t> Order(uint16_t slot) const;
  std::span<const uint16_t> Order(const ChainHash& hash) const { return Order(SlotOf(hash)); }
  uint32_t order_length() const { return stride_; }

 private:
  uint32_t stride_ = 0;
  std::vector<uint16_t> orders_;
};

// The order of one slot by itself, up to `length` nodes: of blocks that are copied far down their order.
std::vector<uint16_t> OrderOf(const NodeTable& table, uint16_t slot, uint32_t length);

// Fixed-point -log2((h + 1) / 2^64), 32 fraction bits, integer arithmetic only; h = XXH3-64(slot u16 ++ id).
// Node a ranks before node b when cost(a) / weight(a) < cost(b) / weight(b), by cross-multiplication (the
// products fit 64 bits), ties by id.
uint64_t RendezvousCost(uint16_t slot, std::string_view node_id);

}  // namespace larder
