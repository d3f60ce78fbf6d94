// The owner: all state of a node, as a pure state machine. One thread calls it (or a simulation does); it
// does no I/O, takes no lock, reads no clock and makes no thread. Time and randomness come in as arguments.
//
//   session (a connection's protocol, on its mover's thread) --Event--> Owner --Action--> session
//
// Bytes never pass through here: the owner answers with extents in arena slots, sessions and movers land
// bytes there and send from there. An extent that was handed out stays valid until the event that gives it
// back:
//   Grant   (a ticket's slot, writable)  until Committed, Stopped or Closed of that session
//   Reply   (payload to send, readable)  until Sent with its token, or Closed of that session
//   Verify  (payload to check)           until Verified with its token
//   TakeOut (pieces for other nodes)     until LetGo
//   MakeSlots (pieces from other nodes)  until LandPieces
// Those are hard pins: counted, never expiring, always ending. Match's pins are soft: they have an end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "node/eviction/policy.h"
#include "node/owner/clears.h"
#include "node/owner/event_log.h"
#include "node/owner/hot_blocks.h"
#include "node/owner/moved_slots.h"
#include "node/owner/place_times.h"
#include "node/owner/quarantine.h"
#include "node/owner/reader_memory.h"
#include "node/owner/replica_places.h"
#include "node/owner/tenants.h"
#include "node/ssd/ssd_tier.h"
#include "proto/message.h"
#include "transport/transport.h"

