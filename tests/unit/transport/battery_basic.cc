// The battery, first part: messages arrive whole, in order, where the receiver wants them, or are refused.
#include "tests/unit/transport/recorder.h"

namespace larder::transport {
namespace {

TEST_P(TransportBattery, ExchangesSmallMessagesBothWays) {
  Pair pair(*fixture_);
  pair.acceptor.make = [] {
    auto echo = std::make_shared<Recorder>();
    echo->on_message = [](Connection& connection, const Recorder::Message& message) {
      EXPECT_EQ(connection.Send(Note("re: " + message.header, 7)), Failure::kNone);
    };
    return echo;
  };
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Note("hello")), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->received() == 1; }));
  EXPECT_EQ(pair.handler->messages()[0].header, "re: hello");
  EXPECT_TRUE(pair.handler->messages()[0].landed);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->sent_count() == 1; }));
  EXPECT_EQ(pair.peer()->sent()[0], (std::pair<uint64_t, Failure>(7, Failure::kNone)));
  EXPECT_FALSE(pair.connection->peer().empty());
}

TEST_P(TransportBattery, SendsBeforeOpenArriveAfterIt) {
  Pair pair(*fixture_);
  pair.connection = pair.client->Connect(pair.address, pair.handler, {});
  ASSERT_EQ(pair.connection->Send(Note("early", 1)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.acceptor.count() == 1 && pair.peer()->received() == 1; }));
  EXPECT_EQ(pair.peer()->messages()[0].header, "early");
}

// The ucx listener handed connections to other workers while UCX still had events of theirs to tell the
// listener's: it ended the process.
TEST_P(TransportBattery, ManyConnectionsAtOnceAgainAndAgain) {
  constexpr size_t kRounds = 25, kAtOnce = 8;
  Pair pair(*fixture_);
  for (size_t round = 0; round < kRounds; round++) {
    std::vector<std::shared_ptr<Recorder>> handlers;
    std::vector<std::shared_ptr<Connection>> connections;
    for (size_t i = 0; i < kAtOnce; i++) {
      handlers.push_back(std::make_shared<Recorder>());
      connections.push_back(pair.client->Connect(pair.address, handlers.back(), {}));
      ASSERT_EQ(connections.back()->Send(Note("here")), Failure::kNone);
    }
    ASSERT_TRUE(WaitFor(*fixture_, [&] {
      size_t heard = 0;
      for (size_t i = 0; i < pair.acceptor.count(); i++) heard += pair.acceptor.handler(i)->received();
      return heard == (round + 1) * kAtOnce;
    }));
    for (const auto& connection : connections) connection->Close(Failure::kCancelled);
    for (const auto& handler : handlers) {
      ASSERT_TRUE(WaitFor(*fixture_, [&] { return handler->closed(); }));
      EXPECT_EQ(handler->complaint(), "");
    }
  }
}

TEST_P(TransportBattery, EmptyHeadersAndEmptySegmentsAreMessages) {
  const std::vector<std::byte> payload = Pattern(1, 10);
  Pair pair(*fixture_);
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Note("")), Failure::kNone);
  OutMessage hollow = Note("hollow", 1);
  hollow.segments.Add(std::span<const ConstExtent>());
  ASSERT_EQ(pair.connection->Send(std::move(hollow)), Failure::kNone);
  OutMessage mixed = Note("mixed", 2);
  mixed.segments.Add(ConstExtent{nullptr, 0});
  mixed.segments.Add(ConstExtent{payload.data(), payload.size()});
  mixed.segments.Add(std::span<const ConstExtent>());
  ASSERT_EQ(pair.connection->Send(std::move(mixed)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 3; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->sent_count() == 2; }));
  const auto messages = pair.peer()->messages();
  EXPECT_EQ(messages[0].header, "");
  EXPECT_EQ(messages[1].header, "hollow");
  EXPECT_TRUE(messages[1].landed);
  EXPECT_EQ(messages[2].payload, payload);
}

TEST_P(TransportBattery, KeepsOrderOverThousandsOfMessages) {
  const std::vector<std::byte> payload = Pattern(2, 3000);
  constexpr size_t kMessages = 5000;
  Pair pair(*fixture_);
  pair.Open();
  for (size_t i = 0; i < kMessages; i++) {
    const std::string header = std::to_string(i) + std::string(i % 97, '.');
    for (;;) {
      const Failure failure = pair.connection->Send(
          i % 7 == 0 ? Parcel(header, payload, 1 + i % 3, 700, i + 1) : Note(header, i % 5 == 0 ? i + 1 : 0));
      if (failure == Failure::kNone) break;
      ASSERT_EQ(failure, Failure::kBusy);
      fixture_->Pump();
      std::this_thread::yield();
    }
  }
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == kMessages; }));
  const auto messages = pair.peer()->messages();
  for (size_t i = 0; i < kMessages; i++) {
    ASSERT_EQ(messages[i].header, std::to_string(i) + std::string(i % 97, '.'));
    ASSERT_TRUE(i % 7 != 0 || messages[i].payload == payload) << i;
  }
}

