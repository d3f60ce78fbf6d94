// The golden vectors: what this build encodes, as files by name. tests/unit/proto/vectors/README.md.
#pragma once

#include <map>
#include <string>

namespace larder::testing {

// The vectors of version 1: file name -> contents.
std::map<std::string, std::string> VectorsOfThisBuild();

}  // namespace larder::testing
