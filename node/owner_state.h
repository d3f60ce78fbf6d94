// The owner's state and its operations, split over owner_*.cc by verb. Private to node/owner*.
#pragma once

#include <list>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/arena.h"
#include "node/block_name.h"
#include "node/cover.h"
#include "node/eviction/policy.h"
#include "node/index.h"
#include "node/miss_memory.h"
#include "node/owner.h"
#include "node/waits.h"

namespace larder::node {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr uint32_t kNamespacesPerSessionMax = 256;
inline constexpr uint32_t kPinsPerSessionMax = 4096;
inline constexpr uint32_t kVerifiesMax = 4096;  // pieces being checked for reports, of a node
inline constexpr uint32_t kLooksPerVictim = 64;
inline constexpr uint32_t kVictimRounds = 16;     // pinned entries at the cold end: so many looks in all
inline constexpr uint32_t kSweepPerStep = 512;    // cleared pieces that are freed in one go
inline constexpr uint32_t kTimerStepsMax = 1024;  // of each kind in one OnTimer
inline constexpr uint32_t kEvictionsPerRequestMax = 8192;
inline constexpr uint32_t kSweepsPerRequestMax = 4;
inline constexpr uint32_t kExtentsMax = 65536;  // of one reply
inline constexpr uint64_t kTicketBytesMax = 64
                                            << 20;  // what open tickets keep besides their slots, of a node
// Pieces of crowded keys, and holes between them, that one event looks at: about 10 ms.
inline constexpr uint64_t kWorkPerEvent = 4 << 20;
inline constexpr uint64_t kReplyHeaderSlack = 4096;  // envelope, lengths, counts

struct Tenant {
  std::string name;
  uint32_t namespaces = 0;
  uint64_t pinned_bytes = 0;
};

struct NamespaceRecord {
  Namespace name_space;
  std::string identity;
  uint32_t tenant = 0;
  Grid grid;
  uint32_t clear_epoch = 0;
  uint32_t generation =
      1;  // never used twice with this number, unlike the epoch, which is the namespace's own
  uint32_t swept_from = 0;  // the last generation that a clear hid
  uint64_t fingerprint_seed = 0;
  uint64_t blocks = 0;
  uint64_t bytes = 0;
  uint32_t sessions = 0;  // that have it open
};

struct SoftPin {
  SessionId session = 0;
  uint64_t end_us = 0;
  uint32_t tenant = 0;
  uint64_t bytes = 0;
  std::vector<uint32_t> entries;
};

struct Sending {
  uint64_t begun_us = 0;
  std::vector<uint32_t> entries;  // one hard pin each
};

struct Session {
  Digest writer{};
  std::string tenant;                 // empty: any
  std::vector<uint32_t> name_spaces;  // number on this connection - 1 -> node-wide number
  std::set<uint64_t> tickets;
  std::map<uint64_t, SoftPin> pins;
  std::unordered_map<uint64_t, Sending> sendings;
  std::set<uint64_t> waits;
  std::set<uint64_t> reports;
};

struct Ticket {
  SessionId session = 0;
  BlockName name;
  Rectangle rectangle;
  SlotPlace place;
  uint64_t payload_bytes = 0;
  uint16_t codec = 0;
  std::vector<PartRun> parts;
  Bytes codec_data;
  std::vector<ChainHash> constituents;
  uint32_t depth = 0;
  uint64_t kept_bytes = 0;  // of parts, codec data and constituents
  bool revoked = false;
  uint64_t progress_us = 0;
  std::list<uint64_t>::iterator stall_position;  // valid unless revoked
};

struct PendingReport {
  SessionId session = 0;
  Envelope envelope;
  uint64_t expire_us = 0;
  std::vector<uint8_t> dropped;
  uint32_t checks_left = 0;
};
struct Check {
  uint64_t report = 0;
  uint32_t block = 0;
  uint32_t entry = 0;
};

// Who asks, for the length of one event.
struct Asker {
  SessionId id = 0;
  Session* session = nullptr;
  Envelope envelope;
  uint64_t expire_us = 0;
};

struct Owner::State {
  State(const OwnerOptions& given, SlabSource* slabs, Outbox* outbox_given);

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

