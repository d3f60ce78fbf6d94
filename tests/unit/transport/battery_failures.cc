// The battery, second part: what is bounded, what runs out of time, and every way to end.
#include <condition_variable>

#include "tests/unit/transport/recorder.h"

namespace larder::transport {
namespace {

// A gate that a handler stands at: the loop of its connection is stuck until the test opens it.
class Gate {
 public:
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    waiting_ = true;
    changed_.wait(lock, [this] { return open_; });
  }
  bool waiting() {
    std::lock_guard<std::mutex> lock(mutex_);
    return waiting_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, waiting_ = false;
};

// A pair whose server reads nothing. Backends with threads stand at a gate in the first message's handler;
// the others simply are not pumped.
struct StuckReader {
  explicit StuckReader(Fixture& f, TransportOptions client_options = {})
      : fixture(f), pair(f, client_options, TransportOptions{}) {
    if (f.threaded()) {
      pair.acceptor.make = [this] {
        auto recorder = std::make_shared<Recorder>();
        recorder->keep_payload = false;
        recorder->on_message = [this](Connection&, const Recorder::Message&) { gate.Pass(); };
        return recorder;
      };
    }
    pair.Open();
    EXPECT_EQ(pair.connection->Send(Note("first")), Failure::kNone);
    if (f.threaded()) {
      EXPECT_TRUE(WaitFor(f, [this] { return gate.waiting(); }));
    }
  }
  ~StuckReader() { gate.Open(); }
  // Sends until nothing is taken any more; the tokens from 1.
  uint64_t Fill(const std::vector<std::byte>& payload) {
    uint64_t accepted = 0;
    int refusals = 0;
    while (refusals < 20 && accepted < 100'000) {
      const Failure failure = pair.connection->Send(Parcel("fill", payload, 1, 1 << 30, accepted + 1));
      if (failure == Failure::kNone) {
        accepted++;
        continue;
      }
      EXPECT_EQ(failure, Failure::kBusy);
      refusals++;  // the loop may still be moving the first ones into the socket
      std::this_thread::sleep_for(std::chrono::milliseconds(fixture.threaded() ? 5 : 0));
    }
    return accepted;
  }
  Fixture& fixture;
  Gate gate;
  Pair pair;
};

TEST_P(TransportBattery, SlowReaderMeetsABoundAndThenGetsAll) {
  const std::vector<std::byte> payload = Pattern(20, 64 << 10);
  TransportOptions options;
  options.limits.queued_messages_max = 50;
  StuckReader stuck(*fixture_, options);
  const uint64_t accepted = stuck.Fill(payload);
  EXPECT_GE(accepted, 49u);
  EXPECT_LT(accepted, 5000u);
  stuck.gate.Open();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.peer()->received() == accepted + 1; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.handler->sent_count() == accepted; }));
  for (const auto& [token, failure] : stuck.pair.handler->sent()) EXPECT_EQ(failure, Failure::kNone);
  EXPECT_EQ(stuck.pair.connection->Send(Note("again")), Failure::kNone);
}

TEST_P(TransportBattery, QueuedHeaderBytesAreBounded) {
  TransportOptions options;
  options.limits.queued_header_bytes_max = 1 << 20;
  StuckReader stuck(*fixture_, options);
  const std::string header(100'000, 'h');
  size_t accepted = 0;
  Failure failure = Failure::kNone;
  for (int refusals = 0; refusals < 20 && accepted < 5000;) {
    failure = stuck.pair.connection->Send(Note(header));
    accepted += failure == Failure::kNone;
    refusals += failure != Failure::kNone;
    if (failure != Failure::kNone) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_EQ(failure, Failure::kBusy);
  EXPECT_LT(accepted, 1000u);
  stuck.gate.Open();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.peer()->received() == accepted + 1; }));
}

TEST_P(TransportBattery, CancelTakesBackWhatHasNotBegun) {
  const std::vector<std::byte> payload = Pattern(21, 64 << 10);
  TransportOptions options;
  options.limits.queued_messages_max = 50;
  StuckReader stuck(*fixture_, options);
  const uint64_t accepted = stuck.Fill(payload);
  ASSERT_GE(accepted, 49u);
  stuck.pair.connection->Cancel(accepted);     // the last one has not begun
  stuck.pair.connection->Cancel(accepted);     // twice is once
  stuck.pair.connection->Cancel(999'999'999);  // nobody's token
  stuck.gate.Open();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.handler->sent_count() == accepted; }));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.peer()->received() == accepted; }));
  for (const auto& [token, failure] : stuck.pair.handler->sent()) {
    EXPECT_EQ(failure, token == accepted ? Failure::kCancelled : Failure::kNone) << token;
  }
}

