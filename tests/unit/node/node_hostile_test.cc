// A running node among bad clients: garbage, lies, half messages, stalls and deaths. It stays, and holds
// nothing.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/unit/node/node_rig.h"
#include "transport/socket/frame.h"

namespace larder::node {
namespace {

const std::vector<ChainHash> kOne = {TestHash(1)};

Bytes Frame(uint32_t header_bytes, uint32_t segments, uint64_t payload_bytes) {
  transport::FrameHeader frame;
  frame.header_bytes = header_bytes;
  frame.segments = segments;
  frame.payload_bytes = payload_bytes;
  Bytes out(sizeof frame);
  std::memcpy(out.data(), &frame, sizeof frame);
  return out;
}

TEST(NodeHostile, GarbageClosesOnlyItsConnection) {
  NodeRig rig;
  const std::vector<Bytes> cases = {
      TestBytes(3, 5000),                                    // no frame at all
      Frame(UINT32_MAX, 0, 0),   Frame(100, UINT32_MAX, 0),  // sizes that nobody may have
      Frame(100, 1, UINT64_MAX), Frame(0, 0, 0),             // an empty message
      Bytes(32, std::byte{0xff})};
  for (const Bytes& garbage : cases) {
    RawClient client(rig.address());
    client.SendRaw(garbage);
    EXPECT_TRUE(client.WaitClosed());
    RawClient polite(rig.address());
    polite.Begin();
    polite.SendRaw(garbage);
    EXPECT_TRUE(polite.WaitClosed());
  }
  rig.ExpectServes(2);
  EXPECT_TRUE(rig.UntilIdle());
}

TEST(NodeHostile, HalfMessagesAreForgottenWithTheirConnection) {
  NodeRig rig;
  const Bytes hello = Encode(Envelope{.verb = Verb::kHello, .request_id = 1}, Hello{});
  Bytes whole = Frame(static_cast<uint32_t>(hello.size()), 0, 0);
  whole.insert(whole.end(), hello.begin(), hello.end());
  for (size_t bytes = 0; bytes < whole.size(); bytes += 7) {
    RawClient client(rig.address());
    client.SendRaw(ByteView(whole).first(bytes));
  }
  EXPECT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.sessions == 0; }));
  rig.ExpectServes(2);
}

// Strangers who say nothing, or only begin to, held their places under connections_max for ever.
TEST(NodeHostile, WhoSaysNoHelloLosesThePlace) {
  NodeOptions options = SmallNode();
  options.connections_max = 3;
  options.hello_timeout_us = 300'000;
  NodeRig rig(options);
  RawClient guest(rig.address());
  guest.Begin();
  {
    RawClient silent(rig.address()), half(rig.address());
    half.SendRaw(Frame(100, 0, 0));
    half.SendRaw(Bytes(50));
    RawClient turned_away(rig.address());
    EXPECT_TRUE(turned_away.WaitClosed());
    EXPECT_EQ(rig.node->info().connections_refused, 1u);
    EXPECT_TRUE(silent.WaitClosed());
    EXPECT_TRUE(half.WaitClosed());
  }
  EXPECT_EQ(rig.node->info().hello_timeouts, 2u);
  rig.ExpectServes(2);
  EXPECT_EQ(guest.MatchBlocks(kOne).size(), 1u) << "whoever said hello may be silent for as long as it likes";
}

// 300 strangers who each began a message of 2 MiB held 600 MB of a node that knew none of them.
TEST(NodeHostile, AStrangersFirstMessageIsSmall) {
  NodeRig rig;
  RawClient stranger(rig.address());
  stranger.SendRaw(Frame(kMessageBytesMax, 0, 0));
  EXPECT_TRUE(stranger.WaitClosed());
  RawClient table(rig.address());
  table.SendRaw(Frame(100 * 1024, 8192, 1));
  EXPECT_TRUE(table.WaitClosed());
  EXPECT_EQ(rig.node->info().hello_timeouts, 0u) << "closed at the frame's first bytes";
  rig.ExpectServes(2);
}

TEST(NodeHostile, AnotherVersionIsToldSo) {
  NodeRig rig;
  RawClient client(rig.address());
  Hello hello;
  hello.version_min = hello.version_max = 99;
  const auto answer = client.Ask(Verb::kHello, hello);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->envelope.code, Code::kUnsupported);
  EXPECT_TRUE(client.WaitClosed());
}

