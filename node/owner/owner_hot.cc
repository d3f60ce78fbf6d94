// Hot blocks, both ends: what this node's own ones need elsewhere (counted, planned, revoked), and the copies
// that others have put here, which live by leases. Whoever carries between nodes (node/cluster/hot_copies.h)
// has a thread of its own.
#include <algorithm>

#include "node/owner/owner_get_work.h"

namespace larder::node {

namespace {
constexpr size_t kHotListMax = 64;
constexpr size_t kNearARound = 512;            // blocks; others wait for the next
constexpr uint64_t kLeaseWorthUs = 2'000'000;  // a copy for less is not worth its bytes
}  // namespace

// --- the receiver -----------------------------------------------------------------------------------------

// By this node's clock, which its home has read and sent back: so a message that was under way for however
// long gives no more than its home meant when it was sent.
uint64_t Owner::State::LeaseEndOf(uint64_t since_us, uint64_t lease_us) const {
  return since_us > lease_clock_us() ? 0 : since_us + std::min(lease_us, kHotLeaseUs);
}

void Owner::State::LeaseOut(uint32_t entry, uint64_t end_us) {
  index[entry].leased = 1;
  leased[entry] = {.end_us = end_us, .used_us = now_us};
  lease_ends.emplace(end_us, entry);
  lease_uses.emplace(now_us, entry);
  leased_bytes += arena.ShapeOf(PlaceOf(entry)).slot_bytes;
  while (leased_bytes > leased_bytes_max()) Leave(lease_uses.begin()->second, Presence::kEvicted);
}

// Somebody puts the block here as its own: the pieces stay when their leases end.
void Owner::State::KeepForGood(uint32_t first) {
  for (uint32_t piece = first; piece != kNone; piece = index[piece].next_piece) {
    if (index[piece].leased != 0) EndLease(piece);
  }
}

void Owner::State::EndLease(uint32_t entry) {
  const auto found = leased.find(entry);
  lease_ends.erase({found->second.end_us, entry});
  lease_uses.erase({found->second.used_us, entry});
  leased_bytes -= arena.ShapeOf(PlaceOf(entry)).slot_bytes;
  leased.erase(found);
  index[entry].leased = 0;
}

void Owner::State::EndLeases() {
  for (uint32_t i = 0; i < kTimerStepsMax && !lease_ends.empty(); ++i) {
    const auto [end_us, entry] = *lease_ends.begin();
    if (end_us > lease_clock_us()) return;
    ++counts.leases_ended;
    Leave(entry, Presence::kExpired);
  }
}

// A copy that is still on its way here must not come after the remove, which its home may have told over
// another connection.
void Owner::State::EndLeaseTickets(uint32_t number, const Remove& body) {
  std::vector<ChainHash> hashes;
  for (auto& [id, ticket] : tickets) {
    if (ticket.lease_end_us == 0 || ticket.name.space != SpaceOf(number)) continue;
    if (hashes.empty()) {
      hashes = body.hashes;
      std::ranges::sort(hashes);
    }
    if (std::ranges::find(body.groups, ticket.name.group) == body.groups.end()) continue;
    if (std::ranges::binary_search(hashes, ticket.name.hash)) ticket.lease_end_us = 1;  // long over
  }
}

LeaseReply::Block Owner::State::RenewPiece(uint32_t number, const BlockRef& ref, uint64_t end_us) {
  const uint32_t first = Find(number, ref.hash, ref.group);
  for (uint32_t piece = first; piece != kNone; piece = index[piece].next_piece) {
    if (index[piece].leased == 0 || !index[piece].rectangle.Contains(ref.rectangle)) continue;
    Leased& lease = leased.at(piece);
    const LeaseReply::Block renewed{LeaseState::kRenewed, std::exchange(lease.reads, 0)};
    if (end_us <= lease.end_us) return renewed;
    lease_ends.erase({lease.end_us, piece});
    lease_ends.emplace(end_us, piece);
    lease.end_us = end_us;
    return renewed;
  }
  const bool own = Covered(number, ref.hash, ref.group, first, ref.rectangle);
  return {own ? LeaseState::kOwn : LeaseState::kGone, 0};
}

void Owner::State::OnLease(Asker& asker, const Lease& body) {
  uint32_t number = 0;
  if (NamespaceFor(asker, body.number, &number) == nullptr) return;
  if (body.blocks.size() > kBlocksMax) {
    return Refuse(asker, Code::kInvalid,
                  "a lease names at most " + std::to_string(kBlocksMax) + " blocks; split the batch");
  }
  LeaseReply reply;
  reply.now_us = lease_clock_us();
  const uint64_t end_us = LeaseEndOf(body.since_us, body.lease_us);
  for (const BlockRef& ref : body.blocks) reply.blocks.push_back(RenewPiece(number, ref, end_us));
  Answer(asker, reply);
}

// --- the home ---------------------------------------------------------------------------------------------

// Of a hit. The reader of a block that has copies is told where; whose host has none may get one.
void Owner::State::CountRead(uint32_t number, const BlockRef& ref, const std::vector<Patch>& sources,
                             const Get& body, GetWork* work) {
  const uint32_t entry = sources[0].entry;
  if (index[entry].leased != 0) {
    hot.ServeCopy(now_us);
    ++counts.copy_reads;
    ++leased.at(entry).reads;
    // Touches go to the home, so a read is what keeps a copy.
    const TouchInfo info{
        .now_us = now_us, .depth = DepthOf(entry), .key = FingerprintOf(number, ref.hash, ref.group)};
    for (const Patch& source : sources) {
      TouchPiece(source.entry, info, false);
      const auto found = leased.find(source.entry);
      if (found == leased.end()) continue;
      lease_uses.erase({found->second.used_us, source.entry});
      lease_uses.emplace(now_us, source.entry);
      found->second.used_us = now_us;
    }
    return;
  }
  const BlockName name{SpaceOf(number), ref.hash, ref.group};
  const uint64_t key = FingerprintOf(number, ref.hash, ref.group);
  hot.Read(key, entry, now_us);
  if (hot.near() && !body.near.empty() && MayCopy(entry)) hot.NearRead(name, key, body.near, now_us);
  const uint64_t mask = hot.MaskOf(name, now_us);
  if (mask == 0) return;
  work->header_bytes += sizeof(GetReply::Places);
  work->reply.places.push_back({static_cast<uint32_t>(work->reply.blocks.size() - 1), mask});
}

HotBlock Owner::State::PlanOf(const BlockName& name, const HotBlocks::Copied& copied) const {
  const NamespaceRecord& record = name_spaces[name.space.number];
  HotBlock block{name, record.name_space, record.replicas, copied.places, kHotLeaseUs, {}, copied.holders};
  if (rules.bypass) return block;
  for (uint32_t piece = index.Find(name.space, name.hash, name.group); piece != kNone;
       piece = index[piece].next_piece) {
    if (!MayCopy(piece))
      return {name, record.name_space, record.replicas, copied.places, 0, {}, copied.holders};
    if (record.ttl_ms != 0) {
      const uint64_t end_ms = uint64_t{index.place(piece).born_s} * 1000 + record.ttl_ms;
      const uint64_t left_ms = end_ms - std::min(end_ms, steady_ms());
      block.lease_us = std::min(block.lease_us, left_ms * 1000);
    }
    block.pieces.push_back({HeatOf(piece), piece, index.place(piece).payload_bytes});
  }
  if (block.lease_us < kLeaseWorthUs) block.pieces.clear();
  return block;
}

std::vector<HotBlock> Owner::PlanHot(uint64_t now_us) {
  State& state = *state_;
  state.SetClock(now_us);
  HotBlocks& hot = state.hot;
  if (!hot.on()) return {};
  hot.Forget(state.now_us);
  for (const HotBlocks::Hot& each : hot.Hottest()) {
    if (each.entry >= state.index.entry_bound() || !state.MayCopy(each.entry)) continue;
    const Entry& e = state.index[each.entry];
    if (state.FingerprintOf(e.space.number, e.hash, e.group) != each.key) continue;
    if (hot.Make({e.space, e.hash, e.group}, each.key) == nullptr) break;
  }
  std::vector<HotBlock> plan, near;
  for (const auto& [name, known] : hot.copied()) {
    HotBlocks::Copied& copied = *hot.Find(name);
    copied.places = hot.PlacesFor(hot.ReadsOf(copied.key), copied.places);
    if (copied.places > 1) {
      plan.push_back(state.PlanOf(name, copied));
    } else if (near.size() < kNearARound && std::ranges::any_of(copied.holders, [&](const HotHolder& holder) {
                 return NearDue(holder, state.now_us);
               })) {
      near.push_back(state.PlanOf(name, copied));
    }
  }
  std::ranges::move(near, std::back_inserter(plan));
  return plan;
}

void Owner::DistrustCopies() {
  for (const auto& [name, known] : state_->hot.copied()) {
    for (HotHolder& holder : state_->hot.Find(name)->holders) {
      holder.made = false;
      holder.next_us = 0;
    }
  }
}

bool Owner::BeginCopy(const BlockName& name, const HotHolder& holder) {
  HotBlocks::Copied* copied = state_->hot.Find(name);
  if (copied == nullptr) return false;
  for (HotHolder& known : copied->holders) {
    if (known.node != holder.node) continue;
    known.end_us = std::max(known.end_us, holder.end_us);
    known.writer = holder.writer;
    return true;
  }
  copied->holders.push_back(holder);
  return true;
}

void Owner::EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads, uint64_t put_bytes) {
  State& state = *state_;
  HotBlocks::Copied* copied = state.hot.Find(name);
  if (put_bytes != 0) {
    ++state.counts.hot_copied;
    state.counts.hot_copied_bytes += put_bytes;
  }
  if (copied == nullptr) return;                             // revoked meanwhile
  if (!holder.near) state.hot.AddReads(copied->key, reads);  // near ones are nobody else's burden
  for (HotHolder& known : copied->holders) {
    if (known.node == holder.node) known = holder;
  }
}

