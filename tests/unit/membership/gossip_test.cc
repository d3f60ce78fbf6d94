// A cluster without a master: the order of facts, and many nodes that tell each other from a seed.
#include "node/membership/gossip.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "node/membership/cluster_state.h"
#include "node/membership/facts_wire.h"

namespace larder::node {
namespace {

constexpr uint64_t kPeriodUs = 1000, kLongGraceUs = 10'000, kMinutes = 30'000'000;

NodeRecord RecordOf(const std::string& id, uint64_t incarnation) {
  NodeRecord record;
  record.id = id;
  record.incarnation = incarnation;
  record.data_address = "127.0.0.1:7400";
  record.control_address = id + ":7401";
  return record;
}

Fact FactOf(const std::string& id, uint64_t version, NodeState state = NodeState::kActive) {
  Fact fact{RecordOf(id, 7), version, false};
  fact.record.state = state;
  return fact;
}

Fact GoneOf(const std::string& id, uint64_t version) {
  Fact fact;
  fact.record.id = id;
  fact.version = version;
  fact.gone = true;
  return fact;
}

TEST(RosterFacts, TheLaterFactIsKeptAndRaisesTheEpoch) {
  Roster roster;
  ASSERT_TRUE(roster.MergeFounded(5));
  uint64_t epoch = roster.epoch();
  EXPECT_EQ(epoch, 5 * Roster::kEpochsAMinute);
  for (const Fact& fact : {FactOf("a", 1), FactOf("a", 1, NodeState::kAway), FactOf("a", 2),
                           FactOf("a", 3, NodeState::kDraining), GoneOf("a", 4), FactOf("a", 5)}) {
    EXPECT_TRUE(roster.Merge(fact));
    EXPECT_GT(roster.epoch(), epoch);
    epoch = roster.epoch();
    EXPECT_FALSE(roster.Merge(fact));
  }
  EXPECT_FALSE(roster.Merge(FactOf("a", 4)));
  EXPECT_FALSE(roster.MergeFounded(4));
  EXPECT_EQ(roster.epoch(), epoch);
}

TEST(RosterFacts, InWhateverOrderTheyAreToldTheRosterIsTheSame) {
  std::vector<Fact> facts;
  for (const char* id : {"a", "b", "c"}) {
    for (uint64_t version = 1; version < 4; ++version) {
      facts.push_back(FactOf(id, version));
      facts.push_back(FactOf(id, version, NodeState::kAway));
      Fact other = FactOf(id, version);
      other.record.incarnation = 8;
      facts.push_back(other);
    }
  }
  facts.push_back(GoneOf("b", 4));
  Roster first;
  for (const Fact& fact : facts) first.Merge(fact);
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(facts.begin(), facts.end(), random);
    Roster other;
    for (const Fact& fact : facts) other.Merge(fact);
    EXPECT_EQ(other.digest(), first.digest());
    EXPECT_EQ(other.epoch(), first.epoch());
    EXPECT_EQ(other.Table(), first.Table());
  }
  EXPECT_EQ(first.Table().nodes.size(), 2u) << "who is gone stands in no table";
}

TEST(RosterFacts, IdsAreBounded) {
  Roster roster;
  for (uint32_t i = 0; i < kNodesMax; ++i) EXPECT_TRUE(roster.Merge(FactOf("n" + std::to_string(i), 1)));
  EXPECT_FALSE(roster.Merge(FactOf("one more", 1)));
  EXPECT_TRUE(roster.Merge(FactOf("n7", 2)));
}

TEST(RosterFacts, BytesComeBackAndBadOnesAreRefusedWhole) {
  Roster roster;
  roster.MergeFounded(9);
  for (const Fact& fact : {FactOf("a", 3), FactOf("b", 1, NodeState::kAway), GoneOf("c", 2)}) {
    roster.Merge(fact);
  }
  Roster back;
  ASSERT_TRUE(MergeRosterBytes(RosterBytes(roster), &back).ok());
  EXPECT_EQ(back.digest(), roster.digest());
  EXPECT_EQ(FactsMessages(roster, 2).size(), 2u);
  EXPECT_FALSE(MergeRosterBytes("nonsense", &back).ok());

  const control::v1::Facts good = FactsMessages(roster, kNodesMax)[0];
  const auto refused = [&](const auto& spoil) {
    control::v1::Facts bad = good;
    spoil(&bad);
    Roster empty;
    bool news = false;
    EXPECT_FALSE(MergeFacts(bad, &empty, &news).ok());
    EXPECT_TRUE(empty.empty());
    EXPECT_FALSE(news);
  };
  refused([](auto* facts) { facts->set_versions(0, 0); });
  refused([](auto* facts) { facts->set_versions(0, Roster::kVersionMax + 1); });
  refused([](auto* facts) { facts->add_versions(1); });
  refused([](auto* facts) { facts->mutable_table()->back() ^= 1; });
  refused([](auto* facts) { facts->mutable_gone(0)->set_id(""); });
  refused([](auto* facts) { facts->mutable_gone(0)->set_version(0); });
  refused([](auto* facts) { facts->set_founded_unix_minutes(Roster::kFoundedMinutesMax + 1); });
}

// Nodes in one thread; what is cut carries nothing either way, and a node that is dead answers nothing.
class World {
 public:
  explicit World(uint32_t seed = 1) : random(seed) {}

