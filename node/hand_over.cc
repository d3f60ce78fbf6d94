#include "node/hand_over.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace larder::node {

namespace {

constexpr uint64_t kStepUs = 5'000'000;                  // for one parcel, and
constexpr uint64_t kSlowestBytesPerSecond = 10'000'000;  // what its bytes take at such a pace
constexpr uint64_t kRoundPauseUs = 500'000;
constexpr uint64_t kRetryPauseMaxUs = 16'000'000;
constexpr uint64_t kPagesPerSecond = 4;  // at least, so that the rate is even
constexpr uint64_t kForwardPollUs = 5'000;
constexpr size_t kLinksMax = 64;

bool Takes(const NodeRecord& node, const std::string& self) {
  return node.id != self && node.state == NodeState::kActive && node.weight > 0;
}

}  // namespace

bool HasHeir(const NodeInfo& info) {
  return std::any_of(info.table.nodes.begin(), info.table.nodes.end(),
                     [&](const NodeRecord& node) { return Takes(node, info.record.id); });
}

HandOver::HandOver(Node* node, const HandOverOptions& options)
    : node_(node), options_(options), thread_([this] { Give(); }) {}

HandOver::~HandOver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void HandOver::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return given_; });
}

bool HandOver::Late() {
  const std::lock_guard lock(mutex_);
  return stop_ || transport::NowUs() >= end_us_;
}

uint64_t HandOver::StepEnd(uint64_t bytes) const {
  const uint64_t step_us = kStepUs + bytes * 1'000'000 / kSlowestBytesPerSecond;
  return std::min(end_us_, transport::NowUs() + step_us);
}

// Waits, at most until it is late, and forwards meanwhile.
void HandOver::Pause(uint64_t until_us) {
  do {
    ForwardAll();
    std::unique_lock lock(mutex_);
    const uint64_t now_us = transport::NowUs(), wake_us = std::min(until_us, end_us_);
    const uint64_t pause_us = std::min(kForwardPollUs, wake_us > now_us ? wake_us - now_us : 0);
    changed_.wait_for(lock, std::chrono::microseconds(pause_us), [this] { return stop_; });
  } while (!Late() && transport::NowUs() < until_us);
}

// Follows the table; false: nobody is left to give to.
bool HandOver::Place() {
  const NodeInfo info = node_->info();
  if (epoch_ == info.table.epoch) return !heirs_.nodes.empty();
  epoch_ = info.table.epoch;
  heirs_ = info.table;
  std::erase_if(heirs_.nodes, [&](const NodeRecord& node) { return !Takes(node, info.record.id); });
  placement_ = Placement(heirs_, 1);
  return !heirs_.nodes.empty();
}

void HandOver::Give() {
  progress_.begun = true;
  end_us_ = transport::NowUs() + options_.budget_us;
  progress_.reason = GiveAll();
  progress_.ended = true;
  node_->SetHandOver(progress_);
  {
    const std::lock_guard lock(mutex_);
    given_ = true;
    changed_.notify_all();
  }
  end_us_ = UINT64_MAX;  // from now on only what is removed goes on
  Pause(UINT64_MAX);
  links_.clear();
  transport_.reset();
}

// Why it ended before all was handed over; empty: it was.
std::string HandOver::GiveAll() {
  transport::TransportOptions tcp;
  tcp.threads = 1;
  tcp.limits.header_bytes_max = kMessageBytesMax;
  transport::Error error;
  transport_ = transport::MakeTransport("tcp", tcp, &error);
  if (transport_ == nullptr) return error.text;
  node_->BeginHandOver();
  Result<std::vector<WarmPiece>> listed = node_->ListWarm();
  if (!listed.ok()) return listed.status().text();
  std::vector<WarmPiece> list = std::move(listed).value();
  progress_.blocks = list.size();
  for (const WarmPiece& piece : list) progress_.bytes += piece.payload_bytes;
  node_->SetHandOver(progress_);
  uint64_t fruit_us = transport::NowUs();  // when somebody took something last
  while (!list.empty() && !Late()) {
    if (!Place()) return "no other node in the table takes blocks";
    const uint64_t handed = progress_.handed_blocks;
    list = OneRound(list);
    const uint64_t now_us = transport::NowUs();
    if (progress_.handed_blocks != handed) fruit_us = now_us;
    if (list.empty() || now_us >= fruit_us + options_.patience_us) break;
    Pause(now_us + kRoundPauseUs);
  }
  if (list.empty()) return progress_.stays_blocks == 0 ? "" : "some blocks stay: " + last_why_;
  if (Late()) return "the budget was over" + (last_why_.empty() ? "" : "; " + last_why_);
  return "the others take no more: " + last_why_;
}

