// The owner's state and its operations, split over owner_*.cc by verb. Private to node/owner/.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/eviction/policy.h"
#include "node/owner/arena.h"
#include "node/owner/block_name.h"
#include "node/owner/cover.h"
#include "node/owner/event_log.h"
#include "node/owner/homecoming.h"
#include "node/owner/index.h"
#include "node/owner/miss_memory.h"
#include "node/owner/owner.h"
#include "node/owner/owner_records.h"
#include "node/owner/place_times.h"
#include "node/owner/removed_lately.h"
#include "node/owner/waits.h"
#include "node/ssd/admission.h"
#include "node/ssd/ssd_tier.h"

namespace larder::node {

struct Owner::State : private ssd::TierSink {
  State(const OwnerOptions& given, SlabSource* slabs, Outbox* outbox_given,
        std::unique_ptr<ssd::SsdTier> ssd_given);

  // owner.cc: events, timers, replies
  void Handle(SessionId id, Event&& event);
  void OnRequest(Asker& asker, Request&& request);
  void OnClosed(SessionId id);
  void OnSent(Session* session, uint64_t token);
  void OnTimer();
  uint64_t NextTimerUs() const;
  template <typename Body>
  void Answer(const Asker& asker, const Body& body) {
    Deliver(asker, Encode(ReplyTo(asker.envelope), body));
  }
  void Deliver(const Asker& asker, Bytes&& header);
  void Refuse(const Asker& asker, Code code, std::string text);
  // The record of an open number; answers the error and returns nullptr when there is none.
  NamespaceRecord* NamespaceFor(const Asker& asker, uint32_t number, uint32_t* node_number);
  bool CheckRectangle(const Asker& asker, const NamespaceRecord& record, const Rectangle& rectangle);

  // owner_expire.cc: time, and what it ends
  void SetClock(uint64_t given_us);
  void SetClock(uint64_t given_us, uint64_t given_unix_ms);
  void SetClockToSsd();
  // Unix time that is never set back while the node lives, by which blocks are dated and expire.
  uint64_t steady_ms() const { return now_us / 1000 + ahead_ms; }
  // Lookups of it may find what has to go.
  bool Drops(const NamespaceRecord& record) const {
    return record.ttl_ms != 0 || old_left || (ssd != nullptr && !rules.rules().empty());
  }
  bool Expired(uint32_t number, uint32_t born_s) const;
  bool DropIfOver(uint32_t entry);
  void Expire(uint32_t entry);
  void ExpireCold(uint32_t number, uint32_t cold);
  uint32_t Find(uint32_t number, const ChainHash& hash, uint16_t group);
  void ExpireStep();
  bool ExpireMemory();
  bool ExpireSsd();
  void BeginExpiring(uint64_t ttl_us);

  // owner_pieces.cc: pieces, their lives and pins
  Space SpaceOf(uint32_t number) const { return {number, name_spaces[number].generation}; }
  SlotPlace PlaceOf(uint32_t entry) const { return {index.place(entry).slab, index.place(entry).slot}; }
  EvictionPolicy& PolicyOf(uint32_t entry) {
    return *policies[arena.slab(index.place(entry).slab).class_number];
  }
  uint64_t FingerprintOf(uint32_t number, const ChainHash& hash, uint16_t group) const;
  bool CoverOf(uint32_t first, const Rectangle& ask, std::vector<Patch>* sources);
  // The same over both tiers; kSsdBit marks what lies on SSD.
  bool CoverBoth(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first, const Rectangle& ask,
                 std::vector<Patch>* sources);
  bool Covered(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first, const Rectangle& ask);
  // A new piece in a slot that has its header. Invisible: found by nobody, hard-pinned once for the caller,
  // gone with its last pin.
  uint32_t AddPiece(const BlockName& name, const Rectangle& rectangle, SlotPlace place,
                    const BlockHeader& header, uint32_t depth, bool visible);
  Presence WhyMissing(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first);
  void Leave(uint32_t entry, Presence reason);
  void FreeEntry(uint32_t entry);
  void EndLeaving(uint32_t entry);
  void PinHard(uint32_t entry);
  void UnpinHard(uint32_t entry);
  void EndPin(Session* session, uint64_t handle);
  void DropPin(const SoftPin& pin);
  Result<BlockHeader> HeaderOf(uint32_t entry) const;
  void Sweep(uint32_t steps);
  uint64_t ClearSpace(uint32_t number, uint64_t* revoke);