  Gossip& Add(const std::string& id, uint64_t incarnation, bool enter = true, Roster known = {}) {
    GossipOptions options;
    options.away_grace_us = kLongGraceUs;
    options.period_us = kPeriodUs;
    options.probe_us = kPeriodUs / 4;
    nodes[id] = std::make_unique<Gossip>(options, RecordOf(id, incarnation), std::move(known));
    if (!enter) return *nodes[id];
    RoundOf(id);
    nodes[id]->Enter(kMinutes);
    return *nodes[id];
  }
  bool Reaches(const std::string& from, const std::string& to) const {
    return nodes.count(to) != 0 && side.count(from) == side.count(to) && cut.count({from, to}) == 0;
  }
  void RoundOf(const std::string& id) {
    Gossip& node = *nodes[id];
    const Gossip::Request question = node.BeginRound();
    for (const auto& [other, gossip] : nodes) {
      if (other == id || !Reaches(id, other)) continue;
      Gossip::Response response;
      ASSERT_TRUE(gossip->Answer(question, now_us, &response).ok());
      EXPECT_TRUE(node.TakeAnswer(other, response, now_us));
    }
    node.EndRound(now_us);
    for (const std::string& behind : node.Behind()) {
      for (const Gossip::Request& request : node.Tell()) {
        Gossip::Response response;
        EXPECT_TRUE(nodes[behind]->Answer(request, now_us, &response).ok());
      }
    }
  }
  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<std::string> ids;
      for (const auto& [id, gossip] : nodes) ids.push_back(id);
      std::shuffle(ids.begin(), ids.end(), random);
      for (const std::string& id : ids) {
        const uint64_t before = nodes[id]->roster().epoch();
        RoundOf(id);
        EXPECT_GE(nodes[id]->roster().epoch(), before);
        now_us += kPeriodUs / ids.size();
      }
    }
  }
  NodeState StateAt(const std::string& at, const std::string& of) {
    const Fact* fact = nodes[at]->roster().Find(of);
    return fact == nullptr ? NodeState::kJoining : fact->record.state;
  }
  void ExpectOneTable() {
    const NodeTable table = nodes.begin()->second->roster().Table();
    for (const auto& [id, gossip] : nodes) EXPECT_EQ(gossip->roster().Table(), table) << id;
  }

  std::mt19937 random;
  uint64_t now_us = 1'000'000;
  std::map<std::string, std::unique_ptr<Gossip>> nodes;
  std::set<std::string> side;  // those on the far side of a split
  std::set<std::pair<std::string, std::string>> cut;
};

TEST(Gossip, AllComeToOneTableAndWhoComesLaterSaysSo) {
  World world;
  EXPECT_FALSE(world.Add("a", 1).came_new()) << "nobody was there before";
  EXPECT_TRUE(world.Add("b", 2).came_new());
  world.Add("c", 3);
  world.Rounds(2);
  world.ExpectOneTable();
  EXPECT_EQ(world.nodes["a"]->roster().Table().nodes.size(), 3u);
  EXPECT_EQ(world.nodes["a"]->live(), 3u);
}