TEST(NodeHostile, HugeChainsAreRefused) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  Match match;
  match.number = client.number;
  match.groups = {0};
  match.hashes_in_payload = true;
  match.hash_count = 65536;
  Bytes header = Encode(Envelope{.verb = Verb::kMatch, .request_id = 77}, match);
  const uint32_t count = 65536;
  const auto at = std::find_end(header.begin(), header.end(), reinterpret_cast<const std::byte*>(&count),
                                reinterpret_cast<const std::byte*>(&count) + 4);
  ASSERT_NE(at, header.end());
  at[0] = std::byte{1};  // 65,537
  client.SendMessage(header, {Bytes(65537 * 32)});
  const auto answer = client.Await(77);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->envelope.code, Code::kInvalid);
  EXPECT_EQ(client.MatchBlocks(kOne).size(), 1u) << "the connection goes on";
}

TEST(NodeHostile, APeerThatNeverReadsIsClosed) {
  NodeOptions options = SmallNode();
  NodeRig rig(options);
  RawClient client(rig.address());
  client.Begin();
  const Bytes ping = Encode(Envelope{.verb = Verb::kPing, .request_id = 5});
  int sent = 0;
  while (sent < 3'000'000 && client.SendMessage(ping)) ++sent;
  EXPECT_LT(sent, 3'000'000);
  EXPECT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.sessions == 0; }));
}

// Large answers that waited to be read cost a client its connection, though it read on.
TEST(NodeHostile, ManyLargeAnswersAtOnceAreGivenOrRefusedOneByOne) {
  NodeOptions options = SmallNode();
  options.transport.user_timeout_ms = 60'000;  // whose window stays shut is closed, which is another test
  NodeRig rig(options);
  RawClient client(rig.address());
  client.Begin();
  Match match;
  match.number = client.number;
  match.rectangle = client.rectangle;
  for (uint16_t group = 0; group < kGroupsMax; ++group) match.groups.push_back(group);
  match.hashes_in_payload = true;
  match.hash_count = kHashesMax;
  constexpr uint64_t kRequests = 40;  // of 1 MiB each, where 16 MiB may wait
  for (uint64_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(client.SendMessage(Encode(Envelope{.verb = Verb::kMatch, .request_id = 1000 + i}, match),
                                   {Bytes(kHashesMax * sizeof(ChainHash))}));
  }
  // It reads nothing until all are handled: what is not sent waits.
  ASSERT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.matches == kRequests; }));
  std::set<uint64_t> answered;
  uint64_t given = 0, busy = 0;
  while (answered.size() < kRequests) {
    const auto answer = client.Receive();
    ASSERT_TRUE(answer.has_value()) << answered.size();
    EXPECT_TRUE(answered.insert(answer->envelope.request_id).second);
    given += answer->envelope.code == Code::kOk;
    busy += answer->envelope.code == Code::kBusy;
  }
  EXPECT_EQ(given + busy, kRequests);
  EXPECT_GE(given, 10u);
  EXPECT_GE(busy, 1u) << "the bound was not reached: this test shows nothing";
  EXPECT_EQ(client.MatchBlocks(kOne).size(), 1u) << "the connection goes on";
}

TEST(NodeHostile, TheFirstOfTwoWritersWins) {
  NodeRig rig;
  RawClient one(rig.address()), two(rig.address()), three(rig.address());
  for (RawClient* client : {&one, &two, &three}) client->Begin();
  const std::vector<Bytes> bits = {TestBytes(1, 4096)}, others = {TestBytes(2, 4096)};
  const uint64_t a = one.ReserveBlocks(kOne, 4096)[0].ticket;
  const uint64_t b = two.ReserveBlocks(kOne, 4096)[0].ticket;
  const uint64_t c = three.ReserveBlocks(kOne, 4096)[0].ticket;
  one.SendData({a}, bits);
  two.SendData({b}, bits);
  three.SendData({c}, others);
  EXPECT_EQ(two.CommitBlocks({b}, bits, 4096), std::vector{PutState::kStored});
  EXPECT_EQ(one.CommitBlocks({a}, bits, 4096), std::vector{PutState::kExists});
  EXPECT_EQ(three.CommitBlocks({c}, others, 4096), std::vector{PutState::kDiffers});
  GetReply reply;
  EXPECT_EQ(three.GetBlocks(kOne, &reply)->segments, bits);
  EXPECT_TRUE(rig.UntilIdle());
}

