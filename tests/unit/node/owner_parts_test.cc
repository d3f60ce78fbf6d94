// Gets that are answered in several replies: what is in memory does not wait for what is on SSD.
#include <random>

#include "tests/unit/node/ssd_rig.h"

namespace larder::node {
namespace {

// A session that takes parts.
struct PartsRig : SsdRig {
  explicit PartsRig(uint32_t block_bytes = kPartBytes, uint64_t seed_given = 40)
      : SsdRig(Options(block_bytes), 64, uint64_t{block_bytes} * 16) {
    seed = seed_given;
    part_bytes = block_bytes;
    parts = true;
    Start();
  }
  static OwnerOptions Options(uint32_t block_bytes) {
    OwnerOptions options;
    options.memory_bytes = uint64_t{block_bytes} * 64;
    return options;
  }
  uint64_t Ask(const std::vector<uint64_t>& keys, uint32_t deadline_us = 0) {
    larder::Get get;
    get.number = number;
    for (const uint64_t key : keys) get.blocks.push_back({HashOf(key), 0, {}});
    return test->Send(session, Verb::kGet, get, deadline_us);
  }
  // The replies to a request that came so far, oldest first; they are given back as sent.
  std::vector<Reply> Taken(uint64_t id) {
    std::vector<Reply> replies = std::exchange(test->outbox.parts[{session, id}], {});
    if (const auto last = test->outbox.replies.find({session, id}); last != test->outbox.replies.end()) {
      replies.push_back(last->second);
      test->outbox.replies.erase(last);
    }
    return replies;
  }
};

GetReply BodyOf(const Reply& reply) {
  Envelope envelope;
  ByteView record;
  GetReply body;
  EXPECT_TRUE(DecodeEnvelope(reply.header, &envelope, &record).ok());
  EXPECT_EQ(envelope.code, Code::kOk);
  EXPECT_TRUE(Decode(record, &body).ok());
  EXPECT_EQ(body.owes(), reply.more);
  return body;
}

// Puts a reply's answers to the keys that are still owed, checks their bytes, and takes the keys off.
void Apply(const PartsRig& rig, const Reply& reply, std::vector<uint64_t>* owed,
           std::map<uint64_t, Presence>* answers) {
  const GetReply body = BodyOf(reply);
  ASSERT_EQ(body.blocks.size(), owed->size());
  std::vector<uint64_t> rest;
  size_t segment = 0;
  for (size_t i = 0; i < owed->size(); ++i) {
    const uint64_t key = (*owed)[i];
    if (body.blocks[i].presence == Presence::kLater) {
      rest.push_back(key);
      continue;
    }
    (*answers)[key] = body.blocks[i].presence;
    if (!IsHit(body.blocks[i].presence)) continue;
    const auto& extent = reply.segments.extents.at(segment++);
    const auto expected = PartBytes(rig.Block(key), 0, 0);
    ASSERT_EQ(extent.bytes, expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), extent.data)) << key;
  }
  ASSERT_EQ(segment, reply.segments.size());
  ASSERT_LT(rest.size(), owed->size());
  *owed = rest;
}

TEST(OwnerParts, WhatIsInMemoryGoesAtOnceAndTheRestFollows) {
  PartsRig rig;
  rig.Put(1, 200);
  std::vector<uint64_t> owed = {200, 1, 999, 199, 2};
  std::map<uint64_t, Presence> answers;
  const uint64_t id = rig.Ask(owed);
  EXPECT_FALSE(rig.test->Answered(rig.session, id));
  std::vector<Reply> replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), 1u);
  Apply(rig, replies[0], &owed, &answers);
  EXPECT_EQ(owed, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(answers.at(200), Presence::kRam);
  EXPECT_EQ(answers.at(199), Presence::kRam);
  EXPECT_EQ(answers.at(999), Presence::kNeverStored);
  rig.test->Check();
  rig.test->Give(rig.session, Sent{replies[0].token});  // while the others are being read
  rig.test->Check();
  rig.test->RunDisks();
  replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies[0].more);
  Apply(rig, replies[0], &owed, &answers);
  EXPECT_TRUE(owed.empty());
  EXPECT_EQ(answers.at(1), Presence::kSsd);
  EXPECT_EQ(answers.at(2), Presence::kSsd);
  EXPECT_GT(rig.stats().hard_pins, 0u);
  rig.test->Give(rig.session, Sent{replies[0].token});
  EXPECT_EQ(rig.stats().hard_pins, 0u);
  EXPECT_EQ(rig.stats().gets, 1u);
  EXPECT_EQ(rig.stats().get_hits, 4u);
  EXPECT_EQ(rig.stats().ssd_hits, 2u);
  EXPECT_EQ(rig.stats().get_parts, 1u);
  EXPECT_EQ(rig.stats().miss_by_reason[static_cast<size_t>(Presence::kLater)], 0u);
  EXPECT_TRUE(rig.test->owner->Idle());
  rig.test->Check();
}

