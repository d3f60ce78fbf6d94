// What moves between memory and SSD, over a simulated disk.
#include <random>
#include <set>

#include "tests/unit/node/ssd_rig.h"

namespace larder::node {
namespace {

using Rig = SsdRig;

TEST(OwnerSsd, WhatMemoryDoesNotHoldIsOnSsd) {
  Rig rig;
  rig.Put(1, 200);  // memory holds about 60
  EXPECT_EQ(rig.stats().dropped, 0u);
  EXPECT_GT(rig.stats().spilled, 130u);
  for (uint64_t key = 1; key <= 200; ++key) ExpectBytes(rig, rig.Get(key), key);
  EXPECT_EQ(rig.Get(1).presence, Presence::kSsd);
  rig.test->Check();
}

// Found by tests/chaos: with blocks of several sizes free slots lay in slabs of one size, the node counted
// them as free memory, and blocks of another size were dropped instead of written to SSD.
TEST(OwnerSsd, FreeSlotsOfAnotherSizeDoNotKeepBlocksFromSsd) {
  OwnerOptions options;
  options.memory_bytes = 4 << 20;
  options.slab_bytes_target = 1 << 20;
  Rig rig(options);
  const Spec small{9000, 4096, {}, 0};  // a slab for one piece: a quarter of the memory is free for good
  ASSERT_EQ(rig.test->Put(rig.session, rig.number, small), PutState::kStored);
  rig.Put(1, 200);
  EXPECT_EQ(rig.stats().dropped, 0u);
  for (uint64_t key = 1; key <= 200; ++key) ExpectBytes(rig, rig.Get(key), key);
  rig.test->Check();
}

TEST(OwnerSsd, AMatchSaysTheTierAndALongerTimeForSsd) {
  Rig rig;
  rig.Put(1, 200);
  ExpectBytes(rig, rig.Get(200), 200);
  Match match;
  match.number = rig.number;
  match.groups = {0};
  match.hashes = {HashOf(200), HashOf(1), HashOf(2), HashOf(999)};
  match.hash_count = 4;
  const auto reply = rig.test->Ask<MatchReply>(rig.session, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().presence,
            (std::vector<uint8_t>{static_cast<uint8_t>(Presence::kRam), static_cast<uint8_t>(Presence::kSsd),
                                  static_cast<uint8_t>(Presence::kSsd),
                                  static_cast<uint8_t>(Presence::kNeverStored)}));
  std::vector<uint32_t> us;
  for (const auto& run : reply.value().estimates) us.insert(us.end(), run.count, run.us);
  ASSERT_EQ(us.size(), 4u);
  EXPECT_GT(us[1], us[0]);
  EXPECT_GE(us[2], us[1]);
}

TEST(OwnerSsd, TheSecondReadMovesABlockUpAndItsCopyStays) {
  Rig rig;
  rig.Put(1, 200);
  EXPECT_EQ(rig.Get(5).presence, Presence::kSsd);
  EXPECT_EQ(rig.stats().promoted, 0u);
  EXPECT_EQ(rig.Get(5).presence, Presence::kSsd);
  EXPECT_EQ(rig.stats().promoted, 1u);
  EXPECT_EQ(rig.Get(5).presence, Presence::kRam);
  const uint64_t spilled = rig.stats().spilled;
  rig.Put(1000, 200);  // it cools again, and needs no second write
  EXPECT_EQ(rig.Get(5).presence, Presence::kSsd);
  EXPECT_LE(rig.stats().spilled, spilled + 201);
  EXPECT_GT(rig.stats().spilled_clean, 0u);
  rig.test->Check();
}

TEST(OwnerSsd, AMissSaysWhichTierLostItAndExplainSaysWhen) {
  Rig rig({}, 8);
  rig.Put(1, 400);  // more than both tiers hold
  EXPECT_EQ(rig.Get(1).presence, Presence::kEvictedSsd);
  const std::vector<BlockAsked> asked = {{HashOf(1), 0}, {HashOf(400), 0}, {HashOf(999), 0}};
  const Namespace name = rig.test->owner->Namespaces()[0].name_space;
  const auto stories = rig.test->owner->Explain(name, asked);
  ASSERT_TRUE(stories.ok());
  EXPECT_EQ(stories.value()[0].presence, Presence::kEvictedSsd);
  EXPECT_NE(stories.value()[0].left_s, 0u);
  EXPECT_EQ(stories.value()[1].presence, Presence::kRam);
  ASSERT_EQ(stories.value()[1].pieces.size(), 1u);
  EXPECT_EQ(stories.value()[1].pieces[0].payload_bytes, kPartBytes);
  EXPECT_EQ(stories.value()[2].presence, Presence::kNeverStored);
  EXPECT_EQ(rig.test->owner->Explain(Namespace{}, asked).status().code(), Code::kNotFound);
}

TEST(OwnerSsd, WhatLeavesWhileTheDiskIsBehindSaysSo) {
  Rig rig;
  for (uint64_t key = 1; key <= 200; ++key) {  // the disk is never asked
    rig.test->now_us += 1000;
    ASSERT_EQ(rig.test->Put(rig.session, rig.number, rig.Block(key)), PutState::kStored) << key;
  }
  EXPECT_GT(rig.stats().dropped, 0u);
  std::map<Presence, int> presences;
  Match match;
  match.number = rig.number;
  match.groups = {0};
  match.hash_count = 200;
  for (uint64_t key = 1; key <= 200; ++key) match.hashes.push_back(HashOf(key));
  const auto reply = rig.test->Ask<MatchReply>(rig.session, Verb::kMatch, match);
  ASSERT_TRUE(reply.ok());
  for (const uint8_t presence : reply.value().presence) ++presences[static_cast<Presence>(presence)];
  EXPECT_GT(presences[Presence::kDiskBehind], 0);
  EXPECT_EQ(presences[Presence::kEvicted], 0);
  EXPECT_EQ(rig.stats().miss_by_reason[static_cast<size_t>(Presence::kDiskBehind)],
            static_cast<uint64_t>(presences[Presence::kDiskBehind]));
}

TEST(OwnerSsd, WhatIsQuarantinedOnSsdIsNotServedAfterARestartEither) {
  Rig rig;
  rig.Put(1, 200);
  Digest writer{};
  writer[0] = static_cast<std::byte>(rig.session);
  Quarantine rules;
  ASSERT_TRUE(rules.Add({writer, 0, 1, writer}).ok());
  rig.test->owner->SetQuarantine(rules);
  EXPECT_EQ(rig.Get(200).presence, Presence::kQuarantined);  // in memory
  // On SSD: matches know it before anybody has read it.
  EXPECT_EQ(rig.test->MatchOne(rig.session, rig.number, rig.Block(3)), Presence::kQuarantined);
  EXPECT_EQ(rig.Get(1).presence, Presence::kQuarantined);
  EXPECT_EQ(rig.Get(1).presence, Presence::kQuarantined);
  rig.Start();
  EXPECT_TRUE(IsHit(rig.test->MatchOne(rig.session, rig.number, rig.Block(4))));
  rig.test->owner->SetQuarantine(rules);
  EXPECT_EQ(rig.test->MatchOne(rig.session, rig.number, rig.Block(4)), Presence::kQuarantined);
  EXPECT_EQ(rig.Get(2).presence, Presence::kQuarantined);
  for (uint64_t key = 1; key <= 200; ++key) EXPECT_FALSE(IsHit(rig.Get(key).presence)) << key;
  rig.test->Check();
}

TEST(OwnerSsd, APutOfWhatIsOnSsdIsAnsweredExists) {
  Rig rig;
  rig.Put(1, 200);
  EXPECT_EQ(rig.test->Put(rig.session, rig.number, rig.Block(2)), PutState::kExists);
}

TEST(OwnerSsd, ARestartFindsWhatWasOnSsd) {
  Rig rig;
  rig.Put(1, 200);
  rig.Start();
  int found = 0;
  for (uint64_t key = 1; key <= 200; ++key) {
    const Pulled pulled = rig.Get(key);
    if (pulled.presence != Presence::kSsd) continue;
    ExpectBytes(rig, pulled, key);
    ++found;
  }
  EXPECT_GT(found, 130);
}

TEST(OwnerSsd, ANodeThatStopsInOrderSavesItsMemory) {
  Rig rig;
  rig.Put(1, 100);
  EXPECT_TRUE(rig.test->owner->Idle());
  rig.test->owner->Drain();
  EXPECT_FALSE(rig.test->owner->Idle());
  rig.test->RunDisks(200);
  EXPECT_TRUE(rig.test->owner->Idle());
  EXPECT_EQ(rig.stats().pieces, 0u);
  rig.Start();
  for (uint64_t key = 1; key <= 100; ++key) ExpectBytes(rig, rig.Get(key), key);
}

TEST(OwnerSsd, ANodeThatHandsOverSavesNothingUntilItIsDone) {
  Rig rig;
  rig.Put(1, 50);
  const uint64_t spilled = rig.stats().spilled;
  rig.test->owner->Drain(false);
  rig.test->RunDisks(200);
  EXPECT_EQ(rig.stats().spilled, spilled);
  EXPECT_TRUE(rig.test->owner->Idle());
  rig.test->owner->Drain();
  rig.test->RunDisks(200);
  EXPECT_EQ(rig.stats().pieces, 0u);
}

TEST(OwnerSsd, AnAnswerWaitsForSsdAndForTheNodesThatTookBlocks) {
  for (const bool ssd_first : {true, false}) {
    Rig rig;
    rig.Put(1, 200);
    rig.test->owner->BeginHandOver();
    const Remove remove{rig.number, {0}, {HashOf(1), HashOf(199)}};
    const uint64_t ids[] = {rig.test->Send(rig.session, Verb::kRemove, remove),
                            rig.test->Send(rig.session, Verb::kClear, Clear{rig.number})};
    const auto forward = [&] {
      while (const auto next = rig.test->owner->NextForward()) rig.test->owner->Forwarded(next->token);
    };
    ssd_first ? rig.test->RunDisks() : forward();
    for (const uint64_t id : ids) EXPECT_FALSE(rig.test->Answered(rig.session, id));
    ssd_first ? forward() : rig.test->RunDisks();
    for (const uint64_t id : ids) EXPECT_TRUE(rig.test->Answered(rig.session, id));
    EXPECT_TRUE(rig.test->owner->Idle());
  }
}

TEST(OwnerSsd, AClearReachesSsdAndItsAnswerWaitsForIt) {
  Rig rig;
  rig.Put(1, 200);
  const uint64_t id = rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
  EXPECT_EQ(rig.Get(1).presence, Presence::kCleared);  // at once
  rig.test->RunDisks();
  EXPECT_TRUE(rig.test->Answered(rig.session, id));
  rig.Put(500, 100);
  rig.Start();
  for (uint64_t key = 1; key <= 200; ++key) EXPECT_FALSE(IsHit(rig.Get(key).presence)) << key;
  EXPECT_TRUE(IsHit(rig.Get(500).presence));
  rig.test->Check();
}

TEST(OwnerSsd, ARemoveReachesSsdAndItsAnswerWaitsForIt) {
  Rig rig;
  rig.Put(1, 200);
  Remove remove{rig.number, {0}, {HashOf(1), HashOf(199)}};
  const uint64_t id = rig.test->Send(rig.session, Verb::kRemove, remove);
  EXPECT_FALSE(rig.test->Answered(rig.session, id));
  rig.test->RunDisks();
  const auto reply = rig.test->Take<RemoveReply>(rig.session, id);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().removed, 2u);
  EXPECT_EQ(rig.Get(1).presence, Presence::kRemoved);
  rig.Start();
  EXPECT_FALSE(IsHit(rig.Get(1).presence));
}

TEST(OwnerSsd, AGetThatRunsOutOfTimeAnswersWhatIsThere) {
  Rig rig;
  rig.Put(1, 200);
  rig.disk->faults.done_percent = 0;  // nothing comes back
  Get get;
  get.number = rig.number;
  for (const uint64_t key : {200, 1, 199, 2}) get.blocks.push_back({HashOf(key), 0, {}});
  const uint64_t id = rig.test->Send(rig.session, Verb::kGet, get, 50'000);
  EXPECT_FALSE(rig.test->Answered(rig.session, id));
  rig.test->Check();
  rig.test->Advance(50'000);
  const auto reply = rig.test->Take<GetReply>(rig.session, id);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().blocks[0].presence, Presence::kRam);
  EXPECT_EQ(reply.value().blocks[1].presence, Presence::kTimedOut);
  EXPECT_EQ(reply.value().blocks[2].presence, Presence::kRam);
  EXPECT_EQ(reply.value().blocks[3].presence, Presence::kTimedOut);
  rig.test->Check();
  rig.disk->faults.done_percent = 60;
  rig.test->RunDisks();
  rig.test->Check();
  ExpectBytes(rig, rig.Get(1), 1);
}

TEST(OwnerSsd, WhatCanNotMakeItIsGivenUpAtOnce) {
  Rig rig;
  rig.Put(1, 200);
  const Pulled pulled = rig.Get(1, 30);  // microseconds
  EXPECT_EQ(pulled.presence, Presence::kTimedOut);
  EXPECT_EQ(rig.stats().cold_reads, 0u);
}

TEST(OwnerSsd, PrefetchMovesAChainUpBeforeItIsAskedFor) {
  Rig rig;
  rig.Put(1, 200);
  const uint64_t id = rig.Prefetch(1, 8);
  rig.test->RunDisks();
  const auto reply = rig.test->Take<PrefetchReply>(rig.session, id);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply.value().blocks, 8u);
  for (uint64_t key = 1; key <= 8; ++key) EXPECT_EQ(rig.Get(key).presence, Presence::kRam) << key;
  // Their places in their chains came back with them: they were 0 for whatever had been on SSD.
  std::set<uint32_t> depths;
  for (uint32_t from = 0; from != UINT32_MAX;) {
    for (const WarmPiece& piece : rig.test->owner->ListWarm(&from)) depths.insert(piece.depth());
  }
  for (uint32_t key = 1; key <= 8; ++key) EXPECT_TRUE(depths.contains(key)) << key;
  EXPECT_FALSE(depths.contains(0));
}

TEST(OwnerSsd, WhatIsRemovedWhileItGoesDownDoesNotComeBack) {
  Rig rig;
  const uint64_t key = rig.PutUntilSpilling();
  ASSERT_GT(rig.stats().spilling_bytes, 0u);
  rig.Remove(1, key);
  rig.test->RunDisks(200);
  EXPECT_EQ(rig.stats().ssd.pieces, 0u);
  for (uint64_t each = 1; each <= key; ++each) {
    EXPECT_EQ(rig.Get(each).presence, Presence::kRemoved) << each;
  }
  rig.test->Check();
}

TEST(OwnerSsd, AnsweredMeansGoneAlsoWhereACrashComesRightAfter) {
  Rig rig;
  const uint64_t key = rig.PutUntilSpilling();
  ASSERT_GT(rig.stats().spilling_bytes, 0u);
  Remove remove{rig.number, {0}, {}};
  for (uint64_t each = 1; each <= key; ++each) remove.hashes.push_back(HashOf(each));
  const uint64_t id = rig.test->Send(rig.session, Verb::kRemove, remove);
  EXPECT_FALSE(rig.test->Answered(rig.session, id));
  int steps = 0;
  while (!rig.test->Answered(rig.session, id)) {
    ASSERT_LT(++steps, 1000);
    rig.test->RunDisks(1);
  }
  rig.Start();
  for (uint64_t each = 1; each <= key; ++each) EXPECT_FALSE(IsHit(rig.Get(each).presence)) << each;
  rig.test->Check();
}

// The node never became idle again, and no later remove or clear was answered.
TEST(OwnerSsd, ARemoveIsAnsweredWhereTheLastDiskIsLostBeforeTheWrite) {
  Rig rig;
  rig.disk->faults.done_percent = 0;  // until what waits for the disk waits here
  uint64_t key = 0;
  for (; key < 120; rig.test->now_us += 1000) (void)rig.test->Put(rig.session, rig.number, rig.Block(++key));
  ASSERT_GT(rig.stats().spilling_bytes, 0u);
  Remove remove{rig.number, {0}, {}};
  for (uint64_t each = 1; each <= key; ++each) remove.hashes.push_back(HashOf(each));
  const uint64_t id = rig.test->Send(rig.session, Verb::kRemove, remove);
  EXPECT_FALSE(rig.test->Answered(rig.session, id));
  rig.disk->faults.done_percent = 60;
  rig.disk->faults.write_error_percent = 100;
  rig.test->RunDisks(400);
  EXPECT_EQ(rig.stats().ssd.disks_lost, 1u);
  EXPECT_TRUE(rig.test->Answered(rig.session, id));
  EXPECT_EQ(rig.stats().spilling_bytes, 0u);
  EXPECT_TRUE(rig.test->owner->Idle());
  rig.test->Check();
}

// It was written under the namespace as it is after the clear: matches called it a hit, puts were told
// `exists`.
TEST(OwnerSsd, WhatAClearHasHiddenIsNotWrittenAsIfItWereNew) {
  OwnerOptions options;
  options.memory_bytes = 16 << 20;
  Rig rig(options);
  const auto small = [](uint64_t key) { return Spec{key, 4096, {}, static_cast<uint32_t>(key)}; };
  for (uint64_t key = 1; key <= 2500; ++key) {
    rig.test->now_us += 100;
    ASSERT_EQ(rig.test->Put(rig.session, rig.number, small(key)), PutState::kStored) << key;
  }
  rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
  for (uint64_t key = 10'001; key <= 13'000; ++key) {
    rig.test->now_us += 100;
    (void)rig.test->Put(rig.session, rig.number, small(key));
    if (key % 16 == 0) rig.test->RunDisks(1);
  }
  rig.test->RunDisks(300);
  for (uint64_t key = 1; key <= 2500; ++key) {
    ASSERT_FALSE(IsHit(rig.test->MatchOne(rig.session, rig.number, small(key)))) << key;
  }
  rig.test->Check();
}

TEST(OwnerSsd, WhatIsRemovedWhileItComesUpDoesNotComeBack) {
  Rig rig;
  rig.Put(1, 200);
  rig.Prefetch(1, 8);
  ASSERT_GT(rig.stats().cold_reads, 0u);
  rig.Remove(1, 8);
  rig.test->RunDisks(200);
  for (uint64_t key = 1; key <= 8; ++key) EXPECT_EQ(rig.Get(key).presence, Presence::kRemoved) << key;
  rig.test->Check();
}

TEST(OwnerSsd, ManyAskForOneBlockAndTheDiskReadsItOnce) {
  Rig rig;
  rig.Put(1, 200);
  const uint64_t before = rig.stats().ssd.reads;
  Get get;
  get.number = rig.number;
  get.blocks.push_back({HashOf(3), 0, {}});
  std::vector<uint64_t> ids;
  for (int i = 0; i < 10; ++i) ids.push_back(rig.test->Send(rig.session, Verb::kGet, get));
  rig.test->RunDisks();
  for (const uint64_t id : ids) {
    const Reply& sent = rig.test->outbox.replies.at({rig.session, id});
    const uint64_t token = sent.token;
    const auto reply = rig.test->Take<GetReply>(rig.session, id);
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply.value().blocks[0].presence, Presence::kSsd);
    rig.test->Give(rig.session, Sent{token});
  }
  EXPECT_EQ(rig.stats().ssd.reads - before, 1u);
  EXPECT_EQ(rig.stats().hard_pins, 0u);
  rig.test->Check();
}

