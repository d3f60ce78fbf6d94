#include "node/owner/owner.h"

#include <algorithm>

#include "node/owner/owner_state.h"

namespace larder::node {

Owner::State::State(const OwnerOptions& given, SlabSource* slabs, Outbox* outbox_given,
                    std::unique_ptr<ssd::SsdTier> ssd_given)
    : options(given),
      tenant_limits(WithOthers(given.tenants)),
      outbox(outbox_given),
      index(given.seed),
      arena(given.memory_bytes, given.slab_bytes_target, slabs),
      misses(given.miss_memory_entries),
      events(given.events_max),
      readers(given.reader_memory_entries),
      ssd(std::move(ssd_given)),
      waits(given.seed),
      family(MakePolicyFamily(given.eviction_policy)),
      writing(16, BlockNameHash{given.seed}),
      hot(given.hot_copies_max, given.hot_share_percent, given.seed, given.near_share_percent != 0),
      homecoming(given.seed),
      admission(given.admit_twice),
      reading(16, BlockNameHash{given.seed}) {
  for (const TenantLimits& limits : tenant_limits) {
    tenant_counts.push_back(
        {.name = limits.name, .quota_bytes = limits.quota_bytes, .ssd_quota_bytes = limits.ssd_quota_bytes});
  }
}

Owner::Owner(const OwnerOptions& options, SlabSource* slabs, Outbox* outbox,
             std::unique_ptr<ssd::SsdTier> ssd)
    : state_(std::make_unique<State>(options, slabs, outbox, std::move(ssd))) {}
Owner::~Owner() = default;

void Owner::Handle(SessionId session, Event&& event, uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  state_->Handle(session, std::move(event));
}

void Owner::OnDisk(uint64_t now_us, uint64_t unix_ms) {
  state_->SetClock(now_us, unix_ms);
  state_->PollDisks();
}

void Owner::OnTimer(uint64_t now_us) {
  state_->SetClock(now_us);
  state_->OnTimer();
}

uint64_t Owner::NextTimerUs() const {
  return state_->NextTimerUs();
}
void Owner::SlabGone(std::byte* base) {
  state_->arena.Gone(base);
}
void Owner::Drain(bool save) {
  state_->draining = true;
  state_->save_all = state_->save_all || save;
  state_->Spill();
}
bool Owner::Idle() const {
  return state_->tickets.empty() && state_->hard_pins == 0 && state_->waits.size() == 0 &&
         state_->cold_gets.empty() && state_->asides.empty() && state_->undurable.empty() &&
         state_->revokes.empty() && !state_->Saving();
}
OwnerStats Owner::stats() const {
  return state_->Stats();
}
std::string Owner::CheckInvariants() const {
  return state_->CheckInvariants();
}

std::vector<NamespaceInfo> Owner::Namespaces() const {
  std::vector<NamespaceInfo> out;
  for (const auto& [name, number] : state_->number_of) {
    const NamespaceRecord& record = state_->name_spaces[number];
    out.push_back({name, state_->tenants.at(record.tenant).name, record.identity, record.blocks, record.bytes,
                   record.clear_epoch});
  }
  return out;
}

std::vector<TenantInfo> Owner::Tenants() const {
  std::unordered_map<uint32_t, uint64_t> ssd_bytes;
  for (const NamespaceRecord& record : state_->name_spaces) {
    if (state_->ssd != nullptr) ssd_bytes[record.tenant] += state_->ssd->bytes_of(record.ssd_space);
  }
  std::vector<TenantInfo> out;
  for (const auto& [name, number] : state_->tenant_of) {
    const Tenant& tenant = state_->tenants.at(number);
    out.push_back({tenant.limits, tenant.namespaces, tenant.used_bytes, tenant.pinned_bytes,
                   state_->PinnedMax(tenant), ssd_bytes[number]});
  }
  return out;
}

bool Owner::IsDurable(uint64_t durable) const {
  const auto& revokes = state_->revokes;
  return (state_->undurable.empty() || *state_->undurable.begin() > durable) &&
         std::ranges::all_of(revokes, [&](const auto& each) { return each.second.since > durable; });
}

std::vector<ssd::DiskInfo> Owner::Disks() const {
  return state_->ssd == nullptr ? std::vector<ssd::DiskInfo>() : state_->ssd->disk_infos();
}

Result<uint64_t> Owner::ClearNamespace(const Namespace& name_space, uint64_t stamp_ms, uint64_t* durable) {
  const auto found = state_->number_of.find(name_space);
  if (found == state_->number_of.end()) {
    return Status(Code::kNotFound,
                  "no namespace " + ToHex(name_space.bytes) + " on this node; list them first");
  }
  if (state_->ForwardsFull()) return Status(Code::kBusy, std::string(kForwardsFull));
  state_->clears.Note(name_space, stamp_ms != 0 ? stamp_ms : state_->unix_ms);
  uint64_t revoke = 0;
  const uint64_t removed = state_->ClearSpace(found->second, &revoke);
  if (durable != nullptr) {
    *durable = std::max(state_->undurable.empty() ? 0 : *state_->undurable.rbegin(), revoke);
  }
  return removed;
}

void Owner::State::Handle(SessionId id, Event&& event) {
  work_left = kWorkPerEvent;
  if (const auto* opened = std::get_if<Opened>(&event)) {
    auto [found, added] = sessions.try_emplace(id);
    if (added) {
      found->second.writer = opened->writer;
      found->second.tenant = opened->tenant;
      found->second.restores = opened->restores;
      found->second.parts = opened->parts;
      found->second.hands_over = opened->hands_over;
    }
    return;
  }
  // Checks end with Verified alone: whoever verifies may still read after the session that asked is gone.
  if (const auto* verified = std::get_if<Verified>(&event))
    return OnVerified(verified->token, verified->good);
  const auto found = sessions.find(id);
  if (found == sessions.end()) return;  // what a closed session had under way arrives late
  Asker asker{id, &found->second, {}, 0};
  if (auto* request = std::get_if<Request>(&event)) return OnRequest(asker, std::move(*request));
  if (auto* committed = std::get_if<Committed>(&event)) return OnCommitted(asker, std::move(*committed));
  if (const auto* progress = std::get_if<Progress>(&event)) return OnProgress(id, progress->ticket);
  if (const auto* stopped = std::get_if<Stopped>(&event)) return OnStopped(id, stopped->ticket);
  if (const auto* sent = std::get_if<Sent>(&event)) return OnSent(asker.session, sent->token);
  OnClosed(id);
}

void Owner::State::OnRequest(Asker& asker, Request&& request) {
  asker.envelope = request.envelope;
  if (request.envelope.deadline_us != 0) {
    asker.expire_us = request.arrived_us + request.envelope.deadline_us;
    if (asker.expire_us < now_us) {
      ++counts.expired_requests;
      // One-way and late is better than never: a release must give its pin back.
      if (const auto* touch = std::get_if<Touch>(&request.body)) return OnTouch(asker, *touch);
      return Refuse(asker, Code::kTimedOut, "the deadline passed before the node came to this request");
    }
  }
  std::visit(
      [&](auto& body) {
        using Body = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<Body, Open>) OnOpen(asker, body);
        if constexpr (std::is_same_v<Body, Match>) OnMatch(asker, body);
        if constexpr (std::is_same_v<Body, Get>) OnGet(asker, body);
        if constexpr (std::is_same_v<Body, Move>) OnMove(asker, body);
        if constexpr (std::is_same_v<Body, Lease>) OnLease(asker, body);
        if constexpr (std::is_same_v<Body, Reserve>) OnReserve(asker, std::move(body));
        if constexpr (std::is_same_v<Body, Wait>) OnWait(asker, std::move(body));
        if constexpr (std::is_same_v<Body, Prefetch>) OnPrefetch(asker, body);
        if constexpr (std::is_same_v<Body, Touch>) OnTouch(asker, body);
        if constexpr (std::is_same_v<Body, Report>) OnReport(asker, body);
        if constexpr (std::is_same_v<Body, Remove>) OnRemove(asker, body);
        if constexpr (std::is_same_v<Body, Clear>) OnClear(asker, body);
        if constexpr (std::is_same_v<Body, Cancel>) OnCancel(asker, body);
      },
      request.body);
}

