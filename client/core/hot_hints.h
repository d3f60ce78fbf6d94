// Where else blocks are that are read much, as their homes said with the answers of gets; a reader takes
// their places in turn, its home among them, so that each home goes on telling. A hint may be wrong at any
// time: whoever has not got the block says so, and the home is asked. Bounded; pure.
#pragma once

#include <cstring>
#include <unordered_map>
#include <vector>

#include "proto/message.h"
#include "proto/placement.h"

namespace larder::client {

class HotHints {
 public:
  static constexpr size_t kHintsMax = 1024;  // some 200 bytes each
  static constexpr uint32_t kPlacesMax = 64;

  struct Key {
    uint32_t name_space = 0;
    uint16_t group = 0;
    ChainHash hash;
    bool operator==(const Key&) const = default;
  };

  explicit HotHints(uint64_t seed) : next_turn_(seed) {}

  bool empty() const { return hints_.empty(); }
  size_t size() const { return hints_.size(); }
  // `mask`: bits of the block's order by `table`. Too few to choose from: there is nothing to remember.
  void Note(const Key& key, uint64_t mask, const NodeTable& table);
  void Forget(const Key& key) { hints_.erase(key); }
  // What this home said: it may come back without knowing who has copies, so that a removal would not reach
  // them.
  void ForgetHome(uint16_t node) {
    std::erase_if(hints_, [&](const auto& entry) { return entry.second.nodes.front() == node; });
  }
  // Numbers in the table of that epoch, whose turn it is first, all of them; the home is the block's first
  // place. Empty: ask the home.
  std::vector<uint16_t> Turn(const Key& key, uint64_t epoch);

 private:
  struct Hint {
    uint64_t mask = 0;
    uint64_t epoch = 0;
    uint64_t turn = 0;
    std::vector<uint16_t> nodes;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      uint64_t word = 0;
      std::memcpy(&word, key.hash.bytes.data(), sizeof word);  // a digest already
      return word ^ key.name_space * 0x9e3779b97f4a7c15ull ^ key.group;
    }
  };

  std::unordered_map<Key, Hint, KeyHash> hints_;
  uint64_t next_turn_;  // readers begin at different places
};

}  // namespace larder::client
