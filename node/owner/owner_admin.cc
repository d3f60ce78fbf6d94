// Open, Remove, Clear, and what the node tells about itself.
#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

void Owner::State::OnOpen(Asker& asker, const Open& body) {
  Session& session = *asker.session;
  if (!session.tenant.empty() && session.tenant != body.tenant) {
    return Refuse(asker, Code::kDenied, "this credential may open tenant '" + session.tenant + "' only");
  }
  if (body.tenant.size() > kTenantBytesMax) {
    return Refuse(asker, Code::kInvalid,
                  "tenant names have at most " + std::to_string(kTenantBytesMax) + " bytes");
  }
  const Result<Identity> identity = Identity::Parse(body.identity);
  if (!identity.ok()) return Refuse(asker, identity.status().code(), identity.status().text());
  const Status valid = identity.value().Validate(options.allow_weak_hash);
  if (!valid.ok()) return Refuse(asker, valid.code(), valid.text());
  const Result<Grid> grid = GridOf(identity.value());
  if (!grid.ok()) return Refuse(asker, grid.status().code(), grid.status().text());
  const auto& salt = body.salt_digest;
  const bool salted = salt != Digest{};
  const Namespace name =
      NamespaceOf(identity.value(), body.tenant,
                  salted ? std::string_view(reinterpret_cast<const char*>(salt.data()), salt.size())
                         : std::string_view());
  const uint32_t number = InternNamespace(name, body, grid.value());
  if (number == kNone) {
    return Refuse(asker, Code::kBusy,
                  "this node holds as many namespaces as it may; clear or close some, or raise "
                  "namespaces_max");
  }
  NamespaceRecord& record = name_spaces[number];
  const auto known = std::find(session.name_spaces.begin(), session.name_spaces.end(), number);
  if (known == session.name_spaces.end()) {
    if (session.name_spaces.size() >= kNamespacesPerSessionMax) {
      return Refuse(asker, Code::kBusy,
                    "a connection opens at most " + std::to_string(kNamespacesPerSessionMax) +
                        " namespaces; use another connection");
    }
    session.name_spaces.push_back(number);
    ++record.sessions;
    Answer(asker, OpenReply{static_cast<uint32_t>(session.name_spaces.size()), name, record.clear_epoch});
    return;
  }
  Answer(asker,
         OpenReply{static_cast<uint32_t>(known - session.name_spaces.begin() + 1), name, record.clear_epoch});
}

// The node-wide number of a namespace; kNone when there are too many and none may be forgotten.
uint32_t Owner::State::InternNamespace(const Namespace& name, const Open& body, const Grid& grid) {
  if (const auto known = number_of.find(name); known != number_of.end()) return known->second;
  uint32_t number = static_cast<uint32_t>(name_spaces.size());
  if (number_of.size() >= options.namespaces_max) {
    for (number = 0; number < name_spaces.size(); ++number) {
      if (name_spaces[number].sessions == 0 && name_spaces[number].blocks == 0) break;
    }
    if (number == name_spaces.size()) return kNone;
    ForgetNamespace(number);
  } else {
    name_spaces.emplace_back();
  }
  NamespaceRecord& record = name_spaces[number];
  record.name_space = name;
  record.identity = body.identity;
  record.salt_digest = body.salt_digest;
  record.tenant = InternTenant(body.tenant);
  record.replicas = tenants.at(record.tenant).limits.replicas;
  if (const uint64_t ttl_us = tenants.at(record.tenant).limits.ttl_us; ttl_us != 0) {
    record.ttl_ms = ttl_us / 1000;
    BeginExpiring(ttl_us);
  }
  record.grid = grid;
  record.fingerprint_seed =
      XXH3_64bits_withSeed(&++last_namespace_serial, sizeof last_namespace_serial, options.seed);
  if (ssd != nullptr) {
    const ssd::SpaceRecord* known = ssd->FindSpace(name);
    if (known != nullptr) record.clear_epoch = known->clear_epoch;
    record.ssd_space = ssd->OpenSpace({name, record.clear_epoch, body.tenant, body.identity});
    number_of_space[record.ssd_space] = number;
  }
  number_of[name] = number;
  return number;
}

uint32_t Owner::State::InternTenant(const std::string& name) {
  const auto [found, added] = tenant_of.try_emplace(name, last_tenant + 1);
  if (added) {
    Tenant& tenant = tenants[++last_tenant];
    tenant.name = name;
    const size_t limits = LimitsOf(tenant_limits, name);
    tenant.number_of_limits = static_cast<uint32_t>(limits);
    tenant.limits = tenant_limits[limits];
    tenant.limits.name = name;
  }
  ++tenants[found->second].namespaces;
  return found->second;
}

// Nobody has it open and it holds nothing, but a clear may still be freeing its pieces: the generation goes
// on.
void Owner::State::ForgetNamespace(uint32_t number) {
  NamespaceRecord& record = name_spaces[number];
  number_of.erase(record.name_space);
  if (ssd != nullptr) number_of_space.erase(record.ssd_space);
  --tenants.at(record.tenant).namespaces;
  DropTenantIfUnused(record.tenant);
  homecoming.Forgotten(record.name_space);
  const uint32_t generation = record.generation + 1;
  record = NamespaceRecord{};
  record.generation = generation;
}

