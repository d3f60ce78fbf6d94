// Just enough HTTP to read a node's metrics.
#pragma once

#include <string>

namespace larder::bench {

// Body of the answer; empty when nobody answers within seconds. `address` is a numeric IPv4 host and a port.
std::string HttpGet(const std::string& address, const std::string& path);

// The value of a metric in a Prometheus text, by its name and labels as they stand there; negative when
// absent.
double MetricIn(const std::string& text, const std::string& name);

}  // namespace larder::bench
