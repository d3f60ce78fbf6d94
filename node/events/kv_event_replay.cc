#include "node/events/kv_event_replay.h"

#include <algorithm>

namespace larder::node {
namespace {
constexpr uint64_t kBlocksPerMessage = 256;
}

KvEventReplay::KvEventReplay(const KvEventOutbox& outbox, const KvEventView& view, uint64_t from)
    : outbox_(outbox), view_(view), from_(from), topics_(outbox.Topics()) {
  BeginTopic();
}

void KvEventReplay::BeginTopic() {
  in_snapshot_ = false;
  if (topic_ == topics_.size()) return;
  const std::string& topic = topics_[topic_];
  end_ = outbox_.next(topic);
  next_ = std::max(from_, outbox_.begin(topic));
  floor_ = from_;
}

// Its numbers end with the last live one and are none that the client had before: it goes on from there.
void KvEventReplay::BeginSnapshot() {
  in_snapshot_ = true;
  ++snapshots_;
  bound_ = view_.bound();
  end_ = outbox_.next(topics_[topic_]);
  const uint64_t room = end_ - floor_;
  step_ = std::max(kBlocksPerMessage, (bound_ + room - 1) / room);
  next_ = cleared_at_ = end_ - std::max<uint64_t>(1, (bound_ + step_ - 1) / step_);
}

std::optional<KvEventReplay::Message> KvEventReplay::Next(uint64_t unix_us) {
  while (topic_ < topics_.size() && next_ >= end_) {
    ++topic_;
    BeginTopic();
  }
  if (topic_ == topics_.size()) return std::nullopt;
  const std::string& topic = topics_[topic_];
  if (!in_snapshot_ && next_ < outbox_.first(topic)) BeginSnapshot();
  const uint64_t sequence = next_++;
  floor_ = next_;
  return Message{&topic, sequence,
                 in_snapshot_ ? SnapshotMessage(sequence, unix_us) : outbox_.kept(topic, sequence)};
}

// Also when none of its blocks is there any more: a number that is left out would look like a loss.
std::string KvEventReplay::SnapshotMessage(uint64_t sequence, uint64_t unix_us) const {
  std::vector<KvEvent> events;
  if (sequence == cleared_at_) events.push_back({.kind = KvEvent::Kind::kCleared});
  const uint64_t begin = (sequence - cleared_at_) * step_;
  view_.Describe(topics_[topic_], static_cast<uint32_t>(begin),
                 static_cast<uint32_t>(std::min(begin + step_, bound_)), &events);
  return EncodeKvEvents(static_cast<double>(unix_us) / 1e6, events, outbox_.form());
}

}  // namespace larder::node