void Owner::State::OnRemove(Asker& asker, const Remove& body) {
  uint32_t number = 0;
  if (NamespaceFor(asker, body.number, &number) == nullptr) return;
  if (body.groups.size() > kGroupsMax || body.hashes.size() > kHashesMax) {
    return Refuse(asker, Code::kInvalid,
                  "a remove has at most " + std::to_string(kGroupsMax) + " groups and " +
                      std::to_string(kHashesMax) + " hashes");
  }
  if (ForwardsFull()) return Refuse(asker, Code::kBusy, std::string(kForwardsFull));
  RemoveReply reply;
  uint32_t found[Index::kBatch];
  for (size_t begin = 0; begin < body.hashes.size(); begin += Index::kBatch) {
    const auto hashes =
        std::span(body.hashes).subspan(begin, std::min(Index::kBatch, body.hashes.size() - begin));
    for (const uint16_t group : body.groups) {
      index.FindBatch(SpaceOf(number), hashes, group, found);
      for (size_t i = 0; i < hashes.size(); ++i) {
        if (found[i] == kNone) continue;
        // Looked up again for each piece: the same hash may stand twice in the list.
        for (uint32_t first; (first = index.Find(SpaceOf(number), hashes[i], group)) != kNone;
             ++reply.removed) {
          Leave(first, Presence::kRemoved);
        }
      }
    }
  }
  for (const ChainHash& hash : body.hashes) {
    for (const uint16_t group : body.groups) {
      const uint64_t key = FingerprintOf(number, hash, group);
      homecoming.Removed(name_spaces[number].name_space, hash, key, now_us);
      if (name_spaces[number].replicas > 1) removed_lately.Note(key, now_us);
      if (asker.session->hands_over) carried_lately.Note(key, now_us);
    }
  }
  reply.removed += RemoveFromSsd(number, body);
  EndLeaseTickets(number, body);
  const uint64_t revoke = RevokeBlocks(number, body.hashes, body.groups);
  AddForward({0, name_spaces[number].name_space, false, body.groups, body.hashes, 0});
  counts.removed += reply.removed;
  AnswerRevoked(asker, Encode(ReplyTo(asker.envelope), reply), revoke);
}

void Owner::State::OnClear(Asker& asker, const Clear& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr) return;
  if (ForwardsFull()) return Refuse(asker, Code::kBusy, std::string(kForwardsFull));
  clears.Note(record->name_space, Clears::Bounded(body.stamp_ms != 0 ? body.stamp_ms : unix_ms, unix_ms));
  ClearReply reply;
  uint64_t revoke = 0;
  reply.removed = ClearSpace(number, &revoke);
  reply.clear_epoch = record->clear_epoch;
  AnswerRevoked(asker, Encode(ReplyTo(asker.envelope), reply), revoke);
}

uint32_t Owner::State::RemoveFromSsd(uint32_t number, const Remove& body) {
  uint32_t removed = 0;
  if (ssd == nullptr) return removed;
  const uint32_t space = name_spaces[number].ssd_space;
  for (const ChainHash& hash : body.hashes) {
    for (const uint16_t group : body.groups) {
      for (uint32_t i = ssd->First(space, hash, group); i != kNone; i = ssd->First(space, hash, group)) {
        RemoveCold(i, Presence::kRemoved);
        misses.Remember(FingerprintOf(number, hash, group), Presence::kRemoved, unix_ms);
        ++removed;
      }
    }
  }
  if (removed != 0) {
    const uint64_t token = ++last_id;
    undurable.insert(token);
    ssd->Barrier(token);
  }
  return removed;
}

// What was removed must not be back after a crash, so the answer waits for the last change that SSD was told.
void Owner::State::AnswerDurably(const Asker& asker, Bytes&& header) {
  const uint64_t token = undurable.empty() ? 0 : *undurable.rbegin();
  AwaitDurable({asker.id, asker.expire_us, std::move(header), token});
}

// Of what came after its token the reply is independent.
void Owner::State::AwaitDurable(DurableReply&& reply) {
  const auto later = undurable.upper_bound(reply.token);
  if (later != undurable.begin()) {
    durable_replies[*std::prev(later)].push_back(std::move(reply));
  } else if (sessions.count(reply.session) != 0) {
    outbox->Deliver(reply.session, Reply{std::move(reply.header), {}, 0, reply.expire_us});
  }
}

OwnerStats Owner::State::Stats() const {
  OwnerStats out = counts;
  for (const NamespaceRecord& record : name_spaces) {
    out.pieces += record.blocks;
    out.payload_bytes += record.bytes;
  }
  out.slot_bytes = arena.used_slot_bytes();
  out.slab_bytes = arena.slab_bytes();
  out.memory_bytes = arena.memory_bytes();
  out.tickets = tickets.size();
  out.waits_open = waits.size();
  for (const auto& [id, session] : sessions) out.soft_pins += session.pins.size();
  for (const auto& [number, tenant] : tenants) out.soft_pinned_bytes += tenant.pinned_bytes;
  out.hard_pins = hard_pins;
  out.sessions = sessions.size() - sessions.count(kOwnSession);
  out.namespaces = number_of.size();
  out.metadata_bytes = index.metadata_bytes() + family->metadata_bytes() + arena.metadata_bytes();
  for (const auto& policy : policies) out.metadata_bytes += policy->metadata_bytes();
  out.spilling_bytes = spilling_bytes;
  out.cold_gets = cold_gets.size();
  out.cold_reads = cold_reads.size();
  out.events = events.next() - 1;
  out.quarantine_rules = rules.rules().size();
  out.readers_forgotten = readers.forgotten();
  out.moved_slots = homecoming.slots(now_us);
  out.questions_open = homecoming.open();
  out.asides = asides.size();
  out.hot_blocks = hot.copied().size();
  out.hot_copies = hot.copies(now_us);
  out.near_copies = hot.copies(now_us, true);
  out.leased_pieces = leased.size();
  out.leased_bytes = leased_bytes;
  out.revokes_open = revokes.size();
  out.bypass = rules.bypass;
  out.has_ssd = ssd != nullptr;
  if (ssd != nullptr) out.ssd = ssd->stats();
  out.tenants = TenantCounts();
  return out;
}

}  // namespace larder::node
