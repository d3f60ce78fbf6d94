#include "node/membership/dns_membership.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "node/membership/cluster_state.h"
#include "node/membership/peer_calls.h"
#include "transport/transport.h"

namespace larder::node {

namespace {

using transport::NowUs;

constexpr uint64_t kJoiningPaceUs = 250'000;
constexpr uint64_t kSilentUs = 10'000'000;   // a new node waits so long for addresses that say nothing
constexpr uint64_t kNamesakeUs = 7'000'000;  // another of this id may still be ending
constexpr uint64_t kAwayRounds = 8;          // members that are away are asked in each eighth round

uint64_t UnixMinutes() {
  using std::chrono::duration_cast;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto minutes = duration_cast<std::chrono::minutes>(now).count();
  return std::min(static_cast<uint64_t>(std::max<int64_t>(minutes, 1)), Roster::kFoundedMinutesMax);
}

// A quarter more or less, so that nodes that started together don't ask together.
uint64_t Jittered(uint64_t us) {
  thread_local std::minstd_rand random(std::random_device{}());
  return us * 3 / 4 + random() % (us / 2 + 1);
}

bool IsDenied(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAUTHENTICATED || code == grpc::StatusCode::PERMISSION_DENIED;
}

// Nobody is there, or nobody who answers now.
bool IsSilence(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED ||
         code == grpc::StatusCode::CANCELLED || code == grpc::StatusCode::RESOURCE_EXHAUSTED;
}

}  // namespace

Result<std::unique_ptr<DnsMembership>> DnsMembership::Open(const DnsMembershipOptions& options, Sink sink) {
  LARDER_RETURN_IF_ERROR(Resolver::Check(options.names));
  return std::unique_ptr<DnsMembership>(new DnsMembership(options, std::move(sink)));
}

DnsMembership::DnsMembership(const DnsMembershipOptions& options, Sink sink)
    : options_(options),
      sink_(std::move(sink)),
      resolver_(options.names),
      calls_(std::make_unique<PeerCalls>(options.token)),
      join_(Code::kUnavailable, "dns has not answered yet") {}

DnsMembership::~DnsMembership() {
  StopKeeper();
  resolver_.Stop();
  if (follower_.joinable()) follower_.join();
}

void DnsMembership::StopKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  calls_->Stop();
  if (keeper_.joinable()) keeper_.join();
  calls_->GoOn();
}

Status DnsMembership::Join(const NodeRecord& self, uint64_t budget_us) {
  std::unique_lock lock(mutex_);
  if (!keeper_.joinable()) {
    gossip_.emplace(
        GossipOptions{options_.cluster, options_.away_grace_us, options_.period_us, options_.probe_us}, self,
        options_.known);
    keeper_ = std::thread([this] { Keep(); });
    follower_ = std::thread([this] { Follow(); });
  }
  const auto refused = [this] { return join_.code() == Code::kInvalid || join_.code() == Code::kDenied; };
  changed_.wait_for(lock, std::chrono::microseconds(budget_us),
                    [&] { return epoch_published_ != 0 || refused(); });
  return epoch_published_ != 0 ? Status::Ok() : join_;
}

void DnsMembership::SetState(NodeState state) {
  {
    const std::lock_guard lock(mutex_);
    if (!gossip_ || gossip_->self().state == state) return;
    gossip_->SetState(state);
    urgent_ = true;
  }
  changed_.notify_all();
}

void DnsMembership::Leave() {
  StopKeeper();
  const std::lock_guard lock(mutex_);
  left_ = true;
}

Status DnsMembership::Resign() {
  StopKeeper();
  std::set<std::string> others;
  std::vector<Gossip::Request> requests;
  {
    const std::lock_guard lock(mutex_);
    if (!gossip_ || !gossip_->joined()) return Status::Ok();
    gossip_->Resign();
    requests = gossip_->Tell();
  }
  others = Targets();
  std::set<std::string> told;
  for (const Gossip::Request& request : requests) {
    for (const auto& answer : calls_->Ask(others, request, options_.probe_us)) {
      if (answer.status.ok()) told.insert(answer.address);
    }
  }
  const std::lock_guard lock(mutex_);
  left_ = true;
  if (!told.empty() || others.empty()) return Status::Ok();
  return {Code::kUnavailable,
          "no other node answers to be told that this one leaves; the place stays for "
          "the grace"};
}