namespace larder::node {

using SessionId = uint64_t;  // never used twice

// --- from a session ---------------------------------------------------------------------------------------
struct Opened {             // after Hello was accepted
  Digest writer{};          // the credential: SHA-256 of the token's name, zeros for anonymous
  std::string tenant;       // the only tenant this credential may open; empty: any
  bool restores = false;    // a node that restores copies
  bool hands_over = false;  // a node that leaves
  bool parts = false;       // takes a get's answer in several replies
};
struct Request {
  Envelope envelope;
  uint64_t arrived_us = 0;  // on the owner's clock
  std::variant<Open, Match, Get, Move, Lease, Reserve, Wait, Prefetch, Touch, Report, Remove, Clear, Cancel>
      body;
};
struct Committed {  // a Commit message, with what the mover computed while the bytes landed
  struct Block {
    uint64_t ticket = 0;
    bool landed = false;           // all bytes are in the slot and nothing will land there any more
    bool verified = false;         // landed, and the computed checksums equal the writer's
    std::vector<uint32_t> crc32c;  // computed ones, PartIndex order; empty unless landed
  };
  Envelope envelope;
  std::vector<Block> blocks;
};
struct Progress {  // bytes of it landed; at most one a second and ticket
  uint64_t ticket = 0;
};
struct Stopped {  // answer to Revoke: no byte will land any more
  uint64_t ticket = 0;
};
struct Sent {
  uint64_t token = 0;
};
struct Verified {
  uint64_t token = 0;
  bool good = false;
};
struct Closed {};  // no byte lands or leaves any more; the session is forgotten

using Event = std::variant<Opened, Request, Committed, Progress, Stopped, Sent, Verified, Closed>;

// --- to a session -----------------------------------------------------------------------------------------
struct Grant {  // comes before the ReserveReply that names the ticket
  uint64_t ticket = 0;
  transport::Extent slot;  // exactly the payload's bytes
  std::vector<PartRun> parts;
};
struct Revoke {  // stop landing, then answer Stopped
  uint64_t ticket = 0;
};
struct Reply {
  Bytes header;
  transport::SendSegments segments;
  uint64_t token = 0;  // non-zero exactly when there are segments
  uint64_t expire_us = 0;
  bool more = false;  // others follow for the same request
};
struct Verify {  // to any thread that has time, whatever the session: check and answer Verified
  uint64_t token = 0;
  transport::ConstExtent payload;
  std::vector<PartRecord> parts;
};
using Action = std::variant<Grant, Revoke, Reply, Verify>;

class Outbox {
 public:
  virtual ~Outbox() = default;
  // Takes the action; does not call the owner back.
  virtual void Deliver(SessionId session, Action&& action) = 0;
  // There are questions for other nodes: TakeQuestions. Does not call the owner back.
  virtual void OnQuestions() {}
  // There are clears to be kept: TakeClears. Does not call the owner back.
  virtual void OnClears() {}
  // Copies of hot blocks have to go: Revokes. Does not call the owner back.
  virtual void OnRevokes() {}
};

// --- memory -----------------------------------------------------------------------------------------------
// Where slabs come from: sealed memfds in a node, heap memory in a simulation.
class SlabSource {
 public:
  virtual ~SlabSource() = default;
  // Zeroed memory, 4 KiB aligned; nullptr when there is none. Fast: pages are touched in the background.
  virtual std::byte* Make(uint64_t bytes) = 0;
  // The owner has let go of the slab. Owner::SlabGone is called once no peer maps it, at the earliest from
  // inside Retire; its bytes count against the arena until then. An owner that ends retires what it has and
  // hears no more.
  virtual void Retire(std::byte* base, uint64_t bytes) = 0;
};

struct OwnerOptions {
  uint64_t memory_bytes = 1ull << 30;  // slabs in all, headers included
  uint64_t slab_bytes_target = 0;      // 0: memory / 64, at least 4 MiB and at least one slot
  uint32_t tickets_max = 4096;         // open tickets of a node
  uint32_t tickets_per_session_max = 1024;
  uint64_t ticket_stall_us = 5'000'000;
  uint32_t waits_per_session_max = 1024;
  uint32_t waited_keys_max = 65536;
  uint64_t pinned_bytes_per_tenant_max = 0;  // soft pins; 0: half of the memory
  uint64_t pin_us_max = 60'000'000;
  uint32_t namespaces_max = 4096;
  uint32_t miss_memory_entries = 1 << 20;    // what left and why
  uint32_t reader_memory_entries = 1 << 20;  // who read whose blocks
  uint32_t events_max = 65536;               // that followers may be behind; 0: no events
  PolicyKind eviction_policy = kPolicyDefault;
  uint64_t seed = 0;  // of the index's hash function
  // Beside an SSD tier. Of the memory, in percent: at so little free the coldest go down, until this is free.
  uint32_t spill_below_percent = 5;
  uint32_t spill_until_percent = 7;
  bool admit_twice = false;        // to SSD only what was used again, or comes a second time
  uint32_t promote_after = 2;      // reads of a block on SSD; 0: never
  uint64_t scrub_bytes_per_s = 0;  // of memory, and as many of SSD, that are verified in the background
  uint32_t hot_copies_max = 0;     // of a block that is read more than its share; 0: none, nothing is counted
  uint32_t hot_share_percent = 10;  // of what this node serves
  uint32_t near_share_percent = 0;  // of the memory, for copies by lease; 0: no near ones, here nor elsewhere
  bool allow_weak_hash = false;
  std::vector<TenantLimits> tenants;
};

// Of a tenant that has namespaces here.
struct TenantInfo {
  TenantLimits limits;  // with its own name
  uint32_t namespaces = 0;
  uint64_t used_bytes = 0, pinned_bytes = 0, pinned_bytes_max = 0, ssd_bytes = 0;
};

// Of a tenant with limits of its own ("*": of all others together), since the node started.
struct TenantStats {
  std::string name;
  uint64_t expired = 0, evicted_for_quota = 0, put_over_quota = 0;  // monotonic
  uint64_t used_bytes = 0, pinned_bytes = 0, ssd_bytes = 0;         // gauges
  uint64_t quota_bytes = TenantLimits::kNoQuota;                    // of each
  uint64_t ssd_quota_bytes = TenantLimits::kNoQuota;
};

struct NamespaceInfo {
  Namespace name_space;
  std::string tenant, identity;
  uint64_t blocks = 0, bytes = 0;
  uint32_t clear_epoch = 0;
};

// What is known of a block, for people.
struct BlockAsked {
  ChainHash hash;
  uint16_t group = 0;
};
// One of its pieces on SSD.
struct ColdPlace {
  uint32_t disk = 0;
  ssd::IndexRecord record;
};
struct PieceStory {
  Presence tier = Presence::kRam;
  Rectangle rectangle;
  uint64_t payload_bytes = 0;
  uint64_t created_ms = 0;
  Digest writer{};  // zeros: anonymous, or on SSD, where only the record itself says it
  bool pinned = false;
};
struct BlockStory {
  Presence presence = Presence::kNeverStored;  // of the whole block
  uint32_t left_s = 0;                         // Unix; 0: nothing is remembered of its leaving
  std::vector<PieceStory> pieces;              // at most 64 of each tier
};

// --- leaving: pieces for the nodes that take over
// ------------------------------------------------------------
struct WarmPiece {
  static constexpr uint64_t kDepthMax = 0xffff;
  uint64_t heat = 0;  // the greater is the hotter: by its last use, of one request's blocks the root first
  uint32_t entry = 0;
  uint32_t payload_bytes = 0;