  // owner_pieces.cc: pieces, their lives and pins
  Space SpaceOf(uint32_t number) const { return {number, name_spaces[number].generation}; }
  SlotPlace PlaceOf(uint32_t entry) const { return {index.place(entry).slab, index.place(entry).slot}; }
  EvictionPolicy& PolicyOf(uint32_t entry) {
    return *policies[arena.slab(index.place(entry).slab).class_number];
  }
  uint64_t FingerprintOf(uint32_t number, const ChainHash& hash, uint16_t group) const;
  bool CoverOf(uint32_t first, const Rectangle& ask, std::vector<Patch>* sources);
  bool Covered(uint32_t first, const Rectangle& ask);
  Presence WhyMissing(uint32_t number, const ChainHash& hash, uint16_t group, uint32_t first);
  void Leave(uint32_t entry, Presence reason);
  void FreeEntry(uint32_t entry);
  void PinHard(uint32_t entry);
  void UnpinHard(uint32_t entry);
  void EndPin(Session* session, uint64_t handle);
  Result<BlockHeader> HeaderOf(uint32_t entry) const;
  void Sweep(uint32_t steps);
  uint64_t ClearSpace(uint32_t number);

  // owner_evict.cc
  PutState TakeSlot(const SlotShape& shape, SlotPlace* place);
  bool MakeRoom(uint32_t class_number);
  bool RetireEmptySlab(uint32_t but_class);
  bool EvictFrom(uint32_t class_number);
  bool MakeClassRoom();
  bool TakeColdSlab(uint32_t for_class, uint64_t colder_than_us);
  bool TakeAnySlab(uint32_t for_class);
  void EmptySlab(uint32_t slab);
  uint32_t ColdestSlabOf(uint32_t class_number, uint64_t colder_than_us, uint32_t share_min);
  bool MayEmpty(uint32_t slab) const;
  uint32_t ColderShare(uint32_t slab, uint64_t colder_than_us) const;

  // owner_put.cc
  void OnReserve(Asker& asker, Reserve&& body);
  PutState ReserveBlock(const Asker& asker, uint32_t number, Reserve::Block&& block, uint64_t* ticket);
  void OnCommitted(Asker& asker, Committed&& event);
  PutState CommitBlock(const Asker& asker, const Committed::Block& block);
  PutState StoreTicket(const Asker& asker, const Ticket& ticket, const std::vector<uint32_t>& crc32c);
  bool SameBits(const Ticket& ticket, const std::vector<uint32_t>& crc32c, const std::vector<Patch>& sources);
  void OnProgress(SessionId id, uint64_t ticket);
  void OnStopped(SessionId id, uint64_t ticket);
  void RevokeStalled();
  void DropTicket(uint64_t ticket, bool free_slot);

  // owner_get.cc
  void OnGet(Asker& asker, const Get& body);
  struct GetWork;
  Presence GetBlock(uint32_t first, const BlockRef& ref, GetWork* work);
  bool AddSource(const Patch& patch, const BlockHeader& header, GetWork* work, GetReply::Block* block);

  // owner_match.cc
  void OnMatch(Asker& asker, const Match& body);
  void PinMatched(const std::vector<Patch>& sources, SoftPin* pin);
  void OnTouch(Asker& asker, const Touch& body);
  void ObserveChain(const Touch& body, uint32_t number);

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
  OwnerStats Stats() const;

  // owner_check.cc
  std::string CheckInvariants() const;
  std::string CheckSlots() const;
  std::string CheckPins() const;
  std::string CheckTickets() const;
  std::string CheckNamespaces() const;

  const OwnerOptions options;
  Outbox* const outbox;
  uint64_t now_us = 0;
  uint64_t unix_ms = 0;
  bool draining = false;
  uint64_t work_left = 0;  // of kWorkPerEvent, for the event at hand

  Index index;
  Arena arena;
  MissMemory misses;
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
  uint64_t hard_pins = 0;
  uint64_t get_us = 0;  // moving average: from a get's answer until its bytes are gone

  OwnerStats counts;  // the monotonic ones
};

}  // namespace larder::node