MembershipStatus DnsMembership::status() const {
  const std::lock_guard lock(mutex_);
  MembershipStatus out;
  out.kind = "dns";
  out.connected = dns_answered_ && dns_.ok();
  out.error = !dns_answered_ && dns_.ok() ? "dns has not answered yet" : dns_.text();
  if (out.error.empty()) out.error = remark_;
  out.epoch = epoch_published_;
  if (!gossip_) return out;
  out.members = static_cast<uint32_t>(gossip_->roster().Table().nodes.size());
  out.live = gossip_->live();
  out.came_new = gossip_->came_new();
  return out;
}

Status DnsMembership::Answer(const Gossip::Request& request, Gossip::Response* response) {
  {
    const std::lock_guard lock(mutex_);
    if (!gossip_ || left_) return {Code::kUnavailable, "this node is starting or ending"};
    const uint64_t before = gossip_->roster().epoch();
    LARDER_RETURN_IF_ERROR(gossip_->Answer(request, NowUs(), response));
    if (gossip_->roster().epoch() == before) return Status::Ok();
    news_ = true;
  }
  changed_.notify_all();
  return Status::Ok();
}

void DnsMembership::Follow() {
  for (;;) {
    Result<Resolved> resolved = resolver_.Resolve();
    std::unique_lock lock(mutex_);
    dns_ = resolved.status();
    if (resolved.ok()) {
      dns_answered_ = true;
      addresses_ = std::move(resolved->addresses);
      if (addresses_.empty()) {
        dns_ = Status(Code::kNotFound,
                      "dns: " + options_.names.name + " has no addresses; those who are known stay");
      } else if (resolved->left_out != 0) {
        dns_ =
            Status(Code::kBusy, "dns: " + options_.names.name + " has " + std::to_string(resolved->left_out) +
                                    " addresses more than dns_addresses_max; raise it");
      }
    }
    const bool hurry = !gossip_->joined() || !resolved.ok();
    const uint64_t pause_us =
        Jittered(hurry ? std::min(options_.period_us, 4 * kJoiningPaceUs) : options_.period_us);
    if (changed_.wait_for(lock, std::chrono::microseconds(pause_us), [this] { return stopping_; })) return;
  }
}

bool DnsMembership::WaitForNews(uint64_t us) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::microseconds(us), [&] { return stopping_ || urgent_ || news_; });
  return !stopping_;
}

