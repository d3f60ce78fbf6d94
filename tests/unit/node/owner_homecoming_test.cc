// A node that joins: what is asked of the node that was home before, what comes home, and who waits how long.
#include <algorithm>
#include <cstring>
#include <random>

#include "node/owner/homecoming.h"
#include "proto/checksum.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kJoinSecondUs = 1'000'000;

// Two nodes: `there` was home to everything, `here` has joined and is home to half of it.
struct JoiningPair {
  explicit JoiningPair(const std::vector<TenantLimits>& tenants = {})
      : there({.memory_bytes = 16 << 20, .tenants = tenants}),
        here({.memory_bytes = 16 << 20, .tenants = tenants}) {
    NodeTable table;
    table.epoch = 2;
    for (const char* id : {"here", "there"}) table.nodes.emplace_back().id = id;
    table.Normalize();
    moved = MovedSlots({}, TableWithout(table, "here"), table, "here");
    here.owner->SetMoved(moved, here.now_us);
    writer = there.Connect();
    reader = here.Connect();
    number_there = there.OpenIdentity(writer, OpaqueIdentity(), "tenant");
    number = here.OpenIdentity(reader, OpaqueIdentity(), "tenant");
  }
  // The n-th key whose slot has moved here, or has not.
  uint64_t Key(size_t n, bool has_moved = true) const {
    for (uint64_t key = 1;; ++key) {
      if ((moved.PreviousHome(HashOf(key)) != nullptr) == has_moved && n-- == 0) return key;
    }
  }
  void PutThere(uint64_t key, uint32_t depth = 0) {
    Spec spec{key, 4096, {}};
    spec.depth = depth;
    ASSERT_EQ(there.Put(writer, number_there, spec), PutState::kStored);
  }
  Match MatchOf(const std::vector<uint64_t>& keys) const {
    Match match;
    match.number = number;
    match.groups = {0};
    for (const uint64_t key : keys) match.hashes.push_back(HashOf(key));
    match.hash_count = static_cast<uint32_t>(keys.size());
    return match;
  }
  uint64_t SendMatch(const std::vector<uint64_t>& keys, uint32_t deadline_us = 0) {
    return here.Send(reader, Verb::kMatch, MatchOf(keys), deadline_us);
  }
  std::vector<Presence> TakeMatch(uint64_t id) {
    std::vector<Presence> out;
    const auto reply = here.Take<MatchReply>(reader, id);
    EXPECT_TRUE(reply.ok()) << reply.status().text();
    if (!reply.ok()) return out;
    for (const uint8_t presence : reply->presence) out.push_back(static_cast<Presence>(presence));
    return out;
  }
  std::vector<Question> Questions() { return here.owner->TakeQuestions(100'000); }
  void Answer(const Question& question, Homing how) {
    here.owner->AnswerQuestions(std::vector<AnsweredQuestion>{{question.token, how}}, here.now_us,
                                here.now_us / 1000);
  }
  // Asks `there` for the blocks.
  MoveReply MoveOf(const std::vector<Question>& questions, std::vector<Bytes>* segments,
                   uint64_t bytes_max = 16 << 20) {
    larder::Move move{number_there, bytes_max, {}};
    for (const Question& question : questions) move.blocks.push_back(question.ref);
    const uint64_t id = there.Send(writer, Verb::kMove, move);
    const Reply& sent = there.outbox.replies.at({writer, id});
    for (const transport::ConstExtent& extent : sent.segments.extents) {
      segments->emplace_back(extent.data, extent.data + extent.bytes);
    }
    const uint64_t token = sent.token;
    const auto reply = there.Take<MoveReply>(writer, id);
    EXPECT_TRUE(reply.ok()) << reply.status().text();
    if (token != 0) there.Give(writer, Sent{token});
    return reply.ok() ? reply.value() : MoveReply{};
  }
  std::vector<ComingPiece> PiecesOf(const std::vector<Question>& questions, std::vector<Bytes>* segments) {
    const MoveReply reply = MoveOf(questions, segments);
    std::vector<ComingPiece> pieces;
    for (size_t i = 0; i < questions.size(); ++i) {
      for (const MoveReply::Piece& piece : reply.blocks[i].pieces) {
        pieces.push_back({questions[i].token, DecodeHeader(piece.header).value(), piece.depth});
      }
    }
    EXPECT_EQ(pieces.size(), segments->size());
    return pieces;
  }
  std::vector<ComingSlot> SlotsFor(const std::vector<ComingPiece>& pieces) {
    return here.owner->MakeSlots(pieces, here.now_us, here.now_us / 1000);
  }
  void Land(uint64_t ticket, bool good = true) {
    here.owner->LandPieces(std::vector<LandedPiece>{{ticket, good}}, here.now_us, here.now_us / 1000);
  }
  // What the questions are about comes home, and they are answered.
  void Bring(const std::vector<Question>& questions) {
    std::vector<Bytes> segments;
    const std::vector<ComingPiece> pieces = PiecesOf(questions, &segments);
    const std::vector<ComingSlot> slots = SlotsFor(pieces);
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].state != PutState::kTicket) continue;
      ASSERT_EQ(slots[i].memory.bytes, segments[i].size());
      std::memcpy(slots[i].memory.data, segments[i].data(), segments[i].size());
      Land(slots[i].ticket);
    }
    for (const Question& question : questions) Answer(question, Homing::kCame);
    here.Check();
    there.Check();
  }

  TestOwner there, here;
  MovedSlots moved;
  SessionId writer = 0, reader = 0;
  uint32_t number_there = 0, number = 0;
};