TEST_P(TransportBattery, LandsScatteredPayloadsOfAllSizes) {
  constexpr int kMessages = 120;
  std::mt19937_64 random(20240811);
  Pair pair(*fixture_);
  pair.acceptor.make = [] {
    auto recorder = std::make_shared<Recorder>();
    recorder->extent_bytes = 33'333;
    return recorder;
  };
  pair.Open();
  std::vector<std::vector<std::byte>> payloads;
  for (int i = 0; i < kMessages; i++) {
    const size_t bytes = size_t{1} << (random() % (i % 10 == 0 ? 24 : 17));
    payloads.push_back(Pattern(random(), bytes + random() % 1000));
  }
  for (int i = 0; i < kMessages; i++) {
    const size_t segments = 1 + random() % 20, extent_bytes = 1 + payloads[i].size() / (1 + random() % 50);
    ASSERT_EQ(pair.connection->Send(Parcel("#" + std::to_string(i), payloads[i], segments, extent_bytes,
                                           static_cast<uint64_t>(i) + 1)),
              Failure::kNone);
  }
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == kMessages; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->sent_count() == kMessages; }));
  const auto messages = pair.peer()->messages();
  for (int i = 0; i < kMessages; i++) {
    EXPECT_EQ(messages[i].header, "#" + std::to_string(i));
    EXPECT_TRUE(messages[i].landed);
    EXPECT_TRUE(messages[i].payload == payloads[i]) << i;
  }
  for (const auto& [token, failure] : pair.handler->sent()) EXPECT_EQ(failure, Failure::kNone);
}

TEST_P(TransportBattery, MovesLargePayloadsBothWaysAtOnce) {
  const std::vector<std::byte> up = Pattern(3, 48 << 20), down = Pattern(4, 48 << 20);
  Pair pair(*fixture_);
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Parcel("up", up, 48, 1 << 20, 1)), Failure::kNone);
  ASSERT_EQ(pair.peer_connection()->Send(Parcel("down", down, 3, 1 << 30, 1)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() + pair.handler->received() == 2; }));
  EXPECT_TRUE(pair.peer()->messages()[0].payload == up);
  EXPECT_TRUE(pair.handler->messages()[0].payload == down);
}

TEST_P(TransportBattery, PlaceMayRefuseAndTheNextMessageLands) {
  const std::vector<std::byte> payload = Pattern(5, 3 << 20);
  Pair pair(*fixture_);
  pair.acceptor.make = [] {
    auto recorder = std::make_shared<Recorder>();
    recorder->on_place = [](Connection&, ByteView header) { return Text(header) != "unwanted"; };
    return recorder;
  };
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Parcel("unwanted", payload, 3, 1 << 20, 1)), Failure::kNone);
  ASSERT_EQ(pair.connection->Send(Parcel("wanted", payload, 3, 1 << 20, 2)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 2; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->sent_count() == 2; }));
  const auto messages = pair.peer()->messages();
  EXPECT_EQ(messages[0].header, "unwanted");
  EXPECT_FALSE(messages[0].landed);
  EXPECT_EQ(messages[1].header, "wanted");
  EXPECT_TRUE(messages[1].payload == payload);
  EXPECT_EQ(pair.peer()->bytes_landed(), payload.size());
  EXPECT_EQ(pair.server->stats().refused_messages, 1u);
}

TEST_P(TransportBattery, AcceptorMayRefuse) {
  Pair pair(*fixture_);
  pair.acceptor.make = [] { return std::shared_ptr<Recorder>(); };
  auto connection = pair.client->Connect(pair.address, pair.handler, {});
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->closed(); }));
  EXPECT_FALSE(pair.handler->why().ok());
  EXPECT_EQ(connection->Send(Note("late")), Failure::kPeerClosed);
}

TEST_P(TransportBattery, OversizeAndNonsenseTakeNothing) {
  const std::vector<std::byte> payload = Pattern(6, (1 << 20) + 1);
  TransportOptions options;
  options.limits.header_bytes_max = 1000;
  options.limits.segments_max = 8;
  options.limits.payload_bytes_max = 1 << 20;
  Pair pair(*fixture_, options);
  pair.Open();
  Connection& connection = *pair.connection;
  EXPECT_EQ(connection.Send(Note(std::string(1001, 'x'))), Failure::kTooLarge);
  EXPECT_EQ(connection.Send(Parcel("p", payload, 1, 1 << 30, 1)), Failure::kTooLarge);
  EXPECT_EQ(connection.Send(Parcel("s", payload, 9, 1 << 30, 1)), Failure::kTooLarge);
  EXPECT_EQ(connection.Send(Parcel("no token", Pattern(7, 10), 1, 10, 0)), Failure::kInvalid);
  OutMessage crooked = Parcel("counts", Pattern(7, 10), 1, 10, 1);
  crooked.segments.counts[0] = 2;
  EXPECT_EQ(connection.Send(std::move(crooked)), Failure::kInvalid);
  EXPECT_EQ(connection.Send(Note(std::string(1000, 'x'), 5)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 1; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->sent_count() == 1; }));
  EXPECT_EQ(pair.handler->sent()[0].first, 5u);
}

