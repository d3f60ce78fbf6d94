#include "node/cluster_link.h"

#include <fstream>
#include <utility>

#include "node/membership/etcd_membership.h"
#include "node/node_record.h"

namespace larder::node {

namespace {
constexpr uint64_t kStepUs = 500'000;
constexpr uint64_t kKnownStepsMax = 10;  // with a table of the last life nobody waits longer for etcd
}  // namespace

Result<std::unique_ptr<ClusterLink>> ClusterLink::Open(const Config& config) {
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
  return link;
}

ClusterLink::~ClusterLink() = default;

Status ClusterLink::Prepare(NodeOptions* options) {
  if (folder_) {
    Result<std::string> id = folder_->NodeId(options->node_id, NewNodeId(*options));
    if (!id.ok()) return id.status();
    options->node_id = std::move(id).value();
  }
  if (config_.membership != "etcd") return Status::Ok();
  if (const auto kept = folder_ ? folder_->Table() : std::nullopt) {
    known_ = *kept;
    options->peers = kept->nodes;
    options->table_epoch = kept->epoch;
  }
  options->held = true;
  return Status::Ok();
}

Status ClusterLink::Join(Node* node, const std::function<bool()>& stop) {
  if (config_.membership != "etcd") return Status::Ok();
  node_ = node;
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
  membership_ = std::move(opened).value();
  const NodeRecord self = node->info().record;
  for (uint64_t step = 0;; ++step) {
    const Status joined = membership_->Join(self, kStepUs);
    const bool enough = !known_.nodes.empty() && step >= kKnownStepsMax;
    if (joined.code() == Code::kInvalid || joined.code() == Code::kDenied) return Invalid(joined.text());
    if (joined.ok() || enough) {
      node->Accept();
      return Status::Ok();
    }
    if (stop()) return {Code::kCancelled, "told to stop before the cluster answered: " + joined.text()};
  }
}

void ClusterLink::OnTable(const NodeTable& table) {
  // The first one is how the cluster looks with this node.
  const bool came_new = !std::exchange(followed_, true) && membership_->status().came_new;
  node_->SetTable(table, came_new);
  if (!folder_) return;
  const Status kept = folder_->Keep(table);
  const std::lock_guard lock(mutex_);
  keep_error_ = kept.text();
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
  if (!membership_) return std::nullopt;
  return membership_->status();
}

std::string ClusterLink::keep_error() const {
  const std::lock_guard lock(mutex_);
  return keep_error_;
}

}  // namespace larder::node
