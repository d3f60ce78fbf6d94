// From a node's events to what routers know: whoever hears the live messages, or some of them and replays,
// knows exactly the whole blocks that are there, over random work with snapshots that begin anew.
#include "node/events/kv_event_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "node/events/kv_event_outbox.h"
#include "node/events/kv_event_replay.h"

namespace larder::node::kv_events_test {
namespace {

constexpr Grid kGrid{2, 2};
constexpr Rectangle kRectangles[] = {{0, 2, 0, 2}, {0, 1, 0, 2}, {1, 2, 0, 2}, {0, 2, 0, 1}, {0, 2, 1, 2}};
constexpr Presence kTiersOfNode[] = {Presence::kRam, Presence::kSsd};
constexpr size_t kSpaces = 3;  // the first two have one topic
constexpr uint64_t kStartUs = 1'700'000'000'000'000;

Namespace SpaceOf(size_t number) {
  Namespace out;
  out.bytes[0] = static_cast<std::byte>(number + 1);
  return out;
}

std::string TopicOf(size_t space) {
  return space < 2 ? "one" : "two";
}

ChainHash HashOf(size_t space, uint64_t key, uint64_t at) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U64(space);
  writer.U64(key);
  writer.U64(at);
  return {Sha256(bytes)};
}

std::vector<ChainHash> ConstituentsOf(size_t space, uint64_t key) {
  std::vector<ChainHash> out;
  if (key % 3 == 0) return out;  // as large as the engine's
  for (uint64_t at = 0; at < 4; ++at) out.push_back(HashOf(space, key, at));
  return out;
}

// Medium, group, hash.
using Told = std::set<std::tuple<std::string, uint64_t, uint64_t>>;

// Follows one topic.
class Router {
 public:
  explicit Router(std::string topic) : topic_(std::move(topic)) {}

  void Take(const std::string& topic, uint64_t sequence, const std::string& payload) {
    if (topic != topic_ || (last != 0 && sequence <= last)) return;
    last = sequence;
    const auto batch = nlohmann::json::from_msgpack(payload);
    for (const auto& event : batch[1]) {
      if (event["type"] == "AllBlocksCleared") {
        there.clear();
        continue;
      }
      const bool stored = event["type"] == "BlockStored";
      const auto& hashes = event["block_hashes"];
      EXPECT_EQ(stored ? event["block_size"].get<size_t>() * hashes.size() : 64u, 64u);
      for (const uint64_t hash : hashes) {
        const auto piece =
            std::make_tuple(event["medium"].get<std::string>(), event["group_idx"].get<uint64_t>(), hash);
        if (stored) there.insert(piece);
        if (!stored) there.erase(piece);
      }
    }
  }

  Told there;
  uint64_t last = 0;

 private:
  const std::string topic_;
};

// A node's pieces, and its events into a view with an outbox behind it.
class Rig {
 public:
  Rig(uint64_t seed, size_t kept, uint64_t keys = 60)
      : random_(seed),
        keys_(keys),
        view_([this](const std::string& topic, KvEvent&& event) {
          outbox_.Add(topic, std::move(event), kStartUs);
        }),
        outbox_({kept, size_t{1} << 20}, KvEventForm::kMap,
                [this](const std::string& topic, uint64_t sequence, const std::string& payload) {
                  sent.push_back({topic, sequence, payload});
                }) {}

  void Step() {
    const size_t space = random_() % kSpaces;
    if (!view_.Knows(SpaceOf(space))) view_.Know(SpaceOf(space), {TopicOf(space), 64, kGrid});
    const uint64_t what = random_() % 100;
    if (what < 50) {
      Put(space, random_() % keys_, kRectangles[random_() % std::size(kRectangles)],
          kTiersOfNode[random_() % 2]);
    } else if (what < 97) {
      Leave(space);
    } else if (what == 97) {
      Clear(space);
    } else {
      BeginAnew();
    }
    outbox_.Flush(kStartUs);
  }

  void PutAny() {
    const size_t space = random_() % kSpaces;
    if (!view_.Knows(SpaceOf(space))) view_.Know(SpaceOf(space), {TopicOf(space), 64, kGrid});
    Put(space, random_() % keys_, kRectangles[0], kTiersOfNode[random_() % 2]);
    outbox_.Flush(kStartUs);
  }

  Told Truth(const std::string& topic) const {
    std::map<std::tuple<size_t, uint64_t, Presence>, std::set<std::pair<int, int>>> parts;
    for (const auto& [space, key, number, tier] : pieces_) {
      if (TopicOf(space) != topic) continue;
      const Rectangle& r = kRectangles[number];
      for (int layer = r.layer_begin; layer < r.layer_end; ++layer) {
        for (int head = r.head_begin; head < r.head_end; ++head)
          parts[{space, key, tier}].insert({layer, head});
      }
    }
    Told out;
    for (const auto& [block, there] : parts) {
      const auto& [space, key, tier] = block;
      if (there.size() != 4) continue;
      std::vector<ChainHash> hashes = ConstituentsOf(space, key);
      if (hashes.empty()) hashes = {HashOf(space, key, 3)};
      for (const ChainHash& hash : hashes) {
        out.insert({tier == Presence::kRam ? "CPU" : "STORAGE", key % 2, PublishedHash(hash)});
      }
    }
    return out;
  }