TEST(OwnerSsd, ADiskThatIsBehindCostsTheColdestAndIsCounted) {
  Rig rig;
  rig.disk->faults.done_percent = 0;
  for (uint64_t key = 1; key <= 200; ++key) {
    rig.test->now_us += 1000;
    ASSERT_EQ(rig.test->Put(rig.session, rig.number, rig.Block(key)), PutState::kStored) << key;
  }
  EXPECT_GT(rig.stats().dropped, 100u);
  rig.test->Check();
  rig.disk->faults.done_percent = 60;
  rig.test->RunDisks();
  rig.test->Check();
}

TEST(OwnerSsd, ABlockTouchedOnItsWayDownStays) {
  Rig rig;
  rig.Put(1, 40);
  rig.disk->faults.done_percent = 0;
  uint64_t key = 41;
  while (rig.stats().spilling_bytes == 0) {
    rig.test->now_us += 1000;
    ASSERT_EQ(rig.test->Put(rig.session, rig.number, rig.Block(key++)), PutState::kStored);
  }
  rig.test->TouchOne(rig.session, rig.number, rig.Block(1));
  rig.test->Check();
  rig.disk->faults.done_percent = 60;
  rig.test->RunDisks();
  EXPECT_EQ(rig.Get(1).presence, Presence::kRam);
  EXPECT_EQ(rig.Get(2).presence, Presence::kSsd);
  rig.test->Check();
}

