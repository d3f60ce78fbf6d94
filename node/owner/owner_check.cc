// What must always hold, for tests: every slot has one owner, every pin a holder, every count its things.
#include "node/owner/owner_state.h"

namespace larder::node {

namespace {
std::string First(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return {};
}
}  // namespace

std::string Owner::State::CheckInvariants() const {
  return First({index.CheckInvariants(), arena.CheckInvariants(), waits.CheckInvariants(), CheckSlots(),
                CheckPins(), CheckTickets(), CheckNamespaces(), CheckTenants(), CheckCold(), CheckAsides(),
                CheckLeases()});
}

// Slots belong to entries or tickets; policies hold exactly the visible entries.
std::string Owner::State::CheckSlots() const {
  uint64_t visible = 0, ticket_slots = 0, in_policies = 0;
  for (uint32_t c = 0; c < arena.classes().size(); ++c) {
    for (const uint32_t slab : arena.classes()[c].slabs) {
      const auto& owners = arena.slab(slab).owners;
      for (uint32_t slot = 0; slot < owners.size(); ++slot) {
        if (Arena::IsFree(owners[slot])) continue;
        if (owners[slot] == Arena::kTicketOwner) {
          ++ticket_slots;
          continue;
        }
        const Entry& e = index[owners[slot]];
        const EntryPlace& place = index.place(owners[slot]);
        if (place.slab != slab || place.slot != slot) return "a slot's entry says that it lives elsewhere";
        if (e.hidden != 0 && !e.pinned()) return "a hidden entry without pins has a slot";
        if (e.hidden == 0) ++visible;
        if (place.payload_bytes > arena.classes()[c].shape.slot_bytes)
          return "a payload is larger than its slot";
      }
    }
  }
  for (const auto& policy : policies) in_policies += policy->size();
  if (visible != index.visible()) return "visible entries and occupied slots disagree";
  uint64_t spilling = 0;
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    spilling += index[entry].spilling != 0 && index[entry].hidden == 0 ? 1 : 0;
  }
  if (visible != in_policies + spilling) return "visible entries and policies disagree";
  uint64_t begun = 0;
  for (const auto& [id, read] : cold_reads) begun += read.begun ? 1 : 0;
  if (ticket_slots != tickets.size() + begun) return "tickets and their slots disagree";
  return {};
}

std::string Owner::State::CheckPins() const {
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> expected;  // entry -> hard, soft
  std::unordered_map<uint32_t, uint64_t> pinned_bytes;                   // tenant ->
  uint64_t hard = 0, ends = 0;
  for (const auto& [id, session] : sessions) {
    for (const auto& [token, sending] : session.sendings) {
      for (const uint32_t entry : sending.entries) ++expected[entry].first, ++hard;
    }
    for (const auto& [handle, pin] : session.pins) {
      if (pin_ends.count({pin.end_us, id, handle}) == 0) return "a pin has no end";
      ++ends;
      pinned_bytes[pin.tenant] += pin.bytes;
      for (const uint32_t entry : pin.entries) ++expected[entry].second;
    }
  }
  for (const uint32_t entry : outgoing) ++expected[entry].first, ++hard;
  for (const auto& [token, check] : checks) ++expected[check.entry].first, ++hard;
  for (const auto& [id, get] : cold_gets) {
    for (const ColdGet::Block& block : get.blocks) {
      for (const ColdGet::Source& source : block.sources) {
        if (source.patch.entry != kNone) ++expected[source.patch.entry].first, ++hard;
      }
    }
  }
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    if (index[entry].spilling != 0) ++expected[entry].first, ++hard;
  }
  if (hard != hard_pins || ends != pin_ends.size()) return "pins and their counts disagree";
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    const auto found = expected.find(entry);
    const auto [hard_pins_of, soft_pins_of] = found == expected.end() ? std::pair(0u, 0u) : found->second;
    if (index[entry].hard_pins != hard_pins_of || index[entry].soft_pins != soft_pins_of) {
      return "an entry's pins have no holder";
    }
  }
  for (const auto& [number, tenant] : tenants) {
    if (tenant.pinned_bytes != pinned_bytes[number]) return "a tenant's pinned bytes disagree";
  }
  return {};
}

std::string Owner::State::CheckTickets() const {
  uint64_t open = 0, held = 0, writers = 0, kept = 0;
  for (const auto& [id, ticket] : tickets) {
    const auto session = sessions.find(ticket.session);
    if (session == sessions.end() || session->second.tickets.count(id) == 0) return "a ticket has no session";
    if (arena.slab(ticket.place.slab).owners[ticket.place.slot] != Arena::kTicketOwner) {
      return "a ticket's slot is not its own";
    }
    kept += ticket.kept_bytes;
    if (ticket.revoked) continue;
    ++open;
    if (writing.count(ticket.name) == 0) return "a ticket's block is not known as being written";
  }
  for (const auto& [name, count] : writing) writers += count;
  for (const auto& [id, session] : sessions) held += session.tickets.size();
  if (kept != ticket_bytes) return "bytes that tickets keep and their count disagree";
  if (open != stall_order.size() || open != writers || held != tickets.size()) {
    return "tickets and their counts disagree";
  }
  return {};
}

