#include "proto/placement.h"

#include <xxhash.h>

#include <algorithm>

namespace larder {
namespace {

constexpr uint32_t kFractionBits = 32;
__extension__ using U128 = unsigned __int128;  // gcc and clang have it on every 64-bit machine

// -log2((h + 1) / 2^64) in fixed point, bit by bit: squaring the mantissa doubles its logarithm. Every
// step truncates, so the logarithm is never too large and the cost never below the true one.
uint64_t CostOf(uint64_t h) {
  if (h == UINT64_MAX) return 0;
  const uint64_t x = h + 1;
  const int leading = __builtin_clzll(x);
  uint64_t log = static_cast<uint64_t>(63 - leading);
  uint64_t mantissa = x << leading;  // 1.63 fixed point, in [1, 2)
  for (uint32_t bit = 0; bit < kFractionBits; ++bit) {
    const auto square = U128{mantissa} * mantissa;  // 2.126, in [1, 4)
    const bool two_or_more = (square >> 127) != 0;
    mantissa = static_cast<uint64_t>(square >> (two_or_more ? 64 : 63));
    log = log << 1 | (two_or_more ? 1 : 0);
  }
  return (uint64_t{64} << kFractionBits) - log;
}

// At most CostOf(h): -log2(y) >= (1 - y) / ln 2, and 369/256 < 1 / ln 2. It spares the logarithm for all
// but the few nodes that may enter a slot's order.
uint64_t CostFloor(uint64_t h) {
  return ((~h >> kFractionBits) * 369) >> 8;
}

// The bytes that are hashed for one node: slot, then id. The slot is overwritten in place.
struct Candidate {
  uint16_t index = 0;
  uint64_t weight = 0;
  std::string bytes;
  std::string_view id() const { return std::string_view(bytes).substr(2); }
};

// A node in a slot. The logarithm is the dear part, so it is taken only when it decides.
struct Ranked {
  uint64_t h = 0;
  const Candidate* node = nullptr;
  uint64_t known_cost = kUnknownCost;

  static constexpr uint64_t kUnknownCost = UINT64_MAX;
  // With equal weights the greater hash has the lower cost. Hashes that lie 2^34 apart differ by more than
  // five units of cost, whose rounding is one unit; only those that are closer may tie.
  static constexpr uint64_t kClear = uint64_t{1} << 34;

  uint64_t Cost() {
    if (known_cost == kUnknownCost) known_cost = CostOf(h);
    return known_cost;
  }
  // cost < 2^39 and weight <= 2^16, so the products fit 64 bits.
  bool Before(Ranked* other) {
    if (node->weight == other->node->weight) {
      if (h > other->h && h - other->h >= kClear) return true;
      if (h < other->h && other->h - h >= kClear) return false;
    } else if (CostFloor(h) * other->node->weight > other->Cost() * node->weight) {
      return false;
    }
    const uint64_t mine = Cost() * other->node->weight;
    const uint64_t others = other->Cost() * node->weight;
    return mine != others ? mine < others : node->id() < other->node->id();
  }
};

// Keeps the best `length` of those seen, best first.
class Selection {
 public:
  explicit Selection(uint32_t length) : length_(length) { ranked_.reserve(length); }
  void OfferAll(std::vector<Candidate>* candidates, uint16_t slot) {
    ranked_.clear();
    for (Candidate& node : *candidates) {
      std::memcpy(node.bytes.data(), &slot, sizeof slot);
      Offer(node, XXH3_64bits(node.bytes.data(), node.bytes.size()));
    }
  }
  void Offer(const Candidate& node, uint64_t h) {
    Ranked entry{h, &node};
    if (ranked_.size() == length_) {
      if (!entry.Before(&ranked_.back())) return;
      ranked_.pop_back();
    }
    auto at = ranked_.end();
    while (at != ranked_.begin() && entry.Before(&*(at - 1))) --at;
    ranked_.insert(at, entry);
  }
  const std::vector<Ranked>& ranked() const { return ranked_; }

 private:
  const uint32_t length_;
  std::vector<Ranked> ranked_;
};

bool MayServe(const NodeRecord& node) {
  return (node.state == NodeState::kActive || node.state == NodeState::kDraining) && node.weight > 0;
}

std::vector<Candidate> CandidatesOf(const NodeTable& table) {
  std::vector<Candidate> candidates;
  const size_t nodes = std::min<size_t>(table.nodes.size(), kNodesMax);
  for (size_t i = 0; i < nodes; ++i) {
    const NodeRecord& node = table.nodes[i];
    if (!MayServe(node)) continue;
    candidates.push_back(
        {static_cast<uint16_t>(i), std::min(node.weight, kWeightMax), std::string(2, '\0') + node.id});
  }
  return candidates;
}

}  // namespace

uint16_t SlotOf(const ChainHash& hash) {
  return static_cast<uint16_t>(XXH3_64bits(hash.bytes.data(), hash.bytes.size()) >> 48);
}

uint64_t RendezvousCost(uint16_t slot, std::string_view node_id) {
  std::string bytes(2, '\0');
  std::memcpy(bytes.data(), &slot, sizeof slot);
  bytes.append(node_id);
  return CostOf(XXH3_64bits(bytes.data(), bytes.size()));
}

Placement::Placement(const NodeTable& table, uint32_t order_length) {
  std::vector<Candidate> candidates = CandidatesOf(table);
  stride_ = std::min(order_length, static_cast<uint32_t>(candidates.size()));
  if (stride_ == 0) return;
  orders_.reserve(size_t{kSlots} * stride_);
  Selection selection(stride_);
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    selection.OfferAll(&candidates, static_cast<uint16_t>(slot));
    for (const Ranked& entry : selection.ranked()) orders_.push_back(entry.node->index);
  }
}

std::vector<uint16_t> OrderOf(const NodeTable& table, uint16_t slot, uint32_t length) {
  std::vector<Candidate> candidates = CandidatesOf(table);
  length = std::min(length, static_cast<uint32_t>(candidates.size()));
  if (length == 0) return {};
  Selection selection(length);
  selection.OfferAll(&candidates, slot);
  std::vector<uint16_t> order;
  for (const Ranked& entry : selection.ranked()) order.push_back(entry.node->index);
  return order;
}

std::span<const uint16_t> Placement::Order(uint16_t slot) const {
  if (stride_ == 0) return {};
  return std::span(orders_).subspan(size_t{slot} * stride_, stride_);
}

}  // namespace larder
