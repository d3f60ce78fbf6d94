#include "node/events/kv_event_outbox.h"

#include <utility>

namespace larder::node {
namespace {

// Of a message: below 100 KB as a map.
constexpr size_t kEventsPerMessage = 256;
constexpr size_t kHashesPerMessage = 4096;

}  // namespace

void KvEventOutbox::Add(const std::string& topic, KvEvent&& event, uint64_t unix_us) {
  const auto [found, added] = topics_.try_emplace(topic);
  Topic& state = found->second;
  if (added) {
    state.begin = state.next = unix_us;
    if (event.kind != KvEvent::Kind::kCleared) state.batch.push_back({.kind = KvEvent::Kind::kCleared});
  }
  state.batch_hashes += event.hashes.size();
  // Removals of one kind are one event; hashes of a stored block are a chain and stay by themselves.
  KvEvent* last = state.batch.empty() ? nullptr : &state.batch.back();
  if (last != nullptr && event.kind == KvEvent::Kind::kRemoved && last->kind == event.kind &&
      last->tier == event.tier && last->group == event.group) {
    last->hashes.insert(last->hashes.end(), event.hashes.begin(), event.hashes.end());
  } else {
    state.batch.push_back(std::move(event));
  }
  if (state.batch.size() >= kEventsPerMessage || state.batch_hashes >= kHashesPerMessage) {
    SendBatch(&*found, unix_us);
  }
}

void KvEventOutbox::Flush(uint64_t unix_us) {
  for (Entry& entry : topics_) {
    if (!entry.second.batch.empty()) SendBatch(&entry, unix_us);
  }
}

void KvEventOutbox::Repeat(uint64_t unix_us, uint64_t quiet_us) {
  for (Entry& entry : topics_) {
    Topic& topic = entry.second;
    if (unix_us - topic.sent_us < quiet_us) continue;  // a clock that was set back: at once
    if (topic.kept.empty()) {
      SendBatch(&entry, unix_us);  // without events
    } else {
      send_(entry.first, topic.next - 1, topic.kept.back());
      topic.sent_us = unix_us;
    }
  }
}

void KvEventOutbox::SendBatch(Entry* entry, uint64_t unix_us) {
  Topic& topic = entry->second;
  topic.kept.push_back(EncodeKvEvents(static_cast<double>(unix_us) / 1e6, topic.batch, form_));
  topic.batch.clear();
  topic.batch_hashes = 0;
  const std::string& payload = topic.kept.back();
  send_(entry->first, topic.next++, payload);
  topic.sent_us = unix_us;
  kept_bytes_ += payload.size();
  order_.push_back(entry);
  while (order_.size() > limits_.messages_max || kept_bytes_ > limits_.bytes_max) DropOldest();
}

void KvEventOutbox::DropOldest() {
  std::deque<std::string>& kept = order_.front()->second.kept;
  kept_bytes_ -= kept.front().size();
  kept.pop_front();
  order_.pop_front();
}

std::vector<std::string> KvEventOutbox::Topics() const {
  std::vector<std::string> out;
  for (const auto& [name, topic] : topics_) out.push_back(name);
  return out;
}

const std::string& KvEventOutbox::kept(const std::string& topic, uint64_t sequence) const {
  const Topic& state = topics_.at(topic);
  return state.kept[sequence - state.first()];
}

void KvEventOutbox::Forget(const std::function<bool(const std::string& topic)>& in_use) {
  std::erase_if(topics_, [&](const Entry& entry) {
    return entry.second.kept.empty() && entry.second.batch.empty() && !in_use(entry.first);
  });
}

}  // namespace larder::node
