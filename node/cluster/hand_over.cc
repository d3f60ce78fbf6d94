#include "node/cluster/hand_over.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace larder::node {

namespace {

constexpr uint64_t kRoundPauseUs = 500'000;
constexpr uint64_t kForwardPollUs = 5'000;

bool Takes(const NodeRecord& node, const std::string& self) {
  return node.id != self && node.state == NodeState::kActive && node.weight > 0;
}

}  // namespace

bool HasHeir(const NodeInfo& info) {
  return std::any_of(info.table.nodes.begin(), info.table.nodes.end(),
                     [&](const NodeRecord& node) { return Takes(node, info.record.id); });
}

HandOver::HandOver(Node* node, const HandOverOptions& options)
    : node_(node),
      options_(options),
      pace_(options.bytes_per_second),
      courier_(node, options.credentials, "leaving: " + node->info().record.id, kFeatureHandsOver),
      thread_([this] { Give(); }) {}

HandOver::~HandOver() {
  wait_.Stop();
  thread_.join();
}

void HandOver::Wait() {
  given_.wait();
}

bool HandOver::Late() {
  return wait_.stopping() || transport::NowUs() >= end_us_;
}

// Waits, at most until it is late, and forwards meanwhile.
void HandOver::Pause(uint64_t until_us) {
  do {
    courier_.ForwardAll([this] { return Late(); }, end_us_);
    const uint64_t now_us = transport::NowUs(), wake_us = std::min(until_us, end_us_);
    (void)wait_.For(std::min(kForwardPollUs, wake_us > now_us ? wake_us - now_us : 0));
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
  given_.count_down();
  end_us_ = UINT64_MAX;  // from now on only what is removed goes on
  Pause(UINT64_MAX);
}

// Why it ended before all was handed over; empty: it was.
std::string HandOver::GiveAll() {
  if (const Status started = courier_.Start(); !started.ok()) return started.text();
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
  if (list.empty()) return progress_.stays_blocks == 0 ? "" : "some blocks stay: " + courier_.last_why();
  if (Late()) return "the budget was over" + (courier_.last_why().empty() ? "" : "; " + courier_.last_why());
  return "the others take no more: " + courier_.last_why();
}

// Returns what is to be tried again, or was not come to.
std::vector<WarmPiece> HandOver::OneRound(std::span<const WarmPiece> list) {
  std::vector<WarmPiece> again;
  while (!list.empty() && !Late() && Place()) {
    Result<OutgoingPage> page = node_->TakeOut(list, pace_.limits());
    if (!page.ok()) break;
    list = list.subspan(page.value().looked);
    progress_.gone_blocks += page.value().left;
    again.insert(again.end(), page.value().busy.begin(), page.value().busy.end());
    const uint64_t before = progress_.handed_bytes;
    pace_.Begin();
    HandPage(page.value(), &again);
    node_->SetHandOver(progress_);
    courier_.ForwardAll([this] { return Late(); }, end_us_);
    if (const uint64_t next_us = pace_.After(progress_.handed_bytes - before); next_us != 0) Pause(next_us);
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
    if (!Late()) {
      courier_.Put(parcel, pieces, end_us_, &states);
    }
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

}  // namespace larder::node