TEST_P(TransportBattery, ExpiredMessagesAreGivenBack) {
  const std::vector<std::byte> payload = Pattern(22, 64 << 10);
  TransportOptions options;
  options.limits.queued_messages_max = 50;
  options.stall_us = 600'000'000;
  StuckReader stuck(*fixture_, options);
  const uint64_t accepted = stuck.Fill(payload);
  ASSERT_GE(accepted, 49u);
  stuck.pair.connection->Cancel(accepted);
  OutMessage late = Parcel("late", payload, 1, 1 << 30, 1'000'000);
  late.expire_us = NowUs() + 20'000;
  ASSERT_EQ(stuck.pair.connection->Send(std::move(late)), Failure::kNone);
  if (fixture_->threaded()) {
    ASSERT_TRUE(WaitFor(*fixture_, [&] {
      for (const auto& [token, failure] : stuck.pair.handler->sent()) {
        if (token == 1'000'000) return failure == Failure::kTimedOut;
      }
      return false;
    }));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  stuck.gate.Open();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.handler->sent_count() == accepted + 1; }));
  for (const auto& [token, failure] : stuck.pair.handler->sent()) {
    if (token == 1'000'000 && fixture_->threaded()) {
      EXPECT_EQ(failure, Failure::kTimedOut);
    }
  }
}

// Needs a reader with a thread that can be stuck.
TEST_P(TransportPeerBattery, StalledPeerIsClosed) {
  const std::vector<std::byte> payload = Pattern(23, 64 << 20);
  TransportOptions options;
  options.limits.queued_messages_max = 50;
  options.stall_us = 50'000;
  StuckReader stuck(*fixture_, options);
  OutMessage large = Parcel("large", payload, 64, 1 << 20, 1);
  large.expire_us = NowUs() + 30'000;
  ASSERT_EQ(stuck.pair.connection->Send(std::move(large)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.handler->closed(); }));
  EXPECT_EQ(stuck.pair.handler->why().failure, Failure::kTimedOut);
  ASSERT_EQ(stuck.pair.handler->sent_count(), 1u);
  EXPECT_EQ(stuck.pair.handler->sent()[0].second, Failure::kTimedOut);
  EXPECT_EQ(stuck.pair.client->stats().stalled_closed, 1u);
}

TEST_P(TransportBattery, DivertThrowsTheRestAway) {
  const std::vector<std::byte> payload = Pattern(24, 64 << 20), small = Pattern(25, 100'000);
  Pair pair(*fixture_);
  pair.acceptor.make = [] {
    auto recorder = std::make_shared<Recorder>();
    recorder->on_bytes = [](Connection& connection, uint64_t landing_id) {
      if (landing_id == 1) connection.Divert(landing_id);
    };
    return recorder;
  };
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Parcel("diverted", payload, 64, 1 << 20, 1)), Failure::kNone);
  ASSERT_EQ(pair.connection->Send(Parcel("landed", small, 1, 1 << 20, 2)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 2; }));
  const auto messages = pair.peer()->messages();
  EXPECT_TRUE(messages[1].payload == small);
  EXPECT_GE(pair.peer()->diverted().size(), 1u);
  // It may all have landed before the loop came to hear of it; if not, the message says so.
  if (pair.peer()->bytes_landed() < payload.size() + small.size()) {
    EXPECT_FALSE(messages[0].landed);
  }
  pair.peer_connection()->Divert(12345);  // nobody's landing: answered all the same
  ASSERT_TRUE(WaitFor(*fixture_, [&] {
    const auto diverted = pair.peer()->diverted();
    return !diverted.empty() && diverted.back() == 12345;
  }));
}

