// A node that joins, and the one that was home before, over sockets.
#include "node/cluster/bring_home.h"

#include "tests/unit/node/node_rig.h"

namespace larder::node {
namespace {

constexpr size_t kHomeBlockBytes = 8192;

NodeOptions WithWeight(NodeOptions options, uint32_t weight) {
  options.weight = weight;
  return options;
}

// `old` had everything before `young` joined.
struct Homes {
  // `old_weight` is what it says of itself; the table has it otherwise.
  explicit Homes(const std::vector<Credential>& credentials = {}, uint32_t old_weight = 1)
      : old(WithWeight(NamedNode("old", credentials), old_weight)),
        young(NamedNode("young", credentials)),
        bring_home(std::make_unique<BringHome>(young.node.get(), credentials)) {
    table.epoch = 2;
    table.nodes = {old.node->info().record, young.node->info().record};
    for (NodeRecord& node : table.nodes) node.weight = 1;
    table.Normalize();
    young.node->LosePlaces();
    young.node->SetTable(table);
    moved = MovedSlots({}, TableWithout(table, "young"), table, "young");
  }
  // The first `count` hashes, from `from` on, whose slots have moved.
  std::vector<ChainHash> Moved(size_t count, uint64_t from = 1) const {
    std::vector<ChainHash> hashes;
    for (uint64_t number = from; hashes.size() < count; ++number) {
      if (moved.PreviousHome(TestHash(number)) != nullptr) hashes.push_back(TestHash(number));
    }
    return hashes;
  }
  static Bytes PayloadOf(const ChainHash& hash, size_t bytes = kHomeBlockBytes) {
    uint64_t number = 0;
    std::memcpy(&number, hash.bytes.data(), sizeof number);
    return TestBytes(number, bytes);
  }
  static void PutAll(RawClient* client, const std::vector<ChainHash>& hashes) {
    std::vector<Bytes> payloads;
    for (const ChainHash& hash : hashes) payloads.push_back(PayloadOf(hash));
    for (const PutState state : client->PutBlocks(hashes, payloads, kHomeBlockBytes)) {
      ASSERT_EQ(state, PutState::kStored);
    }
  }
  // How many of them a get brings, each with its own bytes.
  static size_t GetAll(RawClient* client, const std::vector<ChainHash>& hashes) {
    GetReply reply;
    const auto message = client->GetBlocks(hashes, &reply);
    if (!message.has_value() || reply.blocks.size() != hashes.size()) return 0;
    size_t hits = 0;
    for (size_t i = 0; i < hashes.size(); ++i) {
      if (!IsHit(reply.blocks[i].presence)) continue;
      EXPECT_EQ(message->segments.at(hits), PayloadOf(hashes[i]));
      ++hits;
    }
    return hits;
  }