TEST(NodeHostile, AStalledWriterExpiresAndHarmsNobody) {
  NodeOptions options = SmallNode();
  options.owner.ticket_stall_us = 1'500'000;  // an innocent writer on a busy machine must not stall so long
  NodeRig rig(options);
  RawClient stalled(rig.address());
  stalled.Begin();
  const std::vector<Bytes> payload = {TestBytes(1, 1 << 20)};
  const uint64_t ticket = stalled.ReserveBlocks(kOne, 1 << 20)[0].ticket;
  ASSERT_TRUE(stalled.SendData({ticket}, payload, 700'000));  // and then nothing, like a stopped process
  ASSERT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.tickets == 0; }));
  EXPECT_EQ(rig.Stats().put_expired, 1u);
  // Its slot is free: others fill all memory, that one included.
  RawClient writer(rig.address());
  writer.Begin();
  for (uint64_t i = 100; i < 180; ++i) {
    ASSERT_EQ(writer.PutBlocks({TestHash(i)}, {TestBytes(i, 1 << 20)}, 1 << 20),
              std::vector{PutState::kStored});
  }
  // It wakes up and goes on where it was. Its bytes go nowhere.
  ASSERT_TRUE(stalled.SendRaw(ByteView(payload[0]).subspan(700'000)));
  EXPECT_EQ(stalled.CommitBlocks({ticket}, payload, 1 << 20), std::vector{PutState::kExpired});
  int hits = 0;
  for (uint64_t i = 100; i < 180; ++i) {
    GetReply reply;
    const auto message = writer.GetBlocks({TestHash(i)}, &reply);
    ASSERT_TRUE(message.has_value());
    if (reply.blocks[0].presence != Presence::kRam) continue;
    EXPECT_EQ(message->segments[0], TestBytes(i, 1 << 20)) << i;
    ++hits;
  }
  EXPECT_GT(hits, 40);
  EXPECT_EQ(stalled.PutBlocks({TestHash(5)}, payload, 1 << 20), std::vector{PutState::kStored});
  EXPECT_TRUE(rig.UntilIdle());
}

// The same over real sockets: the dead block's bytes go nowhere, its neighbours are served bit for bit.
TEST(NodeHostile, ADeadTicketAmongLiveOnesLosesOnlyItsBlock) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin();
  const std::vector<ChainHash> hashes = {TestHash(1), TestHash(2), TestHash(3)};
  std::vector<Bytes> payloads;
  for (uint64_t i = 1; i <= 3; ++i) payloads.push_back(TestBytes(i, 1 << 20));
  std::vector<uint64_t> tickets;
  for (const auto& block : client.ReserveBlocks(hashes, 1 << 20)) tickets.push_back(block.ticket);
  // A commit without bytes ends the second one's ticket.
  EXPECT_EQ(client.CommitBlocks({tickets[1]}, {payloads[1]}, 1 << 20), std::vector{PutState::kCorrupt});
  client.SendData(tickets, payloads);
  EXPECT_EQ(client.CommitBlocks(tickets, payloads, 1 << 20),
            (std::vector{PutState::kStored, PutState::kExpired, PutState::kStored}));
  GetReply reply;
  const auto message = client.GetBlocks(hashes, &reply);
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->segments, (std::vector<Bytes>{payloads[0], payloads[2]}));
  EXPECT_FALSE(IsHit(reply.blocks[1].presence));
  EXPECT_TRUE(rig.UntilIdle());
}

TEST(NodeHostile, AClientThatDiesInAPutLeavesNothing) {
  NodeRig rig;
  for (const size_t sent : {size_t{0}, size_t{1}, size_t{1'500'000}, size_t{3 << 20}}) {
    RawClient client(rig.address());
    client.Begin();
    const std::vector<ChainHash> hashes = {TestHash(1), TestHash(2), TestHash(3)};
    std::vector<uint64_t> tickets;
    for (const auto& block : client.ReserveBlocks(hashes, 1 << 20)) tickets.push_back(block.ticket);
    client.SendData(tickets, std::vector<Bytes>(3, Bytes(1 << 20)), sent);
    client.Close();
    ASSERT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.sessions == 0; }));
    EXPECT_EQ(rig.Stats().tickets, 0u);
    EXPECT_EQ(rig.Stats().pieces, 0u);
  }
  rig.ExpectServes(9);
}

TEST(NodeHostile, AClientThatDiesInAGetLeavesNothing) {
  NodeRig rig;
  {
    RawClient writer(rig.address());
    writer.Begin();
    for (uint64_t i = 0; i < 16; ++i) {
      writer.PutBlocks({TestHash(i)}, {TestBytes(i, 1 << 20)}, 1 << 20);
    }
  }
  for (int round = 0; round < 5; ++round) {
    RawClient reader(rig.address());
    reader.Begin();
    Get get;
    get.number = reader.number;
    for (uint64_t i = 0; i < 16; ++i) get.blocks.push_back({TestHash(i), 0, reader.rectangle});
    for (uint64_t i = 0; i < 8; ++i) {
      reader.SendMessage(Encode(Envelope{.verb = Verb::kGet, .request_id = 100 + i}, get));
    }
    ASSERT_TRUE(rig.Until([](const OwnerStats& stats) { return stats.hard_pins > 0; }));
    reader.Close();
    ASSERT_TRUE(rig.UntilIdle());
  }
  rig.ExpectServes(99);
}

