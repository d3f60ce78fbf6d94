#include "node/membership/gossip.h"

#include <algorithm>

#include "node/membership/absence.h"
#include "node/membership/cluster_state.h"
#include "node/membership/facts_wire.h"

namespace larder::node {

namespace {
namespace api = larder::control::v1;
}  // namespace

Gossip::Gossip(GossipOptions options, NodeRecord self, Roster known)
    : options_(std::move(options)), self_(std::move(self)), roster_(std::move(known)) {}

const std::string& Gossip::DigestText() const {
  if (digest_.empty()) {
    const Digest digest = roster_.digest();
    digest_.assign(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  return digest_;
}

void Gossip::FillSelf(api::Speaker* speaker) const {
  speaker->set_id(self_.id);
  speaker->set_incarnation(self_.incarnation);
  speaker->set_data_address(self_.data_address);
  speaker->set_joined(joined_);
}

void Gossip::Hear(const api::Speaker& speaker, uint64_t now_us) {
  if (speaker.id() != self_.id) {
    if (roster_.Find(speaker.id()) != nullptr) others_[speaker.id()].heard_us = now_us;
    return;
  }
  if (speaker.incarnation() == self_.incarnation) return;  // by another of its own addresses
  const bool same = namesake_ && namesake_->incarnation == speaker.incarnation() &&
                    now_us - namesake_->last_us <= FreshUs();
  namesake_ = Namesake{speaker.incarnation(), speaker.data_address(), speaker.joined(),
                       same ? namesake_->first_us : now_us, now_us};
}

const Gossip::Namesake* Gossip::Elder(uint64_t now_us) const {
  if (!namesake_ || now_us - namesake_->last_us > FreshUs()) return nullptr;
  const bool elder =
      namesake_->joined != joined_ ? namesake_->joined : namesake_->incarnation < self_.incarnation;
  return elder ? &*namesake_ : nullptr;
}

Status Gossip::Answer(const Request& request, uint64_t now_us, Response* response) {
  if (request.cluster() != options_.cluster) {
    return {Code::kUnsupported, "this node is of the cluster " + options_.cluster};
  }
  if (request.missing_size() > static_cast<int>(kNodesMax)) return Invalid("too many are missing");
  if (request.has_facts()) {
    bool news = false;
    LARDER_RETURN_IF_ERROR(MergeFacts(request.facts(), &roster_, &news));
    if (news) digest_.clear();
  }
  Hear(request.caller(), now_us);
  FillSelf(response->mutable_self());
  response->set_digest(DigestText());
  if (!request.has_facts() && request.digest() != DigestText()) {
    *response->mutable_facts() = FactsMessages(roster_, kNodesMax)[0];
  }
  for (const std::string& id : request.missing()) {
    const auto found = others_.find(id);
    const bool heard =
        found != others_.end() && found->second.heard_us != 0 && now_us - found->second.heard_us <= FreshUs();
    if (heard || id == self_.id) response->add_heard(id);
  }
  return Status::Ok();
}

Gossip::Request Gossip::BeginRound() {
  answered_.clear();
  Request request;
  request.set_cluster(options_.cluster);
  FillSelf(request.mutable_caller());
  request.set_digest(DigestText());
  for (const auto& [id, other] : others_) {
    if (!other.direct) request.add_missing(id);
  }
  return request;
}

bool Gossip::TakeAnswer(const std::string& address, const Response& response, uint64_t now_us) {
  if (response.has_facts()) {
    bool news = false;
    if (!MergeFacts(response.facts(), &roster_, &news).ok()) return false;
    if (news) digest_.clear();
  }
  Hear(response.self(), now_us);
  const bool own = response.self().id() == self_.id && response.self().incarnation() == self_.incarnation;
  if (!own) answered_.push_back({address, response.digest()});
  for (const std::string& id : response.heard()) vouched_.insert(id);
  return true;
}

void Gossip::EndRound(uint64_t now_us) {
  // A node that slept, or was stopped, has not looked.
  const uint64_t looked_us = round_us_ == 0 ? 0 : std::min(now_us - round_us_, FreshUs());
  std::map<std::string, Other> others;
  for (const auto& [id, fact] : roster_.facts()) {
    if (id == self_.id || fact.gone || !InForce(fact.record)) continue;
    Other other = others_.count(id) == 0 ? Other{} : others_[id];
    other.direct = other.heard_us != 0 && other.heard_us >= round_us_;
    other.live = other.direct || vouched_.count(id) != 0;
    other.missing_us = other.live ? 0 : other.missing_us + looked_us;
    others.emplace(id, other);
  }
  others_ = std::move(others);
  vouched_.clear();
  round_us_ = now_us;
  if (joined_ && !resigned_) MarkAbsent();
  if (Elder(now_us) == nullptr) Defend();
}

void Gossip::MarkAbsent() {
  std::vector<Standing> standing = {{self_.id, true, 0}};
  for (const auto& [id, other] : others_) standing.push_back({id, other.live, other.missing_us});
  for (const std::string& id : BeyondGrace(standing, options_.away_grace_us)) {
    Fact fact = *roster_.Find(id);
    fact.record.state = NodeState::kAway;
    if (roster_.Merge(fact)) digest_.clear();
    others_.erase(id);
  }
}

std::vector<std::string> Gossip::Behind() const {
  std::vector<std::string> out;
  for (const Answered& each : answered_) {
    if (each.digest != DigestText()) out.push_back(each.address);
  }
  return out;
}

std::vector<Gossip::Request> Gossip::Tell() const {
  std::vector<Request> out;
  for (api::Facts& facts : FactsMessages(roster_, kFactsAMessage)) {
    Request& request = out.emplace_back();
    request.set_cluster(options_.cluster);
    FillSelf(request.mutable_caller());
    request.set_digest(DigestText());
    *request.mutable_facts() = std::move(facts);
  }
  return out;
}

void Gossip::Enter(uint64_t unix_minutes) {
  if (joined_) return;
  const Fact* known = roster_.Find(self_.id);
  const bool placeless = known == nullptr ? !roster_.empty() : known->gone || !InForce(known->record);
  came_new_ = placeless;
  if (roster_.founded_minutes() == 0) roster_.MergeFounded(unix_minutes);
  joined_ = true;
  State();
}

// Says anew what this node is, above all that anybody said of it.
void Gossip::State() {
  const Fact* known = roster_.Find(self_.id);
  const uint64_t before = std::max(version_, known == nullptr ? 0 : known->version);
  version_ = std::min(before + 1, Roster::kVersionMax);
  Fact fact;
  if (resigned_) {
    fact.record.id = self_.id;
    fact.gone = true;
  } else {
    fact.record = self_;
  }
  fact.version = version_;
  if (roster_.Merge(fact)) digest_.clear();
}

void Gossip::Defend() {
  if (!joined_ || resigned_) return;
  const Fact* known = roster_.Find(self_.id);
  if (known == nullptr || known->version != version_ || known->gone || known->record != self_) State();
}

bool Gossip::SaidGone() const {
  const Fact* known = roster_.Find(self_.id);
  return joined_ && !resigned_ && known != nullptr && (known->gone || !InForce(known->record));
}

void Gossip::SetState(NodeState state) {
  if (self_.state == state) return;
  self_.state = state;
  if (joined_ && !resigned_) State();
}

void Gossip::Resign() {
  if (!joined_ || resigned_) return;
  resigned_ = true;
  State();
}

uint32_t Gossip::live() const {
  const auto count =
      std::count_if(others_.begin(), others_.end(), [](const auto& entry) { return entry.second.live; });
  return static_cast<uint32_t>(count) + (joined_ ? 1 : 0);
}

}  // namespace larder::node