void Owner::DropHot(const BlockName& name) {
  HotBlocks::Copied* copied = state_->hot.Find(name);
  if (copied == nullptr) return;
  copied->places = 1;
  for (HotHolder& holder : copied->holders) holder.made = holder.near = false;
}

std::vector<HotInfo> Owner::HotList(uint64_t now_us) const {
  const State& state = *state_;
  std::vector<HotInfo> list;
  for (const auto& [name, copied] : state.hot.copied()) {
    HotInfo info{state.name_spaces[name.space.number].name_space, name.hash, name.group,
                 state.hot.ReadsOf(copied.key), 0};
    for (const HotHolder& holder : copied.holders) {
      info.copies += holder.made && !holder.near && now_us < holder.end_us;
    }
    if (copied.places > 1 || info.copies != 0) list.push_back(info);
  }
  std::sort(list.begin(), list.end(), [](const HotInfo& a, const HotInfo& b) {
    return a.reads != b.reads ? a.reads > b.reads : a.hash < b.hash;
  });
  list.resize(std::min(list.size(), kHotListMax));
  return list;
}

// --- what has to go ---------------------------------------------------------------------------------------

// The token of the revoke that tells the holders of any of these blocks' copies; 0: there are none. Takes
// over earlier revokes of the same blocks, so that whoever asks again waits for them too.
uint64_t Owner::State::RevokeBlocks(uint32_t number, std::span<const ChainHash> hashes,
                                    std::span<const uint16_t> groups) {
  if (hot.copied().empty() && revokes.empty()) return 0;
  OpenRevoke revoke;
  uint64_t since = UINT64_MAX;
  revoke.told.name_space = name_spaces[number].name_space;
  revoke.told.groups.assign(groups.begin(), groups.end());
  const auto add = [&](std::vector<HotHolder>&& holders) {
    for (HotHolder& holder : holders) {
      const auto known = std::ranges::find(revoke.told.holders, holder.node, &HotHolder::node);
      if (known == revoke.told.holders.end()) {
        revoke.told.holders.push_back(std::move(holder));
      } else {
        known->end_us = std::max(known->end_us, holder.end_us);
      }
    }
  };
  for (const ChainHash& hash : hashes) {
    bool named = false;
    for (const uint16_t group : groups) {
      std::vector<HotHolder> holders = hot.Take({SpaceOf(number), hash, group}, now_us);
      if (!holders.empty() && !std::exchange(named, true)) revoke.told.hashes.push_back(hash);
      add(std::move(holders));
    }
    for (auto at = revokes.begin(); at != revokes.end();) {
      const HotRevoke& told = at->second.told;
      const bool same = told.name_space == revoke.told.name_space &&
                        std::ranges::find(told.hashes, hash) != told.hashes.end();
      if (!same) {
        ++at;
        continue;
      }
      revoke.told.hashes.insert(revoke.told.hashes.end(), told.hashes.begin(), told.hashes.end());
      for (const uint16_t group : told.groups) {
        const auto known = std::ranges::find(revoke.told.groups, group);
        if (known == revoke.told.groups.end()) revoke.told.groups.push_back(group);
      }
      add(std::move(at->second.told.holders));
      since = std::min(since, at->second.since);
      std::ranges::move(at->second.replies, std::back_inserter(revoke.replies));
      at = revokes.erase(at);
    }
  }
  if (revoke.told.holders.empty()) return 0;
  const uint64_t token = revoke.told.token = ++last_id;
  revoke.since = std::min(since, token);
  revokes.emplace(token, std::move(revoke));
  outbox->OnRevokes();
  return token;
}

