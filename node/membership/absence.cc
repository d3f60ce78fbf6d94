#include "node/membership/absence.h"

namespace larder::node {

std::vector<std::string> BeyondGrace(const std::vector<Standing>& members, uint64_t grace_us) {
  size_t missing = 0;
  std::vector<std::string> absent;
  for (const Standing& member : members) {
    if (member.live) continue;
    ++missing;
    if (member.missing_us >= grace_us) absent.push_back(member.id);
  }
  if (missing * 2 > members.size()) absent.clear();
  return absent;
}

}  // namespace larder::node