TEST_P(TransportBattery, ConnectToNobodyFails) {
  auto transport = fixture_->Make({});
  auto handler = std::make_shared<Recorder>();
  auto connection = transport->Connect(fixture_->NobodyAddress(), handler, {});
  ASSERT_TRUE(connection);
  (void)connection->Send(Note("to nobody"));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return handler->closed(); }));
  EXPECT_FALSE(handler->opened());
  EXPECT_TRUE(handler->why().failure == Failure::kUnreachable || handler->why().failure == Failure::kTimedOut)
      << handler->why().text;
  EXPECT_NE(handler->why().text, "");
  EXPECT_EQ(connection->Send(Note("late")), Failure::kPeerClosed);
  EXPECT_FALSE(connection->Run([] {}));
  transport->Shutdown();
}

TEST_P(TransportBattery, GarbageClosesOnlyItsOwnConnection) {
  Pair pair(*fixture_);
  pair.Open();
  std::mt19937_64 random(20241129);
  size_t raw = 0;
  for (size_t bytes : {1u, 31u, 32u, 33u, 1000u, 100'000u}) {
    raw += fixture_->SendRaw(pair.address, Pattern(random(), bytes)) ? 1 : 0;
    if (raw == 0) break;
  }
  ASSERT_EQ(pair.connection->Send(Note("still here")), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 1; }));
  if (raw == 0) return;  // no raw byte stream to send garbage through
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.server->stats().connections == 1; }));
  EXPECT_GE(pair.server->stats().protocol_errors, 4u);
  for (size_t i = 1; i < pair.acceptor.count(); i++) {
    EXPECT_TRUE(pair.acceptor.handler(i)->closed());
    EXPECT_EQ(pair.acceptor.handler(i)->received(), 0u);
  }
}

TEST_P(TransportBattery, CloseFromInsideAnyHandler) {
  const std::vector<std::byte> payload = Pattern(26, 1 << 20);
  for (const std::string where : {"open", "place", "bytes", "message"}) {
    Pair pair(*fixture_);
    pair.acceptor.make = [&where] {
      auto recorder = std::make_shared<Recorder>();
      const auto close = [](Connection& connection) { connection.Close(Failure::kRefused); };
      if (where == "open") recorder->on_open = close;
      if (where == "place") recorder->on_place = [close](Connection& c, ByteView) { return close(c), true; };
      if (where == "bytes") recorder->on_bytes = [close](Connection& c, uint64_t) { close(c); };
      if (where == "message") recorder->on_message = [close](Connection& c, const auto&) { close(c); };
      return recorder;
    };
    auto connection = pair.client->Connect(pair.address, pair.handler, {});
    const Failure sent = connection->Send(Parcel("p", payload, 4, 1 << 20, 1));
    ASSERT_TRUE(WaitFor(*fixture_, [&] {
      return pair.handler->closed() && pair.acceptor.count() == 1 && pair.peer()->closed();
    })) << where;
    EXPECT_EQ(pair.peer()->why().failure, Failure::kRefused) << where;
    EXPECT_EQ(pair.handler->sent_count(), sent == Failure::kNone ? 1u : 0u) << where;
    EXPECT_FALSE(pair.handler->why().ok()) << where;
  }
}

TEST_P(TransportBattery, CloseFromOnSent) {
  Pair pair(*fixture_);
  pair.handler->on_sent = [](Connection& connection, uint64_t, Failure) {
    connection.Close(Failure::kCancelled);
  };
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Note("last", 1)), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->closed() && pair.peer()->closed(); }));
  EXPECT_EQ(pair.handler->why().failure, Failure::kCancelled);
}

TEST_P(TransportBattery, CloseGivesBackTheQueue) {
  const std::vector<std::byte> payload = Pattern(27, 64 << 10);
  TransportOptions options;
  options.limits.queued_messages_max = 50;
  StuckReader stuck(*fixture_, options);
  const uint64_t accepted = stuck.Fill(payload);
  stuck.pair.connection->Close(Failure::kCancelled);
  EXPECT_EQ(stuck.pair.connection->Send(Note("late")), Failure::kPeerClosed);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.handler->closed(); }));
  EXPECT_EQ(stuck.pair.handler->sent_count(), accepted);
  for (const auto& [token, failure] : stuck.pair.handler->sent()) {
    EXPECT_TRUE(failure == Failure::kCancelled || failure == Failure::kNone) << FailureName(failure);
  }
  EXPECT_EQ(stuck.pair.handler->why().failure, Failure::kCancelled);
  stuck.gate.Open();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return stuck.pair.peer()->closed(); }));
}

