#include "tests/support/fake_node.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "proto/checksum.h"

namespace larder::testing {

using transport::Connection;

class FakeSession : public transport::Handler {
 public:
  FakeSession(FakeNode* node, uint64_t id) : node_(node), id_(id) {}
  bool Place(Connection&, ByteView header, std::span<const uint64_t> segment_bytes,
             transport::Landing* landing) override {
    return node_->Place(id_, header, segment_bytes, landing);
  }
  void OnMessage(Connection&, ByteView header, uint64_t, bool) override { node_->OnMessage(id_, header); }
  void OnSent(Connection&, uint64_t token, transport::Failure) override { node_->OnSent(token); }
  void OnClosed(Connection&, const transport::Error&) override { node_->OnClosed(id_); }

 private:
  FakeNode* node_;
  uint64_t id_;
};

FakeNode::FakeNode(const std::string& id, const std::string& address) : id_(id) {
  transport::Error error;
  transport::TransportOptions options;
  options.threads = 1;
  transport_ = transport::MakeTransport("tcp", options, &error);
  if (error.ok()) error = transport_->Listen(address, this, &address_);
  if (!error.ok()) {
    std::fprintf(stderr, "fake node: %s\n", error.text.c_str());
    std::abort();
  }
  table_.epoch = 1;
  table_.nodes = {record()};
}

FakeNode::~FakeNode() {
  transport_->Shutdown();
}

NodeRecord FakeNode::record() const {
  NodeRecord record;
  record.id = id_;
  record.incarnation = 1;
  record.data_address = address_;
  record.host_id = "fake";
  return record;
}

void FakeNode::SetTable(const NodeTable& table) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  table_ = table;
}

void FakeNode::PushTable(const NodeTable& table) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  table_ = table;
  TablePush push;
  EncodeTable(table, &push.table);
  for (const auto& [session, connection] : sessions_) {
    Envelope envelope;
    envelope.verb = Verb::kTable;
    Send(session, Encode(envelope, push));
  }
}

void FakeNode::HangUp() {
  std::map<uint64_t, std::shared_ptr<Connection>> sessions;
  {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    sessions = sessions_;
  }
  for (const auto& [session, connection] : sessions) connection->Close(transport::Failure::kCancelled);
}

void FakeNode::Store(const ChainHash& hash, uint16_t group, const Rectangle& rectangle, Bytes payload) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Piece piece;
  piece.rectangle = rectangle;
  const size_t part_bytes = payload.size() / rectangle.parts();
  for (uint32_t part = 0; part < rectangle.parts(); ++part) {
    const ByteView bytes = ByteView(payload).subspan(part * part_bytes, part_bytes);
    piece.parts.push_back({static_cast<uint32_t>(part_bytes), Crc32c(0, bytes)});
  }
  piece.payload = std::move(payload);
  pieces_[{hash, group}] = std::move(piece);
}

bool FakeNode::Has(const ChainHash& hash, uint16_t group) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return pieces_.count({hash, group}) != 0;
}

size_t FakeNode::seen(Verb verb) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto found = seen_.find(verb);
  return found == seen_.end() ? 0 : found->second;
}

uint64_t FakeNode::features() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return features_;
}

size_t FakeNode::connections() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return sessions_.size();
}

size_t FakeNode::unsent() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return sending_.size();
}

std::shared_ptr<transport::Handler> FakeNode::OnAccept(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const uint64_t session = ++last_id_;
  sessions_[session] = connection;
  return std::make_shared<FakeSession>(this, session);
}

bool FakeNode::Place(uint64_t session, ByteView header, std::span<const uint64_t> segment_bytes,
                     transport::Landing* landing) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Envelope envelope;
  ByteView record;
  if (!DecodeEnvelope(header, &envelope, &record).ok()) return false;
  landing->id = ++last_id_;
  if (envelope.verb == Verb::kData) {
    Data data;
    if (!Decode(record, &data).ok() || data.tickets.size() != segment_bytes.size()) return false;
    for (const uint64_t ticket : data.tickets) {
      Bytes& payload = tickets_[ticket].piece.payload;
      landing->segments.Add({payload.data(), payload.size()});
    }
    return true;
  }
  std::vector<ChainHash>& hashes = hashes_[session];
  hashes.resize(segment_bytes[0] / sizeof(ChainHash));
  landing->segments.Add({reinterpret_cast<std::byte*>(hashes.data()), hashes.size() * sizeof(ChainHash)});
  return true;
}

void FakeNode::OnSent(uint64_t token) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  sending_.erase(token);
}

void FakeNode::OnClosed(uint64_t session) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  sessions_.erase(session);
}

