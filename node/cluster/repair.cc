#include "node/cluster/repair.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace larder::node {

namespace {
constexpr uint64_t kLookUs = 200'000;  // for a newer table
constexpr uint64_t kRoundPauseMinUs = 500'000;
constexpr uint64_t kRoundPauseMaxUs = 16'000'000;
constexpr size_t kTablesMax = 8;  // about half a MiB each
}  // namespace

Repair::Repair(Node* node, const RepairOptions& options)
    : node_(node),
      options_(options),
      self_(node->info().record.id),
      pace_(options.bytes_per_second),
      courier_(node, options.credentials, "restores: " + self_, kFeatureRestores) {
  // Here and not in the thread: it may begin to run after the next table has come.
  const NodeTable table = node->info().table;
  epoch_ = table.epoch;
  now_ = ReplicaPlaces(table);
  before_ = {now_};
  for (uint32_t replicas = 2; replicas <= kReplicasMax; ++replicas) since_s_[replicas].assign(kSlots, 0);
  thread_ = std::thread([this] { Follow(); });
}

Repair::~Repair() {
  wait_.Stop();
  thread_.join();
}

// Also when this restoring is of a table that is no longer in force.
bool Repair::Outdated() {
  return wait_.stopping() || node_->table_epoch() != epoch_;
}

void Repair::Follow() {
  Status started = courier_.Start();
  for (bool restored = true; wait_.For(kLookUs);) {
    if (!started.ok()) started = courier_.Start();
    const bool newer = node_->table_epoch() != epoch_;
    if (newer) Take(node_->info().table);
    if ((restored && !newer) || !started.ok()) continue;
    restored = (!newer || wait_.For(options_.settle_us)) && Restore();
    if (restored) before_ = {now_};
  }
}

void Repair::Take(const NodeTable& table) {
  const ReplicaPlaces before = std::exchange(now_, ReplicaPlaces(table));
  before_.push_back(before);
  if (before_.size() > kTablesMax) before_.erase(before_.begin() + 1);  // a copy may be missed
  epoch_ = table.epoch;
  const uint64_t clock_s = node_->clock_s();
  for (uint32_t replicas = 2; replicas <= kReplicasMax; ++replicas) {
    for (uint32_t i = 0; i < kSlots; ++i) {
      const auto slot = static_cast<uint16_t>(i);
      if (now_.Has(slot, replicas, self_) && !before.Has(slot, replicas, self_)) {
        since_s_[replicas][slot] = static_cast<uint32_t>(clock_s);
      }
    }
  }
}

// False: another table is in force, or it is told to stop.
bool Repair::Restore() {
  SlotSets slots;
  std::vector<WarmPiece> list;
  if (GainedSlots(before_, now_, &slots)) {
    Result<std::vector<WarmPiece>> listed = node_->ListWarm(&slots);
    if (!listed.ok()) return false;  // the node has stopped
    list = std::move(listed).value();
  }
  uint64_t pause_us = kRoundPauseMinUs;
  for (bool all = false; !list.empty(); all = true) {
    const size_t before = list.size();
    list = OneRound(list, all);
    progress_.pieces = list.size();
    node_->SetRepair(progress_);
    if (list.empty()) break;
    pause_us = list.size() != before ? kRoundPauseMinUs : std::min(2 * pause_us, kRoundPauseMaxUs);
    for (const uint64_t end_us = transport::NowUs() + pause_us; transport::NowUs() < end_us;) {
      if (Outdated() || !wait_.For(kLookUs)) return false;
    }
  }
  progress_.pieces = 0;  // also of a table that came in between
  node_->SetRepair(progress_);
  return true;
}

// Returns what is to be tried again, or was not come to.
std::vector<WarmPiece> Repair::OneRound(std::span<const WarmPiece> list, bool all) {
  std::vector<WarmPiece> again;
  while (!list.empty() && !Outdated()) {
    progress_.pieces = list.size() + again.size();
    node_->SetRepair(progress_);
    Result<OutgoingPage> page = node_->TakeOut(list, pace_.limits());
    if (!page.ok()) break;
    list = list.subspan(page.value().looked);
    const uint64_t before = progress_.restored_bytes;
    pace_.Begin();
    PutPage(page.value(), all, &again);
    const uint64_t next_us = pace_.After(progress_.restored_bytes - before), now_us = transport::NowUs();
    if (next_us > now_us && !wait_.For(next_us - now_us)) break;
  }
  again.insert(again.end(), list.begin(), list.end());
  return again;
}

// What this node may restore, by where it goes. `all`: also what another holder restores first: it had its
// time.
Repair::Parcels Repair::Sort(const OutgoingPage& page, bool all, std::set<uint32_t>* later) const {
  Parcels parcels;
  for (const OutgoingPiece& piece : page.pieces) {
    const uint16_t slot = SlotOf(piece.header.hash);
    const std::vector<std::string> restorers = now_.Restorers(before_, slot, piece.replicas);
    const auto mine = std::ranges::find(restorers, self_);
    if (mine == restorers.end() || piece.born_s < since_s_[piece.replicas][slot]) continue;
    if (mine != restorers.begin() && !all) {
      later->insert(piece.piece.entry);
      continue;
    }
    for (const uint16_t place : now_.Gained(before_, slot, piece.replicas)) {
      parcels[{&now_.nodes()[place], piece.header.writer, piece.header.name_space}].push_back(&piece);
    }
  }
  return parcels;
}

void Repair::PutPage(const OutgoingPage& page, bool all, std::vector<WarmPiece>* again) {
  std::set<uint32_t> later;
  const Parcels parcels = Sort(page, all, &later);
  for (const auto& [parcel, pieces] : parcels) {
    std::vector<PutState> states(pieces.size(), PutState::kBusy);
    if (!Outdated()) courier_.Put(parcel, pieces, UINT64_MAX, &states);
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
  std::set<uint32_t> gone;
  for (size_t i = 0; i < page.pieces.size(); ++i) {
    if (left[i]) {
      gone.insert(entries[i]);
    } else if (later.count(entries[i]) != 0) {
      again->push_back(page.pieces[i].piece);
    }
  }
  for (const auto& [parcel, pieces] : parcels) {
    std::vector<const OutgoingPiece*> back;
    std::ranges::copy_if(pieces, std::back_inserter(back),
                         [&](const OutgoingPiece* piece) { return gone.count(piece->piece.entry) != 0; });
    if (!back.empty()) (void)courier_.TakeBack(parcel, back, UINT64_MAX);  // the place has heard it as well
  }
}

}  // namespace larder::node
