#include "node/owner/event_log.h"

namespace larder::node {

void EventLog::Add(const Namespace& name_space, std::string_view tenant, BlockEvent&& event) {
  // Constituents count: at most one an event on average, so that events_max bounds the bytes.
  while (!events_.empty() &&
         (events_.size() >= events_max_ || hashes_ + event.constituents.size() > events_max_)) {
    DropFirst();
  }
  event.sequence = next_++;
  event.name = Intern(name_space, tenant);
  ++names_[event.name].events;
  hashes_ += event.constituents.size();
  events_.push_back(std::move(event));
}

void EventLog::Break() {
  while (!events_.empty()) DropFirst();
  ++next_;  // also for who had read all of them
}

uint32_t EventLog::Intern(const Namespace& name_space, std::string_view tenant) {
  if (!events_.empty()) {
    const uint32_t last = events_.back().name;  // most often the same again
    if (names_[last].name.name_space == name_space) return last;
  }
  if (const auto known = name_of_.find(name_space); known != name_of_.end()) return known->second;
  auto number = static_cast<uint32_t>(names_.size());
  if (free_names_.empty()) {
    names_.emplace_back();
  } else {
    number = free_names_.back();
    free_names_.pop_back();
  }
  names_[number].name = {name_space, std::string(tenant)};
  name_of_.emplace(name_space, number);
  return number;
}

void EventLog::DropFirst() {
  const BlockEvent& event = events_.front();
  hashes_ -= event.constituents.size();
  Name& name = names_[event.name];
  if (--name.events == 0) {
    name_of_.erase(name.name.name_space);
    free_names_.push_back(event.name);
    name = Name{};
  }
  events_.pop_front();
}

}  // namespace larder::node
