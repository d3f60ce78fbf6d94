#include "node/membership/etcd_membership.h"

#include <algorithm>
#include <chrono>

#include "node/membership/etcd_client.h"
#include "transport/transport.h"

namespace larder::node {

namespace {

using transport::NowUs;

constexpr uint64_t kRetryUs = 500'000;
constexpr int kResignAttempts = 64;
constexpr uint64_t kFormerLifeUs = 7'000'000;

etcdserverpb::Compare* Expect(etcdserverpb::TxnRequest* request, const std::string& key,
                              etcdserverpb::Compare::Target target) {
  etcdserverpb::Compare* compare = request->add_compare();
  compare->set_key(key);
  compare->set_target(target);
  return compare;
}

void Put(etcdserverpb::TxnRequest* request, const std::string& key, const std::string& value, int64_t lease) {
  etcdserverpb::PutRequest* put = request->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
  put->set_lease(lease);
}

}  // namespace

Result<std::unique_ptr<EtcdMembership>> EtcdMembership::Open(const EtcdMembershipOptions& options,
                                                             Sink sink) {
  auto etcd = EtcdClient::Open(options.etcd);
  if (!etcd.ok()) return etcd.status();
  return std::unique_ptr<EtcdMembership>(
      new EtcdMembership(options, std::move(etcd).value(), std::move(sink)));
}

EtcdMembership::EtcdMembership(const EtcdMembershipOptions& options, std::unique_ptr<EtcdClient> etcd,
                               Sink sink)
    : options_(options),
      etcd_(std::move(etcd)),
      sink_(std::move(sink)),
      state_(options.cluster),
      known_(options.known) {}

EtcdMembership::~EtcdMembership() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  etcd_->Stop();
  for (std::thread* thread : {&keeper_, &follower_}) {
    if (thread->joinable()) thread->join();
  }
}

Status EtcdMembership::Join(const NodeRecord& self, uint64_t budget_us) {
  std::unique_lock lock(mutex_);
  if (!keeper_.joinable()) {
    self_ = self;
    keeper_ = std::thread([this] { Keep(); });
    follower_ = std::thread([this] { Follow(); });
  }
  // Until this node stands in a table that others have too.
  const auto done = [this] { return (joined_ && epoch_published_ != 0) || last_.code() == Code::kInvalid; };
  changed_.wait_for(lock, std::chrono::microseconds(budget_us), done);
  if (joined_ && epoch_published_ != 0) return Status::Ok();
  return last_.ok() ? Status(Code::kUnavailable, "etcd has not answered yet") : last_;
}

void EtcdMembership::SetState(NodeState state) {
  {
    const std::lock_guard lock(mutex_);
    if (self_.state == state) return;
    self_.state = state;
    state_set_ = true;
  }
  changed_.notify_all();
}

void EtcdMembership::StopKeeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (keeper_.joinable()) keeper_.join();
}

void EtcdMembership::Leave() {
  StopKeeper();
  if (lease_ != 0) (void)etcd_->RevokeLease(lease_);
  lease_ = 0;
}

Status EtcdMembership::Resign() {
  StopKeeper();  // or it would register this node anew
  const Status removed = RemoveSelf();
  Leave();
  return removed;
}

// Others may change the table at the same moment: as often as that, it is tried again.
Status EtcdMembership::RemoveSelf() {
  for (int attempt = 0; attempt < kResignAttempts; ++attempt) {
    ClusterState seen(options_.cluster);
    int64_t revision = 0;
    LARDER_RETURN_IF_ERROR(ReadAll(&seen, &revision));
    const ClusterState::Member* member = seen.Find(self_.id);
    if (member == nullptr || member->record.incarnation != self_.incarnation) return Status::Ok();
    etcdserverpb::TxnRequest request;
    const std::string key = seen.MemberKey(self_.id);
    Expect(&request, key, etcdserverpb::Compare::MOD)->set_mod_revision(member->mod_revision);
    request.add_success()->mutable_request_delete_range()->set_key(key);
    bool done = false;
    LARDER_RETURN_IF_ERROR(ChangeTable(seen, &request, &done));
    if (done) return Status::Ok();
  }
  return {Code::kBusy, "the table changed too often to leave it; the place stays for the grace"};
}

MembershipStatus EtcdMembership::status() const {
  const std::lock_guard lock(mutex_);
  MembershipStatus out;
  out.kind = "etcd";
  out.connected = connected_;
  out.error = connected_ ? "" : last_.text();
  out.epoch = epoch_published_;
  out.members = static_cast<uint32_t>(state_.members().size());
  out.live = state_.live();
  out.came_new = came_new_;
  return out;
}

void EtcdMembership::Note(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    connected_ = status.ok();
    last_ = status;
  }
  changed_.notify_all();
}

bool EtcdMembership::WaitFor(uint64_t us, bool for_state) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::microseconds(us),
                    [&] { return stopping_ || (for_state && state_set_); });
  return !stopping_;
}