// Before the namespace's next generation begins.
uint64_t Owner::State::RevokeSpace(uint32_t number) {
  std::set<ChainHash> hashes;
  std::set<uint16_t> groups;
  for (const auto& [name, copied] : hot.copied()) {
    if (name.space != SpaceOf(number)) continue;
    hashes.insert(name.hash);
    groups.insert(name.group);
  }
  for (const auto& [token, revoke] : revokes) {
    if (revoke.told.name_space != name_spaces[number].name_space) continue;
    hashes.insert(revoke.told.hashes.begin(), revoke.told.hashes.end());
  }
  return RevokeBlocks(number, std::vector(hashes.begin(), hashes.end()),
                      std::vector(groups.begin(), groups.end()));
}

// A lease that is over is as good as a word to its holder.
void Owner::State::EndRevokes() {
  std::vector<uint64_t> done;
  for (auto& [token, revoke] : revokes) {
    std::erase_if(revoke.told.holders, [&](const HotHolder& holder) { return holder.end_us <= now_us; });
    if (revoke.told.holders.empty()) done.push_back(token);
  }
  for (const uint64_t token : done) FinishRevoke(token);
}

void Owner::State::FinishRevoke(uint64_t token) {
  const auto found = revokes.find(token);
  counts.hot_revoked += found->second.told.hashes.size();
  std::vector<DurableReply> replies = std::move(found->second.replies);
  revokes.erase(found);
  for (DurableReply& reply : replies) {
    AwaitDurable(std::move(reply));
  }
}