  NodeRig old, young;
  NodeTable table;
  MovedSlots moved;
  std::unique_ptr<BringHome> bring_home;  // before its node
};

size_t HomeHits(RawClient* client, const std::vector<ChainHash>& hashes) {
  size_t hits = 0;
  for (const uint8_t cell : client->MatchBlocks(hashes)) hits += IsHit(static_cast<Presence>(cell)) ? 1 : 0;
  return hits;
}

// Asks until so many hit: on a machine that is busy enough, a match gives up before all has come.
size_t HomeHitsInTime(RawClient* client, const std::vector<ChainHash>& hashes, size_t wanted) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  size_t hits = HomeHits(client, hashes);
  while (hits < wanted && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    hits = HomeHits(client, hashes);
  }
  return hits;
}

TEST(BringHome, AMatchAtTheNewHomeHitsAndTheBlocksStayThere) {
  Homes homes;
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(), after.Begin();
  const std::vector<ChainHash> hashes = homes.Moved(200);
  Homes::PutAll(&before, hashes);
  EXPECT_EQ(HomeHitsInTime(&after, hashes, 200), 200u);
  EXPECT_EQ(Homes::GetAll(&after, hashes), 200u);
  const OwnerStats stats = homes.young.Stats();
  EXPECT_EQ(stats.came, 200u);
  EXPECT_EQ(stats.came_bytes, 200 * kHomeBlockBytes);
  EXPECT_GE(stats.asked, 200u);
  EXPECT_GE(homes.old.Stats().given, 200u);
  EXPECT_TRUE(homes.young.UntilIdle());
  EXPECT_TRUE(homes.old.UntilIdle());
  homes.old.node->Stop();  // they are not asked for again
  EXPECT_EQ(Homes::GetAll(&after, hashes), 200u);
}

TEST(BringHome, AGetAloneBringsThemToo) {
  Homes homes;
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(), after.Begin();
  const std::vector<ChainHash> hashes = homes.Moved(50);
  Homes::PutAll(&before, {hashes.begin(), hashes.begin() + 40});
  EXPECT_EQ(Homes::GetAll(&after, hashes), 40u);
  EXPECT_EQ(homes.young.Stats().came, 40u);
}

// 32 MiB, of which one answer takes half.
TEST(BringHome, MoreThanOneAnswerTakesComesInSeveral) {
  Homes homes;
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(), after.Begin();
  constexpr size_t kLarge = 1 << 20;
  const std::vector<ChainHash> hashes = homes.Moved(32);
  for (const ChainHash& hash : hashes) {
    ASSERT_EQ(before.PutBlocks({hash}, {Homes::PayloadOf(hash, kLarge)}, kLarge),
              std::vector{PutState::kStored});
  }
  EXPECT_EQ(HomeHitsInTime(&after, hashes, 32), 32u);
  EXPECT_EQ(homes.young.Stats().came_bytes, 32 * kLarge);
}

TEST(BringHome, ABlockIsFiledUnderWhoeverWroteIt) {
  Homes homes(kTwoCredentials);
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(1, kTwoCredentials[0].token), after.Begin(1, kTwoCredentials[1].token);
  const std::vector<ChainHash> hashes = homes.Moved(10);
  Homes::PutAll(&before, hashes);
  GetReply reply;
  ASSERT_TRUE(after.GetBlocks(hashes, &reply).has_value());
  for (const GetReply::Block& block : reply.blocks) {
    ASSERT_TRUE(IsHit(block.presence));
    EXPECT_EQ(block.sources.at(0).writer, Sha256(AsBytes(kTwoCredentials[0].name)));
  }
}

TEST(BringHome, AWriterWhoseCredentialIsUnknownHereIsNotFiled) {
  Homes homes(kTwoCredentials);
  homes.bring_home.reset();
  homes.bring_home = std::make_unique<BringHome>(homes.young.node.get(), std::vector{kTwoCredentials[1]});
  homes.table.epoch = 3;
  homes.young.node->LosePlaces();
  homes.young.node->SetTable(homes.table);
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(1, kTwoCredentials[0].token), after.Begin(1, kTwoCredentials[1].token);
  const std::vector<ChainHash> hashes = homes.Moved(5);
  Homes::PutAll(&before, hashes);
  EXPECT_EQ(HomeHits(&after, hashes), 0u);
  EXPECT_EQ(homes.young.Stats().came, 0u);
  EXPECT_GT(homes.young.Stats().asked_not_there, 0u);
}

TEST(BringHome, DamagedBytesDoNotCome) {
  Homes homes;
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(), after.Begin();
  const std::vector<ChainHash> hashes = homes.Moved(10);
  Homes::PutAll(&before, hashes);
  const std::vector<WarmPiece> list = homes.old.node->ListWarm().value();
  const OutgoingPage page = homes.old.node->TakeOut(std::span(list).first(1), {}).value();
  auto* rotten = const_cast<std::byte*>(page.pieces.at(0).payload.data);
  rotten[5000] ^= std::byte{1};
  homes.old.node->LetGo(std::vector{page.pieces[0].piece.entry});
  EXPECT_EQ(HomeHitsInTime(&after, hashes, 9), 9u);
  EXPECT_EQ(homes.young.Stats().came_corrupt, 1u);
  EXPECT_EQ(Homes::GetAll(&after, hashes), 9u);
}

TEST(BringHome, AnEmptyNodeIsAskedOnceAndANodeThatIsGoneCostsNobodyHisDeadline) {
  Homes homes;
  RawClient after(homes.young.address());
  after.Begin();
  EXPECT_EQ(HomeHits(&after, homes.Moved(10)), 0u);
  const uint64_t asked = homes.young.Stats().asked;
  EXPECT_EQ(asked, 10u);
  for (uint64_t i = 0; i < 20; ++i) EXPECT_EQ(HomeHits(&after, homes.Moved(10, 1000 + 100 * i)), 0u);
  EXPECT_EQ(homes.young.Stats().asked, asked);
  homes.table.epoch = 3;
  homes.young.node->SetTable(homes.table);  // what is known of nodes is learned anew
  homes.old.node->Stop();
  const std::vector<ChainHash> hashes = homes.Moved(10, 5000);
  Match match{after.number, after.rectangle, {0}, 0, false, 10, hashes};
  const auto message = after.Ask(Verb::kMatch, match, {}, 5'000'000);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->envelope.code, Code::kOk);
  EXPECT_GT(homes.young.Stats().asked_failed, 0u);
  homes.young.ExpectServes(7);
}

TEST(BringHome, WhoeverIsAskedDoesNotAskAnybody) {
  Homes homes({}, kWeightMax);
  // By its own weight it is home to what it is asked for, and the asker was before.
  BringHome back(homes.old.node.get(), {});
  homes.old.node->LosePlaces();
  homes.old.node->SetTable(homes.table);
  ASSERT_GT(homes.old.Stats().moved_slots, kSlots / 10 * 9);
  RawClient after(homes.young.address()), before(homes.old.address());
  before.Begin(), after.Begin();
  EXPECT_EQ(HomeHits(&after, homes.Moved(10)), 0u);
  EXPECT_EQ(homes.old.Stats().asked, 0u);
}

TEST(BringHome, OnceItHasEndedNobodyWaits) {
  Homes homes;
  RawClient before(homes.old.address()), after(homes.young.address());
  before.Begin(), after.Begin();
  const std::vector<ChainHash> hashes = homes.Moved(10);
  Homes::PutAll(&before, hashes);
  homes.bring_home.reset();
  EXPECT_EQ(HomeHits(&after, hashes), 0u);
  EXPECT_EQ(homes.young.Stats().asked, 0u);
}

}  // namespace
}  // namespace larder::node