// Nothing lands or leaves any more, so every extent that this session was given is the owner's again.
void Owner::State::OnClosed(SessionId id) {
  Session& session = sessions.at(id);
  while (!session.tickets.empty()) DropTicket(*session.tickets.begin(), true);
  while (!session.pins.empty()) EndPin(&session, session.pins.begin()->first);
  for (const auto& [token, sending] : session.sendings) {
    for (const uint32_t entry : sending.entries) UnpinHard(entry);
  }
  for (const uint64_t wait : session.waits) waits.Remove(wait);
  for (const uint64_t get : session.cold_gets) DropCold(get);
  for (const uint64_t report : session.reports) reports.erase(report);
  while (!session.asides.empty()) DropAside(*session.asides.begin());
  for (const uint32_t number : session.name_spaces) --name_spaces[number].sessions;
  sessions.erase(id);
  PumpCold();  // its gets gave their room back
}

void Owner::State::OnSent(Session* session, uint64_t token) {
  const auto found = session->sendings.find(token);
  if (found == session->sendings.end()) return;
  const uint64_t took_us = now_us - found->second.begun_us;
  get_us = get_us == 0 ? took_us : (get_us * 7 + took_us) / 8;
  for (const uint32_t entry : found->second.entries) UnpinHard(entry);
  session->sendings.erase(found);
}

