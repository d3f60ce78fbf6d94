// A running node: the owner's thread, the transports with their movers, slabs, the node table. The daemon
// (main.cc) puts configuration, control service and HTTP around it; tests start several in one process.
//
// Thread-safe: every call may come from any thread; each asks the owner's thread and waits for its answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "node/owner/owner.h"
#include "node/session.h"

namespace larder::node {

struct SsdOptions {
  std::vector<std::string> directories;  // one a disk; empty: no SSD tier
  uint64_t bytes = 0;                    // of each directory; 0: nine tenths of what is free
  uint64_t segment_bytes = 256ull << 20;
  bool sync = false;  // acknowledge only what a power cut can't take
  bool io_uring = true;
  bool start_empty = false;
  std::string cluster;  // a directory of another cluster is refused
  ssd::TierOptions tier;
};

struct NodeOptions {
  OwnerOptions owner;
  SsdOptions ssd;
  // Empty: as the first SSD directory says, else the advertised data address.
  std::string node_id;
  std::string data_listen = "127.0.0.1:7400";  // port 0 binds any
  std::string ucx_listen;                      // empty: no ucx
  std::string shm_path;                        // Unix socket; empty: no shm
  std::string advertise;                       // host that others reach this node by; empty: the bound host
  std::string control_address, http_address;   // as bound by the daemon; only for the record
  uint32_t weight = 1;
  std::string zone;
  int movers = 2;  // I/O threads of each transport
  uint32_t connections_max = 4096;
  uint64_t hello_timeout_us = 5'000'000;       // a connection without a hello is closed after so long
  uint32_t requests_per_connection_max = 256;  // unanswered ones
  uint32_t mailbox_max = 65536;         // events that wait for the owner; requests beyond are answered busy
  uint32_t owner_spin_us = 0;           // the owner's thread looks for work so long before it sleeps
  bool huge_pages = true;               // use them where there are any
  bool prefault = true;                 // touch slabs in the background
  std::vector<Credential> credentials;  // empty: everybody may come, as anonymous
  std::vector<NodeRecord> peers;        // static membership: the whole list; this node is added when missing
  uint64_t table_epoch = 1;
  std::string quarantine_path;  // file that keeps what operators ruled out; empty: a restart forgets it
  std::string clears_path;      // file that keeps which namespaces were cleared; empty: a restart forgets it
  std::string places_path;  // file that keeps since when it has its places (place_times.h); empty: none does
  bool held = false;        // lets nobody in before Accept: the table is not known yet
  transport::TransportOptions transport;
};

// How far a node that leaves is with handing its blocks to others.
struct HandOverProgress {
  bool begun = false;
  bool ended = false;
  uint64_t blocks = 0, bytes = 0;  // pieces in memory when it began
  uint64_t handed_blocks = 0, handed_bytes = 0;
  uint64_t gone_blocks = 0;   // left in the meantime: removed, cleared, ruled out, damaged
  uint64_t stays_blocks = 0;  // that nobody can be given
  std::string reason;         // of the end, when not all was handed over
  uint64_t left_blocks() const { return blocks - handed_blocks - gone_blocks - stays_blocks; }
};

// How far a node is with restoring replicas.
struct RepairProgress {
  uint64_t pieces = 0;  // whose new places are not known to have them yet: under-replicated
  uint64_t restored_pieces = 0, restored_bytes = 0;  // since the start
  uint64_t refused_pieces = 0;                       // the same, by places that can't take them
};

// Of the publisher of KV events; all zero without one.
struct KvEventStats {
  uint64_t messages = 0, bytes = 0;
  uint64_t stored = 0, removed = 0;  // blocks of engines
  uint64_t cleared = 0;              // events
  uint64_t unread = 0;               // blocks on SSD whose own hashes could not be read, so nobody was told
  uint64_t replays = 0, replay_snapshots = 0, replays_dropped = 0, bad_requests = 0;
  // gauges
  uint64_t blocks = 0;  // of the node, that are known to it
  uint64_t kept_messages = 0, kept_bytes = 0;
};

struct NodeInfo {
  NodeRecord record;
  NodeTable table;
  uint64_t uptime_us = 0;
  bool draining = false;
  bool ready = false;
  std::vector<std::string> transports;  // "tcp", "shm", "ucx"
  std::string huge_pages;               // "2MiB", "transparent" or "none"
  uint64_t prefaulted_bytes = 0;
  std::vector<std::string> remarks;  // of the start, for the log
  uint64_t connections_refused = 0;  // beyond connections_max
  uint64_t hello_timeouts = 0;       // closed because they did not say hello in time
  uint32_t event_streams = 0;        // open ones
  HandOverProgress hand_over;
  RepairProgress repair;
  KvEventStats kv_events;
};

struct QuarantineView {
  struct Rule {
    QuarantineRule rule;
    Readers readers;  // of its writer's blocks, as far as remembered
  };
  std::vector<Rule> rules;
  bool bypass = false;
  uint64_t dropped = 0;            // pieces, since the node started
  uint64_t readers_forgotten = 0;  // so the readers may be more
  bool kept = false;               // over a restart
};

struct MoverStats {
  std::string transport;
  transport::TransportStats stats;
};

class Node {
 public:
  static Result<std::unique_ptr<Node>> Start(const NodeOptions& options);
  ~Node();  // Stop(0)