  // owner_places.cc: what went with a place that was lost
  bool Old(uint32_t number, const ChainHash& hash, uint32_t born_s) const;
  bool Old(uint32_t entry) const {
    const Entry& e = index[entry];
    return old_left && Old(e.space.number, e.hash, index.place(entry).born_s);
  }
  bool OldCold(uint32_t cold) const;
  void DropOld(uint32_t entry);
  void DropOldCold(uint32_t cold);
  uint64_t BirthMs(uint32_t number, const ChainHash& hash) const;
  void ExpectPlace(uint32_t number, const ChainHash& hash);
  void BeginDropOld();
  void DropOldStep();

  // owner_evict.cc
  PutState TakeSlot(const SlotShape& shape, SlotPlace* place);
  bool MakeRoom(uint32_t class_number);
  bool RetireEmptySlab(uint32_t but_class);
  bool EvictFrom(uint32_t class_number, bool for_quota = false, bool* working = nullptr);
  void Evict(uint32_t entry, bool for_quota = false);
  bool MakeClassRoom();
  bool TakeColdSlab(uint32_t for_class, uint64_t colder_than_us);
  bool TakeAnySlab(uint32_t for_class);
  void EmptySlab(uint32_t slab);
  uint32_t ColdestSlabOf(uint32_t class_number, uint64_t colder_than_us, uint32_t share_min);
  bool MayEmpty(uint32_t slab) const;
  uint32_t ColderShare(uint32_t slab, uint64_t colder_than_us) const;

  // owner_quota.cc
  void Charge(uint32_t tenant, uint64_t slot_bytes);
  void Uncharge(uint32_t tenant, uint64_t slot_bytes);
  PutState TakeQuota(uint32_t tenant, uint64_t slot_bytes);
  bool EvictOf(uint32_t tenant, bool* working);
  void SpillQuota(uint32_t tenant);
  void SpillCrowded();
  uint64_t SsdBytesOf(uint32_t tenant) const;
  bool TakeSsdQuota(uint32_t tenant, uint64_t payload_bytes);
  uint32_t ColdOnSsd(uint32_t tenant, uint32_t* looks);
  void DropTenantIfUnused(uint32_t number);
  TenantStats& CountsOf(uint32_t tenant);
  std::vector<TenantStats> TenantCounts() const;

  // owner_put.cc
  void OnReserve(Asker& asker, Reserve&& body);
  PutState ReserveBlock(const Asker& asker, uint32_t number, Reserve::Block&& block, uint64_t lease_end_us,
                        uint64_t* ticket);
  void OnCommitted(Asker& asker, Committed&& event);
  PutState CommitBlock(const Asker& asker, const Committed::Block& block);
  bool MustNotComeBack(const Session& session, const BlockName& name) const;
  PutState StoreTicket(const Asker& asker, const Ticket& ticket, const std::vector<uint32_t>& crc32c);
  bool SameBits(const Ticket& ticket, const std::vector<uint32_t>& crc32c, const std::vector<Patch>& sources);
  void OnProgress(SessionId id, uint64_t ticket);
  void OnStopped(SessionId id, uint64_t ticket);
  void RevokeStalled();
  void DropTicket(uint64_t ticket, bool free_slot);

