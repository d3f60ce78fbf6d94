// Publishes what comes and goes on the node by ZeroMQ, as vLLM's ZmqEventPublisher does: topic, sequence
// number (8 bytes, big-endian) and payload to whoever subscribes, and on a second socket what a client
// missed: it asks with a number, gets the same three frames for each message from there on, then an empty
// topic, the number -1 and an empty payload.
//
// A thread of its own follows the node's events as any follower does, so nothing of the node waits for it;
// who subscribes and is slow loses messages beyond `hwm` and can tell by the numbers.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "node/events/kv_event_outbox.h"
#include "node/events/kv_event_replay.h"
#include "node/events/kv_event_view.h"
#include "node/node.h"

namespace larder::node {

struct KvEventOptions {
  std::string listen;                // host:port for subscribers; port 0: any; empty: none
  std::vector<std::string> connect;  // subscribers that listen themselves
  std::string replay_listen;         // empty: no replays
  std::string node_id;
  std::string topic;  // as CheckTopic accepts it
  KvEventForm form = KvEventForm::kMap;
  KvEventOutbox::Limits kept;
  int hwm = 1000;  // messages that wait for a subscriber
};

class KvEventPublisher {
 public:
  // kInvalid: an address can't be used. The node outlives it.
  static Result<std::unique_ptr<KvEventPublisher>> Start(const KvEventOptions& options, Node* node);
  ~KvEventPublisher();

  // As bound; empty: none.
  const std::string& address() const { return address_; }
  const std::string& replay_address() const { return replay_address_; }

 private:
  struct Close {
    void operator()(void* socket) const;
  };
  struct Terminate {
    void operator()(void* context) const;
  };
  using Socket = std::unique_ptr<void, Close>;
  struct Job {
    std::string client;
    KvEventReplay replay;
    std::optional<KvEventReplay::Message> waiting;  // to be taken
    uint64_t taken_us = 0;                          // when the client last took one
    bool counted = false;                           // its snapshots
  };
  enum class Taken : uint8_t { kYes, kLater, kGone };

  KvEventPublisher(const KvEventOptions& options, Node* node);
  Status Open();
  void Run();
  // Following the node.
  void Take(const EventPage& page);
  void TakeEvents(const EventPage& page, const std::vector<BlockEvent>& events);
  void Learn(const EventName& name);
  void OnEvent(const std::string& topic, KvEvent&& event);
  void Publish(const std::string& topic, uint64_t sequence, const std::string& payload);
  // Replays.
  void TakeRequests();
  void StepReplays();
  bool Step(Job* job);
  Taken Reply(const std::string& client, const std::string& topic, uint64_t sequence,
              const std::string& payload);
  void TellStats();

  const KvEventOptions options_;
  Node* const node_;
  std::string address_, replay_address_;
  std::unique_ptr<void, Terminate> context_;
  Socket publisher_, router_;  // the thread's
  KvEventView view_;
  KvEventOutbox outbox_;
  std::list<Job> jobs_;
  KvEventStats stats_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace larder::node
