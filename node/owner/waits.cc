#include "node/owner/waits.h"

#include "proto/status.h"

namespace larder::node {

uint64_t Waits::Add(Wait&& wait) {
  const uint64_t id = ++last_id_;
  keys_ += wait.hashes.size();
  if (wait.deadline_us != UINT64_MAX) deadlines_.emplace(wait.deadline_us, id);
  waits_.emplace(id, std::move(wait));
  return id;
}

Waits::Wait* Waits::Find(uint64_t id) {
  const auto found = waits_.find(id);
  return found == waits_.end() ? nullptr : &found->second;
}

void Waits::Watch(uint64_t id, const BlockName& name) {
  Wait* wait = Find(id);
  LARDER_CHECK(wait != nullptr && !wait->watching);
  wait->watching = true;
  wait->watched = name;
  watchers_[name].insert(id);
}

std::vector<uint64_t> Waits::TakeWatchers(const BlockName& name) {
  const auto found = watchers_.find(name);
  if (found == watchers_.end()) return {};
  std::vector<uint64_t> ids(found->second.begin(), found->second.end());
  watchers_.erase(found);
  for (const uint64_t id : ids) waits_.at(id).watching = false;
  return ids;
}

void Waits::Unwatch(uint64_t id, Wait* wait) {
  if (!wait->watching) return;
  const auto found = watchers_.find(wait->watched);
  found->second.erase(id);
  if (found->second.empty()) watchers_.erase(found);
  wait->watching = false;
}

void Waits::Remove(uint64_t id) {
  const auto found = waits_.find(id);
  LARDER_CHECK(found != waits_.end());
  Unwatch(id, &found->second);
  keys_ -= found->second.hashes.size();
  deadlines_.erase({found->second.deadline_us, id});
  waits_.erase(found);
}

uint64_t Waits::Due(uint64_t now_us) const {
  return !deadlines_.empty() && deadlines_.begin()->first <= now_us ? deadlines_.begin()->second : 0;
}

std::string Waits::CheckInvariants() const {
  uint64_t keys = 0, watching = 0, watchers = 0;
  for (const auto& [id, wait] : waits_) {
    keys += wait.hashes.size();
    if (!wait.watching) return "a wait watches nothing";
    const auto found = watchers_.find(wait.watched);
    if (found == watchers_.end() || found->second.count(id) == 0) return "a wait is not among the watchers";
    ++watching;
  }
  for (const auto& [name, ids] : watchers_) watchers += ids.size();
  if (keys != keys_ || watching != watchers) return "waited keys or watchers and their counts disagree";
  return {};
}

}  // namespace larder::node
