#include "node/daemon/cluster_link.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "node/membership/dns_membership.h"
#include "node/membership/etcd_membership.h"
#include "node/membership/facts_wire.h"
#include "node/node_record.h"

namespace larder::node {

namespace {
constexpr uint64_t kStepUs = 500'000;
constexpr uint64_t kKnownStepsMax = 10;  // with a table of the last life nobody waits longer for etcd or DNS
constexpr uint64_t kHearRulesUs = 1'000'000;
}  // namespace

Result<std::unique_ptr<ClusterLink>> ClusterLink::Open(const Config& config,
                                                       const std::vector<Credential>& credentials) {
  auto link = std::unique_ptr<ClusterLink>(new ClusterLink(config));
  if (!config.state_dir.empty()) {
    Result<StateFolder> folder = StateFolder::Open(config.state_dir);
    if (!folder.ok()) return folder.status();
    link->folder_.emplace(std::move(folder).value());
  }
  if (!config.etcd_password_file.empty()) {
    std::ifstream file(config.etcd_password_file);
    if (!std::getline(file, link->password_) || link->password_.empty()) {
      return Invalid("etcd_password_file: cannot read a password from " + config.etcd_password_file +
                     "; its first line is taken");
    }
  }
  const auto own = std::find_if(credentials.begin(), credentials.end(),
                                [](const Credential& each) { return each.tenant.empty(); });
  if (own != credentials.end()) {
    link->token_ = own->token;
  } else if (config.membership == "dns" && !credentials.empty()) {
    return Invalid(
        "credentials: each is a tenant's, but with membership = dns nodes need one among themselves; add one "
        "without a tenant, the same on every node");
  }
  return link;
}

ClusterLink::~ClusterLink() = default;

Status ClusterLink::Prepare(NodeOptions* options) {
  if (folder_) {
    Result<std::string> id = folder_->NodeId(options->node_id, NewNodeId(*options));
    if (!id.ok()) return id.status();
    options->node_id = std::move(id).value();
  }
  if (config_.membership == "static") return Status::Ok();
  if (const auto kept = folder_ ? folder_->Table() : std::nullopt) {
    known_ = *kept;
    options->peers = kept->nodes;
    options->table_epoch = kept->epoch;
  }
  options->held = true;
  return Status::Ok();
}

Result<std::unique_ptr<Membership>> ClusterLink::OpenEtcd() {
  EtcdMembershipOptions options;
  options.etcd.endpoints = config_.etcd_endpoints;
  options.etcd.user = config_.etcd_user;
  options.etcd.password = password_;
  options.etcd.ca_path = config_.etcd_ca;
  options.etcd.certificate_path = config_.etcd_certificate;
  options.etcd.key_path = config_.etcd_key;
  options.cluster = config_.cluster;
  options.lease_us = config_.lease;
  options.away_grace_us = config_.away_grace;
  options.known = known_;
  auto opened = EtcdMembership::Open(options, [this](const NodeTable& table) { OnTable(table); });
  if (!opened.ok()) return opened.status();
  return std::unique_ptr<Membership>(std::move(opened).value());
}

Result<std::unique_ptr<Membership>> ClusterLink::OpenDns() {
  DnsMembershipOptions options;
  options.names.name = config_.dns_name;
  if (const Result<HostPort> split = ParseHostPort(config_.dns_name); split.ok()) {
    options.names.name = split->host;
    options.names.port = split->port;
  }
  options.names.servers = config_.dns_servers;
  options.names.addresses_max = config_.dns_addresses_max;
  options.period_us = config_.dns_period;
  options.probe_us = config_.dns_probe;
  options.cluster = config_.cluster;
  options.away_grace_us = config_.away_grace;
  options.token = token_;
  if (folder_) {
    // Damaged, or of another membership: as if there were none.
    (void)MergeRosterBytes(folder_->Facts(), &options.known);
    options.keep = [this](const Roster& roster) { NoteKept(folder_->KeepFacts(RosterBytes(roster))); };
  }
  // Clients may know the kept table, whoever gave it its epoch.
  if (known_.epoch > options.known.epoch() || (!known_.nodes.empty() && options.known.empty())) {
    (void)options.known.MergeFounded(known_.epoch / Roster::kEpochsAMinute + 1);
  }
  auto opened = DnsMembership::Open(options, [this](const NodeTable& table) { OnTable(table); });
  if (!opened.ok()) return opened.status();
  const std::lock_guard lock(mutex_);
  dns_ = opened.value().get();
  return std::unique_ptr<Membership>(std::move(opened).value());
}

Status ClusterLink::Join(Node* node, const std::function<bool()>& stop,
                         std::function<void(const HeardRules&)> on_heard) {
  if (config_.membership == "static") return Status::Ok();
  node_ = node;
  on_heard_ = std::move(on_heard);
  auto opened = config_.membership == "etcd" ? OpenEtcd() : OpenDns();
  if (!opened.ok()) return opened.status();
  {
    const std::lock_guard lock(mutex_);
    membership_ = std::move(opened).value();
  }
  membership_->SetOnBack([this](const NodeTable& others, bool placeless) { OnBack(others, placeless); });
  const NodeRecord self = node->info().record;
  for (uint64_t step = 0;; ++step) {
    const Status joined = membership_->Join(self, kStepUs);
    const bool enough = !known_.nodes.empty() && step >= kKnownStepsMax;
    if (joined.code() == Code::kInvalid || joined.code() == Code::kDenied) return Invalid(joined.text());
    if (joined.ok() || enough) {
      Hear(node->info().table, kHearRulesUs);
      node->Accept();
      accepted_ = true;
      return Status::Ok();
    }
    if (stop()) return {Code::kCancelled, "told to stop before the cluster answered: " + joined.text()};
  }
}

Membership* ClusterLink::membership() const {
  const std::lock_guard lock(mutex_);
  return membership_.get();
}

void ClusterLink::NoteKept(const Status& kept) {
  const std::lock_guard lock(mutex_);
  keep_error_ = kept.text();
}

void ClusterLink::OnTable(const NodeTable& table) {
  node_->SetTable(table);
  const Status kept = node_->kept();
  NoteKept(kept.ok() && folder_ ? folder_->Keep(table) : kept);
}

// While it was gone others were home to what this node holds, and things were ruled out.
void ClusterLink::OnBack(const NodeTable& others, bool placeless) {
  if (placeless) node_->LosePlaces();
  // At the start that comes before the first client. A lease goes on meanwhile.
  if (accepted_) Hear(others, std::min(kHearRulesUs, config_.lease / 3));
}

void ClusterLink::Hear(const NodeTable& table, uint64_t timeout_us) {
  on_heard_(HearRules(node_, table, token_, timeout_us));
}

void ClusterLink::Drain() {
  if (membership_) membership_->SetState(NodeState::kDraining);
}

void ClusterLink::Leave() {
  if (membership_) membership_->Leave();
}

Status ClusterLink::Resign() {
  return membership_ ? membership_->Resign() : Status::Ok();
}

std::optional<MembershipStatus> ClusterLink::status() const {
  const Membership* known = membership();
  if (known == nullptr) return std::nullopt;
  return known->status();
}

Status ClusterLink::AnswerExchange(const control::v1::ExchangeRequest& request,
                                   control::v1::ExchangeResponse* response) {
  if (config_.membership != "dns") return {Code::kUnsupported, "this node's membership is not dns"};
  DnsMembership* dns = nullptr;
  {
    const std::lock_guard lock(mutex_);
    dns = dns_;
  }
  if (dns == nullptr) return {Code::kUnavailable, "the node is starting"};
  return dns->Answer(request, response);
}

std::string ClusterLink::keep_error() const {
  const std::lock_guard lock(mutex_);
  return keep_error_;
}

}  // namespace larder::node