// Returns what is to be tried again, or was not come to.
std::vector<WarmPiece> HandOver::OneRound(std::span<const WarmPiece> list) {
  PageLimits limits;
  if (options_.bytes_per_second != 0) {
    limits.payload_bytes = std::min(limits.payload_bytes, options_.bytes_per_second / kPagesPerSecond);
  }
  std::vector<WarmPiece> again;
  while (!list.empty() && !Late() && Place()) {
    Result<OutgoingPage> page = node_->TakeOut(list, limits);
    if (!page.ok()) break;
    list = list.subspan(page.value().looked);
    progress_.gone_blocks += page.value().left;
    const uint64_t before = progress_.handed_bytes;
    paced_us_ = std::max(paced_us_, transport::NowUs());
    HandPage(page.value(), &again);
    node_->SetHandOver(progress_);
    ForwardAll();
    if (options_.bytes_per_second == 0) continue;
    paced_us_ += (progress_.handed_bytes - before) * 1'000'000 / options_.bytes_per_second;
    Pause(paced_us_);
  }
  again.insert(again.end(), list.begin(), list.end());
  return again;
}

void HandOver::HandPage(const OutgoingPage& page, std::vector<WarmPiece>* again) {
  std::map<Parcel, std::vector<const OutgoingPiece*>> parcels;
  for (const OutgoingPiece& piece : page.pieces) {
    const uint16_t heir = placement_.Order(piece.header.hash)[0];
    parcels[{&heirs_.nodes[heir], piece.header.writer, piece.header.name_space}].push_back(&piece);
  }
  for (const auto& [parcel, pieces] : parcels) {
    std::vector<PutState> states(pieces.size(), PutState::kBusy);
    HandParcel(parcel, pieces, &states);
    std::vector<uint32_t> entries;
    for (const OutgoingPiece* piece : pieces) entries.push_back(piece->piece.entry);
    const std::vector<bool> left = node_->LetGo(entries);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool taken = IsThere(states[i]);
      if (left[i] || states[i] == PutState::kCleared) {
        ++progress_.gone_blocks;
      } else if (taken) {
        ++progress_.handed_blocks;
        progress_.handed_bytes += pieces[i]->payload.bytes;
      } else if (states[i] == PutState::kInvalid || states[i] == PutState::kCorrupt ||
                 states[i] == PutState::kOverQuota) {
        ++progress_.stays_blocks;
      } else {
        again->push_back(pieces[i]->piece);
      }
    }
  }
}

