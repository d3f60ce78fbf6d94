// What a node that leaves hands to others: the order, the pages, the pins, and what must not go.
#include <algorithm>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kHandOverSecondUs = 1'000'000;

struct Leaving : ::testing::Test {
  explicit Leaving(PolicyKind policy = kPolicyDefault)
      : node(OwnerOptions{.memory_bytes = 8 << 20, .eviction_policy = policy}) {
    node.now_us = 1000 * kHandOverSecondUs;
    session = node.Connect();
    number = node.OpenIdentity(session, OpaqueIdentity(), "tenant");
  }
  void Put(uint64_t key, uint32_t depth = 0, uint32_t bytes = 4096) {
    Spec spec{key, bytes, {}};
    spec.depth = depth;
    ASSERT_EQ(node.Put(session, number, spec), PutState::kStored);
  }
  std::vector<WarmPiece> List() {
    std::vector<WarmPiece> list;
    for (uint32_t from = 0; from != UINT32_MAX;) {
      const std::vector<WarmPiece> some = node.owner->ListWarm(&from);
      list.insert(list.end(), some.begin(), some.end());
    }
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.heat > b.heat; });
    return list;
  }
  static std::vector<uint32_t> EntriesOf(const OutgoingPage& page) {
    std::vector<uint32_t> entries;
    for (const OutgoingPiece& piece : page.pieces) entries.push_back(piece.piece.entry);
    return entries;
  }
  static std::vector<ChainHash> HashesOf(const OutgoingPage& page) {
    std::vector<ChainHash> hashes;
    for (const OutgoingPiece& piece : page.pieces) hashes.push_back(piece.header.hash);
    return hashes;
  }

  TestOwner node;
  SessionId session = 0;
  uint32_t number = 0;
};

class LeavingBy : public Leaving, public ::testing::WithParamInterface<PolicyKind> {
 public:
  LeavingBy() : Leaving(GetParam()) {}
};

TEST_P(LeavingBy, TheLastUsedGoesFirstAndOfOneRequestTheRoot) {
  Put(1);
  node.now_us += 20 * kHandOverSecondUs;
  Put(3, 2);  // one request: its blocks have one time
  Put(2, 1);
  node.now_us += 20 * kHandOverSecondUs;
  Put(4);
  node.now_us += 20 * kHandOverSecondUs;
  node.TouchOne(session, number, {1, 4096, {}});
  const OutgoingPage page = node.owner->TakeOut(List(), {});
  EXPECT_EQ(HashesOf(page), (std::vector{HashOf(1), HashOf(4), HashOf(2), HashOf(3)}));
  EXPECT_EQ(page.pieces[3].piece.depth(), 2u);
  node.owner->LetGo(EntriesOf(page));
  node.Check();
}