  // owner_get.cc
  void OnGet(Asker& asker, const Get& body);
  struct GetWork;
  void OnMove(Asker& asker, const Move& body);
  void WholePieces(std::vector<Patch>* sources) const;
  Bytes EncodeMove(const Asker& asker, const GetWork& work) const;
  Presence AddPatches(const std::vector<Patch>& patches, GetWork* work, GetReply::Block* block);
  void SendGet(const Asker& asker, GetWork&& work, bool more = false);
  bool AddSource(const Patch& patch, const BlockHeader& header, GetWork* work, GetReply::Block* block);

  // owner_match.cc
  void OnMatch(Asker& asker, const Match& body);
  SoftPin PinFor(const Asker& asker, uint32_t tenant, uint32_t pin_us) const;
  uint64_t PinnedMax(const Tenant& tenant) const;
  void AnswerMatch(const Asker& asker, MatchReply&& reply, SoftPin&& pin);
  void PinMatched(const std::vector<Patch>& sources, SoftPin* pin);
  uint64_t ColdUs(const std::vector<Patch>& sources, ssd::Lane lane, DiskBytes* before);
  static void AddEstimates(const uint64_t* key_us, size_t count,
                           std::vector<MatchReply::Estimate>* estimates);
  void OnTouch(Asker& asker, const Touch& body);
  void TouchPiece(uint32_t piece, const TouchInfo& info, bool finishes);
  void ObserveChain(const Touch& body, uint32_t number);
  void WarmSsd(uint32_t number, const ChainHash& hash, uint16_t group);

  // owner_spill.cc: memory -> SSD
  void SpillClass(uint32_t class_number);
  void Spill();
  bool Saving() const;  // told to save everything, and something may still go to SSD
  bool SpillBatch(uint64_t bytes, uint32_t tenant = 0);
  bool SpillPiece(uint32_t victim);
  void WritePending();
  uint32_t ColdestPiece(uint32_t tenant = 0);
  uint32_t SsdPiece(const BlockName& name, const Rectangle& rectangle) const;
  uint32_t SsdRecord(const BlockName& name, const Rectangle& rectangle) const;
  void OnWritten(uint64_t token, bool stored) override;

  // owner_cold.cc: SSD -> memory
  void OnColdGet(const Asker& asker, uint32_t number, const std::vector<BlockRef>& refs, bool prefetch);
  Presence PlanBlock(const BlockRef& ref, ColdGet* get, ColdGet::Block* block, DiskBytes* before);
  uint64_t ReadUs(uint32_t cold, ssd::Lane lane, DiskBytes* before);
  void PumpCold();
  void BeginWaiting();
  void BeginCold(uint64_t id);
  bool SubmitRead(uint64_t id);
  void EndRead(uint64_t id, uint32_t entry, Presence failed);
  bool PartIsDue(const ColdGet& get) const;
  void AnswerCold(ColdGet* get, bool more);
  std::vector<Patch> SettleCold(const ColdGet& get, ColdGet::Block* block);
  void FinishPrefetch(ColdGet* get);
  void FinishCold(uint64_t id);
  void DropCold(uint64_t id);
  void CancelCold(Asker& asker, uint64_t id);
  void OnRead(uint64_t token, ssd::ReadOutcome&& outcome) override;
  void OnPrefetch(Asker& asker, const Prefetch& body);
  void OnGone(const ssd::SsdEntry& entry, ssd::WhyGone why) override;
  void OnDurable(uint64_t token) override;
  void PollDisks();

  // owner_hand_over.cc
  bool MayCopy(uint32_t entry) const;
  bool MayLeave(uint32_t entry) const;
  uint64_t HeatOf(uint32_t entry) const;
  uint32_t DepthOf(uint32_t entry) const {
    return policies[arena.slab(index.place(entry).slab).class_number]->DepthOf(entry);
  }
  OutgoingPage TakeOut(std::span<const WarmPiece> list, const PageLimits& limits, bool by_lease);
  bool ForwardsFull() const;
  void AddForward(Forward&& forward);