void DnsMembership::Keep() {
  begun_us_ = NowUs();
  for (;;) {
    Round();
    bool urgent = false, joined = false;
    {
      const std::lock_guard lock(mutex_);
      joined = gossip_->joined();
    }
    const uint64_t end_us =
        NowUs() + Jittered(joined ? options_.period_us : std::min(options_.period_us, kJoiningPaceUs));
    for (uint64_t now_us = NowUs(); !urgent && now_us < end_us; now_us = NowUs()) {
      if (!WaitForNews(end_us - now_us)) return;
      {
        const std::lock_guard lock(mutex_);
        urgent = urgent_;
        news_ = false;
      }
      Publish();
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    urgent_ = false;
  }
}

// DNS's addresses and those of the members, but not this node's own.
std::set<std::string> DnsMembership::Targets() {
  const std::lock_guard lock(mutex_);
  std::set<std::string> out(addresses_.begin(), addresses_.end());
  for (const auto& [id, fact] : gossip_->roster().facts()) {
    if (id == gossip_->self().id || fact.gone) continue;
    if (fact.away() && rounds_ % kAwayRounds != 0) continue;
    if (!fact.record.control_address.empty()) out.insert(fact.record.control_address);
  }
  out.erase(gossip_->self().control_address);
  return out;
}

void DnsMembership::Round() {
  ++rounds_;
  bool dns_answered = false;
  Gossip::Request question;
  {
    const std::lock_guard lock(mutex_);
    dns_answered = dns_answered_;
    question = gossip_->BeginRound();
  }
  const std::set<std::string> targets = Targets();
  calls_->KeepOnly(targets);
  const std::vector<PeerCalls::Answer> answers = calls_->Ask(targets, question, options_.probe_us);
  bool came_new = false;
  {
    std::unique_lock lock(mutex_);
    const uint64_t now_us = NowUs();
    silent_ = 0;
    remark_.clear();
    bool denied = false;
    for (const PeerCalls::Answer& answer : answers) {
      const grpc::StatusCode code = answer.status.error_code();
      if (answer.status.ok() && gossip_->TakeAnswer(answer.address, answer.response, now_us)) continue;
      if (!answer.status.ok() && IsSilence(code)) {
        ++silent_;
        continue;
      }
      const std::string why =
          answer.status.ok() ? "what it says makes no sense" : answer.status.error_message();
      if (remark_.empty() || IsDenied(code)) {
        remark_ = answer.address + " is no node of this cluster: " + why;
      }
      denied |= IsDenied(code);
    }
    DefendPlace(&lock);
    gossip_->EndRound(now_us);
    const bool was_in = gossip_->joined();
    if (!gossip_->joined() && denied) join_ = Status(Code::kDenied, "dns: " + remark_);
    if (!gossip_->joined() && !denied && (dns_answered || !options_.known.empty())) MayEnter();
    came_new = !was_in && gossip_->joined() && gossip_->came_new();
    if (const auto* elder = gossip_->Elder(now_us); elder != nullptr && gossip_->joined()) {
      remark_ = "another live node, at " + elder->address + ", is " + gossip_->self().id +
                "; give each node an id of its own";
    }
  }
  if (came_new && on_back_) on_back_(NodeTable(), true);
  Publish();
  TellBehind();
  changed_.notify_all();
}

// Others went on without this node. It is told before they hear that it is back; they may say so again
// meanwhile, which is the same to it.
void DnsMembership::DefendPlace(std::unique_lock<std::mutex>* lock) {
  if (!gossip_->SaidGone() || !on_back_) return;
  const NodeTable others = gossip_->roster().Table();
  lock->unlock();
  on_back_(others, true);
  lock->lock();
}

// A new node asks around first. As long as it knows of no cluster, those who say nothing yet may know one,
// and are waited for for a while.
void DnsMembership::MayEnter() {
  const uint64_t now_us = NowUs();
  if (const auto* elder = gossip_->Elder(now_us)) {
    if (now_us - elder->first_us < kNamesakeUs) return;
    join_ = Invalid("node_id: another live node, at " + elder->address + ", is " + gossip_->self().id +
                    "; give each node an id of its own");
    return;
  }
  if (silent_ != 0 && gossip_->roster().empty() && now_us - begun_us_ < kSilentUs) {
    join_ = Status(Code::kUnavailable, "dns: " + std::to_string(silent_) + " addresses do not answer yet");
    return;
  }
  gossip_->Enter(UnixMinutes());
}

// A round ends with all who answered knowing the same.
void DnsMembership::TellBehind() {
  std::set<std::string> behind;
  std::vector<Gossip::Request> requests;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const std::vector<std::string> addresses = gossip_->Behind();
    behind.insert(addresses.begin(), addresses.end());
    if (!behind.empty()) requests = gossip_->Tell();
  }
  for (const Gossip::Request& request : requests) (void)calls_->Ask(behind, request, options_.probe_us);
}

void DnsMembership::Publish() {
  NodeTable table;
  std::optional<Roster> roster;
  {
    const std::lock_guard lock(mutex_);
    // Not before this node is in it: its clients would be told of a cluster without it.
    if (!gossip_->joined() || gossip_->roster().epoch() <= epoch_published_) return;
    table = gossip_->roster().Table();
    if (options_.keep) roster = gossip_->roster();
  }
  if (roster) options_.keep(*roster);
  sink_(table);
  {
    const std::lock_guard lock(mutex_);
    epoch_published_ = table.epoch;
  }
  changed_.notify_all();
}

}  // namespace larder::node