struct Joining : ::testing::Test, JoiningPair {};

// Its block would be dated by the receiver's clock, and outlive its time.
TEST(JoinWithTtl, BlocksOfATenantWithATtlStayWhereTheyAre) {
  JoiningPair pair({{"tenant", 60 * kJoinSecondUs}});
  pair.PutThere(pair.Key(0));
  EXPECT_EQ(pair.TakeMatch(pair.SendMatch({pair.Key(0)})), std::vector{Presence::kNeverStored});
  EXPECT_TRUE(pair.Questions().empty());
  std::vector<Bytes> segments;
  const Question question{1, "there", {}, {}, {HashOf(pair.Key(0)), 0, {0, 1, 0, 1}}};
  const MoveReply reply = pair.MoveOf({question}, &segments);
  ASSERT_EQ(reply.blocks.size(), 1u);
  EXPECT_EQ(reply.blocks[0].presence, Presence::kNeverStored);
  EXPECT_TRUE(reply.empty);
  EXPECT_TRUE(segments.empty());
}

// More than can be remembered was removed: a later change of the table must not bring any of it back.
TEST(JoinAndRemove, MoreThanCanBeRememberedEndsTheAsking) {
  JoiningPair pair;
  Homecoming home(1);
  const Namespace space{};
  const ChainHash moved = HashOf(pair.Key(0));
  home.SetMoved(pair.moved, 1);
  EXPECT_NE(home.Previous(space, moved, 1'000'000, 2), nullptr);
  for (uint64_t key = 0; key <= Homecoming::kNotesMax; ++key) home.Removed(space, moved, key, 2);
  EXPECT_EQ(home.Previous(space, moved, 1'000'000, 3), nullptr);
  home.SetMoved(pair.moved, 4);
  EXPECT_EQ(home.Previous(space, moved, 1'000'000, 5), nullptr);
}

// The keys of a namespace that is opened again are other ones than those that were noted.
TEST(JoinAndRemove, ANamespaceThatWasForgottenAfterARemoveIsNotAskedFor) {
  JoiningPair pair;
  Homecoming home(1);
  Namespace space{}, other{};
  other.bytes[0] = std::byte{1};
  const ChainHash moved = HashOf(pair.Key(0));
  home.SetMoved(pair.moved, 1);
  home.Removed(space, moved, 7, 2);
  home.Forgotten(space);
  home.Forgotten(other);
  EXPECT_EQ(home.Previous(space, moved, 8, 3), nullptr);
  EXPECT_NE(home.Previous(other, moved, 8, 3), nullptr);
}