TEST(Gossip, ARestartRaisesTheRecordAndMovesNothing) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  world.Rounds(1);
  const NodeTable before = world.nodes["a"]->roster().Table();
  EXPECT_FALSE(world.Add("c", 2).came_new());
  world.Rounds(1);
  world.ExpectOneTable();
  NodeTable after = world.nodes["a"]->roster().Table();
  EXPECT_GT(after.epoch, before.epoch);
  EXPECT_EQ(after.nodes[2].incarnation, 2u);
  after.nodes[2].incarnation = 1;
  EXPECT_EQ(after.nodes, before.nodes);
}

TEST(Gossip, AClockThatWasSetBackHindersNoRestart) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 100);
  world.Rounds(1);
  world.Add("c", 5);
  world.Rounds(1);
  world.ExpectOneTable();
  EXPECT_EQ(world.nodes["a"]->roster().Find("c")->record.incarnation, 5u);
}

TEST(Gossip, BeyondTheGraceAMissingNodeIsAwayUntilItReturns) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  world.Rounds(2);
  world.nodes.erase("c");
  world.Rounds(5);
  EXPECT_EQ(world.StateAt("a", "c"), NodeState::kActive);
  world.Rounds(8);
  EXPECT_EQ(world.StateAt("a", "c"), NodeState::kAway);
  world.ExpectOneTable();
  EXPECT_TRUE(world.Add("c", 2).came_new());
  world.Rounds(1);
  EXPECT_EQ(world.StateAt("a", "c"), NodeState::kActive);
  world.ExpectOneTable();
}

TEST(Gossip, InASplitOnlyTheSmallerSideLosesItsPlacesAndGetsThemBack) {
  World world;
  for (const char* id : {"a", "b", "c", "d", "e"}) world.Add(id, 1);
  world.Rounds(2);
  const NodeTable before = world.nodes["a"]->roster().Table();
  world.side = {"d", "e"};
  world.Rounds(5);
  world.ExpectOneTable();
  EXPECT_EQ(world.nodes["d"]->roster().Table(), before) << "within the grace nothing moves";
  world.Rounds(30);
  EXPECT_EQ(world.nodes["d"]->roster().Table(), before) << "most are missing: nothing moves";
  EXPECT_EQ(world.StateAt("a", "d"), NodeState::kAway);
  EXPECT_EQ(world.StateAt("b", "e"), NodeState::kAway);
  world.side.clear();
  world.Rounds(2);
  world.ExpectOneTable();
  EXPECT_EQ(world.nodes["a"]->roster().Table().nodes, before.nodes);
}

TEST(Gossip, WhomOneCannotReachButAnotherHearsStays) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  world.Rounds(2);
  world.cut = {{"a", "c"}, {"c", "a"}};
  const uint64_t before = world.nodes["a"]->roster().epoch();
  world.Rounds(40);
  EXPECT_EQ(world.nodes["a"]->roster().epoch(), before);
  EXPECT_EQ(world.nodes["a"]->live(), 3u);
}

TEST(Gossip, WhoWasStoppedHasNotSeenTheOthersMissing) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  world.Rounds(2);
  world.cut = {{"a", "c"}, {"b", "c"}};
  std::unique_ptr<Gossip> c = std::move(world.nodes["c"]);
  world.nodes.erase("c");
  world.Rounds(1);
  world.now_us += 10 * kLongGraceUs;  // the whole machine slept
  world.Rounds(1);
  EXPECT_EQ(world.StateAt("a", "c"), NodeState::kActive);
}

TEST(Gossip, DrainingTravelsAndWhoResignsIsGoneForAll) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  world.Rounds(1);
  world.nodes["b"]->SetState(NodeState::kDraining);
  world.RoundOf("b");
  EXPECT_EQ(world.StateAt("a", "b"), NodeState::kDraining);
  EXPECT_EQ(world.StateAt("c", "b"), NodeState::kDraining);
  world.nodes["b"]->Resign();
  world.RoundOf("b");
  world.nodes.erase("b");
  world.Rounds(2);
  world.ExpectOneTable();
  EXPECT_EQ(world.nodes["a"]->roster().Table().nodes.size(), 2u);
  EXPECT_TRUE(world.Add("b", 2).came_new());
  world.Rounds(1);
  EXPECT_EQ(world.nodes["a"]->roster().Table().nodes.size(), 3u);
}