  uint32_t Replay(uint64_t from, Router* router) {
    KvEventReplay replay(outbox_, view_, from);
    while (const auto message = replay.Next(kStartUs)) {
      router->Take(*message->topic, message->sequence, message->payload);
    }
    return replay.snapshots();
  }

  // As slow as the node is busy.
  void ReplayAmidWork(uint64_t from, int steps, Router* router) {
    KvEventReplay replay(outbox_, view_, from);
    while (const auto message = replay.Next(kStartUs)) {
      router->Take(*message->topic, message->sequence, message->payload);
      for (int i = 0; i < 4 && steps > 0; ++i, --steps) Step();
    }
  }

  struct Sent {
    std::string topic;
    uint64_t sequence;
    std::string payload;
  };
  std::vector<Sent> sent;
  uint64_t next(const std::string& topic) const { return outbox_.next(topic); }
  size_t kept() const { return outbox_.kept_messages(); }

 private:
  using Piece = std::tuple<size_t, uint64_t, size_t, Presence>;  // space, key, rectangle, tier

  BlockEvent EventOf(size_t space, uint64_t key, const Rectangle& rectangle, BlockEventKind kind,
                     Presence tier) {
    BlockEvent event;
    event.hash = HashOf(space, key, 3);
    event.group = static_cast<uint16_t>(key % 2);
    event.rectangle = rectangle;
    event.whole = rectangle == WholeOf(kGrid);
    event.kind = kind;
    event.tier = event.from = tier;
    // As the publisher does: what memory tells, and what is asked of SSD for a block that is new.
    const bool known = view_.Has(SpaceOf(space), event.hash, event.group);
    if (tier == Presence::kRam || !known) event.constituents = ConstituentsOf(space, key);
    return event;
  }
  void Put(size_t space, uint64_t key, const Rectangle& rectangle, Presence tier) {
    const size_t number = static_cast<size_t>(
        std::find(std::begin(kRectangles), std::end(kRectangles), rectangle) - std::begin(kRectangles));
    pieces_.insert({space, key, number, tier});
    view_.Apply(SpaceOf(space), EventOf(space, key, rectangle, BlockEventKind::kStored, tier));
  }
  void Leave(size_t of_space) {
    if (pieces_.empty()) return;
    auto chosen = pieces_.lower_bound({of_space, random_() % keys_, 0, Presence::kRam});
    if (chosen == pieces_.end()) chosen = pieces_.begin();
    const auto [space, key, number, tier] = *chosen;
    pieces_.erase(chosen);
    const Rectangle& rectangle = kRectangles[number];
    if (tier == Presence::kRam && random_() % 3 == 0) {
      pieces_.insert({space, key, number, Presence::kSsd});
      BlockEvent moved = EventOf(space, key, rectangle, BlockEventKind::kMoved, Presence::kSsd);
      moved.from = Presence::kRam;
      return view_.Apply(SpaceOf(space), moved);
    }
    view_.Apply(SpaceOf(space), EventOf(space, key, rectangle, BlockEventKind::kRemoved, tier));
  }
  void Clear(size_t space) {
    std::erase_if(pieces_, [&](const Piece& each) { return std::get<0>(each) == space; });
    BlockEvent event;
    event.kind = BlockEventKind::kCleared;
    view_.Apply(SpaceOf(space), event);
  }
  // The follower fell behind: some of what happened is told by no event.
  void BeginAnew() {
    std::erase_if(pieces_, [&](const Piece&) { return random_() % 4 == 0; });
    view_.BeginSnapshot();
    for (const auto& [space, key, number, tier] : pieces_) {
      view_.Apply(SpaceOf(space), EventOf(space, key, kRectangles[number], BlockEventKind::kStored, tier));
    }
    view_.EndSnapshot();
  }

  std::mt19937_64 random_;
  const uint64_t keys_;
  std::set<Piece> pieces_;
  KvEventView view_;
  KvEventOutbox outbox_;
};

TEST(KvEventView, LiveMessagesTellWhatIsThere) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rig rig(seed, 10'000);
    std::map<std::string, Router> routers{{"one", Router("one")}, {"two", Router("two")}};
    std::map<std::string, uint64_t> next;
    for (int step = 0; step < 400; ++step) {
      rig.Step();
      for (const auto& [topic, sequence, payload] : rig.sent) {
        EXPECT_EQ(sequence, next.try_emplace(topic, sequence).first->second++);
        routers.at(topic).Take(topic, sequence, payload);
      }
      rig.sent.clear();
      for (const auto& [topic, router] : routers)
        ASSERT_EQ(router.there, rig.Truth(topic)) << seed << "/" << step;
    }
  }
}

