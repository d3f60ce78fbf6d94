// What routers have been told of a node's blocks, and what to tell them next. The node's own events
// (event_log.h) are of pieces and come again when a follower begins anew; routers hear of whole blocks, tier
// by tier, by the engine's own hashes, and once. A block is told as stored in a tier when pieces there cover
// all of it.
//
// It keeps every block that is there, since who hears that one left must be told all of its hashes: about 150
// bytes and 8 a hash. Pure, one thread's.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/events/kv_event_format.h"
#include "node/owner/event_log.h"

namespace larder::node {

class KvEventView {
 public:
  // What an engine's namespace is to routers.
  struct Space {
    std::string topic;
    uint32_t block_tokens = 0;  // of a block of the node's
    Grid grid;
  };
  using Tell = std::function<void(const std::string& topic, KvEvent&& event)>;
  explicit KvEventView(Tell tell) : tell_(std::move(tell)) {}

  // Namespaces are made known before their first event; one that is no engine's is left out of everything.
  bool Knows(const Namespace& name_space) const { return spaces_.count(name_space) != 0; }
  void Know(const Namespace& name_space, Space&& space);
  void LeaveOut(const Namespace& name_space);
  // Between two pages of events: names of a page that have no block yet are needed until its end.
  void ForgetEmptySpaces();
  bool IsLeftOut(const Namespace& name_space) const { return spaces_.at(name_space) == kLeftOut; }
  // Whether an event of this block needs no hashes: they were told before.
  bool Has(const Namespace& name_space, const ChainHash& hash, uint16_t group) const;

  // A snapshot begins: what it does not tell again is gone at its end. An event or what is present; where the
  // piece begins to be in a tier, `constituents` are the block's, and none means that it is one block of the
  // engine's, unless Has. Its end.
  void BeginSnapshot();
  void Apply(const Namespace& name_space, const BlockEvent& event);
  void EndSnapshot();

  // Blocks by number, for telling all of them in steps; a number may have none. A block that is there keeps
  // it.
  uint32_t bound() const { return static_cast<uint32_t>(blocks_.size()); }
  // Appends what is there under numbers [begin, end) and in this topic.
  void Describe(const std::string& topic, uint32_t begin, uint32_t end, std::vector<KvEvent>* out) const;
  uint64_t blocks() const { return find_.size(); }
  uint64_t blocks_of(const std::string& topic) const;

 private:
  static constexpr size_t kSpacesMax = 4096;  // known without a block; beyond, they are asked for again
  static constexpr uint32_t kLeftOut = UINT32_MAX;
  static constexpr size_t kTiers = 2;
  struct Piece {
    Rectangle rectangle;
    uint8_t tier = 0;
    uint8_t told_in = 0;  // snapshot
  };
  struct Block {
    uint32_t space = kLeftOut;  // free
    uint16_t group = 0;
    std::array<uint8_t, kTiers> whole_in{};  // snapshot that told a piece which is all of it; 0: none
    std::array<bool, kTiers> told{};
    ChainHash hash;
    std::vector<uint64_t> hashes;
    std::unique_ptr<std::vector<Piece>> parts;  // the other pieces
  };
  struct Name {
    uint32_t space = 0;
    uint16_t group = 0;
    const ChainHash& hash;
  };
  struct Hasher {
    using is_transparent = void;
    const std::deque<Block>* blocks;
    size_t operator()(const Name& name) const;
    size_t operator()(uint32_t number) const;
  };
  struct Same {
    using is_transparent = void;
    const std::deque<Block>* blocks;
    bool operator()(uint32_t a, uint32_t b) const { return a == b; }
    bool operator()(const Name& name, uint32_t number) const;
    bool operator()(uint32_t number, const Name& name) const { return operator()(name, number); }
  };
  struct SpaceState {
    Space space;
    uint64_t blocks = 0;
  };

  uint32_t NumberOf(const Name& name, const BlockEvent& event);
  void Add(Block* block, const BlockEvent& event, size_t tier);
  static void Remove(Block* block, const BlockEvent& event, size_t tier);
  bool Covers(const Block& block, size_t tier) const;
  void TellChange(Block* block);
  void FreeIfGone(uint32_t number);
  void Clear(uint32_t space);
  KvEvent EventOf(const Block& block, KvEvent::Kind kind, size_t tier) const;

  const Tell tell_;
  std::map<Namespace, uint32_t> spaces_;               // its number
  std::unordered_map<uint32_t, SpaceState> space_of_;  // by number
  std::map<std::string, uint64_t> topics_;             // blocks
  uint32_t next_space_ = 0;
  size_t forget_at_ = kSpacesMax;  // so many spaces known
  std::deque<Block> blocks_;
  std::vector<uint32_t> free_;
  std::unordered_set<uint32_t, Hasher, Same> find_{16, Hasher{&blocks_}, Same{&blocks_}};
  uint8_t snapshot_ = 1;
  bool in_snapshot_ = false;
};

}  // namespace larder::node
