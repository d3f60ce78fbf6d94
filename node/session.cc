#include "node/session.h"

#include <algorithm>
#include <utility>

namespace larder::node {

namespace {

// OnSent of a last message: close now. The owner's tokens count up from one and never get here.
constexpr uint64_t kFarewellToken = UINT64_MAX;
constexpr uint64_t kFarewellUs = 1'000'000;

static_assert(sizeof(ChainHash) == 32, "hashes land in a vector of them as they are on the wire");

// Digests are compared, so that the time it takes tells nothing about a token.
const Credential* FindCredential(const std::vector<Credential>& credentials, std::string_view token) {
  const Digest asked = Sha256(AsBytes(token));
  for (const Credential& credential : credentials) {
    if (Sha256(AsBytes(credential.token)) == asked) return &credential;
  }
  return nullptr;
}

// Not answered, not even with an error.
bool IsOneWay(Verb verb) {
  return verb == Verb::kTouch || verb == Verb::kRelease || verb == Verb::kCancel;
}

template <typename Body>
Status DecodeAs(ByteView record, decltype(Request::body)* body) {
  return Decode(record, &body->emplace<Body>());
}

Status DecodeBody(Verb verb, ByteView record, decltype(Request::body)* body) {
  switch (verb) {
    case Verb::kOpen:
      return DecodeAs<Open>(record, body);
    case Verb::kMatch:
      return DecodeAs<Match>(record, body);
    case Verb::kGet:
      return DecodeAs<Get>(record, body);
    case Verb::kMove:
      return DecodeAs<Move>(record, body);
    case Verb::kLease:
      return DecodeAs<Lease>(record, body);
    case Verb::kReserve:
      return DecodeAs<Reserve>(record, body);
    case Verb::kWait:
      return DecodeAs<Wait>(record, body);
    case Verb::kPrefetch:
      return DecodeAs<Prefetch>(record, body);
    case Verb::kTouch:
    case Verb::kRelease:
      return DecodeAs<Touch>(record, body);
    case Verb::kReport:
      return DecodeAs<Report>(record, body);
    case Verb::kRemove:
      return DecodeAs<Remove>(record, body);
    case Verb::kClear:
      return DecodeAs<Clear>(record, body);
    case Verb::kCancel:
      return DecodeAs<Cancel>(record, body);
    default:
      return {Code::kUnsupported, "this verb is no request to a node"};
  }
}

// The hashes of a request that may carry them as payload; nullptr for others.
struct HashField {
  std::vector<ChainHash>* hashes = nullptr;
  uint32_t count = 0;
  bool in_payload = false;
};
HashField HashesOf(decltype(Request::body)* body) {
  if (auto* match = std::get_if<Match>(body)) {
    return {&match->hashes, match->hash_count, match->hashes_in_payload};
  }
  if (auto* wait = std::get_if<Wait>(body)) return {&wait->hashes, wait->hash_count, wait->hashes_in_payload};
  if (auto* prefetch = std::get_if<Prefetch>(body)) {
    return {&prefetch->hashes, prefetch->hash_count, prefetch->hashes_in_payload};
  }
  if (auto* touch = std::get_if<Touch>(body)) {
    return {&touch->hashes, touch->hash_count, touch->hashes_in_payload};
  }
  return {};
}

}  // namespace

ClientSession::ClientSession(SessionId id, std::shared_ptr<transport::Connection> connection,
                             std::shared_ptr<SessionShared> shared)
    : id_(id), shared_(std::move(shared)), connection_(std::move(connection)) {}

bool ClientSession::Place(transport::Connection&, transport::ByteView header,
                          std::span<const uint64_t> segment_bytes, transport::Landing* landing) {
  Envelope envelope;
  ByteView record;
  if (state_ != State::kOpen || !DecodeEnvelope(header, &envelope, &record).ok() || envelope.reply) {
    return false;
  }
  if (envelope.verb == Verb::kData) return PlaceData(record, segment_bytes, landing);
  return PlaceHashes(envelope, record, segment_bytes, landing);
}

bool ClientSession::PlaceHashes(const Envelope& envelope, ByteView record,
                                std::span<const uint64_t> segment_bytes, transport::Landing* landing) {
  Incoming incoming;
  incoming.request.envelope = envelope;
  if (!DecodeBody(envelope.verb, record, &incoming.request.body).ok()) return false;
  const HashField field = HashesOf(&incoming.request.body);
  const uint64_t bytes = uint64_t{field.count} * sizeof(ChainHash);
  if (!field.in_payload || segment_bytes.size() != 1 || segment_bytes[0] != bytes) return false;
  if (shared_->hash_bytes.fetch_add(bytes) + bytes > shared_->hash_bytes_max) {
    shared_->hash_bytes.fetch_sub(bytes);
    return false;
  }
  incoming.id = landing->id = next_landing_id_++;
  incoming.hash_bytes = bytes;
  field.hashes->resize(field.count);
  landing->segments.Add({reinterpret_cast<std::byte*>(field.hashes->data()), bytes});
  incoming_.push_back(std::move(incoming));
  return true;
}

void ClientSession::OnMessage(transport::Connection&, transport::ByteView header, uint64_t landing_id,
                              bool landed) {
  if (state_ == State::kLeaving || state_ == State::kClosed) return;
  Envelope envelope;
  ByteView record;
  const Status status = DecodeEnvelope(header, &envelope, &record);
  if (envelope.reply || (!status.ok() && status.code() != Code::kUnsupported)) {
    return Close(transport::Failure::kProtocol);
  }
  if (!status.ok()) {
    if (state_ == State::kNew) return Leave(envelope, status.code(), status.text());
    return SendError(envelope, status.code(), status.text());
  }
  if (state_ == State::kNew) return OnHello(envelope, record);
  switch (envelope.verb) {
    case Verb::kHello:
      return SendError(envelope, Code::kInvalid, "hello: this connection has said it already");
    case Verb::kPing:
      return SendHeader(Encode(ReplyTo(envelope)));
    case Verb::kData:
      return OnData(landing_id, landed);
    case Verb::kCommit:
      return OnCommit(envelope, record);
    default:
      return OnRequest(envelope, record, landing_id, landed);
  }
}

void ClientSession::OnHello(const Envelope& envelope, ByteView record) {
  Hello hello;
  if (envelope.verb != Verb::kHello) {
    return Leave(envelope, Code::kDenied, "a connection begins with hello");
  }
  const Status status = Decode(record, &hello);
  if (!status.ok()) return Leave(envelope, status.code(), status.text());
  const uint16_t version = std::min(hello.version_max, kWireVersionMax);
  if (version < std::max(hello.version_min, kWireVersionMin)) {
    return Leave(envelope, Code::kUnsupported,
                 "hello: the client speaks wire versions " + std::to_string(hello.version_min) + " to " +
                     std::to_string(hello.version_max) + ", this node " + std::to_string(kWireVersionMin) +
                     " to " + std::to_string(kWireVersionMax) + ": update the older one");
  }
  Opened opened;
  opened.restores = (hello.features & kFeatureRestores) != 0;
  opened.parts = (hello.features & kFeatureParts) != 0;
  opened.hands_over = (hello.features & kFeatureHandsOver) != 0;
  if (!shared_->credentials.empty()) {
    const Credential* credential = FindCredential(shared_->credentials, hello.token);
    if (credential == nullptr) {
      return Leave(envelope, Code::kDenied, "hello: this node knows no such token; check the client's token");
    }
    opened.writer = Sha256(AsBytes(credential->name));
    opened.tenant = credential->tenant;
  }
  state_ = State::kOpen;
  if (hello.lane == Priority::kBatch) connection_->SetBatch(true);
  shared_->owner->Post(id_, std::move(opened));
  HelloReply reply;
  reply.version = version;
  reply.features = shared_->features;
  reply.node_id = shared_->node_id;
  reply.incarnation = shared_->incarnation;
  reply.requests_max = shared_->requests_max;
  reply.batch_bytes_max = shared_->batch_bytes_max;
  reply.table = shared_->owner->EncodedTable();
  SendHeader(Encode(ReplyTo(envelope), reply));
}

void ClientSession::OnRequest(const Envelope& envelope, ByteView record, uint64_t landing_id, bool landed) {
  Request request;
  Status status;
  const auto incoming = FindIncoming(landing_id);
  if (incoming != incoming_.end()) {
    request = std::move(incoming->request);
    shared_->hash_bytes.fetch_sub(incoming->hash_bytes);
    incoming_.erase(incoming);
  } else {
    request.envelope = envelope;
    status = DecodeBody(envelope.verb, record, &request.body);
  }
  const HashField field = HashesOf(&request.body);
  if (status.ok() && !landed) {
    // What Place would not take: more hash bytes than the node has room for just now, or a payload of another
    // size than the header says. The text covers both, since a client can mend either.
    status = field.in_payload
                 ? Status(Code::kBusy, "no room for the hashes now, or their size is not the header's")
                 : Invalid("this request has no payload");
  }
  if (status.ok() && field.hashes != nullptr && field.hashes->size() != field.count) {
    status = Invalid("the hashes are missing");
  }
  if (status.ok()) status = Admit(envelope);
  if (status.ok()) return Forward(std::move(request));
  if (!IsOneWay(envelope.verb)) SendError(envelope, status.code(), status.text());
}

// A session's share of the owner's attention; what is not answered has the mailbox's bound only.
Status ClientSession::Admit(const Envelope& envelope) {
  if (IsOneWay(envelope.verb)) return Status::Ok();
  const bool wait = envelope.verb == Verb::kWait;
  const size_t others = unanswered_.size() - unanswered_waits_;
  if (wait ? unanswered_waits_ >= shared_->waits_max : others >= shared_->requests_max) {
    return {Code::kBusy, "too many unanswered requests on this connection; the limit is " +
                             std::to_string(wait ? shared_->waits_max : shared_->requests_max)};
  }
  if (!unanswered_.emplace(envelope.request_id, Unanswered{envelope.verb}).second) {
    return Invalid("request id " + std::to_string(envelope.request_id) + " is in use");
  }
  if (wait) ++unanswered_waits_;
  return Status::Ok();
}

void ClientSession::Forget(uint64_t request_id) {
  const auto found = unanswered_.find(request_id);
  if (found == unanswered_.end()) return;
  if (found->second.verb == Verb::kWait) --unanswered_waits_;
  unanswered_.erase(found);
}

void ClientSession::Forward(Request&& request) {
  request.arrived_us = shared_->owner->NowUs();
  const Envelope envelope = request.envelope;
  if (shared_->owner->Post(id_, std::move(request))) return;
  if (IsOneWay(envelope.verb)) return;
  Forget(envelope.request_id);
  SendError(envelope, Code::kBusy, "the node has too much to do; try again later");
}

void ClientSession::Deliver(Action&& action) {
  if (auto* verify = std::get_if<Verify>(&action)) {
    // Whatever became of the client: the check is the node's own.
    const bool good = PartsVerify({verify->payload.data, verify->payload.bytes}, verify->parts);
    shared_->owner->Post(id_, Verified{verify->token, good});
    return;
  }
  if (state_ != State::kOpen) return;  // Closed gives everything back
  if (auto* grant = std::get_if<Grant>(&action)) {
    if (tickets_.empty()) progress_us_ = shared_->owner->NowUs();  // a grant is progress enough for now
    tickets_.emplace(grant->ticket,
                     Ticket{grant->slot, PartChecksums(grant->parts), shared_->owner->NowUs()});
  } else if (auto* revoke = std::get_if<Revoke>(&action)) {
    OnRevoke(revoke->ticket);
  } else if (auto* reply = std::get_if<Reply>(&action)) {
    SendReply(std::move(*reply));
  }
}

void ClientSession::SendReply(Reply&& reply) {
  Envelope envelope;
  ByteView record;
  transport::Failure failure = transport::Failure::kNone;
  if (DecodeEnvelope(reply.header, &envelope, &record).ok()) {
    const auto found = unanswered_.find(envelope.request_id);
    if (found != unanswered_.end()) failure = found->second.failed;
    if (!reply.more) Forget(envelope.request_id);
  }
  const uint64_t token = reply.token;
  if (failure == transport::Failure::kNone) {
    failure = connection_->Send({std::move(reply.header), std::move(reply.segments), token, reply.expire_us});
  }
  if (failure == transport::Failure::kNone) return;
  if (token != 0) shared_->owner->Post(id_, Sent{token});
  if (reply.more) {
    // What follows is thrown away, and the error comes in the place of the last reply: then no part can come
    // behind it, for a request of the same number perhaps.
    const auto found = unanswered_.find(envelope.request_id);
    if (found != unanswered_.end()) found->second.failed = failure;
    return;
  }
  envelope.reply = false;
  switch (failure) {
    case transport::Failure::kPeerClosed:
      return;  // OnClosed follows
    case transport::Failure::kTooLarge:
      return SendError(envelope, Code::kInvalid,
                       "the answer passes the limits; ask for fewer blocks at a time");
    case transport::Failure::kBusy:
      // Memory for answers that wait to be read is bounded. A few large ones fill it too, so this one becomes
      // a small one; when there is no room for that either, the peer does not read and is closed.
      return SendError(envelope, Code::kBusy, "answers wait to be read; ask for less at a time");
    default:
      return SendError(envelope, Code::kInternal, "the answer could not be sent");
  }
}

void ClientSession::SendHeader(Bytes&& header) {
  const transport::Failure failure = connection_->Send({std::move(header), {}, 0, 0});
  if (failure == transport::Failure::kNone || failure == transport::Failure::kPeerClosed) return;
  Close(failure == transport::Failure::kBusy ? transport::Failure::kTimedOut : failure);
}

void ClientSession::SendError(const Envelope& request, Code code, std::string text) {
  SendHeader(Encode(ReplyTo(request, code), ErrorText{std::move(text)}));
}

// Close would drop what is still queued, so it waits until the error is on its way.
void ClientSession::Leave(const Envelope& request, Code code, std::string text) {
  state_ = State::kLeaving;
  Bytes header = Encode(ReplyTo(request, code), ErrorText{std::move(text)});
  const uint64_t expire_us = shared_->owner->NowUs() + kFarewellUs;
  const transport::Failure failure = connection_->Send({std::move(header), {}, kFarewellToken, expire_us});
  if (failure != transport::Failure::kNone) Close(transport::Failure::kRefused);
}

void ClientSession::Close(transport::Failure why) {
  if (state_ != State::kClosed) state_ = State::kLeaving;
  // A copy: OnClosed may come inside and lets go of the member.
  if (const auto connection = connection_; connection != nullptr) connection->Close(why);
}

void ClientSession::ExpireHello() {
  if (state_ != State::kNew) return;  // one that leaves has a farewell, which has a time of its own
  ++shared_->hello_timeouts;
  Close(transport::Failure::kTimedOut);
}

void ClientSession::PushTable() {
  if (state_ != State::kOpen) return;
  SendHeader(Encode(Envelope{Verb::kTable, true}, TablePush{shared_->owner->EncodedTable()}));
}

void ClientSession::OnSent(transport::Connection&, uint64_t token, transport::Failure) {
  if (token == kFarewellToken) return Close(transport::Failure::kRefused);
  shared_->owner->Post(id_, Sent{token});
}

void ClientSession::OnClosed(transport::Connection&, const transport::Error&) {
  // The buffers that were landing are ours again: the owner's with Closed, the hashes' with us.
  state_ = State::kClosed;
  for (const Incoming& incoming : incoming_) shared_->hash_bytes.fetch_sub(incoming.hash_bytes);
  incoming_.clear();
  tickets_.clear();
  unanswered_.clear();
  unanswered_waits_ = 0;
  shared_->owner->Post(id_, Closed{});
  connection_.reset();
}

std::vector<ClientSession::Incoming>::iterator ClientSession::FindIncoming(uint64_t landing_id) {
  return std::find_if(incoming_.begin(), incoming_.end(),
                      [&](const Incoming& incoming) { return incoming.id == landing_id; });
}

}  // namespace larder::node