  // owner_hot.cc
  // A machine that was asleep lets no lease live longer.
  uint64_t lease_clock_us() const { return now_us + ahead_ms * 1000; }
  uint64_t LeaseEndOf(uint64_t since_us, uint64_t lease_us) const;
  // What copies by lease may take.
  uint64_t leased_bytes_max() const {
    const uint32_t percent = options.near_share_percent;
    return percent == 0 ? UINT64_MAX : options.memory_bytes / 100 * percent;
  }
  void LeaseOut(uint32_t entry, uint64_t end_us);
  void KeepForGood(uint32_t first);
  void EndLease(uint32_t entry);
  void OnLease(Asker& asker, const Lease& body);
  void EndLeaseTickets(uint32_t number, const Remove& body);
  LeaseReply::Block RenewPiece(uint32_t number, const BlockRef& ref, uint64_t end_us);
  void EndLeases();
  void CountRead(uint32_t number, const BlockRef& ref, const std::vector<Patch>& sources, const Get& body,
                 GetWork* work);
  HotBlock PlanOf(const BlockName& name, const HotBlocks::Copied& copied) const;
  uint64_t RevokeBlocks(uint32_t number, std::span<const ChainHash> hashes, std::span<const uint16_t> groups);
  uint64_t RevokeSpace(uint32_t number);
  void EndRevokes();
  void FinishRevoke(uint64_t token);
  void AnswerRevoked(const Asker& asker, Bytes&& header, uint64_t revoke);
  std::string CheckLeases() const;

  // owner_homecoming.cc
  bool MayAsk(const Asker& asker) const;
  void NoteMissing(uint32_t number, const BlockRef& ref, std::vector<BlockRef>* wanted);
  void NoteWanted(uint32_t number, const BlockRef& ref, Presence why, std::vector<BlockRef>* wanted);
  uint32_t AskAll(const Asker& asker, uint32_t number, std::span<const BlockRef> wanted, uint64_t waiter);
  bool SetAside(const Asker& asker, uint32_t number, std::span<const BlockRef> wanted,
                decltype(Request::body)&& body);
  void EndAside(uint64_t id);
  void DropAside(uint64_t id);
  ComingSlot MakeSlot(const ComingPiece& piece);
  void LandPiece(const LandedPiece& piece);
  std::string CheckAsides() const;

  // owner_events.cc: what followers hear
  BlockEvent EventOf(uint32_t entry) const;
  BlockEvent EventOf(const ssd::SsdEntry& entry) const;
  std::vector<ChainHash> ConstituentsOf(uint32_t entry) const;
  void LogMemory(uint32_t entry, BlockEvent&& event);
  bool Logged(uint32_t entry) const;
  void LogStored(uint32_t entry);
  void LogLeft(uint32_t entry, Presence reason);  // before it is hidden
  void LogWritten(uint32_t entry);
  void LogGone(const ssd::SsdEntry& gone, Presence reason);
  void LogCleared(const NamespaceRecord& record);
  void LogLoading();
  void RemoveCold(uint32_t cold, Presence reason);  // ssd->Remove, and says so
  void ScanMemory(EventCursor* cursor, std::string_view tenant, EventPage* page);
  void ScanSsd(EventCursor* cursor, std::string_view tenant, EventPage* page);
  EventPage ReadEvents(EventCursor* cursor, std::string_view tenant);

  // owner_explain.cc
  BlockStory Explain(uint32_t number, const ChainHash& hash, uint16_t group);

  // owner_quarantine.cc
  void DropBanned();
  void AnswerBypassed(const Asker& asker, size_t keys);
  bool DropIfBanned(uint32_t entry, const BlockHeader& header);
  bool DropIfBanned(const ColdRead& read, const BlockHeader& header);
  bool BannedCold(uint32_t cold) const;
  void DropBannedCold(uint32_t number, uint32_t cold);

