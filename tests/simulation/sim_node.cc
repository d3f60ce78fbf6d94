#include "tests/simulation/sim_node.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "proto/checksum.h"

namespace larder::simulation {

namespace {
constexpr uint64_t kOwnerDelayMaxUs = 20;
constexpr uint64_t kDiskPollMaxUs = 200;
constexpr size_t kMailboxMax = 4096;
constexpr node::SessionId kLocalSession = UINT64_MAX;
constexpr uint64_t kUnixMsAtStart = 1'700'000'000'000;
}  // namespace

HeapSlabs::~HeapSlabs() {
  for (const auto& [base, bytes] : live_) std::free(base);
}

std::byte* HeapSlabs::Make(uint64_t bytes) {
  const uint64_t rounded = (bytes + 4095) / 4096 * 4096;
  void* base = std::aligned_alloc(4096, rounded);
  if (base == nullptr) return nullptr;
  std::memset(base, 0, rounded);
  live_.emplace(static_cast<std::byte*>(base), rounded);
  bytes_ += rounded;
  return static_cast<std::byte*>(base);
}

void HeapSlabs::Retire(std::byte* base, uint64_t) {
  retired_.push_back(base);
}

std::vector<std::byte*> HeapSlabs::TakeRetired() {
  return std::exchange(retired_, {});
}

void HeapSlabs::Free(std::byte* base) {
  const auto found = live_.find(base);
  LARDER_CHECK(found != live_.end());
  bytes_ -= found->second;
  live_.erase(found);
  std::free(base);
}

SimNode::SimNode(transport::loopback::Network* network, const SimNodeOptions& options, uint64_t seed,
                 uint64_t incarnation)
    : network_(network), options_(options), random_(seed), self_(std::make_shared<SimNode*>(this)) {
  node::OwnerOptions owner = options.owner;
  owner.seed = random_();
  std::unique_ptr<node::ssd::SsdTier> ssd;
  if (options.media != nullptr) {
    auto disk =
        std::make_unique<testing::SimDisk>(options.media, random_(), options.ssd_sync, options.disk_faults);
    disk_ = disk.get();
    std::vector<std::unique_ptr<node::ssd::Disk>> disks;
    disks.push_back(std::move(disk));
    ssd = std::make_unique<node::ssd::SsdTier>(
        node::ssd::TierOptions{.append_bytes = 256 << 10, .seed = random_()}, std::move(disks));
  }
  owner_ = std::make_unique<node::Owner>(owner, &slabs_, this, std::move(ssd));
  shared_->owner = this;
  shared_->node_id = options.name;
  shared_->incarnation = incarnation;
  if (owner.near_share_percent != 0) shared_->features |= kFeatureNear;
  shared_->requests_max = options.requests_max;
  shared_->waits_max = owner.waits_per_session_max;
  transport_ = network->MakeTransport(options.name);
  std::string bound;
  const transport::Error error = transport_->Listen(options.name + ":7400", this, &bound);
  LARDER_CHECK(error.ok());
  if (disk_ != nullptr) PollDisk();
}

SimNode::~SimNode() {
  transport_->Shutdown();  // sessions say Closed while everything is still there
  Die();
}

void SimNode::Die() {
  if (self_ != nullptr) *self_ = nullptr;
  self_.reset();
  if (disk_ != nullptr) disk_->Die(&random_);
  disk_ = nullptr;
  peers_.clear();
  mailbox_.clear();
}

void SimNode::HealDisk() {
  if (disk_ != nullptr) disk_->faults = {};
}

// What the disk has done since the last time, at times drawn from the seed.
void SimNode::PollDisk() {
  const uint64_t now_us = network_->now_us();
  owner_->OnDisk(now_us, kUnixMsAtStart + now_us / 1000);
  ArmTimer();
  network_->At(now_us + 50 + random_() % kDiskPollMaxUs, [self = self_] {
    if (*self != nullptr) (*self)->PollDisk();
  });
}

Bytes SimNode::EncodedTable() {
  Bytes out;
  EncodeTable(options_.table, &out);
  return out;
}

std::shared_ptr<transport::Handler> SimNode::OnAccept(
    const std::shared_ptr<transport::Connection>& connection) {
  const node::SessionId id = next_session_++;
  auto session = std::make_shared<node::ClientSession>(id, connection, shared_);
  peers_[id] = {session, connection};
  return session;
}

bool SimNode::Post(node::SessionId session, node::Event&& event) {
  if (std::holds_alternative<node::Request>(event) && mailbox_.size() >= kMailboxMax) return false;
  mailbox_.push_back({session, std::move(event)});
  mailbox_peak_ = std::max(mailbox_peak_, mailbox_.size());
  WakeOwner();
  return true;
}

std::vector<node::Action> SimNode::HandleLocal(node::Event&& event) {
  const uint64_t now_us = network_->now_us();
  owner_->Handle(kLocalSession, std::move(event), now_us, kUnixMsAtStart + now_us / 1000);
  WakeOwner();
  return std::exchange(local_, {});
}

void SimNode::WakeOwner() {
  if (owner_awake_) return;
  owner_awake_ = true;
  network_->At(network_->now_us() + random_() % (kOwnerDelayMaxUs + 1), [self = self_] {
    if (*self != nullptr) (*self)->RunOwner();
  });
}

void SimNode::RunOwner() {
  owner_awake_ = false;
  const uint64_t now_us = network_->now_us();
  const uint64_t unix_ms = kUnixMsAtStart + now_us / 1000;
  if (owner_->NextTimerUs() <= now_us) owner_->OnTimer(now_us);
  std::deque<Item> items = std::exchange(mailbox_, {});
  for (Item& item : items) {
    const bool closed = std::holds_alternative<node::Closed>(item.event);
    owner_->Handle(item.session, std::move(item.event), now_us, unix_ms);
    if (closed) peers_.erase(item.session);
  }
  for (std::byte* base : slabs_.TakeRetired()) {
    slabs_.Free(base);
    owner_->SlabGone(base);
  }
  ArmTimer();
}

void SimNode::ArmTimer() {
  const uint64_t next_us = owner_->NextTimerUs();
  if (next_us == UINT64_MAX || next_us >= timer_us_) return;
  timer_us_ = next_us;
  network_->At(next_us, [self = self_, next_us] {
    if (*self == nullptr) return;
    SimNode* node = *self;
    if (node->timer_us_ == next_us) node->timer_us_ = UINT64_MAX;
    node->RunOwner();
  });
}

void SimNode::Deliver(node::SessionId session, node::Action&& action) {
  if (const auto* verify = std::get_if<node::Verify>(&action)) {
    CheckBlock(session, *verify);
    return;
  }
  if (session == kLocalSession) {
    local_.push_back(std::move(action));
    return;
  }
  const auto found = peers_.find(session);
  if (found == peers_.end()) return;
  auto shared_action = std::make_shared<node::Action>(std::move(action));
  found->second.connection->Run(
      [to = found->second.session, shared_action] { to->Deliver(std::move(*shared_action)); });
}

// The background thread of a real node, at once: parts are checked and the answer is posted.
void SimNode::CheckBlock(node::SessionId session, const node::Verify& verify) {
  const std::byte* at = verify.payload.data;
  bool good = true;
  for (const PartRecord& part : verify.parts) {
    good = good && Crc32c(0, {at, part.bytes}) == part.crc32c;
    at += part.bytes;
  }
  Post(session, node::Verified{verify.token, good});
}

std::string SimNode::Check() const {
  if (mailbox_peak_ > 4 * kMailboxMax) return "mailbox beyond its bound";
  if (slabs_.bytes() > options_.owner.memory_bytes + (64 << 10)) return "memory beyond its bound";
  return owner_->CheckInvariants();
}

}  // namespace larder::simulation
