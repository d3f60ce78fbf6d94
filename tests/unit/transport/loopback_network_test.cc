// What loopback promises beyond the battery: virtual time, determinism, faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "transport/loopback/loopback.h"

namespace larder::transport::loopback {
namespace {

std::vector<std::byte> Text(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> Pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> pattern(bytes);
  for (size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>((i * 131 + seed * 29) >> 3);
  return pattern;
}

// Lands everything in memory of its own and writes down what happened.
class Recorder : public Handler {
 public:
  void OnOpen(Connection& connection) override {
    ++opened;
    if (on_open) on_open(connection);
  }
  bool Place(Connection&, ByteView, std::span<const uint64_t> segment_bytes, Landing* landing) override {
    memory.resize(std::accumulate(segment_bytes.begin(), segment_bytes.end(), uint64_t{0}));
    std::fill(memory.begin(), memory.end(), std::byte{0});
    size_t at = 0;
    for (const uint64_t bytes : segment_bytes) {
      landing->segments.Add(Extent{memory.data() + at, bytes});
      at += bytes;
    }
    landing->id = ++places;
    return true;
  }
  void OnBytes(Connection& connection, uint64_t, uint32_t, uint64_t, ByteView bytes) override {
    landed_bytes += bytes.size();
    if (on_bytes) on_bytes(connection);
  }
  void OnMessage(Connection&, ByteView header, uint64_t, bool landed) override {
    headers.emplace_back(reinterpret_cast<const char*>(header.data()), header.size());
    whole += landed ? 1 : 0;
  }
  void OnSent(Connection&, uint64_t token, Failure failure) override { sent[token] = failure; }
  void OnClosed(Connection&, const Error& why) override {
    ++closed;
    closed_why = why.failure;
  }

  std::function<void(Connection&)> on_open, on_bytes;
  std::vector<std::byte> memory;
  std::vector<std::string> headers;
  std::map<uint64_t, Failure> sent;
  uint64_t places = 0, landed_bytes = 0;
  int opened = 0, closed = 0, whole = 0;
  Failure closed_why = Failure::kNone;
};

class Taker : public Acceptor {
 public:
  std::shared_ptr<Handler> OnAccept(const std::shared_ptr<Connection>& connection) override {
    connections.push_back(connection);
    return handler;
  }
  std::shared_ptr<Recorder> handler = std::make_shared<Recorder>();
  std::vector<std::shared_ptr<Connection>> connections;
};

// A client on host "c", a server on host "s", one open connection.
struct Pair {
  explicit Pair(uint64_t seed) : network(seed) {
    client = network.MakeTransport("c");
    StartServer();
    connection = client->Connect("s:1", handler, {});
    network.RunUntil(network.now_us() + 1000);
  }
  void StartServer() {
    server = network.MakeTransport("s");
    std::string bound;
    EXPECT_TRUE(server->Listen("s:1", &taker, &bound).ok());
  }
  Failure Send(std::string_view header, const std::vector<std::byte>* payload, uint64_t token,
               uint64_t expire_us = 0) {
    OutMessage message;
    message.header = Text(header);
    if (payload != nullptr) message.segments.Add(ConstExtent{payload->data(), payload->size()});
    message.token = token;
    message.expire_us = expire_us;
    return connection->Send(std::move(message));
  }
  void Run(uint64_t us) { network.RunUntil(network.now_us() + us); }

  Network network;
  Taker taker;
  std::unique_ptr<Transport> client, server;
  std::shared_ptr<Recorder> handler = std::make_shared<Recorder>();
  std::shared_ptr<Connection> connection;
};

TEST(LoopbackNetwork, MovesNothingUntilStepped) {
  Pair pair(1);
  ASSERT_EQ(pair.handler->opened, 1);
  ASSERT_EQ(pair.Send("hello", nullptr, 7), Failure::kNone);
  EXPECT_TRUE(pair.taker.handler->headers.empty());
  const uint64_t before_us = pair.network.now_us();
  while (pair.handler->sent.empty() && pair.network.Step()) {
  }
  EXPECT_EQ(pair.taker.handler->headers, std::vector<std::string>{"hello"});
  EXPECT_EQ(pair.handler->sent.at(7), Failure::kNone);
  EXPECT_GE(pair.network.now_us(), before_us + 2 * Link{}.delay_min_us);
}

TEST(LoopbackNetwork, CrashInMidPayloadClosesPeerAndTouchesNoMemory) {
  Pair pair(2);
  const auto payload = std::make_unique<std::vector<std::byte>>(Pattern(1 << 20, 1));
  pair.taker.handler->on_bytes = [&](Connection&) {
    if (pair.taker.handler->landed_bytes == 5 * kStepBytes) pair.network.Crash("s");
  };
  ASSERT_EQ(pair.Send("block", payload.get(), 1), Failure::kNone);
  pair.Run(10'000);
  EXPECT_EQ(pair.taker.handler->landed_bytes, 5 * kStepBytes);
  EXPECT_EQ(pair.taker.handler->closed, 0);  // the dead hear nothing
  EXPECT_EQ(pair.taker.handler.use_count(), 1);
  EXPECT_EQ(pair.handler->closed, 1);
  EXPECT_EQ(pair.handler->closed_why, Failure::kPeerClosed);
  EXPECT_EQ(pair.handler->sent.at(1), Failure::kPeerClosed);
  EXPECT_EQ(pair.Send("late", nullptr, 0), Failure::kPeerClosed);

  // Gone, then back.
  const auto second = std::make_shared<Recorder>();
  pair.client->Connect("s:1", second, {});
  pair.Run(10'000);
  EXPECT_EQ(second->closed_why, Failure::kUnreachable);
  pair.server.reset();
  pair.StartServer();
  const auto third = std::make_shared<Recorder>();
  pair.client->Connect("s:1", third, {});
  pair.Run(10'000);
  EXPECT_EQ(third->opened, 1);
}

TEST(LoopbackNetwork, ResetNextBreaksOneMessage) {
  Pair pair(3);
  const auto payload = Pattern(1 << 20, 2);
  pair.network.ResetNext("c", "s");
  ASSERT_EQ(pair.Send("block", &payload, 1), Failure::kNone);
  ASSERT_EQ(pair.Send("behind", nullptr, 2), Failure::kNone);
  pair.Run(10'000);
  EXPECT_TRUE(pair.taker.handler->headers.empty());
  EXPECT_LT(pair.taker.handler->landed_bytes, payload.size());
  EXPECT_EQ(pair.handler->sent.at(1), Failure::kPeerClosed);
  EXPECT_EQ(pair.handler->sent.at(2), Failure::kPeerClosed);
  EXPECT_EQ(pair.handler->closed + pair.taker.handler->closed, 2);
  EXPECT_EQ(pair.network.stats().resets, 1u);
}

TEST(LoopbackNetwork, CorruptNextFlipsOneBit) {
  Pair pair(4);
  const auto payload = Pattern(300'000, 3);
  pair.network.CorruptNext("c", "s");
  ASSERT_EQ(pair.Send("block", &payload, 1), Failure::kNone);
  pair.Run(10'000);
  ASSERT_EQ(pair.taker.handler->whole, 1);
  int flipped_bits = 0;
  for (size_t i = 0; i < payload.size(); ++i) {
    flipped_bits += __builtin_popcount(static_cast<unsigned>(payload[i] ^ pair.taker.handler->memory[i]));
  }
  EXPECT_EQ(flipped_bits, 1);
  ASSERT_EQ(pair.Send("block", &payload, 2), Failure::kNone);
  pair.Run(10'000);
  EXPECT_EQ(pair.taker.handler->memory, payload);
}

TEST(LoopbackNetwork, CutHoldsUntilHealedInOrder) {
  Pair pair(5);
  pair.network.Cut("c", "s", true);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(pair.Send("m" + std::to_string(i), nullptr, 0), Failure::kNone);
  OutMessage back;
  back.header = Text("other way");
  ASSERT_EQ(pair.taker.connections.at(0)->Send(std::move(back)), Failure::kNone);
  pair.Run(1'000'000);
  EXPECT_TRUE(pair.taker.handler->headers.empty());
  EXPECT_EQ(pair.handler->headers, std::vector<std::string>{"other way"});
  pair.network.Cut("c", "s", false);
  pair.Run(1'000);
  EXPECT_EQ(pair.taker.handler->headers, (std::vector<std::string>{"m0", "m1", "m2", "m3", "m4"}));
}

TEST(LoopbackNetwork, ExpiredMessageThatMovesNothingCloses) {
  Pair pair(6);
  const auto payload = Pattern(1 << 20, 4);
  pair.network.Isolate("s", true);
  ASSERT_EQ(pair.Send("begun", &payload, 1, pair.network.now_us() + 1000), Failure::kNone);
  ASSERT_EQ(pair.Send("queued", &payload, 2, pair.network.now_us() + 1000), Failure::kNone);
  pair.Run(2000);
  EXPECT_EQ(pair.handler->sent.count(1), 0u);
  EXPECT_EQ(pair.handler->sent.at(2), Failure::kTimedOut);
  pair.Run(2'100'000);
  EXPECT_EQ(pair.handler->sent.at(1), Failure::kTimedOut);
  EXPECT_EQ(pair.handler->closed_why, Failure::kTimedOut);
  EXPECT_EQ(pair.client->stats().stalled_closed, 1u);
  EXPECT_EQ(pair.taker.handler->closed, 0);  // its news is still in the cut
  pair.network.Isolate("s", false);
  pair.Run(1000);
  EXPECT_EQ(pair.taker.handler->closed_why, Failure::kPeerClosed);
}

TEST(LoopbackNetwork, ConnectIntoCutTimesOut) {
  Pair pair(7);
  pair.network.Isolate("s", true);
  const auto handler = std::make_shared<Recorder>();
  ConnectOptions options;
  options.timeout_us = 5000;
  pair.client->Connect("s:1", handler, options);
  pair.Run(4000);
  EXPECT_EQ(handler->closed, 0);
  pair.Run(2000);
  EXPECT_EQ(handler->closed_why, Failure::kTimedOut);
  pair.network.Isolate("s", false);
  pair.Run(10'000);
  EXPECT_EQ(handler->opened, 0);
  EXPECT_EQ(handler->closed, 1);
}

TEST(LoopbackNetwork, StallDelays) {
  Pair pair(8);
  pair.network.Stall("c", "s", 50'000);
  ASSERT_EQ(pair.Send("late", nullptr, 0), Failure::kNone);
  pair.Run(49'000);
  EXPECT_TRUE(pair.taker.handler->headers.empty());
  pair.Run(2'000);
  EXPECT_EQ(pair.taker.handler->headers.size(), 1u);
}

// Random traffic with every fault at once. Checks what must hold whatever happens; returns the digest.
uint64_t Storm(uint64_t seed) {
  Pair pair(seed);
  Link link;
  link.reset_ppm = 20'000, link.corrupt_ppm = 100'000, link.stall_ppm = 100'000, link.stall_max_us = 3000;
  pair.network.SetLinks(link);
  const auto payload = Pattern(200'000, 5);
  uint64_t accepted = 0, refused = 0;
  for (uint64_t i = 1; i <= 300; ++i) {
    const Failure failure =
        pair.Send("m", i % 3 == 0 ? nullptr : &payload, i, pair.network.now_us() + 20'000);
    (failure == Failure::kNone ? accepted : refused)++;
    if (failure == Failure::kPeerClosed) break;
    pair.Run(i * 7 % 100);
  }
  pair.Run(10'000'000);
  EXPECT_EQ(pair.handler->sent.size(), accepted) << "seed " << seed;
  EXPECT_LE(pair.handler->closed, 1);
  return pair.network.trace_digest();
}

TEST(LoopbackNetwork, SameSeedSameTrace) {
  std::map<uint64_t, int> digests;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const uint64_t digest = Storm(seed);
    EXPECT_EQ(digest, Storm(seed)) << "seed " << seed;
    ++digests[digest];
  }
  EXPECT_EQ(digests.size(), 50u);
}

TEST(LoopbackNetwork, TransportsOutliveTheirNetwork) {
  auto network = std::make_unique<Network>(9);
  auto transport = network->MakeTransport("a");
  const auto handler = std::make_shared<Recorder>();
  const auto connection = transport->Connect("b", handler, {});
  network.reset();
  EXPECT_EQ(connection->Send({}), Failure::kPeerClosed);
  EXPECT_EQ(handler->closed, 0);
  transport.reset();
  EXPECT_EQ(handler.use_count(), 1);
}

}  // namespace
}  // namespace larder::transport::loopback
