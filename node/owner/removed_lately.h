// What was removed here a short while ago, by fingerprint: a copy that another node restores here must not
// bring it back. Forgets after kForgetUs at the earliest; beyond its bound everything counts as removed for
// as long. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>

namespace larder::node {

class RemovedLately {
 public:
  static constexpr uint64_t kForgetUs = 600'000'000;
  static constexpr size_t kMost = 65536;  // of each generation; 4 MiB in all

  void Note(uint64_t key, uint64_t now_us) {
    if (now_us >= turn_us_ + kForgetUs) {
      old_.swap(young_);
      young_.clear();
      turn_us_ = now_us;
    }
    if (young_.size() < kMost) {
      young_.insert(key);
    } else {
      unsure_until_us_ = now_us + kForgetUs;
    }
  }
  bool MayBe(uint64_t key, uint64_t now_us) const {
    return now_us < unsure_until_us_ || young_.count(key) != 0 || old_.count(key) != 0;
  }

 private:
  std::unordered_set<uint64_t> young_, old_;
  uint64_t turn_us_ = 0;
  uint64_t unsure_until_us_ = 0;
};

}  // namespace larder::node
