// The hot list: blocks that are read more than their share, and the copies that their homes have put
// elsewhere.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/cluster.h"

namespace larder::cli {

nlohmann::ordered_json HotJson(const NodeView& view);
// A line for each of the most read ones, and one for the rest; empty: nothing is hot.
std::string HotText(const NodeView& view);

}  // namespace larder::cli
