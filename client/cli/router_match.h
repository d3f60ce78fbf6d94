// A chain as one node answers it for the whole cluster: what a router sees.
#pragma once

#include <string>
#include <vector>

#include "client/cli/blocks.h"

namespace larder::cli {

struct RouterQuestion {
  std::shared_ptr<NamespaceFlags> name_space;
  std::vector<std::string> hashes;
  std::string file;  // of more hashes
  std::vector<uint32_t> groups;
  std::string node;  // that is asked
};

int MatchAtNode(const Globals& globals, RouterQuestion question);

}  // namespace larder::cli
