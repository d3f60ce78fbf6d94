// One round over the blocks that have copies or ought to have some: asks where they belong by the table,
// renews leases that are due, puts copies that are missing. Whoever runs it brings a node (PlanHot and what
// belongs to it, as the owner has them) and a courier between nodes: threads and sockets in a real node, less
// in a simulation.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "node/owner/owner.h"
#include "proto/placement.h"

namespace larder::node {

inline constexpr uint64_t kHotRetryUs = 5'000'000;     // after a copy that could not be put
inline constexpr uint32_t kNearIdleMax = 80;           // renewals that find no read: twenty minutes
inline constexpr uint64_t kHotAttemptUs = 20'000'000;  // for one copy, at most

// What became of a copy, or of renewing it.
struct CopyAnswer {
  bool made = false;       // every piece is there
  uint64_t end_us = 0;     // when its lease ends, at the latest
  uint32_t reads = 0;      // that it has served since it was asked last
  uint64_t put_bytes = 0;  // that had to be sent
};

// Of a block's pieces those of one writer, whose credential they go with.
using HotParts = std::map<Digest, std::vector<const OutgoingPiece*>>;

template <typename NodeSide, typename CourierSide>
class HotRound {
 public:
  HotRound(NodeSide* node, CourierSide* courier, const NodeTable* table, const std::string& self)
      : node_(node), courier_(courier), table_(table), self_(self) {}

  void Run() {
    for (const HotBlock& block : node_->PlanHot()) {
      if (block.places > 1 || !block.holders.empty()) Look(block);
    }
  }

 private:
  void Look(const HotBlock& block) {
    const std::vector<uint16_t> order = OrderOf(*table_, SlotOf(block.name.hash), kHotPlacesMax);
    if (order.empty() || table_->nodes[order[0]].id != self_) return node_->DropHot(block.name);
    if (block.pieces.empty()) return;
    const size_t places = std::min<size_t>(order.size(), block.places);
    for (uint32_t position = 1; position < places && courier_->Goes(); ++position) {
      const NodeRecord& place = table_->nodes[order[position]];
      if (place.state != NodeState::kActive) continue;
      const auto known = std::ranges::find(block.holders, place.id, &HotHolder::node);
      if (known != block.holders.end() && courier_->NowUs() < known->next_us) continue;
      Copy(block, place, {.position = position, .node = place.id});
    }
    for (const HotHolder& holder : block.holders) {
      if (!NearDue(holder, courier_->NowUs())) continue;
      const auto at = std::ranges::find(order, holder.node, [&](uint16_t i) { return table_->nodes[i].id; });
      const auto position = static_cast<uint32_t>(at - order.begin());
      const auto place = std::ranges::find(table_->nodes, holder.node, &NodeRecord::id);
      const bool served = position < std::max<size_t>(places, block.replicas) || place == table_->nodes.end();
      if (served || place->state != NodeState::kActive) continue;
      if (!courier_->Goes()) return;
      HotHolder next = holder;
      next.position = position;
      Copy(block, *place, next);
    }
  }

  // `holder`: what is known of it. A near copy that has left its node stays away until it is asked for again.
  void Copy(const HotBlock& block, const NodeRecord& place, HotHolder holder) {
    std::vector<OutgoingPage> pages = TakeOut(block.pieces);
    HotParts parts;
    size_t taken = 0;
    for (const OutgoingPage& page : pages) {
      for (const OutgoingPiece& piece : page.pieces) {
        if (!IsOf(piece.header, block)) continue;  // the plan is old: another block has this place now
        parts[piece.header.writer].push_back(&piece);
        ++taken;
      }
    }
    const bool carried =
        std::ranges::all_of(parts, [&](const auto& part) { return courier_->Carries(part.first); });
    const bool renewed = holder.near && holder.made;
    holder.made = false;
    holder.end_us = courier_->NowUs() + kHotAttemptUs + block.lease_us;
    if (taken != 0) holder.writer = parts.begin()->first;
    if (taken == block.pieces.size() && carried && node_->BeginCopy(block.name, holder)) {
      // The first of the order hold it anyway where a tenant has several copies.
      const bool own_counts = holder.position < block.replicas;
      CopyAnswer whole{true, UINT64_MAX, 0, 0};
      for (const auto& [writer, pieces] : parts) {
        const CopyAnswer answer =
            courier_->Copy(place, writer, block.name_space, pieces, block.lease_us, own_counts || renewed);
        whole.made = whole.made && answer.made;
        whole.end_us = std::min(whole.end_us, answer.end_us);
        whole.reads += answer.reads;
        whole.put_bytes += answer.put_bytes;
      }
      const uint64_t now_us = courier_->NowUs();
      holder.made = whole.made;
      if (whole.made) holder.end_us = whole.end_us;
      holder.idle = whole.reads == 0 ? holder.idle + 1 : 0;
      holder.near = holder.near && whole.made && holder.idle < kNearIdleMax;
      holder.next_us = now_us + (whole.made ? std::min(kHotRenewUs, block.lease_us / 4) : kHotRetryUs);
      node_->EndCopy(block.name, holder, whole.reads, whole.put_bytes);
    }
    std::vector<uint32_t> entries;
    for (const OutgoingPage& page : pages) {
      for (const OutgoingPiece& piece : page.pieces) entries.push_back(piece.piece.entry);
    }
    node_->LetGo(entries);
  }

  static bool IsOf(const BlockHeader& header, const HotBlock& block) {
    return header.name_space == block.name_space && header.hash == block.name.hash &&
           header.group == block.name.group;
  }

  std::vector<OutgoingPage> TakeOut(const std::vector<WarmPiece>& pieces) {
    std::vector<OutgoingPage> pages;
    for (size_t at = 0; at < pieces.size();) {
      pages.push_back(node_->TakeOut(std::span(pieces).subspan(at)));
      if (pages.back().looked == 0) break;
      at += pages.back().looked;
    }
    return pages;
  }

  NodeSide* const node_;
  CourierSide* const courier_;
  const NodeTable* const table_;
  const std::string& self_;
};

}  // namespace larder::node
