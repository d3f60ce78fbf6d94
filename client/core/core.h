// The client as a pure state machine: no thread, clock, socket or lock inside. Calls come in one at a time
// with the time as an argument; what it wants done goes out through Effects before the call returns.
//
// An operation is split by home into shares (get, put) or key subsets (match, wait, remove); these become
// calls, one request each, on links, the connections of a peer. An operation completes when every item has
// its outcome and no transport can touch the caller's memory any more.
//
// Bounds: operations_max operations; bytes in flight of a peer and in all (three quarters of each for the
// batch class); requests_max calls and kForgottenMax unanswered ones a link; kNoticesMax one-way messages a
// lane; kPinsMax pin handles. See client/DESIGN.md.
#pragma once

#include <set>
#include <tuple>

#include "client/core/hot_hints.h"
#include "client/core/state.h"

namespace larder::client {

inline constexpr uint64_t kChunkBytesMin = 512 * 1024;
inline constexpr uint64_t kChunkBytesMax = 4ull << 20;
inline constexpr uint64_t kLinkWindowBytes = 8ull << 20;  // more than two calls a link only within this
inline constexpr uint32_t kPutBlocksMax = 256;            // tickets of one Reserve
inline constexpr uint32_t kForgottenMax = 64;
inline constexpr uint32_t kHangUpsMax = 2;
inline constexpr size_t kSeedsMax = 3;  // asked at a time
inline constexpr size_t kNoticesMax = 1024;
inline constexpr size_t kPinsMax = 65536;
inline constexpr uint32_t kChunkPartsMax = 32768;  // keeps headers far below their limit
inline constexpr uint64_t kSilenceUs = 500'000;    // with answers due: then a ping, and a second time
inline constexpr uint64_t kGraceUs = 10'000;       // for a transport to let go of memory

struct CoreOptions {
  ClientOptions client;
  std::string host_id;  // of this machine; empty: unknown
  bool ucx = false;     // this side has an RDMA device
  uint64_t seed = 0;    // readers of one block begin at different places
};

class Core {
 public:
  Core(const CoreOptions& options, Effects* effects);  // effects outlives it
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  uint32_t AddNamespace(const ClientNamespace& name_space);
  // Checked, with deadline, class, sink and user data set. kBusy at operations_max.
  Result<OperationId> Submit(std::unique_ptr<Operation> operation, uint64_t now_us);
  void Cancel(OperationId id, uint64_t now_us);
  // Only what is in no request yet.
  void CancelWaiting(OperationId id, uint64_t now_us);
  void SendTouch(uint32_t name_space, const TouchRequest& request, uint64_t now_us);
  void Release(uint64_t pin, uint64_t now_us);
  void SendReport(uint32_t name_space, const std::vector<BlockRef>& blocks, uint64_t now_us);
  // Cancels every operation and begins nothing any more. What transports still hold is let go when they
  // close.
  void Shutdown(uint64_t now_us);

  // From links, in each one's order.
  void OnOpen(LinkId link, uint64_t now_us);
  // False: refuse the payload. `landing` is then to be told every OnBytes of it, without any lock.
  bool Place(LinkId link, ByteView header, std::span<const uint64_t> segment_bytes, transport::Landing* place,
             std::shared_ptr<Landing>* landing, uint64_t now_us);
  void OnMessage(LinkId link, ByteView header, uint64_t landing_id, bool landed, uint64_t now_us);
  void OnSent(uint64_t token, transport::Failure failure, uint64_t now_us);
  void OnDiverted(LinkId link, uint64_t landing_id, uint64_t now_us);
  void OnClosed(LinkId link, const transport::Error& why, uint64_t now_us);
  void OnRouting(std::shared_ptr<const Routing> routing, uint64_t now_us);

  void OnTimer(uint64_t now_us);
  uint64_t NextTimerUs() const;  // UINT64_MAX: never

  const std::shared_ptr<const Routing>& routing() const { return routing_; }
  std::vector<PeerInfo> Peers(uint64_t now_us) const;
  ClientStats stats() const;
  // Sums that must agree (bytes in flight, operations, calls). Empty when well.
  std::string CheckInvariants() const;

 private:
  enum class TimerKind : uint8_t { kDeadline, kGrace, kGreeting, kSilence, kSeeds, kLate };
  struct Timer {
    uint64_t at_us = 0;
    TimerKind kind = TimerKind::kDeadline;
    uint64_t id = 0;  // operation or link
    auto operator<=>(const Timer&) const = default;
  };
  struct SendRecord {
    OperationId operation = 0;  // 0: nobody waits
    LinkId link = 0;
    Peer* peer = nullptr;
    uint64_t held_bytes = 0;
    std::shared_ptr<const void> payload;  // the core's own memory
  };
  struct Pin {
    uint64_t end_us = 0;
    uint32_t name_space = 0;
    std::vector<MatchOperation::NodePin> nodes;
  };
  struct Picked {
    Link* link = nullptr;
    bool refused = false;  // every link that is up refuses the namespace
  };

