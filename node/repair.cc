#include "node/repair.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <utility>

namespace larder::node {

namespace {
constexpr uint64_t kLookUs = 200'000;  // for a newer table
constexpr uint64_t kRoundPauseMinUs = 500'000;
constexpr uint64_t kRoundPauseMaxUs = 16'000'000;
constexpr uint64_t kForwardPollUs = 5'000;
constexpr uint64_t kPagesPerSecond = 4;  // at least, so that the rate is even
}  // namespace

Repair::Repair(Node* node, const RepairOptions& options)
    : node_(node), options_(options), thread_([this] { Follow(); }) {}

Repair::~Repair() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

// Also when this restoring is of a table that is no longer in force.
bool Repair::Outdated() {
  const std::lock_guard lock(mutex_);
  return stop_ || node_->table_epoch() != epoch_;
}

void Repair::Forward() {
  if (courier_ == nullptr) return;
  courier_->ForwardAll([this] { return Outdated(); }, UINT64_MAX);
}

void Repair::Pause(uint64_t us) {
  const uint64_t end_us = transport::NowUs() + us;
  do {
    Forward();
    std::unique_lock lock(mutex_);
    const uint64_t now_us = transport::NowUs();
    const uint64_t left_us = end_us > now_us ? end_us - now_us : 0;
    const uint64_t step_us = courier_ != nullptr ? std::min(kForwardPollUs, left_us) : left_us;
    changed_.wait_for(lock, std::chrono::microseconds(step_us), [this] { return stop_; });
    if (stop_) return;
  } while (transport::NowUs() < end_us && node_->table_epoch() == epoch_);
}

void Repair::Follow() {
  NodeTable table = node_->info().table;
  epoch_ = table.epoch;
  known_ = ReplicaPlaces(table);
  for (bool restored = true;;) {
    {
      std::unique_lock lock(mutex_);
      const auto wait = std::chrono::microseconds(restored ? kLookUs : 0);
      if (changed_.wait_for(lock, wait, [this] { return stop_; })) return;
    }
    if (restored && node_->table_epoch() == epoch_) continue;
    table = node_->info().table;
    epoch_ = table.epoch;
    now_ = ReplicaPlaces(table);
    restored = Restore();
    if (restored) known_ = now_;
  }
}

// False: another table is in force, or it is told to stop.
bool Repair::Restore() {
  SlotSets slots;
  std::vector<WarmPiece> list;
  if (GainedSlots(known_, now_, &slots)) {
    Result<std::vector<WarmPiece>> listed = node_->ListWarm(&slots);
    if (!listed.ok()) return true;  // the node has stopped
    list = std::move(listed).value();
  }
  if (!list.empty()) {
    if (courier_ == nullptr) {
      courier_ = std::make_unique<Courier>(node_, options_.credentials,
                                           "restores: " + node_->info().record.id, kFeatureRestores);
      if (!courier_->Start().ok()) return true;
    }
    node_->BeginHandOver(true);
  }
  uint64_t pause_us = kRoundPauseMinUs;
  for (bool all = false; !list.empty() && !Outdated(); all = true) {
    const size_t before = list.size();
    list = OneRound(list, all);
    if (list.empty()) break;
    pause_us = list.size() != before ? kRoundPauseMinUs : std::min(2 * pause_us, kRoundPauseMaxUs);
    Pause(pause_us);
  }
  const bool done = list.empty();
  // The next table's restoring goes on with the same courier: it knows who has got what.
  if (!done) return false;
  while (courier_ != nullptr && !node_->EndHandOver()) {
    if (Outdated()) return false;
    Pause(kForwardPollUs);
  }
  courier_.reset();
  progress_.pieces = 0;
  node_->SetRepair(progress_);
  return true;
}

// Returns what is to be tried again, or was not come to.
std::vector<WarmPiece> Repair::OneRound(std::span<const WarmPiece> list, bool all) {
  PageLimits limits;
  if (options_.bytes_per_second != 0) {
    limits.payload_bytes = std::min(limits.payload_bytes, options_.bytes_per_second / kPagesPerSecond);
  }
  std::vector<WarmPiece> again;
  while (!list.empty() && !Outdated()) {
    progress_.pieces = list.size() + again.size();
    node_->SetRepair(progress_);
    Result<OutgoingPage> page = node_->TakeOut(list, limits);
    if (!page.ok()) break;
    list = list.subspan(page.value().looked);
    const uint64_t before = progress_.restored_bytes;
    paced_us_ = std::max(paced_us_, transport::NowUs());
    PutPage(page.value(), all, &again);
    Forward();
    if (options_.bytes_per_second == 0) continue;
    paced_us_ += (progress_.restored_bytes - before) * 1'000'000 / options_.bytes_per_second;
    const uint64_t now_us = transport::NowUs();
    if (paced_us_ > now_us) Pause(paced_us_ - now_us);
  }
  again.insert(again.end(), list.begin(), list.end());
  return again;
}

// `all`: also what another holder restores first. It had its time.
void Repair::PutPage(const OutgoingPage& page, bool all, std::vector<WarmPiece>* again) {
  const std::string self = node_->info().record.id;
  std::map<Parcel, std::vector<const OutgoingPiece*>> parcels;
  std::set<uint32_t> later;
  for (const OutgoingPiece& piece : page.pieces) {
    const uint16_t slot = SlotOf(piece.header.hash);
    const bool first = all || now_.Restores(known_, slot, piece.replicas, self);
    if (!first) later.insert(piece.piece.entry);
    for (const uint16_t place : now_.Gained(known_, slot, piece.replicas)) {
      const NodeRecord& heir = now_.nodes()[place];
      if (!first || heir.id == self) continue;
      parcels[{&heir, piece.header.writer, piece.header.name_space}].push_back(&piece);
    }
  }
  for (const auto& [parcel, pieces] : parcels) {
    std::vector<PutState> states(pieces.size(), PutState::kBusy);
    if (!Outdated()) courier_->Put(parcel, pieces, UINT64_MAX, &states);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (states[i] == PutState::kStored) {
        ++progress_.restored_pieces;
        progress_.restored_bytes += pieces[i]->payload.bytes;
      } else if (states[i] == PutState::kInvalid || states[i] == PutState::kCorrupt ||
                 states[i] == PutState::kOverQuota) {
        ++progress_.refused_pieces;
      } else if (!IsThere(states[i]) && states[i] != PutState::kCleared) {
        later.insert(pieces[i]->piece.entry);
      }
    }
  }
  std::vector<uint32_t> entries;
  for (const OutgoingPiece& piece : page.pieces) entries.push_back(piece.piece.entry);
  const std::vector<bool> left = node_->LetGo(entries);
  for (size_t i = 0; i < page.pieces.size(); ++i) {
    if (!left[i] && later.count(entries[i]) != 0) again->push_back(page.pieces[i].piece);
  }
}

}  // namespace larder::node
