// A running node, spoken to over sockets: what it serves, and how it starts, drains and stops.
#include "node/node.h"

#include "tests/unit/node/node_rig.h"

namespace larder::node {
namespace {

std::vector<ChainHash> Hashes(uint64_t first, size_t count) {
  std::vector<ChainHash> out;
  for (size_t i = 0; i < count; ++i) out.push_back(TestHash(first + i));
  return out;
}
std::vector<Bytes> Payloads(uint64_t first, size_t count, size_t bytes) {
  std::vector<Bytes> out;
  for (size_t i = 0; i < count; ++i) out.push_back(TestBytes(first + i, bytes));
  return out;
}

TEST(Node, BlocksInBlocksOut) {
  NodeRig rig;
  RawClient writer(rig.address());
  writer.Begin(4);
  const auto hashes = Hashes(1, 20);
  const auto payloads = Payloads(1, 20, 4 * 16384);
  EXPECT_EQ(writer.PutBlocks(hashes, payloads, 16384), std::vector(20, PutState::kStored));

  RawClient reader(rig.address());
  reader.Begin(4);
  auto asked = hashes;
  asked.push_back(TestHash(999));
  std::vector<uint8_t> expected(20, static_cast<uint8_t>(Presence::kRam));
  expected.push_back(static_cast<uint8_t>(Presence::kNeverStored));
  EXPECT_EQ(reader.MatchBlocks(asked), expected);
  GetReply reply;
  const auto message = reader.GetBlocks(asked, &reply);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->segments, payloads);
  EXPECT_EQ(reply.blocks[20].presence, Presence::kNeverStored);
  EXPECT_EQ(writer.PutBlocks(hashes, payloads, 16384), std::vector(20, PutState::kExists));
  EXPECT_TRUE(rig.UntilIdle());
  const OwnerStats stats = rig.Stats();
  EXPECT_EQ(stats.puts, 20u);
  EXPECT_EQ(stats.payload_bytes, 20u * 65536);
  EXPECT_EQ(stats.sessions, 2u);
  EXPECT_EQ(rig.node->mover_stats()[0].stats.connections, 2u);
  ASSERT_TRUE(rig.node->Namespaces().ok());
  ASSERT_EQ(rig.node->Namespaces()->size(), 1u);
  EXPECT_EQ(rig.node->Clear(rig.node->Namespaces()->at(0).name_space).value(), 20u);
  EXPECT_EQ(reader.MatchBlocks({hashes[0]}), std::vector{static_cast<uint8_t>(Presence::kCleared)});
}

TEST(Node, LongChainsTravelAsPayload) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  const auto stored = Hashes(1, 5);
  client.PutBlocks(stored, Payloads(1, 5, 4096), 4096);
  const auto chain = Hashes(1, 20'000);
  const std::vector<uint8_t> presence = client.MatchBlocks(chain, true);
  ASSERT_EQ(presence.size(), chain.size());
  for (size_t i = 0; i < presence.size(); ++i) EXPECT_EQ(presence[i] < 64, i < 5) << i;
}

TEST(Node, AWaitEndsWhenTheBlockComes) {
  NodeRig rig;
  RawClient reader(rig.address()), writer(rig.address());
  reader.Begin();
  writer.Begin();
  Wait wait;
  wait.number = reader.number;
  wait.rectangle = reader.rectangle;
  wait.groups = {0};
  wait.hashes = Hashes(1, 2);
  wait.hash_count = 2;
  const uint64_t id = ++reader.last_request;
  reader.SendMessage(Encode(Envelope{.verb = Verb::kWait, .request_id = id}, wait));
  writer.PutBlocks(Hashes(1, 2), Payloads(1, 2, 4096), 4096);
  const auto answer = reader.Await(id);
  ASSERT_TRUE(answer.has_value());
  WaitReply reply;
  ASSERT_TRUE(Decode(answer->record, &reply).ok());
  EXPECT_EQ(reply.leading, 2u);
  // And at its deadline when it does not: the owner's thread has a timer.
  wait.hashes = Hashes(100, 2);
  const auto late = reader.Ask(Verb::kWait, wait, {}, 50'000);
  ASSERT_TRUE(late.has_value());
  ASSERT_TRUE(Decode(late->record, &reply).ok());
  EXPECT_EQ(reply.leading, 0u);
}

TEST(Node, IntroducesItself) {
  NodeOptions options = SmallNode();
  options.node_id.clear();
  options.weight = 3;
  options.zone = "rack-1";
  options.peers = {ParseNodeEntry("other@127.0.0.1:9*2").value()};
  options.table_epoch = 7;
  NodeRig rig(options);
  const NodeInfo info = rig.node->info();
  EXPECT_EQ(info.record.id, info.record.data_address);
  EXPECT_EQ(info.record.host_id.size(), 36u);
  EXPECT_EQ(info.record.build.rfind("0.", 0), 0u) << info.record.build;
  EXPECT_GT(info.record.incarnation, 1'700'000'000'000'000u);
  EXPECT_TRUE(info.ready);
  EXPECT_EQ(info.transports, std::vector<std::string>{"tcp"});

  RawClient client(rig.address());
  const HelloReply hello = client.Call<HelloReply>(Verb::kHello, Hello{});
  EXPECT_EQ(hello.node_id, info.record.id);
  const Result<NodeTable> table = DecodeTable(hello.table);
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table.value(), info.table);
  EXPECT_EQ(table->epoch, 7u);
  ASSERT_EQ(table->nodes.size(), 2u);
}

TEST(Node, PushesNewerTables) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  NodeTable table;
  table.epoch = 1;  // not newer
  rig.node->SetTable(table);
  table.epoch = 2;
  table.nodes = {ParseNodeEntry("other@127.0.0.1:9").value()};
  rig.node->SetTable(table);
  const auto push = client.Receive();
  ASSERT_TRUE(push.has_value());
  EXPECT_EQ(push->envelope.verb, Verb::kTable);
  TablePush body;
  ASSERT_TRUE(Decode(push->record, &body).ok());
  EXPECT_EQ(DecodeTable(body.table)->epoch, 2u);
  EXPECT_EQ(DecodeTable(body.table)->nodes.size(), 2u) << "this node belongs to it";
}

TEST(Node, TokensDecideWhoComesAndWhereTo) {
  NodeOptions options = SmallNode();
  options.credentials = {{"alice", "secret", ""}};
  NodeRig rig(options);
  RawClient stranger(rig.address());
  const auto denied = stranger.Ask(Verb::kHello, Hello{});
  ASSERT_TRUE(denied.has_value());
  EXPECT_EQ(denied->envelope.code, Code::kDenied);
  EXPECT_TRUE(stranger.WaitClosed());
  RawClient alice(rig.address());
  alice.Begin(1, "secret");
  alice.PutBlocks(Hashes(1, 1), Payloads(1, 1, 4096), 4096);
  GetReply reply;
  alice.GetBlocks(Hashes(1, 1), &reply);
  EXPECT_EQ(reply.blocks[0].sources[0].writer, Sha256(AsBytes("alice")));
}

TEST(Node, ConnectionsAreBounded) {
  NodeOptions options = SmallNode();
  options.connections_max = 2;
  NodeRig rig(options);
  RawClient one(rig.address()), two(rig.address());
  one.Begin();
  two.Begin();
  RawClient three(rig.address());
  EXPECT_TRUE(three.WaitClosed());
  one.Close();
  ASSERT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.sessions == 1; }));
  rig.ExpectServes(1);
}