void FakeNode::Send(uint64_t session, Bytes header, std::vector<Bytes> segments) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  transport::OutMessage message;
  message.header = std::move(header);
  if (!segments.empty()) {
    message.token = ++last_id_;
    std::vector<Bytes>& kept = sending_[message.token] = std::move(segments);
    for (const Bytes& segment : kept) message.segments.Add({segment.data(), segment.size()});
  }
  const uint64_t token = message.token;
  if (found->second->Send(std::move(message)) != transport::Failure::kNone) sending_.erase(token);
}

void FakeNode::SendSwallowed() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const auto& send : std::exchange(swallowed_, {})) send();
}

void FakeNode::OnMessage(uint64_t session, ByteView header) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Envelope envelope;
  ByteView record;
  if (!DecodeEnvelope(header, &envelope, &record).ok()) return;
  ++seen_[envelope.verb];
  switch (manners ? manners(envelope) : Manners::kAnswer) {
    case Manners::kAnswer:
      return Handle(session, envelope, record);
    case Manners::kSwallow: {
      Bytes copy(record.begin(), record.end());
      swallowed_.push_back(
          [this, session, envelope, copy = std::move(copy)] { Handle(session, envelope, copy); });
      return;
    }
    case Manners::kGarbage: {
      Bytes garbage(77);
      for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<std::byte>(i * 37 + 11);
      return Send(session, std::move(garbage));
    }
    case Manners::kWrongVerb: {
      Envelope reply = ReplyTo(envelope);
      reply.verb = envelope.verb == Verb::kMatch ? Verb::kWait : Verb::kMatch;
      return Send(session, Encode(reply, MatchReply{}));
    }
    case Manners::kHangUp: {
      const std::shared_ptr<Connection> connection = sessions_[session];
      return connection->Close(transport::Failure::kCancelled);
    }
    case Manners::kBusy:
      return Send(session, Encode(ReplyTo(envelope, Code::kBusy), ErrorText{"too much to do"}));
    case Manners::kDenied:
      return Send(session, Encode(ReplyTo(envelope, Code::kDenied), ErrorText{"who are you"}));
  }
}

void FakeNode::Handle(uint64_t session, const Envelope& envelope, ByteView record) {
  switch (envelope.verb) {
    case Verb::kHello: {
      Hello hello;
      if (!Decode(record, &hello).ok()) return;
      features_ = hello.features;
      HelloReply reply;
      reply.node_id = id_;
      reply.incarnation = 1;
      reply.requests_max = 64;
      reply.batch_bytes_max = 64 << 20;
      EncodeTable(table_, &reply.table);
      return Send(session, Encode(ReplyTo(envelope), reply));
    }
    case Verb::kOpen: {
      Open open;
      if (!Decode(record, &open).ok()) return;
      OpenReply reply;
      reply.number = 7;
      const Result<Identity> identity = Identity::Parse(open.identity);
      reply.name_space = NamespaceOf(identity.value(), open.tenant, "");
      return Send(session, Encode(ReplyTo(envelope), reply));
    }
    case Verb::kGet:
      return AnswerGet(session, envelope, record);
    case Verb::kReserve:
    case Verb::kCommit:
      return AnswerPut(session, envelope, record);
    case Verb::kPing:
      return Send(session, Encode(ReplyTo(envelope)));
    default:
      return AnswerKeys(session, envelope, record);
  }
}

void FakeNode::AnswerGet(uint64_t session, const Envelope& envelope, ByteView record) {
  Get get;
  if (!Decode(record, &get).ok()) return;
  std::vector<size_t> owed(get.blocks.size());
  for (size_t i = 0; i < owed.size(); ++i) owed[i] = i;
  for (uint32_t part = 0; part == 0 || !owed.empty(); ++part) {
    GetReply reply;
    std::vector<Bytes> segments;
    std::vector<size_t> rest;
    for (const size_t i : owed) {
      const BlockRef& ref = get.blocks[i];
      GetReply::Block& block = reply.blocks.emplace_back();
      const auto found = pieces_.find({ref.hash, ref.group});
      if (reply_of && reply_of(i) > part) {
        block.presence = Presence::kLater;
        rest.push_back(i);
      } else if (found != pieces_.end() && found->second.rectangle == ref.rectangle) {
        block.presence = Presence::kRam;
        block.sources.push_back({ref.rectangle, {}, 1, found->second.parts});
        segments.push_back(found->second.payload);
      }
    }
    if (!owed.empty() && rest.size() == owed.size()) continue;
    const bool held = hold_parts && owed.size() < get.blocks.size();
    owed = std::move(rest);
    if (spoil_get) spoil_get(&reply, &segments);
    Bytes header = Encode(ReplyTo(envelope), reply);
    if (!held) {
      Send(session, std::move(header), std::move(segments));
      continue;
    }
    swallowed_.push_back([this, session, header = std::move(header), segments = std::move(segments)] {
      Send(session, header, segments);
    });
  }
}

