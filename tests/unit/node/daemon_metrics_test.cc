// Metrics: names, values and the text that Prometheus reads.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>

#include "node/daemon/metrics.h"

namespace larder::node {
namespace {

MetricsInput SomeInput() {
  MetricsInput input;
  input.owner.puts = 7;
  input.owner.memory_bytes = 1u << 30;
  input.owner.tenants = {{.name = "a\"b", .expired = 5, .used_bytes = 4096, .quota_bytes = 8192},
                         {.name = "*"}};
  input.owner.miss_by_reason[static_cast<size_t>(Presence::kEvicted)] = 3;
  input.movers = {{"tcp", {}}, {"shm", {}}};
  input.movers[0].stats.sent_bytes = 123'456'789'012;
  input.info.record.id = "a\"b\\c";
  input.info.ready = true;
  return input;
}

TEST(Metrics, NamesFollowPrometheus) {
  std::set<std::string_view> seen;
  for (const MetricInfo& info : MetricList()) {
    EXPECT_TRUE(seen.insert(info.name).second) << info.name;
    EXPECT_TRUE(std::regex_match(std::string(info.name), std::regex("[a-z][a-z0-9_]*"))) << info.name;
    EXPECT_EQ(info.name.ends_with("_total"), info.type == prometheus::MetricType::Counter) << info.name;
    EXPECT_FALSE(info.help.empty()) << info.name;
    std::string_view stem = info.name;
    if (stem.ends_with("_total")) stem.remove_suffix(6);
    if (!info.unit.empty()) {
      EXPECT_TRUE(stem.ends_with(info.unit)) << info.name;
    }
    EXPECT_EQ(stem.ends_with("bytes"), info.unit == "bytes") << info.name;
    EXPECT_EQ(stem.ends_with("seconds"), info.unit == "seconds") << info.name;
  }
}

TEST(Metrics, EveryMetricHasAValueAndParses) {
  const std::string text = MetricsText(SomeInput());
  const std::regex line(
      R"re([a-z][a-z0-9_]*(\{[a-z]+="([^"\\]|\\.)*"(,[a-z]+="([^"\\]|\\.)*")*\})? [-+0-9.e]+)re");
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string each; std::getline(lines, each);) {
    if (each.empty() || each[0] == '#') continue;
    EXPECT_TRUE(std::regex_match(each, line)) << each;
    names.insert(each.substr(0, each.find_first_of("{ ")));
  }
  for (const MetricInfo& info : MetricList()) EXPECT_EQ(names.count(std::string(info.name)), 1u) << info.name;
  EXPECT_EQ(names.size(), MetricList().size());
}

TEST(Metrics, ValuesArriveExactly) {
  const std::string text = MetricsText(SomeInput());
  for (const char* expected :
       {"larder_misses_total{reason=\"evicted\"} 3\n", "larder_memory_bytes{kind=\"capacity\"} 1073741824\n",
        "larder_transport_sent_bytes_total{transport=\"tcp\"} 123456789012\n",
        "larder_puts_total{outcome=\"stored\"} 7\n",
        "larder_tenant_left_pieces_total{tenant=\"a\\\"b\",reason=\"expired\"} 5\n",
        "larder_tenant_memory_bytes{tenant=\"a\\\"b\",kind=\"quota\"} 8192\n", "larder_ready 1\n",
        "node=\"a\\\"b\\\\c\""}) {
    EXPECT_NE(text.find(expected), std::string::npos) << expected;
  }
}

TEST(Metrics, FlatNamesAreUnique) {
  std::set<std::string> seen;
  for (const auto& family : Collect(SomeInput())) {
    for (const auto& metric : family.metric) EXPECT_TRUE(seen.insert(FlatName(family, metric)).second);
  }
  EXPECT_EQ(seen.count("larder_misses_total{reason=\"evicted\"}"), 1u);
  EXPECT_EQ(seen.count("larder_ready"), 1u);
}

}  // namespace
}  // namespace larder::node
