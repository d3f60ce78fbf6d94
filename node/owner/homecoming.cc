#include "node/owner/homecoming.h"

#include <algorithm>

namespace larder::node {

void Homecoming::SetMoved(MovedSlots moved, uint64_t now_us) {
  if (overflowed_) return;
  if (!active(now_us)) {
    removed_.clear();
    removed_in_.clear();
  }
  moved_ = std::move(moved);
  until_us_ = now_us + kRememberUs;
  not_there_ = {};
  empty_until_.clear();
  homes_.clear();
}

bool Homecoming::Wanted(const Namespace& name_space, uint64_t key) const {
  return !distrust_ && removed_.count(key) == 0 && cleared_.count(name_space) == 0;
}

const std::string* Homecoming::Previous(const Namespace& name_space, const ChainHash& hash, uint64_t key,
                                        uint64_t now_us) {
  if (!active(now_us)) return nullptr;
  const std::string* home = moved_.PreviousHome(hash);
  if (home == nullptr || !Wanted(name_space, key) || not_there_.Has(key, now_us)) return nullptr;
  const auto known = homes_.find(*home);
  if (known != homes_.end() && (now_us < known->second.retry_us || known->second.vain >= kVainMax)) {
    return nullptr;
  }
  const auto empty = empty_until_.find({*home, name_space});
  if (empty != empty_until_.end() && now_us < empty->second) return nullptr;
  return home;
}

bool Homecoming::Ask(const BlockName& name, uint64_t key, Question&& question, uint64_t waiter) {
  auto found = questions_.find(name);
  if (found == questions_.end()) {
    if (questions_.size() >= kQuestionsMax) return false;
    const uint64_t token = question.token;
    found = questions_.emplace(name, OpenQuestion{std::move(question), key, {}}).first;
    name_of_.emplace(token, name);
    waiting_.push_back(token);
  }
  if (waiter != 0) found->second.waiters.push_back(waiter);
  return true;
}

std::vector<Question> Homecoming::Take(size_t most) {
  std::vector<Question> out;
  for (; out.size() < most && !waiting_.empty(); waiting_.pop_front()) {
    const auto name = name_of_.find(waiting_.front());
    if (name != name_of_.end()) out.push_back(questions_.at(name->second).question);
  }
  return out;
}

const BlockName* Homecoming::Open(uint64_t token, uint64_t now_us) const {
  const auto name = name_of_.find(token);
  if (name == name_of_.end() || !active(now_us)) return nullptr;
  const OpenQuestion& open = questions_.at(name->second);
  return Wanted(open.question.name_space, open.key) ? &name->second : nullptr;
}

void Homecoming::End(uint64_t token, std::vector<uint64_t>* waiters) {
  const auto name = name_of_.find(token);
  if (name == name_of_.end()) return;
  const auto found = questions_.find(name->second);
  waiters->insert(waiters->end(), found->second.waiters.begin(), found->second.waiters.end());
  questions_.erase(found);
  name_of_.erase(name);
}

std::vector<uint64_t> Homecoming::Answer(uint64_t token, Homing answer, uint64_t now_us) {
  std::vector<uint64_t> waiters;
  const auto name = name_of_.find(token);
  if (name == name_of_.end()) return waiters;
  const OpenQuestion& open = questions_.at(name->second);
  const std::string home = open.question.home;
  switch (answer) {
    case Homing::kCame:
      homes_.erase(home);
      break;
    case Homing::kNotThere:
      homes_[home] = {0, 0, homes_[home].vain + 1};
      not_there_.Add(open.key, now_us);
      break;
    case Homing::kNotNow:
      break;
    case Homing::kEmptyThere:
      homes_[home] = {0, 0, homes_[home].vain + 1};
      if (empty_until_.size() >= kNotesMax) empty_until_.clear();
      empty_until_[{home, open.question.name_space}] = now_us + kNotThereUs;
      break;
    case Homing::kUnreachable: {
      Home& known = homes_[home];
      if (now_us >= known.retry_us) {
        known.pause_us = std::clamp(2 * known.pause_us, kPauseMinUs, kPauseMaxUs);
        known.retry_us = now_us + known.pause_us;
      }
      std::vector<uint64_t> others;
      for (const uint64_t other : waiting_) {
        const auto at = name_of_.find(other);
        if (at != name_of_.end() && questions_.at(at->second).question.home == home) others.push_back(other);
      }
      for (const uint64_t other : others) End(other, &waiters);
      std::erase_if(waiting_, [&](uint64_t other) { return name_of_.count(other) == 0; });
      break;
    }
  }
  End(token, &waiters);
  return waiters;
}

void Homecoming::Removed(const Namespace& name_space, const ChainHash& hash, uint64_t key, uint64_t now_us) {
  if (!active(now_us) || moved_.PreviousHome(hash) == nullptr) return;
  removed_.insert(key);
  removed_in_.insert(name_space);
  if (removed_.size() <= kNotesMax) return;
  moved_ = {};  // rather nothing comes than something that was removed
  overflowed_ = true;
}

void Homecoming::Forgotten(const Namespace& name_space) {
  if (removed_in_.erase(name_space) != 0) Cleared(name_space);
}

void Homecoming::Cleared(const Namespace& name_space) {
  if (!distrust_) cleared_.insert(name_space);
  distrust_ = distrust_ || cleared_.size() > kClearedMax;
}

void Homecoming::Notes::Turn(uint64_t now_us) {
  if (now_us < turn_us && young.size() < kNotesMax) return;
  const bool long_ago = now_us >= turn_us + kNotThereUs;
  old = long_ago ? std::unordered_set<uint64_t>() : std::move(young);
  young.clear();
  turn_us = now_us + kNotThereUs;
}

void Homecoming::Notes::Add(uint64_t key, uint64_t now_us) {
  Turn(now_us);
  young.insert(key);
}

bool Homecoming::Notes::Has(uint64_t key, uint64_t now_us) {
  Turn(now_us);
  return young.count(key) != 0 || old.count(key) != 0;
}

}  // namespace larder::node