TEST(OwnerSsd, TwiceAdmitsOnlyWhatComesBackOrWasUsed) {
  OwnerOptions options;
  options.admit_twice = true;
  Rig rig(options);
  rig.Put(1, 200);
  EXPECT_EQ(rig.stats().spilled, 0u);
  EXPECT_GT(rig.stats().not_admitted, 130u);
  EXPECT_EQ(rig.Get(1).presence, Presence::kNotAdmitted);
  rig.Put(1, 100);
  rig.Put(1000, 70);
  EXPECT_GT(rig.stats().spilled, 60u);
  EXPECT_EQ(rig.Get(2).presence, Presence::kSsd);
}

TEST(OwnerSsd, ALostDiskMakesMissesAndTheNodeGoesOn) {
  Rig rig;
  rig.Put(1, 200);
  rig.disk->faults.read_error_percent = 100;
  for (uint64_t key = 1; key <= 20; ++key) EXPECT_FALSE(IsHit(rig.Get(key).presence));
  EXPECT_EQ(rig.stats().ssd.disks_lost, 1u);
  rig.test->RunDisks(200);
  EXPECT_EQ(rig.stats().ssd.pieces, 0u);
  rig.Put(1000, 200);
  EXPECT_EQ(rig.Get(1199).presence, Presence::kRam);
  EXPECT_FALSE(IsHit(rig.Get(1000).presence));
  const uint64_t id = rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
  rig.test->Advance(1);
  EXPECT_TRUE(rig.test->Answered(rig.session, id));
  rig.test->Check();
}