  // owner_clears.cc
  void AwaitKept();
  void ClearHeard(const Namespace& name_space);
  void ClearOnSsd(const Namespace& name_space, uint32_t epoch);

  // owner_wait.cc
  void OnWait(Asker& asker, Wait&& body);
  bool AdvanceWait(uint64_t id);  // true: it goes on waiting
  void AnswerWait(uint64_t id);
  void WakeWaits(const BlockName& name);
  void OnCancel(Asker& asker, const Cancel& body);

  // owner_report.cc
  void OnReport(Asker& asker, const Report& body);
  void OnVerified(uint64_t token, bool good);
  void AnswerReport(uint64_t id);

  // owner_admin.cc
  void OnOpen(Asker& asker, const Open& body);
  uint32_t InternNamespace(const Namespace& name, const Open& body, const Grid& grid);
  uint32_t InternTenant(const std::string& name);
  void ForgetNamespace(uint32_t number);
  void OnRemove(Asker& asker, const Remove& body);
  void OnClear(Asker& asker, const Clear& body);
  uint32_t RemoveFromSsd(uint32_t number, const Remove& body);
  void AnswerDurably(const Asker& asker, Bytes&& header);
  void AwaitDurable(DurableReply&& reply);
  OwnerStats Stats() const;

  // owner_scrub.cc
  void Scrub();
  uint64_t ScrubMemory(uint64_t most);
  uint64_t ScrubSsd(uint64_t most);
  // owner_check.cc
  std::string CheckInvariants() const;
  std::string CheckSlots() const;
  std::string CheckPins() const;
  std::string CheckTickets() const;
  std::string CheckNamespaces() const;
  std::string CheckTenants() const;
  std::string CheckCold() const;

  const OwnerOptions options;
  const std::vector<TenantLimits> tenant_limits;
  Outbox* const outbox;
  uint64_t now_us = 0;
  uint64_t unix_ms = 0;
  uint64_t ahead_ms = 0;  // of now_us: the most that Unix time ever was
  bool draining = false;
  bool save_all = false;   // before the node stops
  uint64_t work_left = 0;  // of kWorkPerEvent, for the event at hand

  Index index;
  Arena arena;
  MissMemory misses;
  EventLog events;
  bool ssd_loaded = false;
  Quarantine rules;
  ReaderMemory readers;
  const std::unique_ptr<ssd::SsdTier> ssd;  // null: none
  Waits waits;
  const std::unique_ptr<PolicyFamily> family;
  std::vector<std::unique_ptr<EvictionPolicy>> policies;  // by class number
  uint32_t eviction_budget = 0;                           // left to the request at hand
  uint32_t sweep_budget = 0;
  uint32_t slab_cursor = 0;        // where the search for a cold slab goes on
  uint32_t slab_search_pause = 0;  // evictions until another class's slab is looked for again

  std::vector<NamespaceRecord> name_spaces;
  std::map<Namespace, uint32_t> number_of;
  std::map<uint32_t, Tenant> tenants;
  std::map<std::string, uint32_t> tenant_of;
  uint32_t last_tenant = 0;
  std::vector<TenantStats> tenant_counts;  // one for each of the limits
  uint32_t quota_next_ssd = 0;             // where the search for a cold record goes on
  std::set<uint32_t> crowded;              // tenants near their quota whose coldest SSD could not take yet
  uint64_t last_namespace_serial = 0;
  std::list<Space> sweeping;  // spaces that a clear hid and that still hold pieces