TEST(NodeHostile, ATornPutIsNeverSeen) {
  NodeRig rig;
  RawClient client(rig.address());
  client.Begin(2);
  const auto reserved = client.ReserveBlocks(kOne, 4096);
  Bytes sent = TestBytes(1, 8192);
  const std::vector<Bytes> said = {sent};
  sent[5000] ^= std::byte{1};
  client.SendData({reserved[0].ticket}, {sent});
  EXPECT_EQ(client.CommitBlocks({reserved[0].ticket}, said, 4096), std::vector{PutState::kCorrupt});
  GetReply reply;
  client.GetBlocks(kOne, &reply);
  EXPECT_FALSE(IsHit(reply.blocks[0].presence));
  EXPECT_EQ(rig.Stats().put_corrupt, 1u);
  EXPECT_TRUE(rig.UntilIdle());
}

// Flips one bit of `payload` where it lies in a slab of this process, past the compiler and the owner.
void FlipInSlab(const Bytes& payload) {
  std::ifstream maps("/proc/self/maps");
  const int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  ASSERT_GE(memory, 0);
  int flipped = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("larder-slab") == std::string::npos) continue;
    std::istringstream in(line);
    uint64_t begin = 0, end = 0;
    char dash = 0;
    in >> std::hex >> begin >> dash >> end;
    Bytes copy(end - begin);
    ASSERT_EQ(pread(memory, copy.data(), copy.size(), static_cast<off_t>(begin)),
              static_cast<ssize_t>(copy.size()));
    for (auto at = copy.begin();; ++at) {
      at = std::search(at, copy.end(), payload.begin(), payload.end());
      if (at == copy.end()) break;
      const std::byte bad = at[100] ^ std::byte{4};
      const auto offset = static_cast<off_t>(begin + static_cast<uint64_t>(at - copy.begin()) + 100);
      ASSERT_EQ(pwrite(memory, &bad, 1, offset), 1);
      ++flipped;
    }
  }
  close(memory);
  ASSERT_EQ(flipped, 1);
}

TEST(NodeHostile, ABadCopyIsDroppedAfterAReportAGoodOneStays) {
  NodeOptions options = SmallNode();  // with shm a slab has a name in the process's maps
  options.shm_path = "/tmp/larder-node-test-" + std::to_string(getpid()) + ".sock";
  NodeRig rig(options);
  RawClient client(rig.address());
  client.Begin();
  const std::vector<ChainHash> hashes = {TestHash(1), TestHash(2)};
  const std::vector<Bytes> payloads = {TestBytes(1, 65536), TestBytes(2, 65536)};
  client.PutBlocks(hashes, payloads, 65536);
  Report report;
  report.number = client.number;
  report.blocks = client.RefsOf(hashes);
  EXPECT_EQ(client.Call<ReportReply>(Verb::kReport, report).dropped, (std::vector<uint8_t>{0, 0}));
  FlipInSlab(payloads[1]);
  EXPECT_EQ(client.Call<ReportReply>(Verb::kReport, report).dropped, (std::vector<uint8_t>{0, 1}));
  EXPECT_EQ(client.MatchBlocks(hashes), (std::vector<uint8_t>{static_cast<uint8_t>(Presence::kRam),
                                                              static_cast<uint8_t>(Presence::kCorrupt)}));
  EXPECT_EQ(client.PutBlocks({hashes[1]}, {payloads[1]}, 65536), std::vector{PutState::kStored});
  EXPECT_TRUE(rig.UntilIdle());
  EXPECT_EQ(rig.Stats().reports_dropped, 1u);
}

TEST(NodeHostile, AReporterThatLeavesHoldsNothing) {
  NodeRig rig;
  for (int round = 0; round < 10; ++round) {
    RawClient client(rig.address());
    client.Begin();
    client.PutBlocks(kOne, {TestBytes(1, 4 << 20)}, 4 << 20);
    Report report;
    report.number = client.number;
    for (int i = 0; i < 20; ++i) report.blocks.push_back(client.RefsOf(kOne)[0]);
    client.SendMessage(Encode(Envelope{.verb = Verb::kReport, .request_id = 90}, report));
    client.Close();
  }
  EXPECT_TRUE(rig.UntilIdle());
  EXPECT_EQ(rig.Stats().pieces, 1u);
}

}  // namespace
}  // namespace larder::node
