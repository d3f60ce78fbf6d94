// Every metric of a node, once: name, type, unit, help and where its value comes from stand in one table
// (metrics.cc). /metrics and the control service's Stats read the same.
#pragma once

#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "node/daemon/machine.h"
#include "node/membership/membership.h"
#include "node/node.h"

namespace larder::node {

struct MetricsInput {
  OwnerStats owner;
  std::vector<MoverStats> movers;
  NodeInfo info;
  ProcessUsage process;
  std::optional<MembershipStatus> membership;  // none: static
};

struct MetricInfo {
  std::string_view name, unit, help;  // unit: "bytes", "seconds", or empty for a count
  prometheus::MetricType type;
};

// What there is, in the order of Collect.
std::vector<MetricInfo> MetricList();

std::vector<prometheus::MetricFamily> Collect(const MetricsInput& input);

// Prometheus's text format, version 0.0.4.
std::string MetricsText(const MetricsInput& input);
inline constexpr std::string_view kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

// "larder_misses_total{reason=\"evicted\"}": how Stats names a value.
std::string FlatName(const prometheus::MetricFamily& family, const prometheus::ClientMetric& metric);

}  // namespace larder::node