TEST_F(Joining, AMatchWaitsForWhatComesHomeAndThenHits) {
  PutThere(Key(0), 7);
  const uint64_t id = SendMatch({Key(0)});
  EXPECT_FALSE(here.Answered(reader, id));
  EXPECT_FALSE(here.owner->Idle());
  here.Check();
  const std::vector<Question> questions = Questions();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(questions[0].home, "there");
  EXPECT_EQ(questions[0].ref.hash, HashOf(Key(0)));
  EXPECT_EQ(questions[0].name_space, here.owner->Namespaces()[0].name_space);
  Digest asker{};
  asker[0] = static_cast<std::byte>(reader);
  EXPECT_EQ(questions[0].asker, asker);
  Bring(questions);
  EXPECT_EQ(TakeMatch(id), std::vector{Presence::kRam});
  const Pulled pulled = here.GetOne(reader, number, {Key(0), 4096, {}});
  EXPECT_EQ(pulled.presence, Presence::kRam);
  EXPECT_TRUE(pulled.checksums_good);
  EXPECT_EQ(pulled.payload, PartBytes({Key(0), 4096, {}}, 0, 0));
  Digest first_writer{};
  first_writer[0] = static_cast<std::byte>(writer);
  EXPECT_EQ(pulled.sources.at(0).writer, first_writer);
  uint32_t from = 0;
  EXPECT_EQ(here.owner->ListWarm(&from).at(0).depth(), 7u);
  const OwnerStats stats = here.owner->stats();
  EXPECT_EQ(stats.asked, 1u);
  EXPECT_EQ(stats.came, 1u);
  EXPECT_EQ(stats.came_bytes, 4096u);
  EXPECT_EQ(stats.matches, 1u);  // it was looked at twice
  EXPECT_EQ(stats.sessions, 1u);
  EXPECT_EQ(stats.asides + stats.questions_open, 0u);
  EXPECT_EQ(there.owner->stats().given, 1u);
  EXPECT_EQ(there.owner->stats().gets, 0u);
  EXPECT_TRUE(here.owner->Idle());
}

TEST_F(Joining, SlotsThatHaveNotMovedAreAnsweredAtOnce) {
  const uint64_t id = SendMatch({Key(0, false), Key(1, false)});
  EXPECT_EQ(TakeMatch(id), (std::vector{Presence::kNeverStored, Presence::kNeverStored}));
  EXPECT_TRUE(Questions().empty());
}

TEST_F(Joining, OneQuestionABlockHoweverManyAsk) {
  PutThere(Key(0));
  const uint64_t first = SendMatch({Key(0), Key(0)}), second = SendMatch({Key(0)});
  Get get{number, 0, {{HashOf(Key(0)), 0, {}}}};
  const uint64_t third = here.Send(reader, Verb::kGet, get);
  const std::vector<Question> questions = Questions();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(here.owner->stats().asides, 3u);
  Bring(questions);
  EXPECT_EQ(TakeMatch(first), (std::vector{Presence::kRam, Presence::kRam}));
  EXPECT_EQ(TakeMatch(second), std::vector{Presence::kRam});
  const auto got = here.Take<GetReply>(reader, third);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->blocks.at(0).presence, Presence::kRam);
}

TEST_F(Joining, WhoComesWhileABlockLandsWaitsForItToo) {
  PutThere(Key(0));
  SendMatch({Key(0)});
  const std::vector<Question> questions = Questions();
  std::vector<Bytes> segments;
  const std::vector<ComingSlot> slots = SlotsFor(PiecesOf(questions, &segments));
  const uint64_t id = SendMatch({Key(0)});
  EXPECT_FALSE(here.Answered(reader, id));
  std::memcpy(slots.at(0).memory.data, segments.at(0).data(), segments[0].size());
  Land(slots[0].ticket);
  Answer(questions[0], Homing::kCame);
  EXPECT_EQ(TakeMatch(id), std::vector{Presence::kRam});
  ASSERT_EQ(here.ReserveOne(reader, number, {Key(1), 4096, {}}).state, PutState::kTicket);
  EXPECT_EQ(TakeMatch(SendMatch({Key(1)})), std::vector{Presence::kWriting});  // a client puts it
}

TEST_F(Joining, WhatIsNotThereIsNotAskedForAgainForAWhile) {
  const uint64_t id = SendMatch({Key(0), Key(1)});
  for (const Question& question : Questions()) Answer(question, Homing::kNotThere);
  EXPECT_EQ(TakeMatch(id), (std::vector{Presence::kNeverStored, Presence::kNeverStored}));
  for (int i = 0; i < 59; ++i) {
    EXPECT_EQ(TakeMatch(SendMatch({Key(0)})), std::vector{Presence::kNeverStored});
    here.Advance(kJoinSecondUs);
  }
  EXPECT_TRUE(Questions().empty());
  here.Advance(2 * Homecoming::kNotThereUs);
  (void)SendMatch({Key(0)});
  EXPECT_EQ(Questions().size(), 1u);
}

