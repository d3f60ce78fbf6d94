// One client's connection: the protocol of the data plane, on the connection's thread, without KV state.
//
//   connection --Handler calls--> Session --Post(Event)--> owner --Action--> Deliver --> connection
//
// It settles the version and the credential (Hello), decodes requests and stamps their arrival, answers Ping
// itself, lands hashes in memory of its own and block bytes in the slots that the owner granted, computes
// their checksums while they are in cache, and sends the owner's replies. Whatever makes no sense is refused.
//
// It knows neither threads nor clocks: a simulation drives the same code over the loopback transport with an
// OwnerPort that calls the owner (at once or later), and hands the owner's actions to Deliver.
//
// Bounds: unanswered requests and waits of a session, hash bytes of all sessions, tickets (the owner's),
// replies that a peer does not read (the transport's send queue: the session closes when it is full).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/owner/owner.h"
#include "node/owner/part_checksums.h"
#include "transport/transport.h"

namespace larder::node {

struct Credential {
  std::string name;    // who; its SHA-256 is the writer in block headers
  std::string token;   // secret that Hello carries
  std::string tenant;  // the only tenant it may open; empty: any
};

// The way to the owner. Called on the sessions' threads.
class OwnerPort {
 public:
  virtual ~OwnerPort() = default;
  // Events of one session reach the owner in order, except that its interactive requests may overtake its
  // batch ones. false: there is no room; only a Request may be refused.
  virtual bool Post(SessionId session, Event&& event) = 0;
  virtual uint64_t NowUs() = 0;      // the owner's clock, which is that of OutMessage::expire_us
  virtual Bytes EncodedTable() = 0;  // of the current node table
};

// What the sessions of one node have in common.
struct SessionShared {
  OwnerPort* owner = nullptr;  // outlives the sessions
  std::string node_id;
  uint64_t incarnation = 0;
  uint64_t features = kFeatureLeases;   // of HelloReply
  std::vector<Credential> credentials;  // empty: everybody may come, as anonymous
  uint32_t requests_max = 256;          // unanswered ones of a session, waits apart
  uint32_t waits_max = 1024;            // unanswered ones of a session
  uint64_t batch_bytes_max = kBatchBytesMax;
  uint64_t hash_bytes_max = 256ull << 20;  // of all sessions, while they land
  std::atomic<uint64_t> hash_bytes{0};
  std::atomic<uint64_t> hello_timeouts{0};
};

class ClientSession final : public transport::Handler {
 public:
  // Of an accepted connection, made in Acceptor::OnAccept.
  ClientSession(SessionId id, std::shared_ptr<transport::Connection> connection,
                std::shared_ptr<SessionShared> shared);

  // --- from the owner, on the connection's thread (Connection::Run); ignored once the connection is closed
  // ---
  void Deliver(Action&& action);
  // The time for a Hello is over: a peer that has not said it is closed. On the connection's thread.
  void ExpireHello();
  // Sends the node table to a client that has said Hello.
  void PushTable();

  SessionId id() const { return id_; }

  // --- transport::Handler ---
  bool Place(transport::Connection&, transport::ByteView header, std::span<const uint64_t> segment_bytes,
             transport::Landing* landing) override;
  void OnBytes(transport::Connection&, uint64_t landing_id, uint32_t segment, uint64_t offset,
               transport::ByteView bytes) override;
  void OnMessage(transport::Connection&, transport::ByteView header, uint64_t landing_id,
                 bool landed) override;
  void OnSent(transport::Connection&, uint64_t token, transport::Failure failure) override;
  void OnDiverted(transport::Connection&, uint64_t landing_id) override;
  void OnClosed(transport::Connection&, const transport::Error& why) override;

 private:
  // kLeaving: a last error is on its way, then the connection closes; nothing that arrives counts any more.
  enum class State : uint8_t { kNew, kOpen, kLeaving, kClosed };
  enum class TicketState : uint8_t { kGranted, kLanding, kLanded };

  // A slot that the owner granted. The session's until Committed, Stopped or Closed is posted.
  struct Ticket {
    transport::Extent slot;
    PartChecksums checksums;
    uint64_t granted_us = 0;
    TicketState state = TicketState::kGranted;
    bool revoked = false;  // while landing: Stopped is posted when no byte can land any more
  };
  // A payload on its way: a request whose hashes land in it, or tickets (one a segment; 0 where there is none
  // any more, then the segment lands in `waste`).
  struct Incoming {
    uint64_t id = 0;
    Request request;
    uint64_t hash_bytes = 0;
    std::vector<uint64_t> tickets;
    std::unique_ptr<std::byte[]> waste;
  };

  struct Unanswered {
    Verb verb = Verb::kPing;
    transport::Failure failed = transport::Failure::kNone;  // of a reply that others follow
  };

  // session.cc: Hello, requests, replies
  void OnHello(const Envelope& envelope, ByteView record);
  void OnRequest(const Envelope& envelope, ByteView record, uint64_t landing_id, bool landed);
  bool PlaceHashes(const Envelope& envelope, ByteView record, std::span<const uint64_t> segment_bytes,
                   transport::Landing* landing);
  Status Admit(const Envelope& envelope);
  void Forward(Request&& request);
  void SendReply(Reply&& reply);
  void SendHeader(Bytes&& header);
  void SendError(const Envelope& request, Code code, std::string text);
  void Leave(const Envelope& request, Code code, std::string text);
  void Close(transport::Failure why);
  void Forget(uint64_t request_id);

  // session_data.cc: tickets
  bool PlaceData(ByteView record, std::span<const uint64_t> segment_bytes, transport::Landing* landing);
  void OnData(uint64_t landing_id, bool landed);
  void OnCommit(const Envelope& envelope, ByteView record);
  void OnRevoke(uint64_t ticket);
  void StopLanding(const std::vector<uint64_t>& tickets, bool landed);
  void ReportProgress();

  std::vector<Incoming>::iterator FindIncoming(uint64_t landing_id);

  const SessionId id_;
  const std::shared_ptr<SessionShared> shared_;
  std::shared_ptr<transport::Connection> connection_;  // null once closed
  State state_ = State::kNew;
  uint64_t next_landing_id_ = 1;
  std::vector<Incoming> incoming_;
  std::unordered_map<uint64_t, Ticket> tickets_;
  std::unordered_map<uint64_t, Unanswered> unanswered_;  // by request id
  uint32_t unanswered_waits_ = 0;
  uint64_t progress_us_ = 0;  // when Progress was posted last
};

}  // namespace larder::node