std::string Owner::State::CheckNamespaces() const {
  for (uint32_t number = 0; number < name_spaces.size(); ++number) {
    const NamespaceRecord& record = name_spaces[number];
    uint64_t blocks = 0, bytes = 0;
    for (uint32_t i = index.FirstOf(SpaceOf(number)); i != kNone; i = index.place(i).space_next) {
      ++blocks;
      bytes += index.place(i).payload_bytes;
    }
    if (blocks != record.blocks || bytes != record.bytes)
      return "a namespace's blocks and their count disagree";
  }
  uint64_t waiting = 0, reporting = 0;
  for (const auto& [id, session] : sessions) {
    waiting += session.waits.size();
    reporting += session.reports.size();
  }
  if (waiting != waits.size() || reporting != reports.size()) return "waits or reports have no session";
  return {};
}

std::string Owner::State::CheckTenants() const {
  std::map<uint32_t, uint64_t> used, spilling, leaving, ticket_counts;
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    const Entry& e = index[entry];
    if (e.hidden != 0 && !e.pinned()) continue;  // free
    const SlotShape& shape = arena.ShapeOf(PlaceOf(entry));
    if (e.charged != 0) used[shape.tenant] += shape.slot_bytes;
    if (e.charged != 0 && e.hidden != 0 && e.hard_pins != 0) leaving[shape.tenant] += shape.slot_bytes;
    if (e.spilling != 0) spilling[shape.tenant] += shape.slot_bytes;
  }
  for (const auto& [id, ticket] : tickets) {
    const SlotShape& shape = arena.ShapeOf(ticket.place);
    used[shape.tenant] += shape.slot_bytes;
    ++ticket_counts[shape.tenant];
  }
  for (const auto& [number, tenant] : tenants) {
    if (tenant.used_bytes != used[number] || tenant.spilling_bytes != spilling[number] ||
        tenant.leaving_bytes != leaving[number] || tenant.tickets != ticket_counts[number])
      return "what a tenant uses and its count disagree";
    if (tenant.used_bytes > tenant.limits.quota_bytes) return "a tenant is over its quota";
    if (tenant.used_bytes == 0 && tenant.namespaces == 0) return "a tenant without anything is kept";
    used.erase(number);
  }
  return used.empty() ? std::string() : "something belongs to no tenant";
}

// What moves between memory and SSD, and its sums.
std::string Owner::State::CheckCold() const {
  uint64_t bytes = 0, held = 0, pieces = 0, queued = 0;
  for (const auto& [id, get] : cold_gets) {
    const auto session = sessions.find(get.session);
    if (session == sessions.end() || session->second.cold_gets.count(id) == 0)
      return "a cold get has no session";
    (get.begun ? bytes : queued) += get.slot_bytes;
    uint32_t left = 0;
    uint64_t ready = 0;
    for (const ColdGet::Block& block : get.blocks) {
      if (!block.answered && block.left == 0) ready += block.cold_bytes;
      if (block.answered && !block.sources.empty()) return "an answered block of a cold get has sources";
      for (const ColdGet::Source& source : block.sources) {
        if (source.read == 0 || source.patch.entry != kNone) continue;
        ++left;
        if (cold_reads.count(source.read) == 0) return "a cold get waits for a read that is not there";
      }
    }
    if (left != get.reads_left || ready != get.ready_bytes || get.replies >= kGetRepliesMax) {
      return "a cold get's reads and their count disagree";
    }
  }
  for (const auto& [id, session] : sessions) held += session.cold_gets.size();
  for (const auto& unsubmitted : cold_unsubmitted) {
    for (const uint64_t read : unsubmitted) queued += cold_reads.at(read).bytes;
  }
  if (bytes != cold_bytes || held != cold_gets.size() || queued != cold_queued[0] + cold_queued[1]) {
    return "cold gets and their sums disagree";
  }
  bytes = 0;
  for (uint32_t entry = 0; entry < index.entry_bound(); ++entry) {
    if (index[entry].spilling == 0) continue;
    ++pieces;
    bytes += arena.ShapeOf(PlaceOf(entry)).slot_bytes;
  }
  if (pieces != spilling_pieces || bytes != spilling_bytes) return "pieces on their way to SSD disagree";
  return ssd == nullptr ? std::string() : ssd->CheckInvariants();
}

}  // namespace larder::node