TEST_F(Joining, ANodeThatIsEmptyIsAskedOnceAboutANamespace) {
  SendMatch({Key(0)});
  std::vector<Question> questions = Questions();
  ASSERT_EQ(questions.size(), 1u);
  std::vector<Bytes> segments;
  EXPECT_TRUE(MoveOf(questions, &segments).empty);
  Answer(questions[0], Homing::kEmptyThere);
  for (size_t i = 1; i < 50; ++i) {
    EXPECT_EQ(TakeMatch(SendMatch({Key(i)})), std::vector{Presence::kNeverStored});
  }
  EXPECT_TRUE(Questions().empty());
  number = here.OpenIdentity(reader, OpaqueIdentity("another"), "tenant");
  (void)SendMatch({Key(1)});
  EXPECT_EQ(Questions().size(), 1u);
}

TEST_F(Joining, ANodeThatHadNothingForALongRowIsLeftAloneUntilTheTableChanges) {
  uint64_t key = 1'000'000;
  const auto ask = [&] {
    std::vector<uint64_t> keys;
    for (int i = 0; i < 512; ++i) keys.push_back(++key);
    (void)SendMatch(keys);
    const std::vector<Question> questions = Questions();
    for (const Question& question : questions) Answer(question, Homing::kNotThere);
    return questions.size();
  };
  size_t asked = 0;
  for (size_t some = ask(); some != 0 && asked < 100'000; some = ask()) asked += some;
  EXPECT_GE(asked, Homecoming::kVainMax);
  EXPECT_LE(asked, Homecoming::kVainMax + 512);
  here.owner->SetMoved(moved, here.now_us);
  EXPECT_GT(ask(), 0u);
  PutThere(Key(0));  // one that comes begins the row anew
  (void)SendMatch({Key(0)});
  Bring(Questions());
  EXPECT_GT(ask(), 0u);
}

TEST_F(Joining, ANodeThatDoesNotAnswerIsLeftAloneForAPauseThatDoubles) {
  const uint64_t first = SendMatch({Key(0)});
  const std::vector<Question> questions = Questions();
  const uint64_t second = SendMatch({Key(1), Key(2)});  // asked, and not taken yet
  Answer(questions.at(0), Homing::kUnreachable);
  EXPECT_TRUE(here.Answered(reader, first));
  EXPECT_TRUE(here.Answered(reader, second));
  EXPECT_TRUE(Questions().empty());
  uint64_t pause_us = Homecoming::kPauseMinUs;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(here.Answered(reader, SendMatch({Key(0)})));
    here.Advance(pause_us - 1);
    EXPECT_TRUE(here.Answered(reader, SendMatch({Key(0)})));
    here.Advance(1);
    (void)SendMatch({Key(0)});
    const std::vector<Question> again = Questions();
    ASSERT_EQ(again.size(), 1u) << i;
    Answer(again[0], Homing::kUnreachable);
    pause_us = std::min(2 * pause_us, Homecoming::kPauseMaxUs);
  }
  here.Check();
}