  static uint64_t HeatOf(uint64_t last_us, uint32_t depth) { return last_us << 16 | (kDepthMax - depth); }
  uint32_t depth() const { return static_cast<uint32_t>(kDepthMax - (heat & kDepthMax)); }
};
struct OutgoingPiece {
  WarmPiece piece;        // its entry is pinned hard until LetGo
  uint32_t replicas = 1;  // of its tenant
  uint32_t born_s = 0;    // when it was put, by the owner's clock
  BlockHeader header;
  transport::ConstExtent payload;
};
struct OutgoingPage {
  std::vector<OutgoingPiece> pieces;
  size_t looked = 0;            // of the list: the next page begins here
  std::vector<WarmPiece> busy;  // of those, what is out for another: to be asked for again
  uint64_t left = 0;  // of those, what is here no more: evicted, removed, cleared, quarantined, damaged
};
// What was removed or cleared here since blocks began to go, so that it must go where they went too.
struct Forward {
  uint64_t token = 0;
  Namespace name_space;
  bool clear = false;
  std::vector<uint16_t> groups;  // of a remove
  std::vector<ChainHash> hashes;
  uint64_t stamp_ms = 0;  // of a clear
};
// What there is to do for a block that has copies, or ought to have some.
struct HotBlock {
  BlockName name;
  Namespace name_space;
  uint32_t replicas = 1;          // of its tenant: the first places of the order have it anyway
  uint32_t places = 1;            // of the order that ought to have it, the home included
  uint64_t lease_us = 0;          // a copy may be kept for so long
  std::vector<WarmPiece> pieces;  // none: it is not whole in memory now
  std::vector<HotHolder> holders;
};
// The same for people.
struct HotInfo {
  Namespace name_space;
  ChainHash hash;
  uint16_t group = 0;
  uint32_t reads = 0;   // in about a minute, those of copies as far as they have told
  uint32_t copies = 0;  // that other nodes have
};
struct PageLimits {
  uint32_t pieces = 256;
  uint64_t payload_bytes = 16 << 20;  // or one piece
  uint64_t header_bytes = 512 << 10;  // or one piece's; keeps messages about them below their limit
};

// --- joining: questions for the nodes that were home before, and pieces from them
// Of one block, for its previous home.
struct Question {
  uint64_t token = 0;
  std::string home;      // that was
  Namespace name_space;  // as it must be opened there,
  Digest asker{};        // with the credential of whoever asked here
  BlockRef ref;
};

enum class Homing : uint8_t {
  kCame,         // it is here now
  kNotThere,     // or not to be had
  kNotNow,       // busy there, or no room here
  kEmptyThere,   // nothing of the namespace is there
  kUnreachable,  // the node did not answer
};
struct ComingPiece {
  uint64_t question = 0;  // that it came for
  BlockHeader header;
  uint32_t depth = 0;
};
struct ComingSlot {
  PutState state = PutState::kInvalid;  // kTicket: the bytes go to `memory`
  uint64_t ticket = 0;
  transport::Extent memory;
};
struct LandedPiece {
  uint64_t ticket = 0;
  bool good = false;  // the bytes are what the header says
};
struct AnsweredQuestion {
  uint64_t token = 0;
  Homing how = Homing::kNotNow;
};

// Every counter is monotonic, gauges are said so.
struct OwnerStats {
  uint64_t matches = 0, match_keys = 0, match_hits = 0;
  uint64_t gets = 0, get_blocks = 0, get_hits = 0, get_bytes = 0;
  uint64_t puts = 0, put_bytes = 0, put_exists = 0, put_differs = 0, put_corrupt = 0, put_full = 0,
           put_busy = 0, put_expired = 0, put_invalid = 0, put_over_quota = 0;
  uint64_t waits = 0, waits_timed_out = 0, touches = 0, turns_finished = 0, reports = 0, reports_dropped = 0,
           removed = 0, cleared = 0, evicted = 0, evicted_bytes = 0, expired_requests = 0, busy_answers = 0,
           pins_expired = 0, quarantined = 0, place_lost = 0;
  uint64_t evicted_for_quota = 0;  // of those evicted, by their own tenant's quota
  uint64_t ssd_evicted_for_quota = 0;
  uint64_t expired = 0, expired_bytes = 0;                       // pieces past their tenant's ttl
  uint64_t scrubbed = 0, scrubbed_bytes = 0, scrub_dropped = 0;  // in memory; SSD has its own
  // Blocks of moved slots: asked of their previous homes, and what became of it; given to others that ask.
  uint64_t asked = 0, asked_not_there = 0, asked_failed = 0, came = 0, came_bytes = 0, came_corrupt = 0,
           given = 0, given_bytes = 0;
  uint64_t miss_by_reason[256] = {};  // by Presence, in Get and Match
  // Between memory and SSD. Dropped: evicted from memory without ever being on SSD, because it was behind.
  uint64_t ssd_hits = 0, ssd_hit_bytes = 0, match_ssd_hits = 0, spilled = 0, spilled_bytes = 0,
           spilled_clean = 0, spill_failed = 0, not_admitted = 0, dropped = 0, dropped_bytes = 0,
           promoted = 0, promoted_bytes = 0, prefetched = 0, cold_timed_out = 0, cold_busy = 0, get_parts = 0;
  // gauges
  uint64_t pieces = 0, payload_bytes = 0, slot_bytes = 0, slab_bytes = 0, memory_bytes = 0, tickets = 0,
           waits_open = 0, soft_pins = 0, soft_pinned_bytes = 0, hard_pins = 0, sessions = 0, namespaces = 0,
           metadata_bytes = 0 /* index and policy, by count */, spilling_bytes = 0, cold_gets = 0,
           cold_reads = 0;
  uint64_t events = 0, event_gaps = 0;  // event_gaps: followers that had to begin anew
  uint64_t quarantine_rules = 0, readers_forgotten = 0;
  uint64_t moved_slots = 0, questions_open = 0, asides = 0;
  // Copies of this node's hot blocks elsewhere; and of others' here.
  uint64_t hot_copied = 0, hot_copied_bytes = 0, hot_revoked = 0, copy_reads = 0, leases_ended = 0;
  uint64_t hot_blocks = 0, hot_copies = 0, leased_pieces = 0, revokes_open = 0;  // gauges
  uint64_t near_asked = 0, near_hits = 0;      // blocks of others that readers on this host asked for here
  uint64_t near_copies = 0, leased_bytes = 0;  // gauges; of this node's blocks elsewhere, of others' here
  bool bypass = false;
  bool has_ssd = false;
  ssd::TierStats ssd;
  std::vector<TenantStats> tenants;  // as configured, and "*"
};

struct ClearsToKeep {
  Clears clears;
  uint64_t token = 0;  // for ClearsKept
};

class Owner {
 public:
  // Both outlive the owner.
  // Without `ssd` what leaves memory is gone.
  Owner(const OwnerOptions& options, SlabSource* slabs, Outbox* outbox,
        std::unique_ptr<ssd::SsdTier> ssd = nullptr);
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  void Handle(SessionId session, Event&& event, uint64_t now_us, uint64_t unix_ms);
  // Ends what ran out of time: waits, pins, tickets.
  void OnTimer(uint64_t now_us);
  // When OnTimer is next due; UINT64_MAX: never.
  uint64_t NextTimerUs() const;
  void SlabGone(std::byte* base);
  // A disk has something to say.
  void OnDisk(uint64_t now_us, uint64_t unix_ms);
  // Draining: no new tickets (busy), everything else goes on; with `save` what is in memory goes to SSD.
  void Drain(bool save = true);
  bool Idle() const;  // no tickets, no hard pins, no waits