TEST(Node, SaysWhyItCannotStart) {
  NodeRig rig;
  NodeOptions options = SmallNode();
  options.data_listen = rig.address();
  const auto in_use = Node::Start(options);
  ASSERT_FALSE(in_use.ok());
  EXPECT_NE(in_use.status().text().find(rig.address()), std::string::npos) << in_use.status().ToString();
  options.data_listen = "0.0.0.0:0";
  const auto wildcard = Node::Start(options);
  ASSERT_FALSE(wildcard.ok());
  EXPECT_NE(wildcard.status().text().find("advertise"), std::string::npos);
  options.advertise = "127.0.0.1";
  EXPECT_TRUE(Node::Start(options).ok());
  options.node_id = "white space";
  EXPECT_FALSE(Node::Start(options).ok());
}

TEST(Node, DrainsWhatIsInFlight) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  const auto reserved = client.ReserveBlocks(Hashes(1, 1), 4096);
  ASSERT_EQ(reserved[0].state, PutState::kTicket);
  std::thread drain([&] { rig.node->Drain(20'000'000); });
  while (!rig.node->info().draining) std::this_thread::yield();
  // The put under way ends, no other begins.
  const std::vector<Bytes> payload = Payloads(1, 1, 4096);
  client.SendData({reserved[0].ticket}, payload);
  EXPECT_EQ(client.CommitBlocks({reserved[0].ticket}, payload, 4096), std::vector{PutState::kStored});
  drain.join();
  EXPECT_EQ(client.ReserveBlocks(Hashes(2, 1), 4096)[0].state, PutState::kBusy);
  EXPECT_FALSE(rig.node->info().ready);
  rig.node->Stop();
  EXPECT_TRUE(client.WaitClosed());
  EXPECT_FALSE(rig.node->stats().ok());
  rig.node->Stop();
}

TEST(Node, ADrainEndsWithItsBudget) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  ASSERT_EQ(client.ReserveBlocks(Hashes(1, 1), 4096)[0].state, PutState::kTicket);
  rig.node->Drain(20'000);
  EXPECT_EQ(rig.Stats().tickets, 1u);
}

TEST(Node, StopsUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    NodeRig rig;
    std::vector<std::thread> clients;
    const std::string address = rig.address();
    std::atomic<int> busy{0};
    for (uint64_t c = 0; c < 3; ++c) {
      clients.emplace_back([&, c] {
        RawClient client(address);
        client.Begin();
        for (uint64_t i = 0;; ++i) {
          if (i == 5) ++busy;
          const uint64_t key = c << 32 | i;
          const uint64_t id = ++client.last_request;
          Reserve reserve;
          reserve.number = client.number;
          reserve.blocks.resize(1);
          reserve.blocks[0].ref = client.RefsOf({TestHash(key)})[0];
          reserve.blocks[0].parts = {{1, 65536}};
          if (!client.SendMessage(Encode(Envelope{.verb = Verb::kReserve, .request_id = id}, reserve)))
            return;
          const auto answer = client.Await(id);
          if (!answer.has_value()) return;
          ReserveReply reply;
          if (!Decode(answer->record, &reply).ok() || reply.blocks.empty()) return;
          if (reply.blocks[0].state != PutState::kTicket) continue;
          const std::vector<Bytes> payload = {TestBytes(key, 65536)};
          if (!client.SendData({reply.blocks[0].ticket}, payload)) return;
          const uint64_t commit_id = ++client.last_request;
          Commit commit;
          commit.blocks = {{reply.blocks[0].ticket, {Crc32c(0, payload[0])}}};
          if (!client.SendMessage(Encode(Envelope{.verb = Verb::kCommit, .request_id = commit_id}, commit)))
            return;
          if (!client.Await(commit_id).has_value()) return;
        }
      });
    }
    while (busy < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    rig.node->Stop();
    for (std::thread& client : clients) client.join();
  }
}

}  // namespace
}  // namespace larder::node