TEST_F(Joining, NobodyWaitsBeyondHisDeadlineAndTheNextOneHits) {
  PutThere(Key(0));
  const uint64_t id = SendMatch({Key(0)}, 100'000);
  const std::vector<Question> questions = Questions();
  here.Advance(74'000);
  EXPECT_FALSE(here.Answered(reader, id));
  here.Advance(2'000);
  EXPECT_EQ(TakeMatch(id), std::vector{Presence::kNeverStored});
  EXPECT_EQ(here.owner->stats().asides, 0u);
  Bring(questions);
  EXPECT_EQ(TakeMatch(SendMatch({Key(0)})), std::vector{Presence::kRam});
  const uint64_t patient = SendMatch({Key(1)});  // no deadline of its own
  here.Advance(3 * kJoinSecondUs);
  EXPECT_TRUE(here.Answered(reader, patient));
}

TEST_F(Joining, AGetOfBlocksHereAndThereIsAnsweredWhole) {
  for (size_t i = 0; i < 3; ++i) PutThere(Key(i));
  ASSERT_EQ(here.Put(reader, number, {Key(1), 4096, {}}), PutState::kStored);
  Get get{number, 0, {}};
  for (size_t i = 0; i < 4; ++i) get.blocks.push_back({HashOf(Key(i)), 0, {}});
  const uint64_t id = here.Send(reader, Verb::kGet, get, 1'000'000);
  const std::vector<Question> questions = Questions();
  ASSERT_EQ(questions.size(), 3u);
  Bring({questions[0], questions[1]});
  EXPECT_FALSE(here.Answered(reader, id));
  Answer(questions[2], Homing::kNotThere);
  const auto reply = here.Take<GetReply>(reader, id);
  ASSERT_TRUE(reply.ok());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(IsHit(reply->blocks[i].presence), i < 3) << i;
  EXPECT_EQ(here.owner->stats().gets, 1u);
}

TEST_F(Joining, AWaitIsWokenByWhatComesHome) {
  PutThere(Key(0));
  Wait wait{number, {}, {0}, 1, false, 1, {HashOf(Key(0))}};
  const uint64_t id = here.Send(reader, Verb::kWait, wait, 1'000'000);
  const std::vector<Question> questions = Questions();
  ASSERT_EQ(questions.size(), 1u);
  Bring(questions);
  const auto reply = here.Take<WaitReply>(reader, id);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->leading, 1u);
}

// The other node has not heard of it; here it was answered as gone.
TEST_F(Joining, WhatWasRemovedDoesNotComeBack) {
  for (size_t i = 0; i < 4; ++i) PutThere(Key(i));
  SendMatch({Key(0), Key(1), Key(2)});
  const std::vector<Question> questions = Questions();
  std::vector<Bytes> segments;
  const std::vector<ComingPiece> pieces = PiecesOf(questions, &segments);
  const auto remove = [&](size_t key) {
    ASSERT_TRUE(here.Ask<RemoveReply>(reader, Verb::kRemove, Remove{number, {0}, {HashOf(Key(key))}}).ok());
  };
  remove(0);
  const std::vector<ComingSlot> slots = SlotsFor(pieces);
  EXPECT_NE(slots[0].state, PutState::kTicket);
  ASSERT_EQ(slots[1].state, PutState::kTicket);
  remove(1);
  Land(slots[1].ticket);
  ASSERT_EQ(slots[2].state, PutState::kTicket);
  Land(slots[2].ticket);
  remove(2);
  remove(3);
  for (const Question& question : questions) Answer(question, Homing::kCame);
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(IsHit(TakeMatch(SendMatch({Key(i)})).at(0))) << i;
  EXPECT_TRUE(Questions().empty());
  EXPECT_EQ(here.owner->stats().pieces, 0u);
  here.Check();
}

TEST_F(Joining, WhatWasClearedDoesNotComeBack) {
  PutThere(Key(0));
  PutThere(Key(1));
  SendMatch({Key(0), Key(1)});
  const std::vector<Question> questions = Questions();
  std::vector<Bytes> segments;
  const std::vector<ComingPiece> pieces = PiecesOf(questions, &segments);
  const std::vector<ComingSlot> slots = SlotsFor({pieces[0]});
  ASSERT_TRUE(here.Ask<ClearReply>(reader, Verb::kClear, Clear{number}).ok());
  Land(slots[0].ticket);
  EXPECT_NE(SlotsFor({pieces[1]})[0].state, PutState::kTicket);
  for (const Question& question : questions) Answer(question, Homing::kCame);
  EXPECT_FALSE(IsHit(TakeMatch(SendMatch({Key(0)})).at(0)));
  here.owner->SetMoved(moved, here.now_us);  // another change of the table
  EXPECT_FALSE(IsHit(TakeMatch(SendMatch({Key(1)})).at(0)));
  EXPECT_TRUE(Questions().empty());
  EXPECT_EQ(here.owner->stats().pieces, 0u);
  here.Check();
}

TEST_F(Joining, BytesThatDoNotVerifyStayOutside) {
  PutThere(Key(0));
  const uint64_t id = SendMatch({Key(0)});
  const std::vector<Question> questions = Questions();
  std::vector<Bytes> segments;
  const std::vector<ComingSlot> slots = SlotsFor(PiecesOf(questions, &segments));
  ASSERT_EQ(slots.at(0).state, PutState::kTicket);
  Land(slots[0].ticket, false);
  Answer(questions[0], Homing::kNotThere);
  EXPECT_EQ(TakeMatch(id), std::vector{Presence::kNeverStored});
  EXPECT_EQ(here.owner->stats().came_corrupt, 1u);
  EXPECT_EQ(here.owner->stats().tickets, 0u);
  here.Check();
}

TEST_F(Joining, WhoIsRuledOutDoesNotComeBackThisWay) {
  PutThere(Key(0));
  SendMatch({Key(0)});
  std::vector<Bytes> segments;
  const std::vector<ComingPiece> pieces = PiecesOf(Questions(), &segments);
  here.owner->SetQuarantine(here.owner->WithRule({pieces[0].header.writer, 0, 1, {}}, false).value());
  EXPECT_NE(SlotsFor(pieces)[0].state, PutState::kTicket);
}

TEST_F(Joining, WhoLeavesOrCancelsWaitsForNothing) {
  const SessionId other = here.Connect();
  ASSERT_EQ(here.OpenIdentity(other, OpaqueIdentity(), "tenant"), number);
  (void)here.Send(other, Verb::kMatch, MatchOf({Key(0), Key(1)}));
  const uint64_t id = SendMatch({Key(0), Key(2)});
  here.Give(other, Closed{});
  here.Check();
  EXPECT_EQ(here.owner->stats().asides, 1u);
  (void)here.Send(reader, Verb::kCancel, Cancel{id});
  EXPECT_EQ(TakeMatch(id), (std::vector{Presence::kNeverStored, Presence::kNeverStored}));
  for (const Question& question : Questions()) Answer(question, Homing::kNotThere);
  EXPECT_TRUE(here.owner->Idle());
  here.Check();
}

TEST_F(Joining, NobodyIsAskedWhileTheNodeDrainsOrIsBypassedOrWhenItIsLongAgo) {
  here.Advance(Homecoming::kRememberUs);
  EXPECT_TRUE(here.Answered(reader, SendMatch({Key(0)})));
  EXPECT_EQ(here.owner->stats().moved_slots, 0u);
  here.owner->SetMoved(moved, here.now_us);
  Quarantine rules;
  rules.bypass = true;
  here.owner->SetQuarantine(rules);
  EXPECT_TRUE(here.Answered(reader, SendMatch({Key(0)})));
  here.owner->SetQuarantine({});
  here.owner->Drain(false);
  EXPECT_TRUE(here.Answered(reader, SendMatch({Key(0)})));
  EXPECT_TRUE(Questions().empty());
}

TEST_F(Joining, WhatWaitsHasABoundAndBeyondItAMissIsAMiss) {
  std::vector<uint64_t> keys;
  for (size_t i = 0; i < 20'000; ++i) keys.push_back(100'000 + i);
  size_t answered = 0;
  for (size_t at = 0; at < keys.size(); at += 500) {
    const std::vector<uint64_t> some(keys.begin() + static_cast<ptrdiff_t>(at),
                                     keys.begin() + static_cast<ptrdiff_t>(at + 500));
    for (int i = 0; i < 10; ++i) answered += here.Answered(reader, SendMatch(some)) ? 1 : 0;
    ASSERT_LE(here.owner->stats().questions_open, Homecoming::kQuestionsMax);
  }
  EXPECT_GT(answered, 0u);
  EXPECT_GT(here.owner->stats().asides, 0u);
  here.Check();
  here.Advance(3 * kJoinSecondUs);
  EXPECT_EQ(here.owner->stats().asides, 0u);
  here.Check();
}

TEST_F(Joining, APreviousHomeGivesWholePiecesWithinTheBytesThatAreAsked) {
  TestOwner grid;
  const SessionId session = grid.Connect();
  const uint32_t opened = grid.OpenIdentity(session, KvIdentity(4, 2), "tenant");
  for (const uint16_t half : {uint16_t{0}, uint16_t{2}}) {
    Spec spec{1, 1000, {half, static_cast<uint16_t>(half + 2), 0, 2}};
    spec.depth = 9;
    ASSERT_EQ(grid.Put(session, opened, spec), PutState::kStored);
  }
  ASSERT_EQ(grid.Put(session, opened, {2, 1000, {0, 4, 0, 2}}), PutState::kStored);
  const BlockRef part{HashOf(1), 0, {1, 3, 0, 1}}, whole{HashOf(2), 0, {0, 4, 0, 2}},
      missing{HashOf(3), 0, {0, 4, 0, 2}};
  const auto ask = [&](uint64_t bytes_max) {
    const uint64_t id =
        grid.Send(session, Verb::kMove, larder::Move{opened, bytes_max, {part, whole, missing}});
    const uint64_t token = grid.outbox.replies.at({session, id}).token;
    auto reply = grid.Take<MoveReply>(session, id);
    grid.Give(session, Sent{token});
    EXPECT_TRUE(reply.ok());
    return reply.value();
  };
  const MoveReply all = ask(1 << 20);
  ASSERT_EQ(all.blocks.at(0).pieces.size(), 2u);
  EXPECT_EQ(all.blocks[0].pieces[0].depth, 9u);
  EXPECT_EQ(DecodeHeader(all.blocks[0].pieces[0].header)->rectangle.parts(), 4u);
  EXPECT_EQ(all.blocks.at(1).pieces.size(), 1u);
  EXPECT_EQ(all.blocks.at(2).presence, Presence::kNeverStored);
  EXPECT_FALSE(all.empty);
  const MoveReply some = ask(8000);
  EXPECT_TRUE(IsHit(some.blocks.at(0).presence));
  EXPECT_EQ(some.blocks.at(1).presence, Presence::kBusy);
  EXPECT_EQ(grid.owner->stats().hard_pins, 0u);
  EXPECT_EQ(grid.owner->stats().get_blocks, 0u);
  grid.Check();
}

// Whatever comes in between, every request is answered once, no bound is passed, and only right bytes show
// up.
TEST_F(Joining, AnyOrderOfEventsKeepsTheInvariants) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    JoiningPair pair;
    std::mt19937_64 random(seed);
    const auto below = [&](uint64_t end) { return random() % end; };
    for (size_t i = 0; i < 40; ++i) pair.PutThere(pair.Key(i));
    std::vector<Question> open;
    std::vector<std::pair<uint64_t, Bytes>> landing;  // ticket, bytes
    std::vector<uint64_t> sent;
    for (int step = 0; step < 400; ++step) {
      const uint64_t choice = below(100);
      const uint64_t key = pair.Key(below(60));
      if (choice < 30) {
        sent.push_back(pair.SendMatch({key, pair.Key(below(60))}, below(2) == 0 ? 0 : 50'000));
      } else if (choice < 40) {
        (void)pair.here.Ask<RemoveReply>(pair.reader, Verb::kRemove, Remove{pair.number, {0}, {HashOf(key)}});
      } else if (choice < 42) {
        (void)pair.here.Ask<ClearReply>(pair.reader, Verb::kClear, Clear{pair.number});
      } else if (choice < 50) {
        (void)pair.here.Put(pair.reader, pair.number, {key, 4096, {}});
      } else if (choice < 60) {
        pair.here.Advance(below(100'000));
      } else if (choice < 75) {
        for (const Question& question : pair.Questions()) open.push_back(question);
      } else if (choice < 85 && !open.empty()) {
        const Question question = open[below(open.size())];
        std::vector<Bytes> segments;
        const std::vector<ComingPiece> pieces = pair.PiecesOf({question}, &segments);
        const std::vector<ComingSlot> slots = pair.SlotsFor(pieces);
        for (size_t i = 0; i < slots.size(); ++i) {
          if (slots[i].state != PutState::kTicket) continue;
          std::memcpy(slots[i].memory.data, segments[i].data(), segments[i].size());
          landing.emplace_back(slots[i].ticket, segments[i]);
        }
      } else if (choice < 92 && !landing.empty()) {
        pair.Land(landing.back().first, below(5) != 0);
        landing.pop_back();
      } else if (!open.empty()) {
        pair.Answer(open.back(), static_cast<Homing>(below(5)));
        open.pop_back();
      }
      pair.here.Check();
      if (HasFailure()) return;
    }
    for (const auto& [ticket, bytes] : landing) pair.Land(ticket);
    for (const Question& question : open) pair.Answer(question, Homing::kNotThere);
    pair.here.Advance(3 * kJoinSecondUs);
    for (const uint64_t id : sent) EXPECT_TRUE(pair.here.Answered(pair.reader, id));
    EXPECT_TRUE(pair.here.owner->Idle());
    for (size_t i = 0; i < 60; ++i) {
      const Spec spec{pair.Key(i), 4096, {}};
      const Get get{pair.number, 0, {{HashOf(spec.key), 0, {}}}};
      const uint64_t id = pair.here.Send(pair.reader, Verb::kGet, get, 1000);
      pair.here.Advance(1000);
      const Reply& reply = pair.here.outbox.replies.at({pair.reader, id});
      for (const transport::ConstExtent& extent : reply.segments.extents) {
        EXPECT_EQ(Bytes(extent.data, extent.data + extent.bytes), PartBytes(spec, 0, 0));
      }
    }
  }
}

}  // namespace
}  // namespace larder::node
