// Membership through a real etcd: what only etcd has. battery_test.cc has the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "node/membership/etcd_membership.h"
#include "tests/unit/membership/etcd_process.h"

namespace larder::node {
namespace {

constexpr uint64_t kSecondUs = 1'000'000;
constexpr uint64_t kPatienceUs = 30 * kSecondUs;  // bounds a hang

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(kPatienceUs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

NodeRecord Record(const std::string& id, uint64_t incarnation = 1) {
  NodeRecord record;
  record.id = id;
  record.incarnation = incarnation;
  record.data_address = "127.0.0.1:" + std::to_string(7000 + incarnation % 1000);
  return record;
}

// A node as far as membership is concerned.
struct Member {
  Member(const EtcdProcess& etcd, const std::string& id, uint64_t incarnation = 1,
         EtcdMembershipOptions options = {})
      : record(Record(id, incarnation)) {
    if (options.etcd.endpoints.empty()) options.etcd.endpoints = {etcd.address()};
    options.etcd.call_timeout_us = kSecondUs;
    options.lease_us = kSecondUs;
    auto opened = EtcdMembership::Open(options, [this](const NodeTable& newer) {
      const std::lock_guard lock(mutex);
      EXPECT_GT(newer.epoch, table.epoch);
      table = newer;
    });
    EXPECT_TRUE(opened.ok());
    membership = std::move(opened).value();
  }
  ~Member() { membership.reset(); }
  Status Join() { return membership->Join(record, kPatienceUs); }
  NodeTable Table() {
    const std::lock_guard lock(mutex);
    return table;
  }
  bool Sees(size_t nodes) {
    return Eventually([&] { return Table().nodes.size() == nodes; });
  }
  bool SeesState(const std::string& id, NodeState state) {
    return Eventually([&] {
      for (const NodeRecord& node : Table().nodes) {
        if (node.id == id && node.state == state) return true;
      }
      return false;
    });
  }

  NodeRecord record;
  std::mutex mutex;
  NodeTable table;
  std::unique_ptr<EtcdMembership> membership;
};

class Etcd : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(EtcdProcess::Installed()) << "etcd is not installed: ./deploy/install-packages";
    etcd = std::make_unique<EtcdProcess>();
    ASSERT_TRUE(etcd->WaitReady());
  }
  std::unique_ptr<EtcdProcess> etcd;
};

TEST_F(Etcd, AnEtcdSetUpAnewGetsTheWholeClusterBackUnderAHigherVersion) {
  Member a(*etcd, "a", 1), b(*etcd, "b", 2), c(*etcd, "c", 3);
  for (Member* member : {&a, &b, &c}) ASSERT_TRUE(member->Join().ok());
  for (Member* member : {&a, &b, &c}) ASSERT_TRUE(member->Sees(3));
  ASSERT_TRUE(Eventually([&] { return a.Table() == b.Table() && b.Table() == c.Table(); }));
  const NodeTable before = a.Table();
  etcd->Kill();
  etcd->Start(true);
  for (Member* member : {&a, &b, &c}) {
    EXPECT_TRUE(Eventually([&] { return member->Table().epoch > before.epoch; }));
    EXPECT_EQ(member->Table().nodes, before.nodes) << "nobody may see a cluster of one";
  }
  EXPECT_TRUE(Eventually([&] { return a.membership->status().live == 3; }));
}

TEST_F(Etcd, AWatchWhoseRevisionWasCompactedReadsAnew) {
  Member a(*etcd, "a", 1), b(*etcd, "b", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  etcd->Kill();
  etcd->Start();
  for (int i = 0; i < 20; ++i) etcd->Ctl("put /other " + std::to_string(i));
  const std::string status = etcd->Ctl("endpoint status -w json");
  const size_t at = status.find("\"revision\":");
  ASSERT_NE(at, std::string::npos) << status;
  etcd->Ctl("compact " + std::to_string(std::atoll(status.c_str() + at + 11)));
  b.membership->SetState(NodeState::kDraining);
  EXPECT_TRUE(a.SeesState("b", NodeState::kDraining));
}

TEST_F(Etcd, AnEndpointThatIsDeadIsLeftForTheNext) {
  EtcdMembershipOptions options;
  options.etcd.endpoints = {"127.0.0.1:1", etcd->address()};
  Member a(*etcd, "a", 1, options);
  EXPECT_TRUE(a.Join().ok());
  EXPECT_TRUE(a.Sees(1));
}

TEST_F(Etcd, NobodyAnswersIsSaidWithinTheBudget) {
  EtcdMembershipOptions options;
  options.etcd.endpoints = {"127.0.0.1:1"};
  Member a(*etcd, "a", 1, options);
  const Status status = a.membership->Join(a.record, 2 * kSecondUs);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.text().find("127.0.0.1:1"), std::string::npos) << status.text();
}

TEST_F(Etcd, UserAndPassword) {
  etcd->Ctl("user add root:secret");
  etcd->Ctl("user grant-role root root");
  ASSERT_NE(etcd->Ctl("auth enable 2>&1").find("Enabled"), std::string::npos);
  EtcdMembershipOptions options;
  options.etcd.user = "root";
  options.etcd.password = "wrong";
  Member stranger(*etcd, "s", 1, options);
  const Status denied = stranger.membership->Join(stranger.record, 3 * kSecondUs);
  EXPECT_EQ(denied.code(), Code::kDenied) << denied.text();
  options.etcd.password = "secret";
  Member a(*etcd, "a", 2, options);
  EXPECT_TRUE(a.Join().ok());
  EXPECT_TRUE(a.Sees(1));
}

TEST_F(Etcd, APausedEtcdHoldsNobodyUp) {
  Member a(*etcd, "a", 1);
  ASSERT_TRUE(a.Join().ok());
  etcd->Pause(true);
  EXPECT_TRUE(Eventually([&] { return !a.membership->status().connected; }));
  etcd->Pause(false);
  EXPECT_TRUE(Eventually([&] { return a.membership->status().connected; }));
}

}  // namespace
}  // namespace larder::node
