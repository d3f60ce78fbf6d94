// doctor: each finding alone, from made-up clusters.
#include "client/cli/findings.h"

#include <gtest/gtest.h>

namespace larder::cli {
namespace {

// A cluster in which all is well.
std::vector<NodeView> Healthy() {
  std::vector<NodeView> views(2);
  for (size_t i = 0; i < views.size(); i++) {
    NodeRecord& record = views[i].record;
    record.id = "node-" + std::to_string(i);
    record.incarnation = 7;
    record.data_address = "10.0.0." + std::to_string(i) + ":7400";
    record.control_address = "10.0.0." + std::to_string(i) + ":7401";
    record.http_address = "10.0.0." + std::to_string(i) + ":7402";
    record.host_id = "host-" + std::to_string(i);
    record.build = "0.1.0";
    views[i].health = "SERVING";
    views[i].info.set_started_unix_ms(1000);
    views[i].info.set_uptime_ms(500);
    views[i].info_unix_ms = 1500;
  }
  for (NodeView& view : views) {
    view.table.epoch = 3;
    for (const NodeView& other : views) {
      NodeRecord record;  // what a static list has of the others
      record.id = other.record.id;
      record.data_address = other.record.data_address;
      view.table.nodes.push_back(&other == &view ? other.record : record);
    }
  }
  return views;
}

LocalFacts GoodHost() {
  return {"elsewhere", 1 << 20, UINT64_MAX, 0, "advise"};
}

std::string Text(const std::vector<NodeView>& views, const LocalFacts& local = GoodHost(), Probe probe = {}) {
  std::vector<Probe> probes(views.size());
  if (!probes.empty()) probes[0] = std::move(probe);
  std::string text;
  for (const Finding& each : Judge(views, probes, local)) {
    EXPECT_FALSE(each.what.empty());
    EXPECT_FALSE(each.mend.empty());
    text += (each.problem ? "! " : "note ") + each.what + "\n";
  }
  return text;
}

TEST(Doctor, FindsNothingInAHealthyCluster) {
  EXPECT_EQ(Text(Healthy()), "");
}

TEST(Doctor, ADeadNodeIsOneFindingNotTwo) {
  auto views = Healthy();
  views[1].data_error = "refused";
  views[1].control_error = "its control address is not known";
  views[1].record.control_address.clear();
  EXPECT_EQ(Text(views), "! node-1: data port 10.0.0.1:7400: refused\n");
}

TEST(Doctor, FindsEachPort) {
  auto views = Healthy();
  views[0].control_error = "10.0.0.0:7401: timed out";
  Probe probe;
  probe.http_error = "refused";
  probe.shm_error = "no such file";
  const std::string text = Text(views, GoodHost(), probe);
  EXPECT_NE(text.find("control port"), std::string::npos);
  EXPECT_NE(text.find("HTTP port 10.0.0.0:7402: refused"), std::string::npos);
  EXPECT_NE(text.find("shared memory socket"), std::string::npos);
}

TEST(Doctor, FindsNodesThatStopOrDoNotServe) {
  auto views = Healthy();
  views[0].info.set_draining(true);
  views[1].health = "NOT_SERVING";
  EXPECT_EQ(Text(views), "! node-0 is stopping\n! node-1 says NOT_SERVING\n");
}

TEST(Doctor, FindsBadMemoryAndScarceFiles) {
  auto views = Healthy();
  (*views[0].stats.mutable_counters())["larder_reports_dropped_total"] = 2;
  (*views[1].stats.mutable_gauges())["process_open_fds"] = 950;
  (*views[1].stats.mutable_gauges())["process_max_fds"] = 1000;
  EXPECT_EQ(Text(views),
            "! node-0 found 2 blocks corrupt in its own memory\n! node-1 has 950 of 1000 files open\n");
}

TEST(Doctor, FindsTablesThatDiffer) {
  auto views = Healthy();
  views[1].table.nodes[0].weight = 2;
  EXPECT_EQ(Text(views), "! different node tables under epoch 3: node-0 against node-1\n");
  views = Healthy();
  views[1].table.epoch = 4;
  EXPECT_EQ(Text(views), "! nodes follow tables of different epochs: epoch 3: node-0; epoch 4: node-1\n");
}

TEST(Doctor, FindsVersionsThatDiffer) {
  auto views = Healthy();
  views[1].record.build = "0.2.0";
  views[1].record.wire_min = views[1].record.wire_max = 9;
  const std::string text = Text(views);
  EXPECT_NE(text.find("! node-1 speaks wire versions 9..9, this program 1..1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("! nodes run different builds: 0.1.0: node-0; 0.2.0: node-1\n"), std::string::npos)
      << text;
}

TEST(Doctor, FindsLoopbackAddressesOnlyAcrossHosts) {
  auto views = Healthy();
  for (NodeView& view : views) view.record.data_address = "127.0.0.1:7400";
  EXPECT_NE(Text(views).find("node-0 tells others to reach it at 127.0.0.1:7400"), std::string::npos);
  views[1].record.host_id = views[0].record.host_id;
  EXPECT_EQ(Text(views), "");
}

TEST(Doctor, FindsClocksThatAreApart) {
  auto views = Healthy();
  views[0].info_unix_ms = 61'500;
  EXPECT_EQ(Text(views), "! node-0's clock is 60 s behind\n");
  views[0].info_unix_ms = 1600;
  EXPECT_EQ(Text(views), "");
}

TEST(Doctor, FindsLimitsOfThisHost) {
  auto views = Healthy();
  LocalFacts local = GoodHost();
  local.open_files_max = 1024;
  local.locked_bytes_max = 8 << 20;
  EXPECT_EQ(Text(views, local), "! this host allows a process 1024 open files\n");
  views[0].record.ucx_address = "10.0.0.0:7403";
  EXPECT_NE(Text(views, local).find("lock only 8192 KiB"), std::string::npos);
  local = GoodHost();
  local.host_id = "host-0";
  local.shmem_huge = "never";
  EXPECT_NE(Text(Healthy(), local).find("note no huge pages"), std::string::npos);
}

}  // namespace
}  // namespace larder::cli
