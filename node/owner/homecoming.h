// What is asked of the nodes that were home before, about blocks whose slot has moved here: who is worth
// asking, which questions are open, and what was answered lately, so that nobody is asked without end. Pure:
// no clock, no thread, no socket; part of the owner.
//
// A question is about one block and is asked once, however many wait for its answer. What the other node has
// not got is not asked for again for a minute; a node that holds nothing of a namespace is not asked about it
// at all for as long, one that does not answer for a pause that doubles, and one that had nothing for a long
// row of questions not again before the table changes. All of it has bounds, and beyond them a miss is simply
// a miss. What was removed or cleared here since is never asked for: the other node may not have heard of it.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/owner/block_name.h"
#include "node/owner/moved_slots.h"
#include "node/owner/owner.h"

namespace larder::node {

class Homecoming {
 public:
  static constexpr uint64_t kRememberUs = 1'800'000'000;  // since the slots moved
  static constexpr uint64_t kNotThereUs = 60'000'000;
  static constexpr uint64_t kPauseMinUs = 500'000, kPauseMaxUs = 16'000'000;
  static constexpr uint32_t kVainMax = 16384;
  static constexpr size_t kQuestionsMax = 16384;
  static constexpr size_t kNotesMax = 65536;   // of each kind
  static constexpr size_t kClearedMax = 4096;  // namespaces

  explicit Homecoming(uint64_t seed) : questions_(16, BlockNameHash{seed}) {}

  // After a change of the table. Notes about nodes begin anew, what was removed stays known.
  void SetMoved(MovedSlots moved, uint64_t now_us);
  bool active(uint64_t now_us) const { return !moved_.empty() && now_us < until_us_; }
  uint32_t slots(uint64_t now_us) const { return active(now_us) ? moved_.slots() : 0; }
  uint64_t until_us() const { return until_us_; }

  // The node to be asked; nullptr: nobody. `key` is the block's fingerprint.
  const std::string* Previous(const Namespace& name_space, const ChainHash& hash, uint64_t key,
                              uint64_t now_us);
  // Joins the open question about the block or makes one; false: there are too many.
  bool Ask(const BlockName& name, uint64_t key, Question&& question, uint64_t waiter);
  bool IsOpen(const BlockName& name) const { return questions_.count(name) != 0; }
  // Those that wait longest; they are open until they are answered.
  std::vector<Question> Take(size_t most);
  // The block of an open question; nullptr: it is answered, or what comes for it is not wanted any more.
  const BlockName* Open(uint64_t token, uint64_t now_us) const;
  // Ends the question; for an unreachable node also all others for it. Those that waited, once for each.
  std::vector<uint64_t> Answer(uint64_t token, Homing answer, uint64_t now_us);

  void Removed(const Namespace& name_space, const ChainHash& hash, uint64_t key, uint64_t now_us);
  // Its blocks' keys are other ones when it is opened again.
  void Forgotten(const Namespace& name_space);
  void Cleared(const Namespace& name_space);
  size_t open() const { return questions_.size(); }

 private:
  struct OpenQuestion {
    Question question;
    uint64_t key = 0;
    std::vector<uint64_t> waiters;
  };
  struct Home {
    uint64_t retry_us = 0;  // it did not answer
    uint64_t pause_us = 0;
    uint32_t vain = 0;  // answers in a row that it has not got the block
  };
  // A set that forgets: what was noted is known for one to two times kNotThereUs, or so many notes.
  struct Notes {
    std::unordered_set<uint64_t> young, old;
    uint64_t turn_us = 0;
    void Turn(uint64_t now_us);
    void Add(uint64_t key, uint64_t now_us);
    bool Has(uint64_t key, uint64_t now_us);
  };
  bool Wanted(const Namespace& name_space, uint64_t key) const;
  void End(uint64_t token, std::vector<uint64_t>* waiters);

  MovedSlots moved_;
  uint64_t until_us_ = 0;
  std::unordered_map<BlockName, OpenQuestion, BlockNameHash> questions_;
  std::unordered_map<uint64_t, BlockName> name_of_;  // by token
  std::deque<uint64_t> waiting_;                     // not taken yet
  Notes not_there_;
  std::map<std::pair<std::string, Namespace>, uint64_t> empty_until_;
  std::map<std::string, Home> homes_;
  std::unordered_set<uint64_t> removed_;
  std::set<Namespace> removed_in_;
  bool overflowed_ =
      false;  // more was removed than can be remembered: nothing is asked in this life any more
  std::set<Namespace> cleared_;
  bool distrust_ = false;  // more was cleared than can be remembered
};

}  // namespace larder::node