void EtcdMembership::Keep() {
  const uint64_t pace_us = std::max<uint64_t>(options_.lease_us / 3, 200'000);
  do {
    const Status status = KeepOnce();
    Note(status);
    if (!WaitFor(status.ok() ? pace_us : kRetryUs, status.ok())) return;
  } while (true);
}

Status EtcdMembership::KeepOnce() {
  bool record_changed = false;
  {
    const std::lock_guard lock(mutex_);
    record_changed = state_set_ || !joined_;
    state_set_ = false;
  }
  Status kept = lease_ == 0 ? Status(Code::kNotFound, "") : etcd_->KeepAlive(lease_);
  if (kept.code() == Code::kNotFound) {
    lease_ = 0;
    Result<int64_t> lease =
        etcd_->GrantLease(static_cast<int64_t>((options_.lease_us + 999'999) / 1'000'000));
    if (!lease.ok()) return lease.status();
    lease_ = lease.value();
    kept = Register();
  } else if (kept.ok() && record_changed) {
    kept = Register();
  }
  if (!kept.ok()) {
    const std::lock_guard lock(mutex_);
    state_set_ |= record_changed && joined_;
    return kept;
  }
  std::vector<std::string> absent;
  {
    const std::lock_guard lock(mutex_);
    if (epoch_published_ != 0) absent = state_.Absent(NowUs(), options_.away_grace_us);
  }
  for (const std::string& id : absent) LARDER_RETURN_IF_ERROR(TakeOut(id));
  return Status::Ok();
}

Status EtcdMembership::ReadAll(ClusterState* state, int64_t* revision) {
  etcdserverpb::RangeRequest request;
  request.set_key(state->prefix());
  std::string end = state->prefix();
  ++end.back();
  request.set_range_end(end);
  etcdserverpb::RangeResponse response;
  LARDER_RETURN_IF_ERROR(etcd_->Range(request, &response));
  const uint64_t now_us = NowUs();
  state->BeginSync();
  for (const auto& kv : response.kvs()) state->Put(kv.key(), kv.value(), kv.mod_revision(), now_us);
  state->EndSync(now_us);
  *revision = response.header().revision();
  return Status::Ok();
}

Status EtcdMembership::ChangeTable(const ClusterState& seen, etcdserverpb::TxnRequest* request, bool* done) {
  uint64_t known = 0;
  {
    const std::lock_guard lock(mutex_);
    known = known_.epoch;
  }
  // 0 compares equal to a key that is not there.
  Expect(request, seen.EpochKey(), etcdserverpb::Compare::MOD)->set_mod_revision(seen.epoch_revision());
  Put(request, seen.EpochKey(), std::to_string(std::max(seen.epoch(), known) + 1), 0);
  etcdserverpb::TxnResponse response;
  LARDER_RETURN_IF_ERROR(etcd_->Txn(*request, &response));
  *done = response.succeeded();
  return Status::Ok();
}

// Says who we are. Two nodes that register at once raise the version in turns.
Status EtcdMembership::Register() {
  NodeRecord self;
  {
    const std::lock_guard lock(mutex_);
    self = self_;
  }
  const std::string mine = std::to_string(self.incarnation);
  // An own former life's lease, after a crash, ends within its time; after a restart of etcd that begins
  // anew.
  const uint64_t give_up_us = NowUs() + options_.lease_us + kFormerLifeUs;
  bool told_back = false, told_placeless = false;
  for (;;) {
    ClusterState seen(options_.cluster);
    int64_t revision = 0;
    LARDER_RETURN_IF_ERROR(ReadAll(&seen, &revision));
    const ClusterState::Member* member = seen.Find(self.id);
    const std::string holder = member == nullptr ? "" : member->live;
    if (!holder.empty() && holder != mine) {
      if (NowUs() > give_up_us) {
        return Invalid("node_id: another live node, at " + member->record.data_address + ", is " + self.id +
                       "; give each node an id of its own");
      }
      if (!WaitFor(200'000, false)) return {Code::kCancelled, "stopping"};
      continue;
    }
    // In an etcd that was set up anew nobody has one, whatever he had before.
    const bool placeless = member == nullptr ? seen.epoch_revision() != 0 : !InForce(member->record);
    bool back = false;
    {
      const std::lock_guard lock(mutex_);
      if (!joined_) came_new_ = placeless;
      back = joined_ && holder.empty();
    }
    if (on_back_ && ((back && !told_back) || (placeless && !told_placeless))) {
      on_back_(seen.Table(), placeless);
      told_back = true;
      told_placeless = placeless;
      continue;  // it took its time
    }
    if (seen.epoch_revision() == 0) {
      bool restored = false;
      LARDER_RETURN_IF_ERROR(Restore(seen, &restored));
      if (!restored) continue;
    }
    etcdserverpb::TxnRequest request;
    if (holder.empty()) {
      Expect(&request, seen.LiveKey(self.id), etcdserverpb::Compare::CREATE)->set_create_revision(0);
    } else {
      Expect(&request, seen.LiveKey(self.id), etcdserverpb::Compare::VALUE)->set_value(mine);
    }
    Put(&request, seen.LiveKey(self.id), mine, lease_);
    bool done = false;
    if (member != nullptr && member->record == self) {
      // Only the lease was lost: nothing in the table changes.
      etcdserverpb::TxnResponse response;
      LARDER_RETURN_IF_ERROR(etcd_->Txn(request, &response));
      done = response.succeeded();
    } else {
      Put(&request, seen.MemberKey(self.id), EncodeMember(self), 0);
      LARDER_RETURN_IF_ERROR(ChangeTable(seen, &request, &done));
    }
    if (!done) continue;
    const std::lock_guard lock(mutex_);
    joined_ = true;
    return Status::Ok();
  }
}

// etcd knows nothing of a cluster that this node has a table of: it was set up anew. The members get their
// places back before the first of them comes, else that one would be home to everything for a while. Whoever
// is overtaken in it looks again: the other gave no place back to itself, and may not have come yet.
Status EtcdMembership::Restore(const ClusterState& seen, bool* done) {
  NodeTable known;
  std::string self;
  {
    const std::lock_guard lock(mutex_);
    known = known_;
    self = self_.id;
  }
  constexpr int kOperationsMax = 100;  // etcd takes 128 in a transaction
  for (size_t at = 0; at < known.nodes.size();) {
    etcdserverpb::TxnRequest request;
    for (; at < known.nodes.size() && request.success_size() < kOperationsMax; ++at) {
      const NodeRecord& record = known.nodes[at];
      if (record.id == self || seen.Find(record.id) != nullptr) continue;
      Expect(&request, seen.MemberKey(record.id), etcdserverpb::Compare::CREATE)->set_create_revision(0);
      Put(&request, seen.MemberKey(record.id), EncodeMember(record), 0);
    }
    if (request.success_size() == 0) break;
    etcdserverpb::TxnResponse response;
    LARDER_RETURN_IF_ERROR(etcd_->Txn(request, &response));
    if (!response.succeeded()) return Status::Ok();
  }
  *done = true;
  return Status::Ok();
}

// Whoever notices first does it; for the others the comparison fails, which is as good.
Status EtcdMembership::TakeOut(const std::string& id) {
  ClusterState seen(options_.cluster);
  int64_t revision = 0;
  LARDER_RETURN_IF_ERROR(ReadAll(&seen, &revision));
  const ClusterState::Member* member = seen.Find(id);
  if (member == nullptr || !member->live.empty() || member->record.state == NodeState::kAway)
    return Status::Ok();
  NodeRecord record = member->record;
  record.state = NodeState::kAway;
  etcdserverpb::TxnRequest request;
  Expect(&request, seen.LiveKey(id), etcdserverpb::Compare::CREATE)->set_create_revision(0);
  Expect(&request, seen.MemberKey(id), etcdserverpb::Compare::MOD)->set_mod_revision(member->mod_revision);
  Put(&request, seen.MemberKey(id), EncodeMember(record), 0);
  bool done = false;
  return ChangeTable(seen, &request, &done);
}

void EtcdMembership::Follow() {
  int64_t revision = 0;
  bool whole = false;  // state_ is what etcd held at `revision`
  for (;;) {
    Status status;
    if (!whole) {
      ClusterState fresh(options_.cluster);
      status = ReadAll(&fresh, &revision);
      if (status.ok()) {
        const std::lock_guard lock(mutex_);
        state_ = std::move(fresh);
        whole = true;
      }
      if (whole) Publish();
    }
    if (whole) {
      status = etcd_->Watch(state_.prefix(), revision + 1, [&](const etcdserverpb::WatchResponse& response) {
        {
          const std::lock_guard lock(mutex_);
          const uint64_t now_us = NowUs();
          for (const auto& event : response.events()) {
            if (event.type() == etcdserverpb::Event::DELETE) {
              state_.Delete(event.kv().key(), now_us);
            } else {
              state_.Put(event.kv().key(), event.kv().value(), event.kv().mod_revision(), now_us);
            }
          }
        }
        revision = std::max(revision, response.header().revision());
        if (response.events_size() != 0) Publish();
      });
      // What was compacted is read anew, as is what etcd says after it was away: nobody was seen missing
      // meanwhile.
      whole = false;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::microseconds(status.ok() ? 0 : kRetryUs),
                      [this] { return stopping_; });
    if (stopping_) return;
  }
}

void EtcdMembership::Publish() {
  NodeTable table;
  {
    const std::lock_guard lock(mutex_);
    if (state_.epoch() <= epoch_published_) return;
    const ClusterState::Member* self = state_.Find(self_.id);
    // Not before this node is in it: its clients would be told of a cluster without it.
    if (self == nullptr || self->record.incarnation != self_.incarnation) return;
    table = state_.Table();
  }
  sink_(table);
  {
    const std::lock_guard lock(mutex_);
    epoch_published_ = table.epoch;
    known_ = std::move(table);
  }
  changed_.notify_all();
}

}  // namespace larder::node
