#include "node/cluster/peer_link.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "node/owner/part_checksums.h"

namespace larder::node {

using transport::Connection;
using transport::Failure;

namespace {

uint32_t LeftUs(uint64_t end_us) {
  const uint64_t now_us = transport::NowUs();
  return static_cast<uint32_t>(std::min<uint64_t>(end_us > now_us ? end_us - now_us : 1, 600'000'000));
}

Reserve::Block BlockOf(const OutgoingPiece& piece) {
  const BlockHeader& header = piece.header;
  Reserve::Block block;
  block.ref = {header.hash, header.group, header.rectangle};
  block.codec = header.codec;
  block.codec_data = header.codec_data;
  block.constituents = header.constituents;
  block.depth = piece.piece.depth();
  block.parts = RunsOf(header.parts);
  return block;
}

}  // namespace

// The connection as its transport sees it: takes answers down for the one who waits.
class PeerLink::Wire final : public transport::Handler {
 public:
  bool Begin(transport::Transport* transport, const std::string& address, const std::shared_ptr<Wire>& self,
             uint64_t end_us) {
    transport::ConnectOptions options;
    options.timeout_us = LeftUs(end_us);
    options.batch = true;
    auto connection = transport->Connect(address, self, options);
    std::unique_lock lock(mutex_);
    connection_ = std::move(connection);
    if (connection_ == nullptr) {
      closed_ = true;
      why_ = "the transport has been shut down";
    }
    return WaitFor(lock, end_us, [this] { return open_; });
  }
  void End() {
    std::unique_lock lock(mutex_);
    Close(lock, Failure::kCancelled);
  }
  // Payload of the next answer lands, when it is no more than this.
  void Expect(uint64_t landing_bytes_max) {
    const std::lock_guard lock(mutex_);
    landing_bytes_max_ = landing_bytes_max;
    landed_.clear();
  }
  std::vector<Bytes> TakeLanded() {
    const std::lock_guard lock(mutex_);
    landing_bytes_max_ = 0;
    return std::move(landed_);
  }
  // The answer's code and record.
  Result<Bytes> Ask(Bytes header, uint64_t request_id, uint64_t end_us) {
    std::unique_lock lock(mutex_);
    awaited_ = request_id;
    answered_ = false;
    transport::OutMessage message;
    message.header = std::move(header);
    if (!Send(lock, std::move(message))) return Gone();
    if (!WaitFor(lock, end_us, [this] { return answered_; })) return Gone();
    if (answer_.code == Code::kOk) return std::move(record_);
    ErrorText error;
    (void)Decode(ByteView(record_), &error);
    return Status(answer_.code, std::move(error.text));
  }
  bool SendData(Bytes header, const transport::SendSegments& segments, uint64_t end_us) {
    std::unique_lock lock(mutex_);
    transport::OutMessage message;
    message.header = std::move(header);
    message.segments = segments;
    message.token = 1;
    message.expire_us = end_us;
    sending_ = true;
    if (Send(lock, std::move(message))) return true;
    return false;
  }
  // No byte of the last Data is read any more; false: it did not get away in time, and the connection is
  // closed.
  bool WaitSent(uint64_t end_us) {
    std::unique_lock lock(mutex_);
    return WaitFor(lock, end_us, [this] { return !sending_; });
  }
  Status Gone() const { return {Code::kUnavailable, why_}; }
  uint64_t NextId() { return ++last_id_; }
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

  // Handler
  void OnOpen(Connection&) override {
    Note([this] { open_ = true; });
  }
  bool Place(Connection&, ByteView header, std::span<const uint64_t> segment_bytes,
             transport::Landing* landing) override {
    const std::lock_guard lock(mutex_);
    Envelope envelope;
    ByteView record;
    if (!DecodeEnvelope(header, &envelope, &record).ok()) return false;
    if (!envelope.reply || envelope.request_id != awaited_ || answered_ || !landed_.empty()) return false;
    uint64_t bytes = 0;
    for (const uint64_t segment : segment_bytes) {
      if (segment > landing_bytes_max_ - bytes) return false;
      bytes += segment;
    }
    landing->id = 1;
    for (const uint64_t segment : segment_bytes) {
      Bytes& memory = landed_.emplace_back(segment);
      landing->segments.Add({memory.data(), segment});
    }
    return true;
  }
  void OnMessage(Connection&, ByteView header, uint64_t, bool landed) override {
    Note([&] {
      Envelope envelope;
      ByteView record;
      if (!DecodeEnvelope(header, &envelope, &record).ok()) return;
      if (!envelope.reply || envelope.request_id != awaited_) return;  // a table is pushed
      answer_ = envelope;
      record_.assign(record.begin(), record.end());
      if (!landed) landed_.clear();
      answered_ = true;
    });
  }
  void OnSent(Connection&, uint64_t, Failure failure) override {
    Note([&] {
      if (failure == Failure::kNone) sending_ = false;
    });
  }
  void OnClosed(Connection&, const transport::Error& why) override {
    Note([&] {
      closed_ = true;
      sending_ = false;
      if (why_.empty()) why_ = why.text.empty() ? std::string(FailureName(why.failure)) : why.text;
    });
  }

