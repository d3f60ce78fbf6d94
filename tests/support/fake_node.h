// A node of a few lines for tests of the client: real sockets, the real messages, blocks in a map, and hooks
// that make it lie, fall silent or hang up. Nothing of the real node is in here.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/message.h"
#include "transport/transport.h"

namespace larder::testing {

enum class Manners : uint8_t { kAnswer, kSwallow, kGarbage, kWrongVerb, kHangUp, kBusy, kDenied };

class FakeNode : private transport::Acceptor {
 public:
  explicit FakeNode(const std::string& id, const std::string& address = "127.0.0.1:0");
  ~FakeNode() override;

  NodeRecord record() const;
  const std::string& address() const { return address_; }
  // Handed out in Hello; this node alone until set.
  void SetTable(const NodeTable& table);
  void PushTable(const NodeTable& table);  // to every connection, unasked
  // Ends every connection; listening goes on.
  void HangUp();

  // Hooks, called with the node's lock held. Set them before traffic.
  std::function<Manners(const Envelope&)> manners;
  std::function<void(GetReply*, std::vector<Bytes>*)> spoil_get;  // reply and the payload of each source
  // In which reply to a get its blocks come, by their place in it; all in the first without this.
  std::function<uint32_t(size_t)> reply_of;
  std::function<void(MatchReply*)> spoil_match;
  std::function<void(ReserveReply*)> spoil_reserve;
  std::function<void(CommitReply*)> spoil_commit;
  std::function<void(WaitReply*)> spoil_wait;
  std::function<void(PrefetchReply*)> spoil_prefetch;

  bool hold_parts = false;  // all replies to a get but the first, until SendSwallowed

  // Answers held back by kSwallow for gets are sent now.
  void SendSwallowed();

  void Store(const ChainHash& hash, uint16_t group, const Rectangle& rectangle, Bytes payload);
  bool Has(const ChainHash& hash, uint16_t group = 0) const;
  size_t seen(Verb verb) const;  // requests so far
  uint64_t features() const;     // of the last Hello
  size_t connections() const;
  size_t unsent() const;  // payloads that the transport still has

 private:
  friend class FakeSession;
  struct Piece {
    Rectangle rectangle;
    std::vector<PartRecord> parts;
    Bytes payload;
  };
  struct Ticket {
    ChainHash hash;
    uint16_t group = 0;
    Piece piece;
  };

  std::shared_ptr<transport::Handler> OnAccept(
      const std::shared_ptr<transport::Connection>& connection) override;
  bool Place(uint64_t session, ByteView header, std::span<const uint64_t> segment_bytes,
             transport::Landing* landing);
  void OnMessage(uint64_t session, ByteView header);
  void OnSent(uint64_t token);
  void OnClosed(uint64_t session);
  void Handle(uint64_t session, const Envelope& envelope, ByteView record);
  void AnswerGet(uint64_t session, const Envelope& envelope, ByteView record);
  void AnswerKeys(uint64_t session, const Envelope& envelope, ByteView record);
  void AnswerPut(uint64_t session, const Envelope& envelope, ByteView record);
  void Send(uint64_t session, Bytes header, std::vector<Bytes> segments = {});

  const std::string id_;
  std::string address_;
  mutable std::recursive_mutex mutex_;
  NodeTable table_;
  std::map<uint64_t, std::shared_ptr<transport::Connection>> sessions_;
  std::map<std::pair<ChainHash, uint16_t>, Piece> pieces_;
  std::map<uint64_t, Ticket> tickets_;
  std::map<uint64_t, std::vector<Bytes>> sending_;     // by token
  std::map<uint64_t, std::vector<ChainHash>> hashes_;  // payload of a request, by session
  std::vector<std::function<void()>> swallowed_;
  std::map<Verb, size_t> seen_;
  uint64_t features_ = 0;
  uint64_t last_id_ = 0;
  std::unique_ptr<transport::Transport> transport_;
};

}  // namespace larder::testing