  std::unordered_map<SessionId, Session> sessions;
  uint64_t last_id = 0;  // of tickets, pin handles and tokens
  std::unordered_map<uint64_t, Ticket> tickets;
  std::unordered_map<BlockName, uint32_t, BlockNameHash> writing;  // open tickets a block
  uint64_t ticket_bytes = 0;                                       // kept by open tickets
  std::list<uint64_t> stall_order;  // open tickets, longest without progress first
  std::set<std::tuple<uint64_t, SessionId, uint64_t>> pin_ends;  // end, session, handle
  std::unordered_map<uint64_t, PendingReport> reports;
  std::unordered_map<uint64_t, Check> checks;
  uint64_t scrub_us = 0;  // when the next step is due
  uint32_t scrub_next = 0, scrub_next_ssd = 0;
  uint32_t scrubs_open = 0;
  uint64_t expire_us = UINT64_MAX;  // when the next step is due; at first nothing expires
  uint64_t expire_pause_us = UINT64_MAX;
  uint32_t expire_next = 0, expire_next_ssd = 0;
  PlaceTimes places;
  bool old_left = false;  // something from before a loss may still be here
  uint64_t old_us = UINT64_MAX;
  uint32_t old_next = 0, old_next_ssd = 0;
  uint64_t began_s = 0;                   // of clock_s
  std::unordered_set<uint32_t> outgoing;  // pieces on their way to other nodes, a hard pin each
  bool handing_over = false;
  RemovedLately removed_lately;  // of tenants with several replicas
  RemovedLately carried_lately;  // by nodes that leave
  HotBlocks hot;
  std::unordered_map<uint32_t, Leased> leased;         // by entry
  std::set<std::pair<uint64_t, uint32_t>> lease_ends;  // end_us, entry
  std::set<std::pair<uint64_t, uint32_t>> lease_uses;  // used_us, entry
  uint64_t leased_bytes = 0;                           // slots
  std::map<uint64_t, OpenRevoke> revokes;              // by token
  std::deque<Forward> forwards;
  uint64_t forward_hashes = 0;
  Homecoming homecoming;
  std::unordered_map<uint64_t, Aside> asides;
  std::set<std::pair<uint64_t, uint64_t>> aside_ends;  // give_up_us, aside
  uint64_t aside_keys = 0, aside_bytes = 0;
  std::unordered_map<uint64_t, Coming> pieces_coming;
  uint64_t hard_pins = 0;
  uint64_t get_us = 0;  // moving average: from a get's answer until its bytes are gone

  ssd::Admission admission;
  std::vector<ssd::TierPiece> spill_pending;  // chosen, and the disks have not taken them yet
  uint64_t spilling_bytes = 0;                // slots on their way to SSD, the pending ones included
  uint64_t spilling_pieces = 0;
  std::vector<uint32_t> spilling_slots;  // the same by class
  std::vector<uint32_t> took_slots;      // classes that had one taken since the last look at what is free
  uint64_t last_slot_bytes = 0;          // of the last put
  std::unordered_map<uint64_t, ColdGet> cold_gets;
  std::deque<uint64_t> cold_waiting[2];      // gets that have not begun, by lane
  std::deque<uint64_t> cold_unsubmitted[2];  // reads that the disks have not taken, by lane
  std::unordered_map<uint64_t, ColdRead> cold_reads;
  std::unordered_map<BlockName, uint64_t, BlockNameHash> reading;  // the read of a block that others may join
  std::set<std::pair<uint64_t, uint64_t>> cold_ends;               // give_up_us, get
  uint64_t cold_bytes = 0;                                         // slots of gets that have begun
  uint64_t cold_queued[2] = {};  // slots of what no disk has been asked for yet, by lane
  std::unordered_map<uint64_t, std::vector<DurableReply>> durable_replies;
  std::unordered_map<uint32_t, uint32_t> number_of_space;  // the tier's number of a namespace -> ours
  std::set<uint64_t> undurable;                            // tokens that SSD has not answered
  Clears clears;
  bool clears_kept = false;
  std::set<uint64_t> clears_on_ssd;  // of undurable: clears that a restart may not know yet,
  std::set<uint64_t> clear_tokens;   // and what waits for them to be kept
  std::unordered_map<uint32_t, uint64_t>
      removed_on_its_way;  // entries that were being written, and their tokens

  OwnerStats counts;  // the monotonic ones
};

}  // namespace larder::node
