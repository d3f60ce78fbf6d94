// The battery, third part: real processes at the other end that die, stop, or share a core with us.
#include <sched.h>
#include <signal.h>

#include "tests/unit/transport/peer_process.h"
#include "tests/unit/transport/recorder.h"

namespace larder::transport {
namespace {

// Lands any payload in one piece of memory and counts: these payloads are too large to keep.
class Sink : public Recorder {
 public:
  bool Place(Connection&, ByteView, std::span<const uint64_t> segment_bytes, Landing* landing) override {
    landing->id = 1;
    for (uint64_t left : segment_bytes) {
      std::vector<Extent> extents;
      for (; left > 0; left -= extents.back().bytes) {
        extents.push_back({memory_.data(), std::min<size_t>(memory_.size(), static_cast<size_t>(left))});
      }
      landing->segments.Add(std::span<const Extent>(extents));
    }
    return true;
  }
  void OnBytes(Connection&, uint64_t, uint32_t, uint64_t, ByteView bytes) override { landed += bytes.size(); }
  void OnMessage(Connection&, ByteView, uint64_t, bool) override { messages_seen++; }
  std::atomic<uint64_t> landed{0}, messages_seen{0};

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
};

OutMessage Large(const std::vector<std::byte>& piece, size_t pieces, uint64_t token) {
  OutMessage message = Note("large", token);
  for (size_t i = 0; i < pieces; i++) message.segments.Add(ConstExtent{piece.data(), piece.size()});
  return message;
}

std::vector<std::string> Arguments(Fixture& fixture, const std::string& role, const std::string& address) {
  std::vector<std::string> arguments = {fixture.backend(), role, address};
  const auto more = fixture.peer_arguments();
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void Kill(const Fixture& fixture, PeerProcess* process) {
  fixture.dies_between_steps() ? process->KillBetweenSteps() : process->Kill();
}

// A listening child and a connection to it.
struct Child {
  Child(Fixture& f, Transport& transport, const std::string& listen_at, bool shared = false, int cpu = -1)
      : process(
            [&] {
              auto arguments = Arguments(f, "listen", listen_at);
              if (shared) arguments.push_back("--shared");
              return arguments;
            }(),
            cpu) {
    address = process.Expect("bound ");
    connection = transport.Connect(address, handler, {});
    EXPECT_TRUE(WaitFor(f, [&] { return handler->opened() || handler->closed(); }));
    EXPECT_TRUE(handler->opened()) << handler->why().text;
  }
  PeerProcess process;
  std::string address;
  std::shared_ptr<Sink> handler = std::make_shared<Sink>();
  std::shared_ptr<Connection> connection;
};

TEST_P(TransportPeerBattery, KilledWhileItSends) {
  auto transport = fixture_->Make({});
  for (const bool shared : {false, true}) {
    Child child(*fixture_, *transport, fixture_->ListenAddress(), shared);
    ASSERT_EQ(child.connection->Send(Note("pull 1000000000")), Failure::kNone);
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return child.handler->landed > 0; }));
    Kill(*fixture_, &child.process);
    ASSERT_TRUE(WaitFor(
        *fixture_, [&] { return child.handler->closed(); }, 5));
    EXPECT_EQ(child.handler->why().failure, Failure::kPeerClosed) << child.handler->why().text;
    EXPECT_EQ(child.handler->messages_seen, 0u);
    // The same address serves again, and so do we.
    Child next(*fixture_, *transport, child.address, shared);
    ASSERT_EQ(next.connection->Send(Note("pull 3000000")), Failure::kNone);
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return next.handler->messages_seen == 1; }));
    EXPECT_EQ(next.handler->landed, 3'000'000u);
  }
}

TEST_P(TransportPeerBattery, KilledWhileItReceives) {
  const std::vector<std::byte> piece = Pattern(40, 1 << 20);
  auto transport = fixture_->Make({});
  Child child(*fixture_, *transport, fixture_->ListenAddress());
  for (uint64_t token = 1; token <= 4; token++) {
    ASSERT_EQ(child.connection->Send(Large(piece, 900, token)), Failure::kNone);
  }
  EXPECT_NE(child.process.Expect("landing"), "?");
  Kill(*fixture_, &child.process);
  ASSERT_TRUE(WaitFor(
      *fixture_, [&] { return child.handler->closed(); }, 5));
  EXPECT_EQ(child.handler->why().failure, Failure::kPeerClosed) << child.handler->why().text;
  EXPECT_EQ(child.handler->sent_count(), 4u);
  EXPECT_EQ(child.handler->complaint(), "");
  EXPECT_EQ(child.connection->Send(Note("late")), Failure::kPeerClosed);
}