  // core.cc: life of an operation
  void Start(Operation* operation);
  void End(Operation* operation, Code why);
  void CancelAtNode(const Call& call);
  void DropWaiting(Operation* operation, Presence reason);
  size_t DropFromLane(Operation* operation, Lane* lane);
  void SettleRest(Operation* operation, Code why);
  void MayComplete(Operation* operation);
  void Finish(Operation* operation);
  void Settle();  // last step of every entry: pumps, completes
  void OnGrace(Operation* operation);
  Operation* FindOperation(OperationId id);
  void TurnOff(const std::string& why);

  // links.cc: connections
  Link* FindLink(LinkId id);
  Link* Connect(Peer* peer, const Endpoint& endpoint, Priority lane);
  uint32_t LoopFor(const Peer* peer, Priority lane);
  void ConnectSeeds();
  void OnHelloError(Link* link, Code code, ByteView record);
  void OnHello(Link* link, const Envelope& envelope, ByteView record);
  void Adopt(Link* link);
  void OpenNamespace(Link* link, uint32_t name_space);
  void OnOpenReply(Link* link, const Call& call, const Envelope& envelope, ByteView record);
  void OnTable(Link* link, ByteView record);
  void OfferTable(NodeTable&& table);
  void CloseLink(Link* link, transport::Failure why);
  void Misbehaved(Link* link, const std::string& what);
  void LostWithoutGreeting(const Link& link, bool hung_up, const std::string& why);
  uint64_t Progress(const Link& link) const;
  void ArmSilence(Link* link);
  void OnSilence(Link* link);

  // peers.cc: routing and the queues of a peer
  Peer* Candidate(const ChainHash& hash, uint32_t position, bool for_put);
  bool Usable(Peer* peer);
  void Probe(Peer* peer);
  bool NeedsIntroduction(const Peer& peer) const;
  bool IsConnected(const Peer& peer) const;
  bool OverShm(const Peer& peer) const;
  Endpoint EndpointOf(const Peer& peer) const;
  void EnsureLinks(Peer* peer, size_t lane);
  void MarkDown(Peer* peer, const std::string& why, Presence reason = Presence::kUnreachable);
  void RetirePeers();
  void FailWork(Peer* peer, Presence reason, const Status& why);
  void FailShare(const Share& share, Presence reason, const Status& why);
  void FailNamespace(Peer* peer, uint32_t name_space, const Status& why);
  void MarkDirty(Peer* peer);
  void Pump(Peer* peer);
  void PumpLane(Peer* peer, size_t lane);
  bool HasRoom(const Link& link, uint64_t chunk_bytes) const;
  void AddNotice(Peer* peer, Notice&& notice);
  void PumpNotices(Peer* peer, size_t lane);
  Picked Pick(Peer* peer, size_t lane, uint32_t name_space);

  // calls.cc: requests and replies
  Call* Launch(Link* link, std::unique_ptr<Call> call);
  std::unique_ptr<Call> Take(Call* call);
  void Forget(Call* call);
  void Transmit(Link* link, Bytes header, std::shared_ptr<const std::vector<ChainHash>> hashes);
  Envelope EnvelopeFor(const Call& call) const;
  void SendWaiting(Link* link, std::unique_ptr<Call> call);
  void OnReply(Link* link, Call* call, const Envelope& envelope, ByteView record, bool landed);
  void FailCall(std::unique_ptr<Call> call, Presence reason, const Status& why);
  bool MayHold(Peer* peer, size_t lane, uint64_t bytes);
  uint64_t ItemBytesMax(Priority priority) const;
  void Hold(Peer* peer, uint64_t bytes);
  void Unhold(Peer* peer, uint64_t bytes);

  // get.cc
  void RouteTargets(GetOperation* operation, std::vector<uint32_t> items);
  bool SendGetChunk(Peer* peer, Link* link, Share* share);
  Peer* NearPeer();
  Peer* NearPlace(Peer* near, GetTarget* target);
  Peer* HotPlace(const GetOperation& get, GetTarget* target);
  void NoteHot(const GetOperation& get, const Call& call);
  void ForgetHot(const Peer* home);
  void QueueShare(Operation* operation, Peer* peer, Share&& share);
  bool Owes(const Call& call, ByteView record) const;
  void OnGetReply(std::unique_ptr<Call> call, Link* link, ByteView record, bool landed);
  void OnGetPart(Call* call, Link* link, ByteView record, bool landed);
  bool TakeMisses(Call* call, ByteView record);
  void RefuseReply(Call* call, Link* link);
  void OnLanded(Call* call, bool more);
  void Shrink(Call* call, std::vector<uint32_t>&& items);
  void NextCopy(GetOperation* operation, uint32_t item, Presence reason, bool answered, bool may_repeat,
                std::vector<uint32_t>* again);
  void SettleTarget(GetOperation* operation, uint32_t item, Outcome outcome, Presence reason);
  void ReportCorrupt(Peer* peer, uint32_t name_space, const BlockRef& block);

