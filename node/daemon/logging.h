// Log lines to standard error, as text or JSON. Only the daemon logs; libraries return and count.
#pragma once

#include <string_view>

namespace larder::node {

// level, format: as the knobs log_level and log_format.
void StartLogging(std::string_view level, std::string_view format, std::string_view node_name);

}  // namespace larder::node
