// When a member that does not show itself loses its place: the same rule whoever keeps the table. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace larder::node {

// A member that has a place.
struct Standing {
  std::string id;
  bool live = false;
  uint64_t missing_us = 0;  // while somebody looked
};

// Those that have been missing for `grace_us`. None while more than half are: then it is not they who are
// gone but we, or whoever tells us of them.
std::vector<std::string> BeyondGrace(const std::vector<Standing>& members, uint64_t grace_us);

}  // namespace larder::node