  // late.cc
  bool NeedNotWait(const GetTarget& target);
  void ArmLate(GetOperation* get, uint64_t at_us);
  void OnLate(GetOperation* get);
  void TakeLateLanding(GetOperation* get, Call* call, uint64_t patience_us, uint64_t* next_us);
  void TakeLateShares(GetOperation* get, Peer* peer, Lane* lane, uint64_t patience_us, uint64_t* next_us,
                      std::vector<uint32_t>* again);
  void MoveOn(GetOperation* get, const std::vector<uint32_t>& items, std::vector<uint32_t>* again);

  // put.cc
  void RouteSources(PutOperation* operation);
  bool SendPutChunk(Peer* peer, Link* link, Share* share);
  void GroupJob(Link* link, Call* call, PutJob* job);
  void OnReserveReply(Link* link, Call* call, ByteView record);
  void OnCommitReply(std::unique_ptr<Call> call, Link* link, ByteView record);
  void SettleCopy(PutOperation* operation, uint32_t item, PutState state, const Status& why);

  // keys.cc: match, wait, prefetch, remove, touch, pins
  void RouteKeys(Operation* operation, const KeySubset& keys, Presence reason);
  void QueueKeys(Operation* operation, Peer* peer, KeySubset keys);
  void SendMatch(Link* link, Call* call);
  template <typename Message>
  void SendChain(Link* link, Call* call);
  void SendWait(Link* link, Call* call);
  void SendPrefetch(Link* link, Call* call);
  void SendRemove(Link* link, Call* call);
  void OnMatchReply(std::unique_ptr<Call> call, Link* link, ByteView record);
  void OnWaitReply(std::unique_ptr<Call> call, Link* link, ByteView record);
  void OnPrefetchReply(std::unique_ptr<Call> call, Link* link, ByteView record);
  void OnRemoveReply(std::unique_ptr<Call> call, Link* link, ByteView record);
  size_t CountOf(const Operation* operation, const KeySubset& keys) const;
  void NextHome(Operation* operation, const KeySubset& keys, Presence reason);
  void UnreachableKeys(Operation* operation, const KeySubset& keys, Presence reason);
  void NoteTouch(uint32_t name_space, const TouchRequest& request);
  void NoteRetention(const PutOperation& put);
  void FinishMatch(MatchOperation* operation, MatchResult* result);
  void ReleasePins(uint32_t name_space, const std::vector<MatchOperation::NodePin>& pins);

  // admin.cc: clear, ping
  void StartClear(ClearOperation* operation);
  void FinishClear(ClearOperation* operation, Completion* completion);
  void StartPing(PingOperation* operation);
  void QueuePlain(Operation* operation, Peer* peer, Verb verb, uint32_t name_space);
  void OnClearReply(std::unique_ptr<Call> call, Link* link, ByteView record);

  CoreOptions options_;
  Effects* effects_;
  bool off_ = false;  // a contradiction inside: nothing more is begun
  bool closing_ = false;
  std::vector<ClientNamespace> namespaces_;
  std::shared_ptr<const Routing> routing_;
  uint64_t routing_wanted_ = 0;  // placements asked for
  uint64_t routing_wanted_epoch_ = 0;
  std::vector<Peer*> peer_of_node_;  // by index in the routing's table
  HotHints hot_;
  std::map<std::string, std::unique_ptr<Peer>> peers_;
  std::unordered_map<LinkId, std::unique_ptr<Link>> links_;
  std::unordered_map<OperationId, std::unique_ptr<Operation>> operations_;
  std::unordered_map<uint64_t, SendRecord> sends_;
  std::unordered_map<uint64_t, Pin> pins_;
  std::set<Timer> timers_;
  std::vector<Peer*> dirty_;
  std::vector<Peer*> hungry_;      // stopped by the budget of all peers
  std::vector<OperationId> done_;  // may be complete
  uint64_t last_id_ = 0;           // operations, links, requests, tokens, landings, pins
  size_t next_seed_ = 0;
  uint32_t next_loop_ = 0;
  std::string last_seed_error_;
  uint64_t bytes_in_flight_ = 0;
  uint64_t now_us_ = 0;  // of the entry under way
  ClientStats stats_;
};

}  // namespace larder::client