TEST(KvEventView, LossesAreMadeGoodByReplays) {
  uint32_t snapshots = 0, others = 0, compared = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rig rig(seed, seed % 2 == 0 ? 5 : 200);
    std::mt19937_64 random(seed);
    Router router("one");
    for (int step = 0; step < 600; ++step) {
      rig.Step();
      for (const auto& [topic, sequence, payload] : rig.sent) {
        if (random() % 3 == 0) continue;  // lost
        if (topic == "one" && sequence > router.last + 1)
          (rig.Replay(router.last + 1, &router) ? snapshots : others)++;
        router.Take(topic, sequence, payload);
      }
      const bool heard_all =
          !rig.sent.empty() && rig.sent.back().topic == "one" && router.last == rig.sent.back().sequence;
      if (heard_all) {
        ++compared;
        ASSERT_EQ(router.there, rig.Truth("one")) << seed << "/" << step;
      }
      rig.sent.clear();
      ASSERT_LE(rig.kept(), 200u);
    }
    Router late("two");
    rig.Replay(0, &late);
    EXPECT_EQ(late.there, rig.Truth("two"));
  }
  EXPECT_GT(snapshots, 10u);
  EXPECT_GT(others, 10u);
  EXPECT_GT(compared, 1000u);
}

TEST(KvEventView, AReplayThatFallsBehindBeginsAnew) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rig rig(seed, 4 + seed % 8, 3000);  // more than a message of a snapshot has
    for (int i = 0; i < 2000; ++i) rig.PutAny();
    Router router("one");
    for (const auto& [topic, sequence, payload] : rig.sent) router.Take(topic, sequence, payload);
    for (int i = 0; i < 3; ++i) rig.Step();  // missed, but kept
    rig.sent.clear();
    rig.ReplayAmidWork(router.last + 1, 200, &router);
    for (const auto& [topic, sequence, payload] : rig.sent) router.Take(topic, sequence, payload);
    EXPECT_EQ(router.there, rig.Truth("one")) << seed;
  }
}

// A node that was killed: its numbers go on rising, and what its last life told is taken back.
TEST(KvEventView, ANewLifeIsAGap) {
  KvEventOutbox::Limits limits;
  std::vector<std::pair<uint64_t, std::string>> sent;
  const auto live = [&](uint64_t unix_us, const KvEvent& event) {
    KvEventOutbox outbox(limits, KvEventForm::kMap,
                         [&](const std::string&, uint64_t sequence, const std::string& payload) {
                           sent.emplace_back(sequence, payload);
                         });
    outbox.Add("one", KvEvent(event), unix_us);
    outbox.Flush(unix_us);
  };
  live(kStartUs, {KvEvent::Kind::kStored, Presence::kRam, 0, 32, {1, 2}});
  live(kStartUs + 1'000'000, {KvEvent::Kind::kStored, Presence::kRam, 0, 64, {3}});
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].first, sent[0].first + 1'000'000);
  Router router("one");
  for (const auto& [sequence, payload] : sent) router.Take("one", sequence, payload);
  EXPECT_EQ(router.there, (Told{{"CPU", 0, 3}}));
}

TEST(KvEventView, ALossWithNothingBehindItIsSeenSoon) {
  std::vector<std::pair<std::string, uint64_t>> sent;
  KvEventOutbox outbox({1, 1 << 20}, KvEventForm::kMap,
                       [&](const std::string& topic, uint64_t sequence, const std::string&) {
                         sent.emplace_back(topic, sequence - kStartUs);
                       });
  for (const char* topic : {"one", "two"}) {
    outbox.Add(topic, {KvEvent::Kind::kStored, Presence::kRam, 0, 64, {3}}, kStartUs);
  }
  outbox.Flush(kStartUs);
  sent.clear();
  outbox.Repeat(kStartUs + 99, 100);
  EXPECT_TRUE(sent.empty());
  outbox.Repeat(kStartUs + 100, 100);  // nothing of topic one is kept: a message without events
  outbox.Repeat(kStartUs + 101, 100);
  const std::vector<std::pair<std::string, uint64_t>> wanted = {{"one", 1}, {"two", 1}};
  EXPECT_EQ(sent, wanted);
}

TEST(KvEventView, WhatIsNoEnginesIsLeftOut) {
  size_t told = 0;
  KvEventView view([&](const std::string&, KvEvent&&) { ++told; });
  view.LeaveOut(SpaceOf(0));
  EXPECT_TRUE(view.Knows(SpaceOf(0)));
  BlockEvent event;
  event.whole = true;
  view.Apply(SpaceOf(0), event);
  view.Apply(SpaceOf(1), event);
  EXPECT_EQ(told + view.blocks(), 0u);
}

}  // namespace
}  // namespace larder::node::kv_events_test
