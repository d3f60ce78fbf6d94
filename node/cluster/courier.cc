#include "node/cluster/courier.h"

#include <algorithm>

namespace larder::node {

namespace {
constexpr uint64_t kStepUs = 5'000'000;                  // for one parcel, and
constexpr uint64_t kSlowestBytesPerSecond = 10'000'000;  // what its bytes take at such a pace
constexpr uint64_t kRetryPauseMinUs = 500'000;
constexpr uint64_t kRetryPauseMaxUs = 16'000'000;
constexpr uint64_t kLongGoneUs = 5'000'000;
constexpr size_t kLinksMax = 64;
constexpr uint64_t kPagesPerSecond = 4;  // at least, so that the rate is even
}  // namespace

PageLimits Pace::limits() const {
  PageLimits limits;
  if (bytes_per_second_ != 0) {
    limits.payload_bytes = std::min(limits.payload_bytes, bytes_per_second_ / kPagesPerSecond);
  }
  return limits;
}

void Pace::Begin() {
  next_us_ = std::max(next_us_, transport::NowUs());
}

uint64_t Pace::After(uint64_t bytes) {
  if (bytes_per_second_ != 0) next_us_ += bytes * 1'000'000 / bytes_per_second_;
  return bytes_per_second_ != 0 ? next_us_ : 0;
}

Courier::Courier(Node* node, const std::vector<Credential>& credentials, std::string name, uint64_t features)
    : node_(node), credentials_(credentials), name_(std::move(name)), features_(features) {}

Courier::~Courier() {
  links_.clear();
}

Status Courier::Start() {
  transport::TransportOptions tcp;
  tcp.threads = 1;
  tcp.limits.header_bytes_max = kMessageBytesMax;
  transport::Error error;
  transport_ = transport::MakeTransport("tcp", tcp, &error);
  return transport_ != nullptr ? Status::Ok() : Status(Code::kUnavailable, error.text);
}

uint64_t Courier::StepEnd(uint64_t bytes, uint64_t end_us) const {
  const uint64_t step_us = kStepUs + bytes * 1'000'000 / kSlowestBytesPerSecond;
  return std::min(end_us, transport::NowUs() + step_us);
}

void Courier::Put(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces, uint64_t end_us,
                  std::vector<PutState>* states) {
  const auto& [heir, writer, name_space] = parcel;
  if (TokenOf(credentials_, writer) == nullptr) {
    last_why_ = "the credential of the writer " + ToHex(writer) + " is not among this node's";
    states->assign(pieces.size(), PutState::kInvalid);
    return;
  }
  uint64_t bytes = 0;
  for (const OutgoingPiece* piece : pieces) bytes += piece->payload.bytes;
  const auto put = [&]() -> Result<std::vector<PutState>> {
    Result<PeerLink*> link = LinkTo(*heir, writer, end_us);
    if (!link.ok()) return link.status();
    const Result<Open> open = node_->OpeningOf(name_space);
    if (!open.ok()) return open.status();
    const Result<uint32_t> number = link.value()->Open(name_space, open.value(), StepEnd(0, end_us));
    if (!number.ok()) return number.status();
    receivers_[name_space].emplace(heir->id, writer);  // from here on it may have some
    return link.value()->Put(number.value(), pieces, StepEnd(bytes, end_us));
  };
  Result<std::vector<PutState>> done = put();
  if (done.ok()) {
    *states = std::move(done).value();
    for (const PutState state : *states) {
      if (!IsThere(state)) last_why_ = heir->id + ": " + std::string(PutStateName(state));
    }
    return;
  }
  last_why_ = heir->id + ": " + done.status().text();
  // One that hangs must not cost the others' time at every page.
  links_.erase({heir->id, writer});
  NoteUnreachable({heir->id, writer}, done.status());
}

Status Courier::TakeBack(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces,
                         uint64_t end_us) {
  const Result<PeerLink*> link = LinkTo(*parcel.heir, parcel.writer, end_us);
  if (!link.ok()) return link.status();
  const Result<Open> open = node_->OpeningOf(parcel.name_space);
  if (!open.ok()) return open.status();
  const Result<uint32_t> number = link.value()->Open(parcel.name_space, open.value(), StepEnd(0, end_us));
  if (!number.ok()) return number.status();
  for (const OutgoingPiece* piece : pieces) {
    const Forward remove{0, parcel.name_space, false, {piece->header.group}, {piece->header.hash}, 0};
    LARDER_RETURN_IF_ERROR(link.value()->Carry(number.value(), remove, StepEnd(0, end_us)));
  }
  return Status::Ok();
}

void Courier::NoteUnreachable(const LinkName& name, const Status& why) {
  Unreachable& unreachable = unreachable_[name];
  if (unreachable.since_us == 0) unreachable.since_us = transport::NowUs();
  if (transport::NowUs() < unreachable.retry_us) return;  // that is what it was told
  unreachable.pause_us = std::clamp(2 * unreachable.pause_us, kRetryPauseMinUs, kRetryPauseMaxUs);
  unreachable.why = why;
  unreachable.retry_us = transport::NowUs() + unreachable.pause_us;
}

Result<PeerLink*> Courier::LinkTo(const NodeRecord& heir, const Digest& writer, uint64_t end_us) {
  const auto known = links_.find({heir.id, writer});
  if (known != links_.end()) return known->second.get();
  const auto failed = unreachable_.find({heir.id, writer});
  if (failed != unreachable_.end() && transport::NowUs() < failed->second.retry_us) return failed->second.why;
  if (links_.size() >= kLinksMax) links_.clear();
  Result<std::unique_ptr<PeerLink>> link = PeerLink::Connect(
      transport_.get(), heir, *TokenOf(credentials_, writer), name_, StepEnd(0, end_us), features_);
  if (!link.ok()) {
    NoteUnreachable({heir.id, writer}, link.status());
    return link.status();
  }
  unreachable_.erase({heir.id, writer});
  return (links_[{heir.id, writer}] = std::move(link).value()).get();
}

void Courier::ForwardAll(const std::function<bool()>& late, uint64_t end_us) {
  for (auto next = node_->NextForward(); next; next = node_->NextForward()) {
    const Carried carried = Carry(*next, late, end_us);
    if (carried == Carried::kNotYet) return;
    node_->Forwarded(next->token, carried == Carried::kToAll || next->clear);
  }
}

// Whether all nodes that may have got blocks of it have heard it. One that is away need not: before it has a
// place again it drops what it holds. One that has begun a new life within its grace must: it may have kept
// some on SSD.
Courier::Carried Courier::Carry(const Forward& forward, const std::function<bool()>& late, uint64_t end_us) {
  const auto receivers = receivers_.find(forward.name_space);
  if (receivers == receivers_.end()) return Carried::kToAll;
  if (carrying_ != forward.token) carried_to_.clear();
  carrying_ = forward.token;
  const NodeTable table = node_->info().table;
  Carried carried = Carried::kToAll;
  for (const auto& [id, writer] : receivers->second) {
    if (carried_to_.count(id) != 0) continue;
    if (late()) return Carried::kNotYet;
    const auto heir = std::find_if(table.nodes.begin(), table.nodes.end(),
                                   [&](const NodeRecord& node) { return node.id == id; });
    // It has left, and has carried on what it heard.
    if (heir == table.nodes.end() || heir->state == NodeState::kAway) continue;
    const Status status = CarryTo(*heir, writer, forward, end_us);
    if (status.ok()) {
      carried_to_.insert(id);
    } else if (LongGone({id, writer})) {
      carried = Carried::kNever;
    } else if (carried == Carried::kToAll) {
      carried = Carried::kNotYet;
    }
  }
  return carried;
}

bool Courier::LongGone(const LinkName& name) const {
  const auto found = unreachable_.find(name);
  return found != unreachable_.end() && transport::NowUs() >= found->second.since_us + kLongGoneUs;
}

Status Courier::CarryTo(const NodeRecord& heir, const Digest& writer, const Forward& forward,
                        uint64_t end_us) {
  const Result<PeerLink*> link = LinkTo(heir, writer, end_us);
  if (!link.ok()) return link.status();
  const Result<Open> open = node_->OpeningOf(forward.name_space);
  if (!open.ok()) return open.status();
  const Result<uint32_t> number = link.value()->Open(forward.name_space, open.value(), StepEnd(0, end_us));
  const Status status =
      number.ok() ? link.value()->Carry(number.value(), forward, StepEnd(0, end_us)) : number.status();
  if (DropIfClosed({heir.id, writer})) NoteUnreachable({heir.id, writer}, status);
  return status;
}

Status Courier::Tell(const std::string& node, const Digest& writer, const Forward& forward, uint64_t end_us) {
  const NodeTable table = node_->info().table;
  const auto heir = std::ranges::find(table.nodes, node, &NodeRecord::id);
  if (!Carries(writer)) return {Code::kDenied, "the writer's credential is not among this node's"};
  if (heir == table.nodes.end()) return {Code::kUnavailable, node + " is not in the table"};
  return CarryTo(*heir, writer, forward, end_us);
}

CopyAnswer Courier::Copy(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces,
                         uint64_t lease_us, bool own_counts, uint64_t end_us) {
  if (!Carries(parcel.writer)) return {};
  const Result<PeerLink*> link = LinkTo(*parcel.heir, parcel.writer, end_us);
  if (!link.ok()) return {};
  const Result<CopyAnswer> answer = CopyBy(link.value(), parcel, pieces, lease_us, own_counts, end_us);
  if (answer.ok()) return answer.value();
  last_why_ = parcel.heir->id + ": " + answer.status().text();
  links_.erase({parcel.heir->id, parcel.writer});
  NoteUnreachable({parcel.heir->id, parcel.writer}, answer.status());
  return {};
}

// The other's clock is asked for first: a lease is counted from then on, by that clock there and by ours
// here.
Result<CopyAnswer> Courier::CopyBy(PeerLink* link, const Parcel& parcel,
                                   const std::vector<const OutgoingPiece*>& pieces, uint64_t lease_us,
                                   bool own_counts, uint64_t end_us) {
  CopyAnswer answer;
  if (!link->leases()) return answer;
  const Result<Open> open = node_->OpeningOf(parcel.name_space);
  if (!open.ok()) return open.status();
  const Result<uint32_t> number = link->Open(parcel.name_space, open.value(), StepEnd(0, end_us));
  if (!number.ok()) return number.status();
  Lease lease{number.value(), 0, lease_us, {}};
  const Result<LeaseReply> clock = link->Renew(lease, StepEnd(0, end_us));
  if (!clock.ok()) return clock.status();
  answer.end_us = transport::NowUs() + lease_us;
  lease.since_us = clock.value().now_us;
  uint64_t bytes = 0;
  for (const OutgoingPiece* piece : pieces) {
    lease.blocks.push_back({piece->header.hash, piece->header.group, piece->header.rectangle});
    bytes += piece->payload.bytes;
  }
  const Result<LeaseReply> renewed = link->Renew(lease, StepEnd(0, end_us));
  if (!renewed.ok()) return renewed.status();
  std::vector<const OutgoingPiece*> missing;
  answer.made = true;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const LeaseReply::Block& block = renewed.value().blocks[i];
    answer.reads += block.reads;
    if (block.state == LeaseState::kGone) missing.push_back(pieces[i]);
    if (block.state == LeaseState::kOwn && !own_counts) answer.made = false;
  }
  if (missing.empty() || !answer.made || own_counts) {
    answer.made = answer.made && missing.empty();
    return answer;
  }
  const Result<std::vector<PutState>> put =
      link->Put(number.value(), missing, StepEnd(bytes, end_us), {lease.since_us, lease_us});
  if (!put.ok()) return put.status();
  for (size_t i = 0; i < missing.size(); ++i) {
    answer.made = answer.made && put.value()[i] == PutState::kStored;
    if (put.value()[i] == PutState::kStored) answer.put_bytes += missing[i]->payload.bytes;
  }
  return answer;
}

// True: it was.
bool Courier::DropIfClosed(const LinkName& name) {
  const auto link = links_.find(name);
  if (link == links_.end() || !link->second->closed()) return false;
  links_.erase(link);
  return true;
}

}  // namespace larder::node