TEST_P(TransportPeerBattery, ClientKilledWhileWeServeIt) {
  const std::vector<std::byte> piece = Pattern(41, 1 << 20);
  auto transport = fixture_->Make({});
  RecordingAcceptor acceptor;
  std::string address;
  ASSERT_TRUE(transport->Listen(fixture_->ListenAddress(), &acceptor, &address).ok());
  for (size_t round = 0; round < 5; round++) {
    PeerProcess client(Arguments(*fixture_, "connect", address));
    ASSERT_TRUE(WaitFor(*fixture_, [&] { return acceptor.count() == round + 1; }));
    ASSERT_EQ(acceptor.connection(round)->Send(Large(piece, 900, 1)), Failure::kNone);
    EXPECT_NE(client.Expect("landing"), "?");
    Kill(*fixture_, &client);
    ASSERT_TRUE(WaitFor(
        *fixture_, [&] { return acceptor.handler(round)->closed(); }, 5));
    EXPECT_EQ(acceptor.handler(round)->sent_count(), 1u);
  }
}

TEST_P(TransportPeerBattery, StoppedPeerRunsOutOfTime) {
  const std::vector<std::byte> piece = Pattern(42, 1 << 20);
  TransportOptions options;
  options.stall_us = 200'000;
  options.limits.queued_messages_max = 8;
  auto transport = fixture_->Make(options);
  Child child(*fixture_, *transport, fixture_->ListenAddress());
  ASSERT_EQ(child.connection->Send(Note("echo")), Failure::kNone);
  ASSERT_TRUE(WaitFor(*fixture_, [&] { return child.handler->messages_seen == 1; }));
  child.process.Signal(SIGSTOP);
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < 200; i++) {
    OutMessage message = Large(piece, 64, i + 1);
    message.expire_us = NowUs() + 100'000;
    const Failure failure = child.connection->Send(std::move(message));
    if (failure != Failure::kNone) break;
    accepted++;
  }
  EXPECT_GE(accepted, 8u);
  EXPECT_LT(accepted, 200u);
  ASSERT_TRUE(WaitFor(
      *fixture_, [&] { return child.handler->closed(); }, 10));
  EXPECT_EQ(child.handler->why().failure, Failure::kTimedOut) << child.handler->why().text;
  EXPECT_EQ(child.handler->sent_count(), accepted);
  child.process.Signal(SIGCONT);
}

// Busy polling on a shared core would take 8 ms a message.
TEST_P(TransportPeerBattery, TwoBusyProcessesOnOneCoreMoveData) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  size_t cpu = 0;
  while (!CPU_ISSET(cpu, &before)) cpu++;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  {
    auto transport = fixture_->Make({});  // its threads inherit the core
    Child child(*fixture_, *transport, fixture_->ListenAddress(), false, static_cast<int>(cpu));
    for (int i = 0; i < 20; i++) ASSERT_EQ(child.connection->Send(Note("pull 16000000")), Failure::kNone);
    EXPECT_TRUE(WaitFor(*fixture_, [&] { return child.handler->messages_seen == 20; }));
    EXPECT_EQ(child.handler->landed, 320'000'000u);
  }
  sched_setaffinity(0, sizeof(before), &before);
}

TEST_P(TransportPeerBattery, IdleConnectionsCostNoCpu) {
  Pair pair(*fixture_);
  std::vector<std::shared_ptr<Recorder>> handlers;
  std::vector<std::shared_ptr<Connection>> connections;
  for (size_t i = 0; i < 64; i++) {
    handlers.push_back(std::make_shared<Recorder>());
    connections.push_back(pair.Connect(handlers.back()));
  }
  const auto cpu_us = [] {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1'000'000 + used.tv_nsec / 1000;
  };
  const auto before_us = cpu_us();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(cpu_us() - before_us, 20'000);  // 2 % of a core, for both ends
}

}  // namespace
}  // namespace larder::transport