void Owner::State::OnTimer() {
  for (uint32_t i = 0; i < kTimerStepsMax; ++i) {
    const uint64_t due = waits.Due(now_us);
    if (due == 0) break;
    ++counts.waits_timed_out;
    AnswerWait(due);
  }
  for (uint32_t i = 0; i < kTimerStepsMax && !pin_ends.empty(); ++i) {
    const auto [end_us, id, handle] = *pin_ends.begin();
    if (end_us > now_us) break;
    ++counts.pins_expired;
    EndPin(&sessions.at(id), handle);
  }
  RevokeStalled();
  EndLeases();
  EndRevokes();
  Sweep(kSweepPerStep);
  for (uint32_t i = 0; i < kTimerStepsMax && !cold_ends.empty() && cold_ends.begin()->first <= now_us; ++i) {
    FinishCold(cold_ends.begin()->second);
  }
  for (uint32_t i = 0; i < kTimerStepsMax && !aside_ends.empty() && aside_ends.begin()->first <= now_us;
       ++i) {
    EndAside(aside_ends.begin()->second);
  }
  PumpCold();
  if (ssd != nullptr && ssd->NextTimerUs() <= now_us) PollDisks();
  ExpireStep();
  DropOldStep();
  Scrub();
}

uint64_t Owner::State::NextTimerUs() const {
  if (!sweeping.empty()) return now_us;
  uint64_t next = std::min({waits.FirstDeadlineUs(), expire_us, old_us});
  if (!cold_ends.empty()) next = std::min(next, cold_ends.begin()->first);
  if (!aside_ends.empty()) next = std::min(next, aside_ends.begin()->first);
  if (ssd != nullptr) next = std::min(next, ssd->NextTimerUs());
  if (options.scrub_bytes_per_s != 0) next = std::min(next, scrub_us);
  if (!pin_ends.empty()) next = std::min(next, std::get<0>(*pin_ends.begin()));
  if (!lease_ends.empty()) {
    const uint64_t end_us = lease_ends.begin()->first;
    next = std::min(next, end_us - std::min(end_us, ahead_ms * 1000));
  }
  for (const auto& [token, revoke] : revokes) {
    for (const HotHolder& holder : revoke.told.holders) next = std::min(next, holder.end_us);
  }
  if (!stall_order.empty()) {
    next = std::min(next, tickets.at(stall_order.front()).progress_us + options.ticket_stall_us);
  }
  return next;
}

void Owner::State::Deliver(const Asker& asker, Bytes&& header) {
  outbox->Deliver(asker.id, Reply{std::move(header), {}, 0, asker.expire_us});
}

void Owner::State::Refuse(const Asker& asker, Code code, std::string text) {
  const Verb verb = asker.envelope.verb;
  if (verb == Verb::kTouch || verb == Verb::kRelease || verb == Verb::kCancel) return;  // one-way
  if (code == Code::kBusy) ++counts.busy_answers;
  Asker late = asker;
  if (code == Code::kTimedOut) late.expire_us = 0;
  Deliver(late, Encode(ReplyTo(asker.envelope, code), ErrorText{std::move(text)}));
}

NamespaceRecord* Owner::State::NamespaceFor(const Asker& asker, uint32_t number, uint32_t* node_number) {
  if (number == 0 || number > asker.session->name_spaces.size()) {
    Refuse(asker, Code::kNotFound,
           "namespace number " + std::to_string(number) + " is not open on this connection; send Open first");
    return nullptr;
  }
  *node_number = asker.session->name_spaces[number - 1];
  return &name_spaces[*node_number];
}

bool Owner::State::CheckRectangle(const Asker& asker, const NamespaceRecord& record,
                                  const Rectangle& rectangle) {
  if (rectangle.valid() && WholeOf(record.grid).Contains(rectangle)) return true;
  Refuse(asker, Code::kInvalid,
         "rectangle outside the namespace's grid of " + std::to_string(record.grid.layers) + " layers x " +
             std::to_string(record.grid.head_groups) + " head groups");
  return false;
}

}  // namespace larder::node
