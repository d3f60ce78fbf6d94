// Clears that other nodes know of, and those of this node on their way to the disk: a clear is answered once
// a restart knows it, and it is kept only when no restart brings a block back that it hid. Otherwise a node
// could come back with the blocks and the knowledge.
#include "node/owner/owner_state.h"

namespace larder::node {

void Owner::State::AwaitKept() {
  if (!clears_kept) return;
  const uint64_t token = ++last_id;
  undurable.insert(token);
  clear_tokens.insert(token);
  if (clears_on_ssd.empty()) outbox->OnClears();
}

// Of a namespace that is open; or has blocks on SSD alone.
void Owner::State::ClearHeard(const Namespace& name_space) {
  if (const auto number = number_of.find(name_space); number != number_of.end()) {
    uint64_t revoke = 0;  // nobody waits for it
    ClearSpace(number->second, &revoke);
    return;
  }
  homecoming.Cleared(name_space);
  const ssd::SpaceRecord* known = ssd == nullptr ? nullptr : ssd->FindSpace(name_space);
  if (known == nullptr) return AwaitKept();
  ClearOnSsd(name_space, known->clear_epoch + 1);
  AwaitKept();
}

void Owner::State::ClearOnSsd(const Namespace& name_space, uint32_t epoch) {
  const uint64_t token = ++last_id;
  undurable.insert(token);
  if (clears_kept) clears_on_ssd.insert(token);
  ssd->Clear(name_space, epoch, token);
}

void Owner::RestoreClears(Clears clears) {
  state_->clears = std::move(clears);
  state_->clears_kept = true;
}

const Clears& Owner::clears() const {
  return state_->clears;
}

size_t Owner::HearClears(const Clears& heard) {
  State& state = *state_;
  size_t cleared = 0;
  const bool lacks = state.clears.MayLack(heard);
  for (const auto& [name_space, stamp_ms] : heard.stamps()) {
    if (!state.clears.Take(name_space, stamp_ms)) continue;
    state.ClearHeard(name_space);
    ++cleared;
  }
  if (lacks) {
    // Rather nothing than what was cleared.
    std::vector<Namespace> rest;
    for (const auto& [name_space, number] : state.number_of) rest.push_back(name_space);
    for (const ssd::SpaceRecord& record :
         state.ssd == nullptr ? std::vector<ssd::SpaceRecord>() : state.ssd->Spaces()) {
      if (state.number_of.count(record.name_space) == 0) rest.push_back(record.name_space);
    }
    // A stamp that is older than what was forgotten may be of a node that missed that clear too.
    std::erase_if(rest, [&](const Namespace& each) { return heard.Of(each) >= heard.forgotten_ms(); });
    state.clears.Forget(heard.forgotten_ms());
    for (const Namespace& each : rest) state.ClearHeard(each);
    cleared += rest.size();
  }
  return cleared;
}

std::optional<ClearsToKeep> Owner::TakeClears() const {
  if (state_->clear_tokens.empty() || !state_->clears_on_ssd.empty()) return std::nullopt;
  return ClearsToKeep{state_->clears, *state_->clear_tokens.rbegin()};
}

void Owner::ClearsKept(uint64_t token) {
  std::set<uint64_t>& tokens = state_->clear_tokens;
  while (!tokens.empty() && *tokens.begin() <= token) {
    const uint64_t kept = *tokens.begin();
    tokens.erase(tokens.begin());
    state_->OnDurable(kept);
  }
}

}  // namespace larder::node
