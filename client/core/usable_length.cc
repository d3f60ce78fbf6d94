#include <algorithm>
#include <vector>

#include "client/client.h"

namespace larder {

// One pass over the chain: for every group the length of the run of present blocks that ends at each key. A
// prefix of length L is usable for a full group when the run that ends at L - 1 is L long, for a window of w
// blocks when it is at least min(w, L) long.
uint32_t UsableLength(std::span<const Presence> presence, size_t keys, std::span<const GroupSpec> groups) {
  if (groups.empty() || presence.size() < keys * groups.size()) return 0;
  std::vector<uint32_t> runs(groups.size(), 0);
  uint32_t usable = 0;
  for (size_t key = 0; key < keys; ++key) {
    const uint32_t length = static_cast<uint32_t>(key + 1);
    bool all = true;
    bool can_go_on = true;
    for (size_t group = 0; group < groups.size(); ++group) {
      uint32_t& run = runs[group];
      run = IsHit(presence[key * groups.size() + group]) ? run + 1 : 0;
      const uint32_t window = groups[group].window_blocks;
      const uint32_t need = window == 0 ? length : std::min(window, length);
      if (run < need) all = false;
      if (window == 0 && run < length)
        can_go_on = false;  // a full group with a hole never becomes usable again
    }
    if (all) usable = length;
    if (!can_go_on) break;
  }
  return usable;
}

}  // namespace larder
