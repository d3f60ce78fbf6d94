// Two-phase put: Reserve gives a slot and a ticket, Commit makes the piece visible if it is whole and
// verified and nobody was faster.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "node/owner/owner_state.h"

namespace larder::node {

namespace {

// Payload bytes of a block that makes sense for the namespace; 0: it doesn't.
uint64_t PayloadBytesOf(const Grid& grid, const Reserve::Block& block) {
  const Rectangle& rectangle = block.ref.rectangle;
  if (!rectangle.valid() || !WholeOf(grid).Contains(rectangle) || rectangle.parts() > kPartsMax) return 0;
  if (block.codec_data.size() > kCodecBytesMax || block.constituents.size() > kConstituentsMax) return 0;
  uint64_t parts = 0, bytes = 0;
  for (const PartRun& run : block.parts) {
    if (run.count == 0 || run.bytes == 0 || run.count > kPartsMax) return 0;
    parts += run.count;
    bytes += uint64_t{run.count} * run.bytes;
    if (parts > rectangle.parts() || bytes > kPieceBytesMax) return 0;
  }
  return parts == rectangle.parts() ? bytes : 0;
}

std::vector<PartRecord> Records(const std::vector<PartRun>& runs, const std::vector<uint32_t>& crc32c) {
  std::vector<PartRecord> records;
  records.reserve(crc32c.size());
  for (const PartRun& run : runs) {
    for (uint32_t i = 0; i < run.count; ++i) records.push_back({run.bytes, crc32c[records.size()]});
  }
  return records;
}

}  // namespace

void Owner::State::OnReserve(Asker& asker, Reserve&& body) {
  uint32_t number = 0;
  if (NamespaceFor(asker, body.number, &number) == nullptr) return;
  if (body.blocks.empty() || body.blocks.size() > kBlocksMax) {
    return Refuse(asker, Code::kInvalid,
                  "a reserve names 1 to " + std::to_string(kBlocksMax) + " blocks; split the batch");
  }
  if (rules.Bans(asker.session->writer, unix_ms)) {
    return Refuse(asker, Code::kDenied,
                  "this writer is quarantined here; larderctl quarantine list says since when");
  }
  eviction_budget = kEvictionsPerRequestMax;
  sweep_budget = kSweepsPerRequestMax;
  const uint64_t lease_end_us = body.lease_us == 0 ? 0 : LeaseEndOf(body.since_us, body.lease_us);
  ReserveReply reply;
  reply.blocks.reserve(body.blocks.size());
  for (Reserve::Block& block : body.blocks) {
    uint64_t ticket = 0;
    PutState state = PutState::kExpired;
    if (body.lease_us == 0 || lease_end_us > lease_clock_us()) {
      state = ReserveBlock(asker, number, std::move(block), lease_end_us, &ticket);
    }
    reply.blocks.push_back({state, ticket});
    if (state == PutState::kExists) ++counts.put_exists;
    if (state == PutState::kFull) ++counts.put_full;
    if (state == PutState::kBusy) ++counts.put_busy;
    if (state == PutState::kInvalid) ++counts.put_invalid;
    if (state == PutState::kOverQuota) {
      ++counts.put_over_quota;
      ++CountsOf(name_spaces[number].tenant).put_over_quota;
    }
  }
  Answer(asker, reply);
  SpillQuota(name_spaces[number].tenant);
  Spill();
}

// A node that restores a copy may not have heard yet of the remove or clear that was answered here. It tries
// again while it has the block. What a node that leaves was putting when it carried a remove here may land on
// another connection of it, later than the remove.
bool Owner::State::MustNotComeBack(const Session& session, const BlockName& name) const {
  if (session.hands_over) {
    return carried_lately.MayBe(FingerprintOf(name.space.number, name.hash, name.group), now_us);
  }
  if (!session.restores) return false;
  const NamespaceRecord& record = name_spaces[name.space.number];
  const uint64_t cleared_s = record.cleared_s;
  if (cleared_s != 0 && unix_ms / 1000 < cleared_s + RemovedLately::kForgetUs / 1'000'000) return true;
  return removed_lately.MayBe(FingerprintOf(name.space.number, name.hash, name.group), now_us);
}

PutState Owner::State::ReserveBlock(const Asker& asker, uint32_t number, Reserve::Block&& block,
                                    uint64_t lease_end_us, uint64_t* ticket_id) {
  const NamespaceRecord& record = name_spaces[number];
  const uint64_t payload_bytes = PayloadBytesOf(record.grid, block);
  if (payload_bytes == 0) return PutState::kInvalid;
  const BlockName name{SpaceOf(number), block.ref.hash, block.ref.group};
  if (asker.session->restores || asker.session->hands_over) ExpectPlace(number, name.hash);
  const uint32_t first = Find(number, name.hash, name.group);
  if (Covered(number, name.hash, name.group, first, block.ref.rectangle)) {
    if (lease_end_us == 0) KeepForGood(first);
    return PutState::kExists;
  }
  if (MustNotComeBack(*asker.session, name)) return PutState::kBusy;
  if (draining || tickets.size() >= options.tickets_max ||
      asker.session->tickets.size() >= options.tickets_per_session_max) {
    return PutState::kBusy;
  }
  const uint64_t kept_bytes = block.parts.size() * sizeof(PartRun) + block.codec_data.size() +
                              block.constituents.size() * sizeof(ChainHash);
  if (ticket_bytes + kept_bytes > kTicketBytesMax) return PutState::kBusy;
  uint32_t pieces = 0;
  for (uint32_t i = first; i != kNone; i = index[i].next_piece) ++pieces;
  if (pieces >= kPiecesPerKeyMax) return PutState::kBusy;

  const size_t header_bytes =
      HeaderBytes(block.ref.rectangle.parts(), block.codec_data.size(), block.constituents.size());
  const SlotShape shape{record.tenant, static_cast<uint32_t>((header_bytes + 63) / 64 * 64),
                        SlotBytes(payload_bytes)};
  if (lease_end_us != 0 && shape.slot_bytes > leased_bytes_max()) return PutState::kFull;
  last_slot_bytes = shape.slot_bytes;
  PutState state = TakeQuota(shape.tenant, shape.slot_bytes);
  if (state == PutState::kOverQuota && first == kNone) {
    misses.Remember(FingerprintOf(number, name.hash, name.group), Presence::kOverQuota, unix_ms);
  }
  Ticket ticket;
  if (state == PutState::kTicket) state = TakeSlot(shape, &ticket.place);
  if (state != PutState::kTicket) return state;
  Charge(shape.tenant, shape.slot_bytes);
  ticket.session = asker.id;
  ticket.name = name;
  ticket.rectangle = block.ref.rectangle;
  ticket.payload_bytes = payload_bytes;
  ticket.codec = block.codec;
  ticket.parts = std::move(block.parts);
  ticket.codec_data = std::move(block.codec_data);
  ticket.constituents = std::move(block.constituents);
  ticket.depth = block.depth;
  ticket.kept_bytes = kept_bytes;
  ticket.lease_end_us = lease_end_us;
  ticket_bytes += kept_bytes;
  ticket.progress_us = now_us;
  const uint64_t id = ++last_id;
  ticket.stall_position = stall_order.insert(stall_order.end(), id);
  ++writing[name];
  asker.session->tickets.insert(id);
  outbox->Deliver(asker.id, Grant{id, {arena.Payload(ticket.place), payload_bytes}, ticket.parts});
  tickets.emplace(id, std::move(ticket));
  ++tenants.at(shape.tenant).tickets;
  *ticket_id = id;
  return PutState::kTicket;
}

void Owner::State::OnCommitted(Asker& asker, Committed&& event) {
  asker.envelope = event.envelope;
  // Deepest first, so that of blocks with one time the root is the hottest without a walk of the list.
  std::vector<uint32_t> order(event.blocks.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto depth = [&](uint32_t i) {
    const auto found = tickets.find(event.blocks[i].ticket);
    return found == tickets.end() ? 0u : found->second.depth;
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return depth(a) > depth(b); });
  CommitReply reply;
  reply.states.resize(event.blocks.size(), PutState::kExpired);
  for (const uint32_t i : order) {
    const PutState state = CommitBlock(asker, event.blocks[i]);
    reply.states[i] = state;
    if (state == PutState::kExists) ++counts.put_exists;
    if (state == PutState::kDiffers) ++counts.put_differs;
    if (state == PutState::kCorrupt) ++counts.put_corrupt;
  }
  Answer(asker, reply);
}

PutState Owner::State::CommitBlock(const Asker& asker, const Committed::Block& block) {
  const auto found = tickets.find(block.ticket);
  if (found == tickets.end() || found->second.session != asker.id) return PutState::kExpired;
  if (found->second.revoked) {
    // A revoke and this commit crossed. The mover is done with the slot, so nothing is left to wait for.
    DropTicket(block.ticket, true);
    return PutState::kExpired;
  }
  const std::vector<uint32_t> none;
  const PutState state =
      StoreTicket(asker, found->second, block.landed && block.verified ? block.crc32c : none);
  const BlockName name = found->second.name;
  DropTicket(block.ticket, state != PutState::kStored);
  if (state == PutState::kStored) WakeWaits(name);
  return state;
}

PutState Owner::State::StoreTicket(const Asker& asker, const Ticket& ticket,
                                   const std::vector<uint32_t>& crc32c) {
  const uint32_t number = ticket.name.space.number;
  const NamespaceRecord& record = name_spaces[number];
  if (ticket.name.space != SpaceOf(number)) return PutState::kCleared;
  if (MustNotComeBack(*asker.session, ticket.name)) return PutState::kBusy;
  if (rules.Bans(asker.session->writer, unix_ms)) return PutState::kInvalid;
  if (crc32c.size() != ticket.rectangle.parts()) return PutState::kCorrupt;
  if (ticket.lease_end_us != 0 && ticket.lease_end_us <= lease_clock_us()) return PutState::kExpired;
  const uint32_t first = Find(number, ticket.name.hash, ticket.name.group);
  std::vector<Patch> sources;
  if (CoverOf(first, ticket.rectangle, &sources)) {
    if (ticket.lease_end_us == 0) KeepForGood(first);
    return SameBits(ticket, crc32c, sources) ? PutState::kExists : PutState::kDiffers;
  }
  BlockHeader header;
  header.codec = ticket.codec;
  header.name_space = record.name_space;
  header.hash = ticket.name.hash;
  header.group = ticket.name.group;
  header.rectangle = ticket.rectangle;
  header.clear_epoch = record.clear_epoch;
  header.created_ms = BirthMs(number, ticket.name.hash);
  header.writer = asker.session->writer;
  header.parts = Records(ticket.parts, crc32c);
  header.codec_data = ticket.codec_data;
  header.constituents = ticket.constituents;
  Bytes encoded;
  EncodeHeader(header, &encoded);
  LARDER_CHECK(encoded.size() <= arena.ShapeOf(ticket.place).header_bytes);
  std::memcpy(arena.Header(ticket.place), encoded.data(), encoded.size());

  const uint32_t entry = AddPiece(ticket.name, ticket.rectangle, ticket.place, header, ticket.depth, true);
  if (ticket.lease_end_us != 0) LeaseOut(entry, ticket.lease_end_us);
  ++counts.puts;
  counts.put_bytes += ticket.payload_bytes;
  return PutState::kStored;
}

// Whether what is stored has the checksums of what this writer brought.
bool Owner::State::SameBits(const Ticket& ticket, const std::vector<uint32_t>& crc32c,
                            const std::vector<Patch>& sources) {
  const std::vector<PartRecord> mine = Records(ticket.parts, crc32c);
  for (const Patch& source : sources) {
    const Result<BlockHeader> header = HeaderOf(source.entry);
    if (!header.ok()) return false;
    const Rectangle& piece = index[source.entry].rectangle;
    for (uint16_t layer = source.rectangle.layer_begin; layer < source.rectangle.layer_end; ++layer) {
      for (uint16_t head = source.rectangle.head_begin; head < source.rectangle.head_end; ++head) {
        if (header.value().parts[piece.PartIndex(layer, head)] !=
            mine[ticket.rectangle.PartIndex(layer, head)]) {
          return false;
        }
      }
    }
  }
  return true;
}

void Owner::State::OnProgress(SessionId id, uint64_t ticket_id) {
  const auto found = tickets.find(ticket_id);
  if (found == tickets.end() || found->second.session != id || found->second.revoked) return;
  found->second.progress_us = now_us;
  stall_order.splice(stall_order.end(), stall_order, found->second.stall_position);
}

void Owner::State::OnStopped(SessionId id, uint64_t ticket_id) {
  const auto found = tickets.find(ticket_id);
  if (found == tickets.end() || found->second.session != id || !found->second.revoked) return;
  DropTicket(ticket_id, true);
}

// A stalled ticket stops counting as a writer at once; its slot stays until the mover says that nothing lands
// there.
void Owner::State::RevokeStalled() {
  for (uint32_t i = 0; i < kTimerStepsMax && !stall_order.empty(); ++i) {
    const uint64_t id = stall_order.front();
    Ticket& ticket = tickets.at(id);
    if (ticket.progress_us + options.ticket_stall_us > now_us) return;
    stall_order.pop_front();
    ticket.revoked = true;
    const auto writers = writing.find(ticket.name);
    if (--writers->second == 0) writing.erase(writers);
    ++counts.put_expired;
    outbox->Deliver(ticket.session, Revoke{id});
  }
}

void Owner::State::DropTicket(uint64_t id, bool free_slot) {
  const auto found = tickets.find(id);
  Ticket& ticket = found->second;
  if (!ticket.revoked) {
    stall_order.erase(ticket.stall_position);
    const auto writers = writing.find(ticket.name);
    if (--writers->second == 0) writing.erase(writers);
  }
  const SlotShape& shape = arena.ShapeOf(ticket.place);
  --tenants.at(shape.tenant).tickets;
  Uncharge(shape.tenant, shape.slot_bytes);
  if (free_slot) arena.Free(ticket.place);
  ticket_bytes -= ticket.kept_bytes;
  sessions.at(ticket.session).tickets.erase(id);
  tickets.erase(found);
}

}  // namespace larder::node
