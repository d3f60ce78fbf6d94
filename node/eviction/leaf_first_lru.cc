// One list from the coldest to the hottest entry, ordered by (time of the last touch, -depth).
#include <algorithm>

#include "node/chunked.h"
#include "node/eviction/policy.h"
#include "proto/status.h"

namespace larder::node {

namespace {
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kWalkMax = 1024;
constexpr uint64_t kDepthMax = 0xffff;

// 48 bits of microseconds (nine years), 16 bits of depth: the greater stamp is the hotter entry.
uint64_t StampOf(const TouchInfo& info) {
  const uint64_t now = std::min(info.now_us, (uint64_t{1} << 48) - 1);
  return now << 16 | (kDepthMax - std::min<uint64_t>(info.depth, kDepthMax));
}
}  // namespace

class LruLinks {
 public:
  struct Node {
    uint32_t colder;
    uint32_t hotter;
    uint64_t stamp;
  };
  static_assert(sizeof(Node) == 16);
  Chunked<Node> nodes;
  uint32_t used = 0;
};

std::shared_ptr<LruLinks> MakeLruLinks() {
  return std::make_shared<LruLinks>();
}
uint64_t LruLinksBytes(const LruLinks& links) {
  return uint64_t{links.used} * sizeof(LruLinks::Node);
}

void PrefetchLinks(const LruLinks& links, uint32_t entry) {
  __builtin_prefetch(&links.nodes[entry]);
}

void PrefetchNeighbours(const LruLinks& links, uint32_t entry) {
  const LruLinks::Node& node = links.nodes[entry];
  if (node.colder != kNone) __builtin_prefetch(&links.nodes[node.colder]);
  if (node.hotter != kNone) __builtin_prefetch(&links.nodes[node.hotter]);
}

namespace {

class LeafFirstLru final : public EvictionPolicy {
 public:
  LeafFirstLru(std::shared_ptr<LruLinks> links, bool shared) : links_(std::move(links)), shared_(shared) {}

  void Reserve(uint32_t entries) override {
    links_->nodes.Reserve(entries);
    links_->used = std::max(links_->used, entries);
  }

  void Insert(uint32_t entry, const TouchInfo& info) override {
    const uint64_t stamp = StampOf(info);
    uint32_t below = hottest_;
    for (uint32_t looks = 0; below != kNone && node(below).stamp > stamp && looks < kWalkMax; ++looks) {
      below = node(below).colder;
    }
    LruLinks::Node& n = node(entry);
    n.stamp = stamp;
    n.colder = below;
    n.hotter = below == kNone ? coldest_ : node(below).hotter;
    (n.colder == kNone ? coldest_ : node(n.colder).hotter) = entry;
    (n.hotter == kNone ? hottest_ : node(n.hotter).colder) = entry;
    ++size_;
  }

  void Touch(uint32_t entry, const TouchInfo& info) override {
    Remove(entry);
    Insert(entry, info);
  }

  void Remove(uint32_t entry) override {
    LARDER_CHECK(size_ > 0);
    const LruLinks::Node n = node(entry);
    (n.colder == kNone ? coldest_ : node(n.colder).hotter) = n.hotter;
    (n.hotter == kNone ? hottest_ : node(n.hotter).colder) = n.colder;
    --size_;
  }

  uint32_t Victim(const std::function<bool(uint32_t)>& may_leave, uint32_t look_max) override {
    uint32_t entry = coldest_;
    for (uint32_t looks = 0; entry != kNone && looks < look_max; ++looks, entry = node(entry).hotter) {
      if (may_leave(entry)) return entry;
    }
    return kNone;
  }

  uint64_t ColdestUs() const override { return coldest_ == kNone ? UINT64_MAX : LastUs(coldest_); }
  uint64_t LastUs(uint32_t entry) const override { return links_->nodes[entry].stamp >> 16; }
  uint64_t size() const override { return size_; }
  uint64_t metadata_bytes() const override { return sizeof(*this) + (shared_ ? 0 : LruLinksBytes(*links_)); }

 private:
  LruLinks::Node& node(uint32_t entry) { return links_->nodes[entry]; }

  std::shared_ptr<LruLinks> links_;  // shared among the policies of a node
  bool shared_;
  uint32_t coldest_ = kNone;
  uint32_t hottest_ = kNone;
  uint64_t size_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLeafFirstLru() {
  return std::make_unique<LeafFirstLru>(MakeLruLinks(), false);
}

std::unique_ptr<EvictionPolicy> MakeLeafFirstLru(std::shared_ptr<LruLinks> links) {
  return std::make_unique<LeafFirstLru>(std::move(links), true);
}

}  // namespace larder::node