TEST_P(TransportBattery, RunsWorkOnTheConnectionsThreadUntilItIsClosed) {
  Pair pair(*fixture_);
  pair.Open();
  std::atomic<int> ran{0};
  std::thread::id thread;
  for (int i = 0; i < 10; i++) {
    ASSERT_TRUE(pair.connection->Run([&, i] {
      thread = std::this_thread::get_id();
      EXPECT_EQ(ran++, i);
    }));
  }
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return ran == 10; }));
  EXPECT_EQ(thread == std::this_thread::get_id(), !fixture_->threaded());
  pair.connection->Close(Failure::kCancelled);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->closed(); }));
  EXPECT_FALSE(pair.connection->Run([&] { ran++; }));
  EXPECT_EQ(ran, 10);
}

TEST_P(TransportBattery, ShutdownWithEverythingInFlight) {
  const std::vector<std::byte> payload = Pattern(28, 16 << 20);
  Pair pair(*fixture_);
  pair.Open();
  uint64_t up = 0, down = 0;
  for (; up < 8; up++) {
    ASSERT_EQ(pair.connection->Send(Parcel("up", payload, 16, 1 << 20, up + 1)), Failure::kNone);
    ASSERT_EQ(pair.peer_connection()->Send(Parcel("down", payload, 16, 1 << 20, ++down)), Failure::kNone);
  }
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->bytes_landed() > 0; }));
  pair.client->Shutdown();
  EXPECT_TRUE(pair.handler->closed());
  EXPECT_EQ(pair.handler->sent_count(), up);
  EXPECT_EQ(pair.connection->Send(Note("late")), Failure::kPeerClosed);
  EXPECT_FALSE(pair.connection->Run([] {}));
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->closed(); }));
  EXPECT_EQ(pair.peer()->sent_count(), down);
  pair.server->Shutdown();
  pair.server->Shutdown();  // twice is once
}

TEST_P(TransportBattery, ReconnectsAfterTheServerWasReplaced) {
  for (int round = 0; round < 3; round++) {
    Pair pair(*fixture_);
    pair.Open();
    ASSERT_EQ(pair.connection->Send(Note("round")), Failure::kNone);
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == 1; }));
    pair.server->Shutdown();
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.handler->closed(); }));
    EXPECT_EQ(pair.handler->why().failure, Failure::kPeerClosed);
    pair.server = fixture_->Make({});
    ASSERT_TRUE(pair.server->Listen(pair.address, &pair.acceptor, &pair.address).ok());
    auto again = std::make_shared<Recorder>();
    auto connection = pair.Connect(again);
    ASSERT_EQ(connection->Send(Note("again")), Failure::kNone);
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.acceptor.handler(1)->received() == 1; }));
  }
}

TEST_P(TransportBattery, ManyThreadsSendOnOneConnection) {
  const std::vector<std::byte> payload = Pattern(29, 5000);
  constexpr int kThreads = 4, kEach = 500;
  Pair pair(*fixture_);
  pair.Open();
  std::vector<std::thread> threads;
  std::atomic<int> left{fixture_->threaded() ? kThreads : 0};
  const auto send_all = [&](int t) {
    for (int i = 0; i < kEach;) {
      const std::string header = std::to_string(t) + " " + std::to_string(i);
      const uint64_t token = static_cast<uint64_t>(t * kEach + i + 1);
      const Failure failure =
          pair.connection->Send(i % 3 == 0 ? Parcel(header, payload, 2, 999, token) : Note(header));
      if (failure == Failure::kNone) i++;
      if (failure == Failure::kBusy) fixture_->threaded() ? std::this_thread::yield() : fixture_->Pump();
      ASSERT_TRUE(failure == Failure::kNone || failure == Failure::kBusy) << FailureName(failure);
    }
    left--;
  };
  for (int t = 0; t < kThreads; t++) {
    if (fixture_->threaded())
      threads.emplace_back(send_all, t);
    else
      send_all(t);
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return pair.peer()->received() == kThreads * kEach; }));
  int next[kThreads] = {};
  for (const auto& message : pair.peer()->messages()) {
    const int t = message.header[0] - '0';
    ASSERT_EQ(message.header, std::to_string(t) + " " + std::to_string(next[t]));  // each thread's order
    ASSERT_TRUE(next[t]++ % 3 != 0 || message.payload == payload);
  }
}

}  // namespace
}  // namespace larder::transport
