// Messages of KV events on their way out: batches by topic, numbered one after the other, the last of them
// kept for who missed them. Pure, one thread's.
//
// A topic's numbers begin at the microsecond of its first message by the node's clock. So they go on rising
// when a node has restarted: who followed it sees a gap, and what it asks for is the new life from its
// beginning.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "node/events/kv_event_format.h"

namespace larder::node {

class KvEventOutbox {
 public:
  struct Limits {
    size_t messages_max = 10'000;         // kept, of all topics
    size_t bytes_max = size_t{64} << 20;  // the same
  };
  using Send = std::function<void(const std::string& topic, uint64_t sequence, const std::string& payload)>;
  KvEventOutbox(const Limits& limits, KvEventForm form, Send send)
      : limits_(limits), form_(form), send_(std::move(send)) {}

  // Collects an event; a full batch is sent at once. A new topic begins with AllBlocksCleared.
  void Add(const std::string& topic, KvEvent&& event, uint64_t unix_us);
  // Sends what was collected.
  void Flush(uint64_t unix_us);

  // Sends the last message of each topic again that has sent none for `quiet_us`: its number shows who missed
  // it, and to apply it twice changes nothing.
  void Repeat(uint64_t unix_us, uint64_t quiet_us);

  // For replays. Numbers of a topic are [begin, next); those before `first` are not kept.
  std::vector<std::string> Topics() const;
  uint64_t begin(const std::string& topic) const { return topics_.at(topic).begin; }
  uint64_t first(const std::string& topic) const { return topics_.at(topic).first(); }
  uint64_t next(const std::string& topic) const { return topics_.at(topic).next; }
  const std::string& kept(const std::string& topic, uint64_t sequence) const;
  // Forgets topics of which nothing is kept, except those in use.
  void Forget(const std::function<bool(const std::string& topic)>& in_use);

  KvEventForm form() const { return form_; }
  size_t kept_messages() const { return order_.size(); }
  size_t kept_bytes() const { return kept_bytes_; }
  size_t topics() const { return topics_.size(); }

 private:
  struct Topic {
    uint64_t begin = 0, next = 0;
    std::deque<std::string> kept;
    std::vector<KvEvent> batch;
    size_t batch_hashes = 0;
    uint64_t sent_us = 0;
    uint64_t first() const { return next - kept.size(); }
  };
  using Entry = std::map<std::string, Topic>::value_type;
  void SendBatch(Entry* entry, uint64_t unix_us);
  void DropOldest();

  const Limits limits_;
  const KvEventForm form_;
  const Send send_;
  std::map<std::string, Topic> topics_;
  std::deque<Entry*> order_;  // whose message is kept, oldest first
  size_t kept_bytes_ = 0;
};

}  // namespace larder::node
