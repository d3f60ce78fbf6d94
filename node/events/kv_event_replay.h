// What one client missed, told again in steps: for each topic the kept messages from the number that it asked
// for on. Where some of them are not kept any more, the topic is told from the view instead:
// AllBlocksCleared, then all that is there, under numbers that end just before the next live one. What
// happens meanwhile is told live, under higher numbers, so that both together are exact, however long the
// replay takes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "node/events/kv_event_outbox.h"
#include "node/events/kv_event_view.h"

namespace larder::node {

class KvEventReplay {
 public:
  struct Message {
    const std::string* topic = nullptr;  // the replay's
    uint64_t sequence = 0;
    std::string payload;
  };

  KvEventReplay(const KvEventOutbox& outbox, const KvEventView& view, uint64_t from);

  // The next message, at most once more than there are; none: all is told.
  std::optional<Message> Next(uint64_t unix_us);
  // Topics that were told from the view.
  uint32_t snapshots() const { return snapshots_; }

 private:
  void BeginTopic();
  void BeginSnapshot();
  std::string SnapshotMessage(uint64_t sequence, uint64_t unix_us) const;

  const KvEventOutbox& outbox_;
  const KvEventView& view_;
  const uint64_t from_;
  const std::vector<std::string> topics_;
  size_t topic_ = 0;
  uint64_t next_ = 0, end_ = 0;  // numbers of the topic
  uint64_t floor_ = 0;           // the client takes none below
  bool in_snapshot_ = false;
  uint64_t cleared_at_ = 0;        // number of the snapshot's first message
  uint64_t step_ = 0, bound_ = 0;  // blocks by number: of a message, of all
  uint32_t snapshots_ = 0;
};

}  // namespace larder::node