TEST(OwnerParts, WhoDoesNotKnowThemGetsOneReply) {
  PartsRig rig;
  rig.parts = false;
  rig.Put(1, 200);
  rig.session = rig.test->Connect();
  rig.number = rig.test->OpenIdentity(rig.session, OpaqueIdentity());
  const uint64_t id = rig.Ask({200, 1});
  EXPECT_TRUE(rig.Taken(id).empty());
  rig.test->RunDisks();
  EXPECT_EQ(BodyOf(rig.Taken(id).at(0)).blocks.size(), 2u);
  EXPECT_EQ(rig.stats().get_parts, 0u);
}

TEST(OwnerParts, ALargeGetComesInAFewRepliesAsItIsRead) {
  PartsRig rig(256 << 10);
  rig.Put(1, 200);
  rig.disk->faults.done_percent = 20;
  std::vector<uint64_t> owed = {200};
  for (uint64_t key = 1; key <= 15; ++key) owed.push_back(key);
  std::map<uint64_t, Presence> answers;
  const uint64_t id = rig.Ask(owed);
  std::vector<Reply> replies;
  for (int step = 0; step < 1000 && !rig.test->Answered(rig.session, id); ++step) {
    rig.test->RunDisks(1);
    rig.test->Check();
  }
  replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), kGetRepliesMax);
  for (const Reply& reply : replies) {
    Apply(rig, reply, &owed, &answers);
    rig.test->Give(rig.session, Sent{reply.token});
  }
  EXPECT_TRUE(owed.empty());
  for (uint64_t key = 1; key <= 15; ++key) EXPECT_EQ(answers.at(key), Presence::kSsd) << key;
  rig.test->RunDisks(200);  // what made room for them
  EXPECT_EQ(rig.stats().hard_pins, 0u);
  rig.test->Check();
}

TEST(OwnerParts, TheLastReplySaysWhatCameTooLate) {
  PartsRig rig;
  rig.Put(1, 200);
  rig.disk->faults.done_percent = 0;  // nothing comes back
  std::vector<uint64_t> owed = {200, 1};
  std::map<uint64_t, Presence> answers;
  const uint64_t id = rig.Ask(owed, 50'000);
  rig.test->Advance(50'000);
  const std::vector<Reply> replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), 2u);
  for (const Reply& reply : replies) Apply(rig, reply, &owed, &answers);
  EXPECT_EQ(answers.at(200), Presence::kRam);
  EXPECT_EQ(answers.at(1), Presence::kTimedOut);
  EXPECT_EQ(replies[1].token, 0u);
  rig.test->Check();
}

TEST(OwnerParts, ASessionThatClosesInTheMiddleHoldsNothing) {
  PartsRig rig;
  rig.Put(1, 200);
  const uint64_t id = rig.Ask({200, 1, 2});
  EXPECT_EQ(rig.test->outbox.parts[(std::pair(rig.session, id))].size(), 1u);
  rig.test->RunDisks(1);
  rig.test->Give(rig.session, Closed{});
  rig.test->Check();
  rig.test->RunDisks();
  rig.test->Check();
  EXPECT_EQ(rig.stats().hard_pins, 0u);
  EXPECT_TRUE(rig.test->owner->Idle());
}

TEST(OwnerParts, ACancelEndsItWithoutTheRest) {
  PartsRig rig;
  rig.Put(1, 200);
  const uint64_t id = rig.Ask({200, 1, 2});
  const std::vector<Reply> replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), 1u);
  rig.test->Send(rig.session, Verb::kCancel, Cancel{id});
  EXPECT_EQ(rig.test->Take<GetReply>(rig.session, id).status().code(), Code::kCancelled);
  rig.test->Check();
  rig.test->Give(rig.session, Sent{replies[0].token});
  rig.test->RunDisks();
  EXPECT_EQ(rig.stats().hard_pins, 0u);
  EXPECT_EQ(rig.stats().cold_gets, 0u);
  EXPECT_TRUE(rig.test->owner->Idle());
  rig.test->Check();
}

