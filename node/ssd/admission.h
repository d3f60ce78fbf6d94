// What may be written to SSD when it leaves memory: everything, or only what came a second time, since a
// write costs flash life. Pure; the trace simulator runs the same class.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace larder::node::ssd {

class Admission {
 public:
  // `twice`: only what was used again while it was in memory, or comes back within about `entries` blocks
  // after it was refused. 4 bytes an entry.
  explicit Admission(bool twice, uint32_t entries = 1 << 20)
      : tags_(twice ? std::bit_ceil(uint64_t{entries == 0 ? 1 : entries}) : 0) {}

  bool Admit(uint64_t fingerprint, bool used_again) {
    if (tags_.empty() || used_again) return true;
    uint32_t& tag = tags_[fingerprint & (tags_.size() - 1)];
    const auto mine = static_cast<uint32_t>(fingerprint >> 32) | 1;
    const bool seen = tag == mine;
    tag = mine;
    return seen;
  }

 private:
  std::vector<uint32_t> tags_;
};

}  // namespace larder::node::ssd
