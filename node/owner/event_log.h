// What came and went on this node, in order: a bounded ring that followers (routers) read at their own pace.
// Who falls behind it begins anew with a snapshot; nothing ever waits for a reader. Pure, the owner's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/message.h"

namespace larder::node {

enum class BlockEventKind : uint8_t {
  kStored,   // the piece is in `tier`; it may be in the other one too
  kMoved,    // it is in `tier` and no longer in `from`
  kRemoved,  // it is no longer in `from`
  kCleared,  // nothing of the namespace is anywhere
};

struct BlockEvent {
  ChainHash hash;
  Rectangle rectangle;
  uint64_t sequence = 0;
  uint64_t unix_ms = 0;
  uint32_t name = 0;  // of the namespace, in the log or in a page
  uint16_t group = 0;
  BlockEventKind kind = BlockEventKind::kStored;
  Presence tier = Presence::kRam;
  Presence from = Presence::kRam;
  Presence reason = Presence::kEvicted;  // of kMoved and kRemoved
  bool whole = false;                    // the rectangle is all of the block
  uint32_t clear_epoch = 0;              // kCleared: the new one
  std::vector<ChainHash> constituents;   // kStored in memory, when its header has them
};

struct EventName {
  Namespace name_space;
  std::string tenant;
};

// What a follower has read. As it is made, it asks for a snapshot.
struct EventCursor {
  enum class Scan : uint8_t { kMemory, kSsd, kDone };
  uint64_t next = 0;  // sequence
  Scan scan = Scan::kDone;
  uint32_t scan_from = 0;
  bool followed = false;  // has got a page
};

// One step of a follower: first `events` in their order, then `present` as of `next`. The snapshot's steps
// lie between events, so that all of it holds at `next` once it is complete, however long it took.
struct EventPage {
  bool reset = false;  // forget everything first; a snapshot begins
  std::vector<BlockEvent> events;
  std::vector<BlockEvent> present;
  std::vector<EventName> names;
  uint64_t next = 0;
  bool resumable = false;  // the snapshot is told: a stream that ends may go on at `next`
  bool complete = false;   // what was told is what is there at `next`
  bool more = false;       // ask again at once
};

class EventLog {
 public:
  // 0: off, nothing is kept.
  explicit EventLog(uint32_t events_max) : events_max_(events_max) {}

  bool on() const { return events_max_ != 0; }
  uint64_t next() const { return next_; }
  uint64_t first() const { return next_ - events_.size(); }
  bool Has(uint64_t sequence) const { return sequence >= first() && sequence <= next_; }
  const BlockEvent& operator[](uint64_t sequence) const { return events_[sequence - first()]; }
  const EventName& name(uint32_t number) const { return names_[number].name; }

  // Sets sequence and name.
  void Add(const Namespace& name_space, std::string_view tenant, BlockEvent&& event);
  // What is there changed in ways that no event tells: all followers begin anew.
  void Break();

 private:
  struct Name {
    EventName name;
    uint64_t events = 0;  // that have it
  };
  uint32_t Intern(const Namespace& name_space, std::string_view tenant);
  void DropFirst();

  const uint32_t events_max_;
  uint64_t next_ = 1;
  std::deque<BlockEvent> events_;
  uint64_t hashes_ = 0;  // constituents of all of them
  std::vector<Name> names_;
  std::vector<uint32_t> free_names_;
  std::map<Namespace, uint32_t> name_of_;
};

}  // namespace larder::node