  NodeInfo info() const;
  uint64_t table_epoch() const;
  Result<OwnerStats> stats() const;
  std::vector<MoverStats> mover_stats() const;
  Result<std::vector<ssd::DiskInfo>> Disks() const;
  Result<std::vector<NamespaceInfo>> Namespaces() const;
  Result<std::vector<TenantInfo>> Tenants() const;
  // Waits until a restart can't bring anything back and, while blocks are being handed over, until those who
  // got some have heard it; kTimedOut when that takes a minute, or `gone` says that nobody waits any more.
  // `stamp_ms`: as of the message Clear.
  Result<uint64_t> Clear(const Namespace& name_space, uint64_t stamp_ms = 0,
                         const std::function<bool()>& gone = nullptr);
  Result<Clears> clears() const;
  // Clears what another node knows to have been cleared and this one does not; how many namespaces. It holds
  // when it returns; a restart hears again what it does not know yet.
  Result<size_t> HearClears(const Clears& heard);
  Result<std::vector<BlockStory>> Explain(const Namespace& name_space, const std::vector<BlockAsked>& blocks);
  // The presence of whole blocks, one a hash and group, some thousand at a time.
  Result<std::vector<uint8_t>> Presences(const Namespace& name_space, std::span<const ChainHash> hashes,
                                         std::span<const uint16_t> groups);
  // As the owner's. The streams that read them are counted for info().
  Result<EventPage> ReadEvents(EventCursor* cursor, std::string_view tenant);
  void SetEventStreams(uint32_t count);
  // For the publisher of events: an identity's text; the engine's own hashes of blocks on SSD, read there by
  // the caller's thread (none: no longer there, or not to be read); what it has counted.
  Result<std::string> IdentityOf(const Namespace& name_space) const;
  std::vector<std::optional<std::vector<ChainHash>>> ReadConstituents(
      const Namespace& name_space, std::span<const BlockAsked> blocks) const;
  void SetKvEvents(const KvEventStats& stats);
  // In force at once when they return, and, with a quarantine_path, after a restart. kUnavailable: in force,
  // but the file could not be written.
  Status AddQuarantine(const Digest& writer, uint64_t since_ms, bool transitive);
  Status LiftQuarantine(const Digest& writer);  // kNotFound: no such rule
  Status SetBypass(bool on);
  Result<QuarantineView> ViewQuarantine() const;
  // Of a node that is held.
  void Accept();
  // Pushes a newer table to every client. What it says of this node's own state is taken. What the change
  // moves here is asked for where it was, once somebody takes questions; what was here from before a place
  // was lost that is back now is served no more.
  void SetTable(const NodeTable& table);
  // The cluster was without this node until now: nothing that is here is trusted, and the next table is as if
  // it had come new. Before others hear that it is back.
  void LosePlaces();
  // Why a restart would not know since when this node has its places, or what was cleared; ok: it would, or
  // need not.
  Status kept() const;
  // For bringing blocks home (bring_home.h), as the owner has them. `on_questions` runs on the owner's thread
  // and must not call back; an empty one ends it.
  void SetOnQuestions(std::function<void()> on_questions);
  std::vector<Question> TakeQuestions(size_t most);
  std::vector<ComingSlot> MakeSlots(std::span<const ComingPiece> pieces);
  void LandPieces(std::span<const LandedPiece> pieces);
  void AnswerQuestions(std::span<const AnsweredQuestion> answers);
  // No new tickets from when it returns; all else goes on. With `save` what is in memory goes to SSD.
  void BeginDrain(bool save = true);
  // For handing blocks over (hand_over.h), as the owner has them: what is removed from now on goes to the
  // others too; all that is in memory, hottest first; a page of that list, pinned; pins given back; what to
  // open elsewhere.
  void BeginHandOver();
  uint64_t clock_s() const;
  std::optional<Forward> NextForward() const;
  void Forwarded(uint64_t token, bool heard = true);
  Result<std::vector<WarmPiece>> ListWarm(const SlotSets* only = nullptr) const;
  Result<OutgoingPage> TakeOut(std::span<const WarmPiece> list, const PageLimits& limits,
                               bool by_lease = false);
  std::vector<bool> LetGo(std::span<const uint32_t> entries);
  Result<Open> OpeningOf(const Namespace& name_space) const;
  // For copying hot blocks (hot_copies.h), as the owner has them. `on_revokes` as on_questions.
  void SetOnRevokes(std::function<void()> on_revokes);
  std::vector<HotBlock> PlanHot();
  void DistrustCopies();
  [[nodiscard]] bool BeginCopy(const BlockName& name, const HotHolder& holder);
  void EndCopy(const BlockName& name, const HotHolder& holder, uint32_t reads, uint64_t put_bytes);
  void DropHot(const BlockName& name);
  std::vector<HotRevoke> Revokes() const;
  void Revoked(uint64_t token, const std::string& node);
  std::vector<HotInfo> HotList() const;
  void SetHandOver(const HandOverProgress& progress);
  void SetRepair(const RepairProgress& progress);
  // The same; returns once nothing is in flight or the budget is used up.
  void Drain(uint64_t budget_us);
  // Closes every connection and ends the threads.
  void Stop();

 private:
  struct Impl;
  explicit Node(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace larder::node