 private:
  void Note(const auto& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  // What did not come in time never will: the connection goes, and with it every claim on memory. What came
  // before the connection went has come.
  bool WaitFor(std::unique_lock<std::mutex>& lock, uint64_t end_us, const auto& done) {
    const auto left = std::chrono::microseconds(LeftUs(end_us));
    if (!changed_.wait_for(lock, left, [&] { return closed_ || done(); })) {
      why_ = "it did not answer in time";
      Close(lock, Failure::kTimedOut);
      return false;
    }
    return done();
  }
  bool Send(std::unique_lock<std::mutex>& lock, transport::OutMessage&& message) {
    if (closed_) return false;
    const std::shared_ptr<Connection> connection = connection_;
    lock.unlock();
    const Failure failure = connection->Send(std::move(message));
    lock.lock();
    if (failure == Failure::kNone) return true;
    if (why_.empty()) why_ = FailureName(failure);
    Close(lock, failure);
    return false;
  }
  void Close(std::unique_lock<std::mutex>& lock, Failure why) {
    if (connection_ != nullptr && !closed_) {
      const std::shared_ptr<Connection> connection = connection_;
      lock.unlock();
      connection->Close(why);
      lock.lock();
      changed_.wait(lock, [this] { return closed_; });
    }
    connection_ = nullptr;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<Connection> connection_;
  bool open_ = false;
  bool closed_ = false;
  bool sending_ = false;
  bool answered_ = false;
  uint64_t awaited_ = 0;
  uint64_t last_id_ = 0;
  uint64_t landing_bytes_max_ = 0;
  std::vector<Bytes> landed_;
  Envelope answer_;
  Bytes record_;
  std::string why_;
};

Result<std::unique_ptr<PeerLink>> PeerLink::Connect(transport::Transport* transport, const NodeRecord& peer,
                                                    const std::string& token, const std::string& name,
                                                    uint64_t end_us, uint64_t features) {
  auto wire = std::make_shared<Wire>();
  auto link = std::unique_ptr<PeerLink>(new PeerLink(wire));
  if (!wire->Begin(transport, peer.data_address, wire, end_us)) return wire->Gone();
  Hello hello;
  hello.features = features;
  hello.lane = Priority::kBatch;
  hello.token = token;
  hello.client_name = name.substr(0, kClientNameBytesMax);
  const Result<HelloReply> reply = link->Ask<HelloReply>(Verb::kHello, hello, end_us);
  if (!reply.ok()) return reply.status();
  if (reply.value().node_id != peer.id) {
    return Status(Code::kInvalid, "the node at " + peer.data_address + " is " + reply.value().node_id +
                                      ", not " + peer.id + "; correct the list of nodes");
  }
  link->payload_bytes_max_ = reply.value().batch_bytes_max;
  link->leases_ = (reply.value().features & kFeatureLeases) != 0;
  return link;
}

const std::string* TokenOf(const std::vector<Credential>& credentials, const Digest& writer) {
  static const std::string anonymous;
  if (credentials.empty()) return writer == Digest{} ? &anonymous : nullptr;
  for (const Credential& credential : credentials) {
    if (Sha256(AsBytes(credential.name)) == writer) return &credential.token;
  }
  return nullptr;
}

PeerLink::~PeerLink() {
  wire_->End();
}

bool PeerLink::closed() const {
  return wire_->closed();
}

template <typename Reply, typename Body>
Result<Reply> PeerLink::Ask(Verb verb, const Body& body, uint64_t end_us) {
  Envelope envelope;
  envelope.verb = verb;
  envelope.priority = Priority::kBatch;
  envelope.deadline_us = LeftUs(end_us);
  envelope.request_id = wire_->NextId();
  const Result<Bytes> record = wire_->Ask(Encode(envelope, body), envelope.request_id, end_us);
  if (!record.ok()) return record.status();
  Reply reply;
  LARDER_RETURN_IF_ERROR(Decode(ByteView(record.value()), &reply));
  return reply;
}

Result<uint32_t> PeerLink::Open(const Namespace& name_space, const larder::Open& open, uint64_t end_us) {
  if (const auto known = numbers_.find(name_space); known != numbers_.end()) return known->second;
  const Result<OpenReply> reply = Ask<OpenReply>(Verb::kOpen, open, end_us);
  if (!reply.ok()) return reply.status();
  if (reply.value().name_space != name_space) {
    return Status(Code::kUnsupported, "it calls the namespace otherwise: update the older node");
  }
  return numbers_[name_space] = reply.value().number;
}

Result<std::vector<PutState>> PeerLink::Put(uint32_t number, std::span<const OutgoingPiece* const> pieces,
                                            uint64_t end_us, LeaseTerms lease) {
  Reserve reserve;
  reserve.number = number;
  reserve.since_us = lease.since_us;
  reserve.lease_us = lease.lease_us;
  uint64_t bytes = 0;
  for (const OutgoingPiece* piece : pieces) {
    reserve.blocks.push_back(BlockOf(*piece));
    bytes += piece->payload.bytes;
  }
  if (bytes > payload_bytes_max_) return Invalid("it takes no message of so many bytes");
  const Result<ReserveReply> reserved = Ask<ReserveReply>(Verb::kReserve, reserve, end_us);
  if (!reserved.ok()) return reserved.status();
  if (reserved.value().blocks.size() != pieces.size()) {
    return Status(Code::kUnsupported, "a reserve reply with another number of blocks");
  }
  std::vector<PutState> states;
  std::vector<size_t> ticketed;
  Data data;
  Commit commit;
  transport::SendSegments segments;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ReserveReply::Block& block = reserved.value().blocks[i];
    states.push_back(block.state);
    if (block.state != PutState::kTicket) continue;
    ticketed.push_back(i);
    data.tickets.push_back(block.ticket);
    segments.Add(pieces[i]->payload);
    Commit::Block& committed = commit.blocks.emplace_back();
    committed.ticket = block.ticket;
    for (const PartRecord& part : pieces[i]->header.parts) committed.crc32c.push_back(part.crc32c);
  }
  if (ticketed.empty()) return states;
  Envelope envelope;
  envelope.verb = Verb::kData;
  envelope.priority = Priority::kBatch;
  envelope.request_id = wire_->NextId();
  if (!wire_->SendData(Encode(envelope, data), segments, end_us)) return wire_->Gone();
  const Result<CommitReply> stored = Ask<CommitReply>(Verb::kCommit, commit, end_us);
  if (!wire_->WaitSent(end_us)) return wire_->Gone();
  if (!stored.ok()) return stored.status();
  if (stored.value().states.size() != ticketed.size()) {
    return Status(Code::kUnsupported, "a commit reply with another number of blocks");
  }
  for (size_t i = 0; i < ticketed.size(); ++i) states[ticketed[i]] = stored.value().states[i];
  return states;
}

Result<LeaseReply> PeerLink::Renew(const Lease& lease, uint64_t end_us) {
  Result<LeaseReply> reply = Ask<LeaseReply>(Verb::kLease, lease, end_us);
  if (reply.ok() && reply.value().blocks.size() != lease.blocks.size()) {
    return Status(Code::kUnsupported, "a lease reply with another number of blocks");
  }
  return reply;
}

Result<PeerLink::Moved> PeerLink::Move(uint32_t number, std::vector<BlockRef> blocks,
                                       uint64_t payload_bytes_max, uint64_t landing_bytes_max,
                                       uint64_t end_us) {
  const size_t asked = blocks.size();
  wire_->Expect(landing_bytes_max);
  Result<MoveReply> reply =
      Ask<MoveReply>(Verb::kMove, larder::Move{number, payload_bytes_max, std::move(blocks)}, end_us);
  Moved moved;
  moved.segments = wire_->TakeLanded();
  if (!reply.ok()) return reply.status();
  moved.reply = std::move(reply).value();
  size_t pieces = 0;
  for (const MoveReply::Block& block : moved.reply.blocks) pieces += block.pieces.size();
  const bool landed = moved.segments.size() == pieces;
  if (moved.reply.blocks.size() != asked || (!landed && !moved.segments.empty())) {
    return Status(Code::kUnsupported, "a move reply with another number of blocks");
  }
  return moved;
}

Status PeerLink::Carry(uint32_t number, const Forward& forward, uint64_t end_us) {
  if (forward.clear)
    return Ask<ClearReply>(Verb::kClear, larder::Clear{number, forward.stamp_ms}, end_us).status();
  const larder::Remove remove{number, forward.groups, forward.hashes};
  return Ask<RemoveReply>(Verb::kRemove, remove, end_us).status();
}

}  // namespace larder::node
