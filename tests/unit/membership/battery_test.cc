// What every membership promises, over a real etcd and over DNS with real control ports.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include "node/membership/etcd_membership.h"
#include "proto/control.pb.h"
#include "tests/unit/membership/dns_world.h"
#include "tests/unit/membership/etcd_process.h"

namespace larder::node {
namespace {

constexpr uint64_t kSecond = 1'000'000;
constexpr uint64_t kLongest = 30 * kSecond;  // bounds a hang

bool Comes(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(kLongest);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Ended from the last to the first, without Leave: as after kill -9.
struct Seat {
  std::unique_ptr<Membership> membership;
  std::unique_ptr<ControlService> control;
};

class OverEtcd {
 public:
  bool Start() { return EtcdProcess::Installed() && (etcd_ = std::make_unique<EtcdProcess>())->WaitReady(); }
  void GoAway() { etcd_->Kill(); }
  void ComeBack() { etcd_->Start(); }
  void List(const NodeRecord&) {}
  Seat Open(NodeRecord*, uint64_t grace_us, Membership::Sink sink) {
    EtcdMembershipOptions options;
    options.etcd.endpoints = {etcd_->address()};
    options.etcd.call_timeout_us = kSecond;
    options.lease_us = kSecond;
    options.away_grace_us = grace_us;
    auto opened = EtcdMembership::Open(options, std::move(sink));
    EXPECT_TRUE(opened.ok());
    return {std::move(opened).value(), nullptr};
  }

 private:
  std::unique_ptr<EtcdProcess> etcd_;
};

class OverDns {
 public:
  bool Start() { return true; }
  void GoAway() { names_.SetSilent(true); }
  void ComeBack() { names_.SetSilent(false); }
  void List(const NodeRecord& record) {
    const size_t colon = record.control_address.rfind(':');
    names_.AddPort(static_cast<uint16_t>(std::stoi(record.control_address.substr(colon + 1))));
  }
  Seat Open(NodeRecord* record, uint64_t grace_us, Membership::Sink sink) {
    DnsMembershipOptions options;
    options.names.name = NameServer::kService;
    options.names.servers = {names_.address()};
    options.names.timeout_us = kSecond;
    options.period_us = 200'000;
    options.away_grace_us = grace_us;
    auto opened = DnsMembership::Open(options, std::move(sink));
    EXPECT_TRUE(opened.ok());
    auto control = ControlService::Start("127.0.0.1:0", {});
    EXPECT_TRUE(control.ok());
    control.value()->SetExchange([dns = opened.value().get()](const auto& request, auto* response) {
      return dns->Answer(request, response);
    });
    record->control_address = control.value()->address();
    return {std::move(opened).value(), std::move(control).value()};
  }

 private:
  NameServer names_;
};

// A node as far as membership is concerned.
template <typename World>
struct BatteryMember {
  BatteryMember(World* world, const std::string& id, uint64_t incarnation, uint64_t grace_us = 300 * kSecond)
      : where(world) {
    record.id = id;
    record.incarnation = incarnation;
    record.data_address = "127.0.0.1:" + std::to_string(7000 + incarnation);
    seat = world->Open(&record, grace_us, [this](const NodeTable& newer) {
      const std::lock_guard lock(mutex);
      EXPECT_GT(newer.epoch, table.epoch);
      table = newer;
    });
  }
  ~BatteryMember() {
    seat.control.reset();
    seat.membership.reset();
  }
  Membership* operator->() const { return seat.membership.get(); }
  Status Join() {
    where->List(record);
    return seat.membership->Join(record, kLongest);
  }
  NodeTable Table() {
    const std::lock_guard lock(mutex);
    return table;
  }
  bool Sees(size_t nodes) {
    return Comes([&] { return Table().nodes.size() == nodes; });
  }
  bool SeesState(const std::string& id, NodeState state) {
    return Comes([&] {
      for (const NodeRecord& node : Table().nodes) {
        if (node.id == id && node.state == state) return true;
      }
      return false;
    });
  }

  World* const where;
  NodeRecord record;
  std::mutex mutex;
  NodeTable table;
  Seat seat;
};

template <typename World>
class MembershipBattery : public ::testing::Test {
 protected:
  using Member = BatteryMember<World>;
  void SetUp() override { ASSERT_TRUE(world.Start()) << "is etcd installed? ./deploy/install-packages"; }
  World world;
};

using Worlds = ::testing::Types<OverEtcd, OverDns>;

class WorldName {
 public:
  template <typename World>
  static std::string GetName(int) {
    return std::is_same_v<World, OverEtcd> ? "Etcd" : "Dns";
  }
};
TYPED_TEST_SUITE(MembershipBattery, Worlds, WorldName);

TYPED_TEST(MembershipBattery, NodesSeeOneTableUnderOneVersion) {
  typename TestFixture::Member a(&this->world, "a", 1), b(&this->world, "b", 2), c(&this->world, "c", 3);
  // Side by side: each raises the version in turn.
  std::vector<std::thread> joins;
  for (auto* member : {&a, &b, &c}) joins.emplace_back([member] { EXPECT_TRUE(member->Join().ok()); });
  for (std::thread& join : joins) join.join();
  for (auto* member : {&a, &b, &c}) EXPECT_TRUE(member->Sees(3));
  EXPECT_TRUE(Comes([&] { return a.Table() == b.Table() && b.Table() == c.Table(); }));
  EXPECT_TRUE(Comes([&] { return a->status().live == 3; }));
  // A beat that takes longer than its second, as on a slow disk, is a connection lost and found again.
  EXPECT_TRUE(Comes([&] { return a->status().connected; }));
}

TYPED_TEST(MembershipBattery, DrainingIsSeenByTheOthers) {
  typename TestFixture::Member a(&this->world, "a", 1), b(&this->world, "b", 2);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  a->SetState(NodeState::kDraining);
  EXPECT_TRUE(b.SeesState("a", NodeState::kDraining));
  EXPECT_TRUE(a.SeesState("a", NodeState::kDraining));
}

TYPED_TEST(MembershipBattery, WhoResignsIsGoneAtOnceWhoLeavesKeepsItsPlace) {
  typename TestFixture::Member a(&this->world, "a", 1), b(&this->world, "b", 2), c(&this->world, "c", 3);
  for (auto* member : {&a, &b, &c}) ASSERT_TRUE(member->Join().ok());
  ASSERT_TRUE(a.Sees(3));
  b->Leave();
  ASSERT_TRUE(Comes([&] { return a->status().live == 2; }));
  EXPECT_EQ(a.Table().nodes.size(), 3u);
  EXPECT_TRUE(c->Resign().ok());
  EXPECT_TRUE(a.Sees(2));
  EXPECT_TRUE(Comes([&] { return a->status().live == 1; }));
}

TYPED_TEST(MembershipBattery, AnIdThatALiveNodeHasIsRefused) {
  typename TestFixture::Member a(&this->world, "a", 1), second(&this->world, "a", 2);
  ASSERT_TRUE(a.Join().ok());
  const Status refused = second.Join();
  EXPECT_EQ(refused.code(), Code::kInvalid);
  EXPECT_NE(refused.text().find("another live node, at 127.0.0.1:7001, is a"), std::string::npos)
      << refused.text();
}

TYPED_TEST(MembershipBattery, ARestartAfterACrashTakesItsPlaceBack) {
  typename TestFixture::Member b(&this->world, "b", 9);
  {
    typename TestFixture::Member a(&this->world, "a", 1);
    ASSERT_TRUE(a.Join().ok());
    ASSERT_TRUE(b.Join().ok());
    ASSERT_TRUE(b.Sees(2));
  }
  const uint64_t before = b.Table().epoch;
  typename TestFixture::Member again(&this->world, "a", 2);
  EXPECT_TRUE(again.Join().ok());
  EXPECT_FALSE(again->status().came_new);
  EXPECT_TRUE(Comes([&] { return b.Table().epoch > before; }));
  EXPECT_EQ(b.Table().nodes.size(), 2u);
  EXPECT_EQ(b.Table().nodes[0].incarnation, 2u);
}

TYPED_TEST(MembershipBattery, LeavingKeepsThePlaceUntilTheGraceIsOver) {
  constexpr uint64_t kGrace = 3 * kSecond;
  typename TestFixture::Member a(&this->world, "a", 1, kGrace), b(&this->world, "b", 2, kGrace),
      c(&this->world, "c", 3, kGrace);
  for (auto* member : {&a, &b, &c}) ASSERT_TRUE(member->Join().ok());
  ASSERT_TRUE(Comes([&] { return b.Table().nodes.size() == 3 && a.Table() == b.Table(); }));
  const NodeTable before = b.Table();
  c->Leave();
  EXPECT_TRUE(Comes([&] { return b->status().live == 2; }));
  EXPECT_EQ(b.Table(), before) << "who is not heard of moves nothing";
  EXPECT_TRUE(b.SeesState("c", NodeState::kAway));
  EXPECT_TRUE(a.SeesState("c", NodeState::kAway));
  EXPECT_TRUE(Comes([&] { return a.Table() == b.Table(); }));
  typename TestFixture::Member again(&this->world, "c", 4, kGrace);
  ASSERT_TRUE(again.Join().ok());
  EXPECT_TRUE(again->status().came_new);
  EXPECT_TRUE(b.SeesState("c", NodeState::kActive));
}

TYPED_TEST(MembershipBattery, WhoTellsIsGoneTheLastTableStaysAndItsReturnMovesNothing) {
  constexpr uint64_t kGrace = 2 * kSecond;
  typename TestFixture::Member a(&this->world, "a", 1, kGrace), b(&this->world, "b", 2, kGrace);
  ASSERT_TRUE(a.Join().ok());
  ASSERT_TRUE(b.Join().ok());
  ASSERT_TRUE(a.Sees(2));
  ASSERT_TRUE(b.Sees(2));
  const NodeTable before = b.Table();
  this->world.GoAway();
  EXPECT_TRUE(Comes([&] { return !a->status().connected; }));
  EXPECT_NE(a->status().error, "");
  usleep(4'000'000);  // longer than lease and grace
  this->world.ComeBack();
  EXPECT_TRUE(Comes([&] { return a->status().connected && b->status().connected && a->status().live == 2; }));
  EXPECT_EQ(a.Table().nodes, before.nodes);
  EXPECT_EQ(b.Table().nodes, before.nodes);
  // And it goes on: changes come through again.
  b->SetState(NodeState::kDraining);
  EXPECT_TRUE(a.SeesState("b", NodeState::kDraining));
}

TYPED_TEST(MembershipBattery, NobodyTellsIsSaidWithinTheBudget) {
  this->world.GoAway();
  typename TestFixture::Member a(&this->world, "a", 1);
  const Status status = a->Join(a.record, 2 * kSecond);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.text(), "");
}

}  // namespace
}  // namespace larder::node