INSTANTIATE_TEST_SUITE_P(Policies, LeavingBy, ::testing::ValuesIn(kPolicyKinds), [](const auto& param) {
  std::string name(PolicyName(param.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// What hot copying had out at that moment was handed to nobody.
TEST_F(Leaving, WhatIsOutForAnotherIsAskedForAgain) {
  for (uint64_t key = 1; key <= 3; ++key) Put(key);
  const std::vector<WarmPiece> list = List();
  const OutgoingPage copied = node.owner->TakeOut(std::span(list).first(1), {}, true);
  ASSERT_EQ(copied.pieces.size(), 1u);
  const OutgoingPage page = node.owner->TakeOut(list, {});
  EXPECT_EQ(page.pieces.size(), 2u);
  EXPECT_EQ(page.looked, 3u);
  ASSERT_EQ(page.busy.size(), 1u);
  EXPECT_EQ(page.busy[0].entry, list[0].entry);
  node.owner->LetGo(EntriesOf(page));
  node.owner->LetGo(EntriesOf(copied));
  EXPECT_EQ(node.owner->TakeOut(page.busy, {}).pieces.size(), 1u);
}

TEST_F(Leaving, PagesAreBoundedInPiecesAndBytesAndTogetherAreAll) {
  for (uint64_t key = 1; key <= 100; ++key) Put(key);
  const std::vector<WarmPiece> list = List();
  ASSERT_EQ(list.size(), 100u);
  PageLimits limits;
  limits.pieces = 7;
  std::vector<ChainHash> seen;
  for (size_t at = 0; at < list.size();) {
    const OutgoingPage page = node.owner->TakeOut(std::span(list).subspan(at), limits);
    EXPECT_LE(page.pieces.size(), 7u);
    EXPECT_EQ(node.owner->stats().hard_pins, page.pieces.size());
    ASSERT_NE(page.looked, 0u);
    at += page.looked;
    for (const ChainHash& hash : HashesOf(page)) seen.push_back(hash);
    node.Check();
    node.owner->LetGo(EntriesOf(page));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
  EXPECT_EQ(seen.size(), 100u);
  limits = {};
  limits.payload_bytes = 10'000;
  EXPECT_EQ(node.owner->TakeOut(list, limits).pieces.size(), 2u);
  limits.payload_bytes = 1;  // one piece goes whatever its size
  EXPECT_EQ(node.owner->TakeOut(std::span(list).subspan(2), limits).pieces.size(), 1u);
}

TEST_F(Leaving, APieceCarriesItsBytesItsWriterAndWhereItBelongs) {
  Put(1, 5);
  const OutgoingPage page = node.owner->TakeOut(List(), {});
  ASSERT_EQ(page.pieces.size(), 1u);
  const OutgoingPiece& piece = page.pieces[0];
  const auto bytes = PartBytes({1, 4096, {}}, 0, 0);
  ASSERT_EQ(piece.payload.bytes, bytes.size());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), piece.payload.data));
  EXPECT_EQ(piece.piece.depth(), 5u);
  EXPECT_NE(piece.header.writer, Digest{});
  const Result<Open> open = node.owner->OpeningOf(piece.header.name_space);
  ASSERT_TRUE(open.ok());
  EXPECT_EQ(open->identity, OpaqueIdentity());
  EXPECT_EQ(open->tenant, "tenant");
  EXPECT_EQ(node.owner->OpeningOf({}).status().code(), Code::kNotFound);
  node.owner->LetGo(EntriesOf(page));
}

TEST_F(Leaving, ASaltedNamespaceIsOpenedElsewhereByItsDigest) {
  Open asked{OpaqueIdentity(), "tenant", Sha256(AsBytes("secret"))};
  const auto opened = node.Ask<OpenReply>(session, Verb::kOpen, asked);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(node.owner->OpeningOf(opened->name_space).value(), asked);
}

TEST_F(Leaving, WhatIsOutIsServedAndKeptUntilItIsBack) {
  Put(1);
  const OutgoingPage page = node.owner->TakeOut(List(), {});
  EXPECT_EQ(node.GetOne(session, number, {1, 4096, {}}).presence, Presence::kRam);
  EXPECT_FALSE(node.owner->Idle());
  for (uint64_t key = 100; key < 4000; ++key) (void)node.Put(session, number, {key, 4096, {}});
  EXPECT_EQ(node.GetOne(session, number, {1, 4096, {}}).presence, Presence::kRam);
  node.Check();
  EXPECT_EQ(node.owner->LetGo(EntriesOf(page)), std::vector<bool>{false});
  EXPECT_EQ(node.owner->stats().hard_pins, 0u);
  EXPECT_TRUE(node.owner->Idle());
}

TEST_F(Leaving, WhatIsRemovedOrClearedWhileItIsOutIsToldOf) {
  Put(1);
  Put(2);
  Put(3);
  const OutgoingPage page = node.owner->TakeOut(List(), {});
  ASSERT_EQ(page.pieces.size(), 3u);
  ASSERT_TRUE(node.Ask<RemoveReply>(session, Verb::kRemove, Remove{number, {0}, {HashOf(2)}}).ok());
  std::vector<bool> left = node.owner->LetGo(EntriesOf(page));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(left[i], page.pieces[i].header.hash == HashOf(2));
  const OutgoingPage again = node.owner->TakeOut(List(), {});
  ASSERT_EQ(again.pieces.size(), 2u);
  ASSERT_TRUE(node.Ask<ClearReply>(session, Verb::kClear, Clear{number}).ok());
  node.Check();
  EXPECT_EQ(node.owner->LetGo(EntriesOf(again)), (std::vector<bool>{true, true}));
  node.Advance(kHandOverSecondUs);
  EXPECT_EQ(node.owner->stats().pieces, 0u);
  EXPECT_EQ(node.owner->stats().slot_bytes, 0u);
  node.Check();
}

TEST_F(Leaving, RemovesAndClearsAreAnsweredOnceTheyWereForwarded) {
  Put(1);
  Put(2);
  ASSERT_TRUE(node.Ask<RemoveReply>(session, Verb::kRemove, Remove{number, {0}, {HashOf(9)}}).ok());
  EXPECT_FALSE(node.owner->NextForward().has_value());
  node.owner->BeginHandOver();
  const uint64_t remove = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(1)}});
  EXPECT_EQ(node.MatchOne(session, number, {1, 4096, {}}), Presence::kRemoved);  // here at once
  const uint64_t clear = node.Send(session, Verb::kClear, Clear{number});
  EXPECT_FALSE(node.Answered(session, remove));
  const std::optional<Forward> first = node.owner->NextForward();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->clear);
  EXPECT_EQ(first->hashes, std::vector{HashOf(1)});
  node.owner->Forwarded(first->token + 1);  // not its turn
  EXPECT_FALSE(node.Answered(session, remove));
  EXPECT_FALSE(node.owner->Idle());
  node.owner->Forwarded(first->token);
  EXPECT_TRUE(node.Answered(session, remove));
  EXPECT_FALSE(node.Answered(session, clear));
  EXPECT_TRUE(node.owner->NextForward()->clear);
  node.owner->Forwarded(node.owner->NextForward()->token);
  EXPECT_TRUE(node.Answered(session, clear));
  EXPECT_TRUE(node.owner->Idle());
}