TEST(Gossip, OfTwoLiveNodesWithOneIdTheElderStays) {
  World world;
  world.Add("a", 1);
  world.Add("b", 1);
  GossipOptions options;
  options.period_us = kPeriodUs;
  options.probe_us = kPeriodUs;
  Gossip second(options, RecordOf("b", 2), {});
  Gossip::Response response;
  ASSERT_TRUE(world.nodes["b"]->Answer(second.BeginRound(), world.now_us, &response).ok());
  EXPECT_TRUE(second.TakeAnswer("b", response, world.now_us));
  second.EndRound(world.now_us);
  ASSERT_NE(second.Elder(world.now_us), nullptr);
  EXPECT_EQ(second.Elder(world.now_us)->incarnation, 1u);
  EXPECT_EQ(world.nodes["b"]->Elder(world.now_us), nullptr);
  EXPECT_EQ(second.Elder(world.now_us + 100 * kPeriodUs), nullptr) << "it is not heard any more";
}

TEST(Gossip, AnotherClusterIsToldNothing) {
  World world;
  world.Add("a", 1);
  GossipOptions options;
  options.cluster = "other";
  Gossip other(options, RecordOf("b", 2), {});
  Gossip::Response response;
  EXPECT_EQ(world.nodes["a"]->Answer(other.BeginRound(), 1, &response).code(), Code::kUnsupported);
  EXPECT_FALSE(response.has_facts());
}

TEST(Gossip, AClusterThatAllForgotBeginsAboveTheEpochsOfBefore) {
  World world;
  for (const char* id : {"a", "b", "c"}) world.Add(id, 1);
  for (int i = 0; i < 50; ++i) {
    world.nodes["a"]->SetState(i % 2 == 0 ? NodeState::kDraining : NodeState::kActive);
  }
  const uint64_t before = world.nodes["a"]->roster().epoch();
  World anew;
  GossipOptions options;
  Gossip first(options, RecordOf("a", 2), {});
  first.Enter(kMinutes + 1);
  EXPECT_GT(first.roster().epoch(), before);
}

// Whatever happened, nodes that can talk again for a while have one table, and no epoch was ever told twice
// with other nodes in it by one node.
TEST(Gossip, FromASeedAllConverge) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    const std::vector<std::string> ids = {"a", "b", "c", "d", "e", "f"};
    std::map<std::string, uint64_t> lives;
    for (const std::string& id : ids) world.Add(id, ++lives[id]);
    for (int step = 0; step < 60; ++step) {
      const std::string& id = ids[world.random() % ids.size()];
      switch (world.random() % 8) {
        case 0:
          world.nodes.erase(id);
          break;
        case 1: {
          const bool remembers = world.nodes.count(id) != 0 && world.random() % 2 == 0;
          Roster known = remembers ? world.nodes[id]->roster() : Roster();
          // Clocks of restarts go either way.
          world.Add(id, 1 + world.random() % 1000, true, std::move(known));
          break;
        }
        case 2:
          world.side.count(id) != 0 ? (void)world.side.erase(id) : (void)world.side.insert(id);
          break;
        case 3:
          world.side.clear();
          break;
        case 4:
          if (world.nodes.count(id) != 0) world.nodes[id]->SetState(NodeState::kDraining);
          break;
        case 5:
          if (world.nodes.count(id) != 0) world.nodes[id]->SetState(NodeState::kActive);
          break;
        default:
          world.Rounds(1 + static_cast<int>(world.random() % 12));
      }
      if (world.nodes.empty()) world.Add(id, 1 + world.random() % 1000);
    }
    world.side.clear();
    world.Rounds(4);
    world.ExpectOneTable();
    for (const auto& [id, gossip] : world.nodes) {
      EXPECT_EQ(world.StateAt(id, id), gossip->self().state) << id;
    }
  }
}

}  // namespace
}  // namespace larder::node