// Once no node has a copy any more.
void Owner::State::AnswerRevoked(const Asker& asker, Bytes&& header, uint64_t revoke) {
  const auto found = revokes.find(revoke);
  if (found == revokes.end()) return AnswerDurably(asker, std::move(header));
  const uint64_t token = undurable.empty() ? 0 : *undurable.rbegin();
  found->second.replies.push_back({asker.id, asker.expire_us, std::move(header), token});
}

std::vector<HotRevoke> Owner::Revokes() const {
  std::vector<HotRevoke> list;
  for (const auto& [token, revoke] : state_->revokes) list.push_back(revoke.told);
  return list;
}

void Owner::Revoked(uint64_t token, const std::string& node) {
  const auto found = state_->revokes.find(token);
  if (found == state_->revokes.end()) return;
  std::vector<HotHolder>& holders = found->second.told.holders;
  std::erase_if(holders, [&](const HotHolder& holder) { return holder.node == node; });
  if (holders.empty()) state_->FinishRevoke(token);
}

std::string Owner::State::CheckLeases() const {
  uint64_t flagged = 0;
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    if (index[entry].leased == 0) continue;
    ++flagged;
    if (index[entry].hidden != 0) return "a piece that has left has a lease";
    const auto found = leased.find(entry);
    if (found == leased.end() || lease_ends.count({found->second.end_us, entry}) == 0)
      return "a lease has no end";
  }
  if (flagged != leased.size() || flagged != lease_ends.size() || flagged != lease_uses.size())
    return "leases and their counts disagree";
  if (leased_bytes > leased_bytes_max()) return "copies by lease take more than their share";
  if (hot.copied().size() > hot.copied_max()) return "more hot blocks than may be";
  for (const auto& [token, revoke] : revokes) {
    if (revoke.told.holders.empty()) return "a revoke waits for nobody";
  }
  return {};
}

}  // namespace larder::node