TEST_F(Leaving, ARemoveThatAReceiverNeverHearsHasNoAnswerAndHoldsUpNoOther) {
  Put(1);
  node.owner->BeginHandOver();
  const uint64_t lost = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(1)}});
  const uint64_t next = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(2)}});
  node.owner->Forwarded(node.owner->NextForward()->token, false);
  EXPECT_FALSE(node.Answered(session, lost));
  EXPECT_FALSE(node.Answered(session, next));
  node.owner->Forwarded(node.owner->NextForward()->token);
  EXPECT_FALSE(node.Answered(session, lost));
  EXPECT_TRUE(node.Answered(session, next));
  EXPECT_TRUE(node.owner->Idle());
  node.Check();
}

// A put of a node that leaves may have timed out there and still land here, on a connection that it has left.
TEST_F(Leaving, ACommitThatComesAfterACarriedRemoveIsRefused) {
  constexpr SessionId kOld = 1000, kNew = 1001;
  uint32_t numbers[2];
  for (const SessionId each : {kOld, kNew}) {
    Opened opened;
    opened.hands_over = true;
    node.Give(each, opened);
    numbers[each - kOld] = node.OpenIdentity(each, OpaqueIdentity(), "tenant");
  }
  const Spec spec{1, 4096, {}}, other{2, 4096, {}};
  const ReserveReply::Block reserved = node.ReserveOne(kOld, numbers[0], spec);
  const ReserveReply::Block also = node.ReserveOne(kOld, numbers[0], other);
  ASSERT_EQ(reserved.state, PutState::kTicket);
  ASSERT_TRUE(node.Ask<RemoveReply>(kNew, Verb::kRemove, Remove{numbers[1], {0}, {HashOf(1)}}).ok());
  EXPECT_EQ(node.CommitOne(kOld, reserved.ticket, spec), PutState::kBusy);
  EXPECT_EQ(node.CommitOne(kOld, also.ticket, other), PutState::kStored);
  EXPECT_EQ(node.ReserveOne(kOld, numbers[0], spec).state, PutState::kBusy);
  EXPECT_FALSE(IsHit(node.MatchOne(session, number, spec)));
  EXPECT_EQ(node.Put(session, number, spec), PutState::kStored) << "a client puts what it likes";
  node.Check();
}

TEST_F(Leaving, ForwardsThatNobodyTakesHaveABound) {
  node.owner->BeginHandOver();
  size_t waiting = 0;
  for (; waiting < 10'000; ++waiting) {
    const uint64_t id = node.Send(session, Verb::kRemove, Remove{number, {0}, {HashOf(1)}});
    if (node.Answered(session, id)) break;
  }
  EXPECT_EQ(waiting, 4096u);
  EXPECT_EQ(node.Ask<ClearReply>(session, Verb::kClear, Clear{number}).status().code(), Code::kBusy);
  EXPECT_EQ(node.owner->ClearNamespace(node.owner->Namespaces()[0].name_space).status().code(), Code::kBusy);
}

TEST_F(Leaving, WhatLeftAfterItWasListedIsCounted) {
  Put(1);
  Put(2);
  const std::vector<WarmPiece> list = List();
  ASSERT_TRUE(node.Ask<RemoveReply>(session, Verb::kRemove, Remove{number, {0}, {HashOf(2)}}).ok());
  const OutgoingPage page = node.owner->TakeOut(list, {});
  EXPECT_EQ(page.looked, 2u);
  EXPECT_EQ(page.left, 1u);
  EXPECT_EQ(HashesOf(page), std::vector{HashOf(1)});
  node.owner->LetGo(EntriesOf(page));
}

TEST_F(Leaving, WhatIsRuledOutIsNotHandedOn) {
  Put(1);
  const std::vector<WarmPiece> list = List();
  Quarantine rules;
  rules.bypass = true;
  node.owner->SetQuarantine(rules);
  EXPECT_TRUE(List().empty());
  EXPECT_EQ(node.owner->TakeOut(list, {}).left, 1u);
  Digest writer{};
  writer[0] = static_cast<std::byte>(session);
  node.owner->SetQuarantine(node.owner->WithRule({writer, 0, 1, writer}, false).value());
  EXPECT_TRUE(node.owner->TakeOut(list, {}).pieces.empty());
  EXPECT_EQ(node.owner->stats().pieces, 0u);
}

}  // namespace
}  // namespace larder::node