void FakeNode::AnswerKeys(uint64_t session, const Envelope& envelope, ByteView record) {
  const std::vector<ChainHash> payload = std::exchange(hashes_[session], {});
  if (envelope.verb == Verb::kMatch) {
    Match match;
    if (!Decode(record, &match).ok()) return;
    MatchReply reply;
    for (const ChainHash& hash : match.hashes_in_payload ? payload : match.hashes) {
      for (const uint16_t group : match.groups) {
        const bool there = pieces_.count({hash, group}) != 0;
        reply.presence.push_back(static_cast<uint8_t>(there ? Presence::kRam : Presence::kEvicted));
      }
    }
    reply.estimates = {{static_cast<uint32_t>(reply.presence.size() / match.groups.size()), 42}};
    reply.pin_handle = match.pin_us != 0 ? 5 : 0;
    if (spoil_match) spoil_match(&reply);
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
  if (envelope.verb == Verb::kWait) {
    Wait wait;
    if (!Decode(record, &wait).ok()) return;
    WaitReply reply;
    for (const ChainHash& hash : wait.hashes_in_payload ? payload : wait.hashes) {
      if (pieces_.count({hash, 0}) == 0) break;
      ++reply.leading;
    }
    if (spoil_wait) spoil_wait(&reply);
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
  if (envelope.verb == Verb::kPrefetch) {
    Prefetch prefetch;
    if (!Decode(record, &prefetch).ok()) return;
    PrefetchReply reply;
    for (const ChainHash& hash : prefetch.hashes_in_payload ? payload : prefetch.hashes) {
      for (const uint16_t group : prefetch.groups)
        reply.blocks += pieces_.count({hash, group}) != 0 ? 1u : 0u;
    }
    if (spoil_prefetch) spoil_prefetch(&reply);
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
  if (envelope.verb == Verb::kClear) {
    ClearReply reply;
    reply.removed = pieces_.size();
    pieces_.clear();
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
  if (envelope.verb == Verb::kRemove) {
    Remove remove;
    if (!Decode(record, &remove).ok()) return;
    RemoveReply reply;
    for (const ChainHash& hash : remove.hashes)
      reply.removed += static_cast<uint32_t>(pieces_.erase({hash, 0}));
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
}

void FakeNode::AnswerPut(uint64_t session, const Envelope& envelope, ByteView record) {
  if (envelope.verb == Verb::kReserve) {
    Reserve reserve;
    if (!Decode(record, &reserve).ok()) return;
    ReserveReply reply;
    for (const Reserve::Block& block : reserve.blocks) {
      if (pieces_.count({block.ref.hash, block.ref.group}) != 0) {
        reply.blocks.push_back({PutState::kExists, 0});
        continue;
      }
      const uint64_t ticket = ++last_id_;
      Ticket& made = tickets_[ticket];
      made.hash = block.ref.hash;
      made.group = block.ref.group;
      made.piece.rectangle = block.ref.rectangle;
      uint64_t bytes = 0;
      for (const PartRun& run : block.parts) {
        bytes += uint64_t{run.count} * run.bytes;
        made.piece.parts.insert(made.piece.parts.end(), run.count, PartRecord{run.bytes, 0});
      }
      made.piece.payload.resize(bytes);
      reply.blocks.push_back({PutState::kTicket, ticket});
    }
    if (spoil_reserve) spoil_reserve(&reply);
    return Send(session, Encode(ReplyTo(envelope), reply));
  }
  Commit commit;
  if (!Decode(record, &commit).ok()) return;
  CommitReply reply;
  for (const Commit::Block& block : commit.blocks) {
    Ticket ticket = std::move(tickets_[block.ticket]);
    tickets_.erase(block.ticket);
    size_t offset = 0;
    bool good = block.crc32c.size() == ticket.piece.parts.size();
    for (size_t part = 0; good && part < ticket.piece.parts.size(); ++part) {
      PartRecord& at = ticket.piece.parts[part];
      at.crc32c = Crc32c(0, ByteView(ticket.piece.payload).subspan(offset, at.bytes));
      good = at.crc32c == block.crc32c[part];
      offset += at.bytes;
    }
    reply.states.push_back(good ? PutState::kStored : PutState::kCorrupt);
    if (good) pieces_[{ticket.hash, ticket.group}] = std::move(ticket.piece);
  }
  if (spoil_commit) spoil_commit(&reply);
  Send(session, Encode(ReplyTo(envelope), reply));
}

}  // namespace larder::testing