  OwnerStats stats() const;
  std::vector<NamespaceInfo> Namespaces() const;
  std::vector<TenantInfo> Tenants() const;
  // Admin's clear by hex name: removed pieces, or kNotFound.
  // `durable`: what IsDurable is asked for, since a restart must not bring it back; 0: nothing to wait for.
  // `stamp_ms`: as of the message Clear.
  Result<uint64_t> ClearNamespace(const Namespace& name_space, uint64_t stamp_ms = 0,
                                  uint64_t* durable = nullptr);
  bool IsDurable(uint64_t durable) const;
  // What a former life knew of clears. From now on what is known is kept: whoever hears OnClears does it, and
  // clears are answered after that.
  void RestoreClears(Clears clears);
  const Clears& clears() const;
  // None: nothing is to be kept now; OnClears says when.
  std::optional<ClearsToKeep> TakeClears() const;
  void ClearsKept(uint64_t token);
  // Clears what another node knows to have been cleared and this one does not; how many namespaces.
  size_t HearClears(const Clears& heard);
  // Where blocks are, or why not; kNotFound for a namespace that nobody opened here. Touches nothing.
  Result<std::vector<BlockStory>> Explain(const Namespace& name_space, const std::vector<BlockAsked>& blocks);
  // The presence of whole blocks, one a hash and group; a namespace that nobody opened has none. Counts and
  // touches nothing.
  std::vector<uint8_t> Presences(const Namespace& name_space, std::span<const ChainHash> hashes,
                                 std::span<const uint16_t> groups);
  std::vector<ssd::DiskInfo> Disks() const;
  // In force at once. What is in memory leaves now, what is on SSD when it is read.
  void SetQuarantine(Quarantine rules);
  const Quarantine& quarantine() const;
  // The rules with one more; with `transitive` also those of whoever read from the writer, and so on, as far
  // as it is remembered. Changes nothing.
  Result<Quarantine> WithRule(const QuarantineRule& rule, bool transitive) const;
  // One for each rule: who read its writer's blocks. Looks at the whole memory, once.
  std::vector<Readers> ReadersOf(std::span<const QuarantineRule> rules) const;
  // From now on removes and clears are answered once they were forwarded.
  void BeginHandOver();
  uint64_t clock_s() const;  // that born_s is of
  // What waits longest to be forwarded, and that it was; not `heard` by all: whoever asked gets no answer.
  std::optional<Forward> NextForward() const;
  void Forwarded(uint64_t token, bool heard = true);
  // What is in memory and could be handed to other nodes, among the entries from *from on; *from moves, and
  // is UINT32_MAX at the end. Nothing under bypass. `only`: of tenants with several replicas, those slots.
  // Bounded in time, not in order: sort it by heat.
  std::vector<WarmPiece> ListWarm(uint32_t* from, const SlotSets* only = nullptr) const;
  // Of the list's beginning, what is still here and not ruled out, pinned. `by_lease`: for copies whose
  // leases end with their tenant's time to live; else such pieces stay.
  OutgoingPage TakeOut(std::span<const WarmPiece> list, const PageLimits& limits, bool by_lease = false);
  // Gives pins back. For each entry: it left while it was out (removed, cleared, quarantined).
  std::vector<bool> LetGo(std::span<const uint32_t> entries);
  // The next step of a follower of what comes and goes; bounded in time. Of one tenant, or of all (empty).
  // kUnsupported: events_max is 0.
  Result<EventPage> ReadEvents(EventCursor* cursor, std::string_view tenant);
  // Where SSD has a piece of each block, for who reads its head there; none: nowhere.
  std::vector<std::optional<ColdPlace>> ColdPlaces(const Namespace& name_space,
                                                   std::span<const BlockAsked> blocks) const;
  // Of a namespace that is open or has blocks on SSD; else kNotFound.
  Result<std::string> IdentityOf(const Namespace& name_space) const;
  // What another node is told to open for this namespace; kNotFound when nobody opened it here.
  Result<Open> OpeningOf(const Namespace& name_space) const;
  // What this node's former life knew of its places.
  void RestorePlaces(PlaceTimes places, uint64_t now_us, uint64_t unix_ms);
  // A newer table's places, before anybody else hears of it: what was put here before a place was lost that
  // is back is served no more. What is known now, if it has changed.
  std::optional<PlaceTimes> FollowPlaces(SlotSets held, uint64_t now_us, uint64_t unix_ms);
  // The same when this node had no places for some time.
  PlaceTimes LosePlaces(uint64_t now_us, uint64_t unix_ms);
  // Once a second or so: the blocks that have copies or ought to have some, as they are read now.
  std::vector<HotBlock> PlanHot(uint64_t now_us);
  // The table has changed: nobody is sent to copies before they were asked for at their new places.
  void DistrustCopies();
  // A copy is about to be put or its lease renewed at the holder, until holder.end_us at the latest; and what
  // became of it, with the reads that it served. After BeginCopy a removal reaches that node;
  // false: the block has been removed since it was planned, and must not be put.
  [[nodiscard]] bool BeginCopy(const BlockName& name, const HotHolder& holder);
  void EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads, uint64_t put_bytes);
  // No copies are to be made any more: this node is not its home.
  void DropHot(const BlockName& name);
  // What was removed, cleared or ruled out here and has copies; a holder has heard it.
  std::vector<HotRevoke> Revokes() const;
  void Revoked(uint64_t token, const std::string& node);
  std::vector<HotInfo> HotList(uint64_t now_us) const;  // the most read first, at most 64
  // Slots that have moved here: from now on a miss of theirs asks the node that was home before.
  void SetMoved(MovedSlots moved, uint64_t now_us);
  // Whoever takes questions answers each of them, soon: requests wait for it.
  std::vector<Question> TakeQuestions(size_t most);
  // Memory for what came; nothing is visible before it landed well.
  std::vector<ComingSlot> MakeSlots(std::span<const ComingPiece> pieces, uint64_t now_us, uint64_t unix_ms);
  void LandPieces(std::span<const LandedPiece> pieces, uint64_t now_us, uint64_t unix_ms);
  void AnswerQuestions(std::span<const AnsweredQuestion> answers, uint64_t now_us, uint64_t unix_ms);
  // Invariants that a test asks for: accounted bytes equal used bytes, lists and counts agree. Empty when
  // well.
  std::string CheckInvariants() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace larder::node