TEST_P(TransportBattery, OversizeFromAPeerClosesTheConnection) {
  const std::vector<std::byte> payload = Pattern(8, 2 << 20);
  TransportOptions strict;
  strict.limits.payload_bytes_max = 1 << 20;
  Pair pair(*fixture_, TransportOptions{}, strict);
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Parcel("large", payload, 1, 1 << 30, 1)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->closed() && pair.handler->closed(); }));
  EXPECT_EQ(pair.peer()->received(), 0u);
  const Failure why = pair.peer()->why().failure;
  EXPECT_TRUE(why == Failure::kTooLarge || why == Failure::kProtocol) << FailureName(why);
  EXPECT_EQ(pair.handler->sent_count(), 1u);
}

TEST_P(TransportBattery, ServesManyConnections) {
  const std::vector<std::byte> payload = Pattern(9, 200'000);
  constexpr size_t kConnections = 64;
  Pair pair(*fixture_);
  std::vector<std::shared_ptr<Recorder>> handlers;
  std::vector<std::shared_ptr<Connection>> connections;
  for (size_t i = 0; i < kConnections; i++) {
    handlers.push_back(std::make_shared<Recorder>());
    connections.push_back(pair.Connect(handlers.back()));
  }
  EXPECT_EQ(pair.client->stats().connections, kConnections);
  for (size_t i = 0; i < kConnections; i++) {
    ASSERT_EQ(connections[i]->Send(Parcel("from " + std::to_string(i), payload, 2, 50'000, 1)),
              Failure::kNone);
  }
  ASSERT_TRUE(WaitFor(*fixture_, [&] {
    size_t received = 0;
    for (size_t i = 0; i < kConnections; i++) received += pair.acceptor.handler(i)->received();
    return received == kConnections;
  }));
  for (size_t i = 0; i < kConnections; i++) {
    EXPECT_TRUE(pair.acceptor.handler(i)->messages()[0].payload == payload);
  }
}

// Over ucx an honest sender of small messages was closed for being "out of its window": the receiver took
// them in faster than it handed them on, most of all on batch connections, which have a turn one at a time.
TEST_P(TransportBattery, ManySmallMessagesOnSeveralBatchConnectionsAllArrive) {
  constexpr size_t kConnections = 6, kMessages = 3000;
  Pair pair(*fixture_);
  pair.Open();
  ConnectOptions options;
  options.batch = true;
  std::vector<std::shared_ptr<Recorder>> handlers;
  std::vector<std::shared_ptr<Connection>> senders;
  for (size_t i = 0; i < kConnections; i++) {
    handlers.push_back(std::make_shared<Recorder>());
    senders.push_back(pair.Connect(handlers.back(), options));
    pair.acceptor.connection(i + 1)->SetBatch(true);
  }
  for (size_t sent = 0; sent < kMessages; sent++) {
    for (const auto& sender : senders) {
      Failure failure = Failure::kBusy;
      while ((failure = sender->Send(Note("small"))) == Failure::kBusy) {
        fixture_->Pump();
        std::this_thread::yield();
      }
      ASSERT_EQ(failure, Failure::kNone) << sent;
    }
  }
  for (size_t i = 0; i < kConnections; i++) {
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.acceptor.handler(i + 1)->received() == kMessages; }))
        << i;
  }
}

TEST_P(TransportBattery, InteractiveAndBatchTrafficBothArrive) {
  const std::vector<std::byte> payload = Pattern(10, 8 << 20);
  Pair pair(*fixture_);
  pair.Open();
  ConnectOptions batch_options;
  batch_options.batch = true;
  auto batch_handler = std::make_shared<Recorder>();
  auto batch = pair.Connect(batch_handler, batch_options);
  pair.acceptor.connection(1)->SetBatch(true);
  pair.acceptor.handler(1)->keep_payload = false;
  for (uint64_t i = 0; i < 16; i++) {
    ASSERT_EQ(batch->Send(Parcel("bulk", payload, 8, 1 << 20, i + 1)), Failure::kNone);
  }
  ASSERT_EQ(pair.connection->Send(Note("quick")), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 1; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.acceptor.handler(1)->received() == 16; }));
}

}  // namespace
}  // namespace larder::transport