TEST(OwnerParts, AClearBetweenTwoPartsIsHeard) {
  PartsRig rig;
  rig.Put(1, 200);
  std::vector<uint64_t> owed = {200, 1};
  std::map<uint64_t, Presence> answers;
  const uint64_t id = rig.Ask(owed);
  rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
  rig.test->RunDisks();
  const std::vector<Reply> replies = rig.Taken(id);
  ASSERT_EQ(replies.size(), 2u);
  for (const Reply& reply : replies) Apply(rig, reply, &owed, &answers);
  EXPECT_EQ(answers.at(200), Presence::kRam);
  EXPECT_EQ(answers.at(1), Presence::kCleared);
}

struct OpenGet {
  std::vector<uint64_t> owed;
  std::map<uint64_t, Presence> answers;
};

// What came for one get; true when that was the last of it. Counts what others follow.
bool TakeAll(PartsRig* rig, uint64_t id, OpenGet* get, std::vector<uint64_t>* unsent, uint64_t* parts) {
  bool ended = false;
  for (const Reply& reply : rig->Taken(id)) {
    ended = ended || !reply.more;
    *parts += reply.more ? 1 : 0;
    if (reply.token != 0) unsent->push_back(reply.token);
    Envelope envelope;
    ByteView record;
    EXPECT_TRUE(DecodeEnvelope(reply.header, &envelope, &record).ok());
    if (envelope.code == Code::kOk) {
      Apply(*rig, reply, &get->owed, &get->answers);
    } else {
      get->owed.clear();
    }
  }
  EXPECT_TRUE(!ended || get->owed.empty());
  return ended;
}

// Everything at once; a failure prints its seed.
TEST(OwnerParts, RandomGetsAreAnsweredOnceABlockWithTheRightBytes) {
  uint64_t parts = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PartsRig rig(128 << 10, 100 * seed);
    std::mt19937_64 random(seed);
    rig.disk->faults.read_error_percent = seed % 4 == 0 ? 1 : 0;
    rig.Put(1, 150);
    rig.disk->faults.done_percent = 20;
    std::map<uint64_t, OpenGet> open;  // gets
    std::vector<uint64_t> unsent;      // tokens
    for (int step = 0; step < 800; ++step) {
      rig.test->now_us += random() % 2000;
      const uint64_t key = 1 + random() % 200;
      const uint64_t what = random() % 16;
      if (what < 4) {
        (void)rig.test->Put(rig.session, rig.number, rig.Block(key));
      } else if (what < 8) {
        OpenGet asked;
        for (uint64_t i = 0; i < 1 + random() % 12; ++i) asked.owed.push_back(key + i * 3);
        const auto deadline_us = static_cast<uint32_t>(random() % 2 == 0 ? 0 : 500 + random() % 40'000);
        open.emplace(rig.Ask(asked.owed, deadline_us), asked);
      } else if (what == 8 && !open.empty() && random() % 8 == 0) {
        rig.test->Send(rig.session, Verb::kCancel, Cancel{open.begin()->first});
      } else if (what == 9 && random() % 20 == 0) {
        (void)rig.test->Send(rig.session, Verb::kClear, Clear{rig.number});
      } else if (what == 10 && random() % 30 == 0) {
        rig.test->Give(rig.session, Closed{});
        open.clear();
        unsent.clear();
        rig.session = rig.test->Connect({}, true);
        rig.number = rig.test->OpenIdentity(rig.session, OpaqueIdentity());
      } else {
        rig.test->RunDisks(static_cast<int>(random() % 4));
        rig.test->Advance(random() % 500);
      }
      for (auto at = open.begin(); at != open.end();) {
        const bool ended = TakeAll(&rig, at->first, &at->second, &unsent, &parts);
        if (HasFailure()) return;
        at = ended ? open.erase(at) : std::next(at);
      }
      while (!unsent.empty() && random() % 3 != 0) {
        rig.test->Give(rig.session, Sent{unsent.back()});
        unsent.pop_back();
      }
      if (step % 10 != 0) continue;
      ASSERT_EQ(rig.test->owner->CheckInvariants(), "") << "step " << step;
    }
    for (const uint64_t token : unsent) rig.test->Give(rig.session, Sent{token});
    rig.test->Give(rig.session, Closed{});
    rig.test->RunDisks(200);
    rig.test->Check();
    EXPECT_EQ(rig.stats().hard_pins, 0u);
  }
  EXPECT_GT(parts, 200u);
}

}  // namespace
}  // namespace larder::node