// Leaves the states as they are (busy: to be tried again) when the node can't be asked.
void HandOver::HandParcel(const Parcel& parcel, const std::vector<const OutgoingPiece*>& pieces,
                          std::vector<PutState>* states) {
  const std::string& id = parcel.heir->id;
  if (TokenOf(options_.credentials, parcel.writer) == nullptr) {
    last_why_ = "the credential of the writer " + ToHex(parcel.writer) + " is not among this node's";
    states->assign(pieces.size(), PutState::kInvalid);
    return;
  }
  if (Late()) return;
  uint64_t bytes = 0;
  for (const OutgoingPiece* piece : pieces) bytes += piece->payload.bytes;
  const auto put = [&]() -> Result<std::vector<PutState>> {
    Result<PeerLink*> link = LinkTo(*parcel.heir, parcel.writer);
    if (!link.ok()) return link.status();
    const Result<Open> open = node_->OpeningOf(parcel.name_space);
    if (!open.ok()) return open.status();
    const Result<uint32_t> number = link.value()->Open(parcel.name_space, open.value(), StepEnd(0));
    if (!number.ok()) return number.status();
    receivers_[parcel.name_space].emplace(id, parcel.writer);  // from here on it may have some
    return link.value()->Put(number.value(), pieces, StepEnd(bytes));
  };
  Result<std::vector<PutState>> done = put();
  if (done.ok()) {
    *states = std::move(done).value();
    for (const PutState state : *states) {
      if (!IsThere(state)) last_why_ = id + ": " + std::string(PutStateName(state));
    }
    return;
  }
  last_why_ = id + ": " + done.status().text();
  // One that hangs must not cost the others' time at every page.
  links_.erase({id, parcel.writer});
  NoteUnreachable({id, parcel.writer}, done.status());
}

void HandOver::NoteUnreachable(const LinkName& name, const Status& why) {
  Unreachable& unreachable = unreachable_[name];
  if (transport::NowUs() < unreachable.retry_us) return;  // that is what it was told
  unreachable.pause_us = std::clamp(2 * unreachable.pause_us, kRoundPauseUs, kRetryPauseMaxUs);
  unreachable.why = why;
  unreachable.retry_us = transport::NowUs() + unreachable.pause_us;
}

Result<PeerLink*> HandOver::LinkTo(const NodeRecord& heir, const Digest& writer) {
  const auto known = links_.find({heir.id, writer});
  if (known != links_.end()) return known->second.get();
  const auto failed = unreachable_.find({heir.id, writer});
  if (failed != unreachable_.end() && transport::NowUs() < failed->second.retry_us) return failed->second.why;
  if (links_.size() >= kLinksMax) links_.clear();
  Result<std::unique_ptr<PeerLink>> link =
      PeerLink::Connect(transport_.get(), heir, *TokenOf(options_.credentials, writer),
                        "leaving: " + node_->info().record.id, StepEnd(0));
  if (!link.ok()) {
    NoteUnreachable({heir.id, writer}, link.status());
    return link.status();
  }
  return (links_[{heir.id, writer}] = std::move(link).value()).get();
}

void HandOver::ForwardAll() {
  for (auto next = node_->NextForward(); next && Carry(*next); next = node_->NextForward()) {
    node_->Forwarded(next->token);
  }
}

// False: a node that may have got blocks of it could not be asked; its asker hears nothing until it can.
bool HandOver::Carry(const Forward& forward) {
  const auto receivers = receivers_.find(forward.name_space);
  if (receivers == receivers_.end()) return true;
  if (carrying_ != forward.token) carried_to_.clear();
  carrying_ = forward.token;
  const NodeTable table = node_->info().table;
  bool carried = true;
  for (const auto& [id, writer] : receivers->second) {
    if (carried_to_.count(id) != 0) continue;
    if (Late()) return false;
    const auto heir = std::find_if(table.nodes.begin(), table.nodes.end(),
                                   [&](const NodeRecord& node) { return node.id == id; });
    if (heir == table.nodes.end()) continue;  // it has left, and has carried on what it heard
    const Result<PeerLink*> link = LinkTo(*heir, writer);
    const Result<Open> open = node_->OpeningOf(forward.name_space);
    Status status = !link.ok() ? link.status() : open.status();
    if (status.ok()) {
      const Result<uint32_t> number = link.value()->Open(forward.name_space, open.value(), StepEnd(0));
      status = number.ok() ? link.value()->Carry(number.value(), forward, StepEnd(0)) : number.status();
      DropIfClosed(id, writer);
    }
    if (status.ok()) carried_to_.insert(id);
    carried = carried && status.ok();
  }
  return carried;
}

void HandOver::DropIfClosed(const std::string& id, const Digest& writer) {
  const auto link = links_.find({id, writer});
  if (link != links_.end() && link->second->closed()) links_.erase(link);
}

}  // namespace larder::node