// Everything at once, with invariants checked; a failure prints its seed.
TEST(OwnerSsd, RandomWorkKeepsEveryInvariantAndEveryByte) {
  uint64_t ssd_hits = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    OwnerOptions options;
    options.admit_twice = seed % 3 == 0;
    Rig rig(options, 10);
    std::mt19937_64 random(seed);
    rig.disk->faults.read_error_percent = seed % 4 == 0 ? 1 : 0;
    std::vector<std::pair<SessionId, uint64_t>> open;  // gets
    std::map<uint64_t, std::vector<uint64_t>> keys_of;
    for (int step = 0; step < 1500; ++step) {
      rig.test->now_us += random() % 3000;
      const uint64_t key = 1 + random() % 250;
      const uint64_t what = random() % 16;
      if (what < 5) {
        (void)rig.test->Put(rig.session, rig.number, rig.Block(key));
      } else if (what < 9) {
        Get get;
        get.number = rig.number;
        for (uint64_t i = 0; i < 1 + random() % 5; ++i) get.blocks.push_back({HashOf(key + i), 0, {}});
        const auto deadline_us = static_cast<uint32_t>(random() % 2 == 0 ? 0 : 200 + random() % 20'000);
        const uint64_t id = rig.test->Send(rig.session, Verb::kGet, get, deadline_us);
        open.emplace_back(rig.session, id);
        for (uint64_t i = 0; i < get.blocks.size(); ++i) keys_of[id].push_back(key + i);
      } else if (what == 9) {
        rig.test->TouchOne(rig.session, rig.number, rig.Block(key));
      } else if (what == 10 && random() % 20 == 0) {
        (void)rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
      } else if (what == 11 && random() % 4 == 0) {
        (void)rig.test->Send(rig.session, Verb::kRemove, Remove{rig.number, {0}, {HashOf(key)}});
      } else if (what == 12 && random() % 60 == 0) {
        rig.test->Give(rig.session, Closed{});
        open.clear();
        rig.session = rig.test->Connect();
        rig.number = rig.test->OpenIdentity(rig.session, OpaqueIdentity());
      } else {
        rig.test->RunDisks(static_cast<int>(random() % 6));
        rig.test->Advance(random() % 500);
      }
      for (auto& [session, id] : open) {
        if (session == 0 || random() % 2 == 0 || !rig.test->Answered(session, id)) continue;
        const Reply sent = rig.test->outbox.replies.at({session, id});
        const auto reply = rig.test->Take<GetReply>(session, id);
        if (reply.ok()) {
          size_t segment = 0;
          for (size_t i = 0; i < reply.value().blocks.size(); ++i) {
            if (!IsHit(reply.value().blocks[i].presence)) continue;
            const auto& extent = sent.segments.extents.at(segment++);
            const auto expected = PartBytes(rig.Block(keys_of[id][i]), 0, 0);
            ASSERT_TRUE(std::equal(expected.begin(), expected.end(), extent.data)) << "seed " << seed;
          }
        }
        if (sent.token != 0) rig.test->Give(session, Sent{sent.token});
        session = 0;
      }
      if (step % 10 != 0) continue;
      ASSERT_EQ(rig.test->owner->CheckInvariants(), "") << "seed " << seed << " step " << step;
    }
    ssd_hits += rig.stats().ssd_hits;
  }
  EXPECT_GT(ssd_hits, 200u);
}

}  // namespace
}  // namespace larder::node
