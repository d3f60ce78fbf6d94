// tcp through the battery, and what only tcp has.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/transport/recorder.h"
#include "transport/socket/frame.h"
#include "transport/tcp/resolve.h"

namespace larder::transport {
namespace {

class TcpFixture : public Fixture {
 public:
  std::unique_ptr<Transport> Make(const TransportOptions& options) override {
    Error error;
    auto transport = MakeTransport("tcp", options, &error);
    EXPECT_TRUE(transport) << error.text;
    return transport;
  }
  std::string ListenAddress() override { return "127.0.0.1:0"; }
  std::string NobodyAddress() override {
    // A port that was free a moment ago.
    auto transport = Make({});
    RecordingAcceptor acceptor;
    std::string bound;
    EXPECT_TRUE(transport->Listen("127.0.0.1:0", &acceptor, &bound).ok());
    return bound;
  }
  bool SendRaw(const std::string& address, ByteView bytes) override {
    std::vector<SocketAddress> found;
    EXPECT_TRUE(ResolveNow(address, true, false, &found).ok());
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, found[0].get(), found[0].bytes), 0);
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) break;
      sent += static_cast<size_t>(n);
    }
    shutdown(fd, SHUT_WR);
    char answer;
    while (recv(fd, &answer, 1, 0) > 0) {
    }
    close(fd);
    return true;
  }
  std::string backend() const override { return "tcp"; }
};

std::unique_ptr<Fixture> MakeTcpFixture() {
  return std::make_unique<TcpFixture>();
}

INSTANTIATE_TEST_SUITE_P(Tcp, TransportBattery, testing::Values(&MakeTcpFixture));
INSTANTIATE_TEST_SUITE_P(Tcp, TransportPeerBattery, testing::Values(&MakeTcpFixture));

std::string BindError(const std::string& address) {
  TcpFixture fixture;
  auto transport = fixture.Make({});
  RecordingAcceptor acceptor;
  std::string bound;
  const Error error = transport->Listen(address, &acceptor, &bound);
  return error.ok() ? "" : error.text;
}

TEST(Tcp, SaysWhatIsWrongWithAnAddress) {
  for (const char* bad : {"", "nohost", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "::1:80",
                          "[::1:80", "127.0.0.1:-1", "127.0.0.1:99999999999999999999"}) {
    EXPECT_NE(BindError(bad).find("host:port"), std::string::npos) << bad;
    TcpFixture fixture;
    auto transport = fixture.Make({});
    auto handler = std::make_shared<Recorder>();
    transport->Connect(bad, handler, {});
    ASSERT_TRUE(WaitFor(fixture, [&] { return handler->closed(); })) << bad;
    EXPECT_EQ(handler->why().failure, Failure::kInvalid) << bad;
  }
}

TEST(Tcp, SaysThatAPortIsTaken) {
  TcpFixture fixture;
  auto transport = fixture.Make({});
  RecordingAcceptor acceptor;
  std::string bound;
  ASSERT_TRUE(transport->Listen("127.0.0.1:0", &acceptor, &bound).ok());
  EXPECT_NE(BindError(bound).find("choose another port"), std::string::npos);
}

TEST(Tcp, ConnectsByNameOverTheResolver) {
  TcpFixture fixture;
  Pair pair(fixture);
  const std::string port = pair.address.substr(pair.address.rfind(':'));
  pair.address = "localhost" + port;
  pair.Open();
  ASSERT_EQ(pair.connection->Send(Note("by name")), Failure::kNone);
  EXPECT_TRUE(WaitFor(fixture, [&] { return pair.peer()->received() == 1; }));
  EXPECT_NE(pair.peer_connection()->peer().find("127.0.0.1:"), std::string::npos);
}

// A connection that is being opened can be closed, and one that gets no answer times out.
TEST(Tcp, ConnectTimesOutAndCanBeClosed) {
  TcpFixture fixture;
  // A listener whose backlog is full answers no further connect.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&here), sizeof(here)), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  socklen_t bytes = sizeof(here);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&here), &bytes), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  auto transport = fixture.Make({});
  std::vector<std::shared_ptr<Recorder>> handlers;
  ConnectOptions options;
  options.timeout_us = 200'000;
  for (int i = 0; i < 6; i++) {
    handlers.push_back(std::make_shared<Recorder>());
    auto connection = transport->Connect(address, handlers.back(), options);
    if (i == 5) connection->Close(Failure::kCancelled);
  }
  ASSERT_TRUE(WaitFor(fixture, [&] { return handlers[4]->closed() && handlers[5]->closed(); }));
  EXPECT_EQ(handlers[4]->why().failure, Failure::kTimedOut);
  EXPECT_EQ(handlers[5]->why().failure, Failure::kCancelled);
  close(listener);
}

// Of three connections the first and the last are busy and were given to one of the two threads.
TEST(Tcp, BusyConnectionsThatMetOnOneThreadPart) {
  TcpFixture fixture;
  Pair pair(fixture);
  pair.acceptor.make = [] {
    auto recorder = std::make_shared<Recorder>();
    recorder->keep_payload = false;
    return recorder;
  };
  std::shared_ptr<Recorder> handlers[3];
  std::shared_ptr<Connection> connections[3];
  for (int i = 0; i < 3; i++) {
    handlers[i] = std::make_shared<Recorder>();
    ConnectOptions options;
    options.loop = i / 2;
    connections[i] = pair.Connect(handlers[i], options);
    ASSERT_TRUE(connections[i]);
  }
  const std::vector<std::byte> payload = Pattern(7, 4 << 20);
  constexpr int kMessages = 64, kRuns = 20'000;
  for (int i = 0; i < kMessages; i++) {
    for (const int busy : {0, 2}) {
      ASSERT_EQ(connections[busy]->Send(Parcel(std::to_string(i), payload, 4, 1 << 20, uint64_t(i) + 1)),
                Failure::kNone);
    }
  }
  // Work given to the connections meanwhile, from a thread of neither, runs once and in order.
  std::atomic<int> ran[2] = {0, 0};
  std::atomic<int> disordered{0};
  for (int i = 0; i < kRuns; i++) {
    for (const int at : {0, 1}) {
      ASSERT_TRUE(pair.acceptor.connection(size_t(at) * 2)->Run([&ran, &disordered, at, i] {
        if (ran[at].fetch_add(1) != i) disordered++;
      }));
    }
    if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  const auto done = [&] {
    return pair.acceptor.handler(0)->received() == kMessages &&
           pair.acceptor.handler(2)->received() == kMessages && ran[0] == kRuns && ran[1] == kRuns;
  };
  ASSERT_TRUE(WaitFor(fixture, done));
  EXPECT_EQ(disordered, 0);
  EXPECT_GT(pair.acceptor.handler(0)->moves() + pair.acceptor.handler(2)->moves(), 0);
  EXPECT_EQ(pair.acceptor.handler(1)->moves(), 0);
  for (const size_t busy : {0, 2}) {
    const auto messages = pair.acceptor.handler(busy)->messages();
    for (int i = 0; i < kMessages; i++) ASSERT_EQ(messages[size_t(i)].header, std::to_string(i));
    EXPECT_EQ(pair.acceptor.handler(busy)->complaint(), "");
    EXPECT_EQ(pair.acceptor.handler(busy)->bytes_landed(), uint64_t{kMessages} * payload.size());
  }
  for (const int busy : {0, 2})
    EXPECT_TRUE(WaitFor(fixture, [&] { return handlers[busy]->sent_count() == kMessages; }));
}

// The first version kept both threads on one core while they moved payload, although others were idle: nodes
// with an SSD fell behind on a machine of two.
TEST(Tcp, ThreadsThatMovePayloadMayStillRunAnywhere) {
  TcpFixture fixture;
  Pair pair(fixture);
  pair.Open();
  const std::vector<std::byte> payload = Pattern(3, 8 << 20);
  cpu_set_t ours;
  ASSERT_EQ(sched_getaffinity(0, sizeof(ours), &ours), 0);
  for (size_t i = 1; i <= 8; i++) {
    ASSERT_EQ(pair.connection->Send(Parcel("large", payload, 1, 8 << 20, i)), Failure::kNone);
    ASSERT_TRUE(WaitFor(fixture, [&] { return pair.peer()->received() == i; }));
    for (const auto& connection : {pair.connection, pair.peer_connection()}) {
      std::atomic<int> same{-1};
      connection->Run([&] {
        cpu_set_t theirs;
        CPU_ZERO(&theirs);
        sched_getaffinity(0, sizeof(theirs), &theirs);
        same = CPU_EQUAL(&theirs, &ours) ? 1 : 0;
      });
      ASSERT_TRUE(WaitFor(fixture, [&] { return same != -1; }));
      EXPECT_EQ(same, 1);
    }
  }
}

TEST(Tcp, MutatedStreamsCloseOnlyThemselves) {
  std::mt19937_64 random(20250201);
  TransportOptions options;
  options.limits.payload_bytes_max = 1 << 20;
  TcpFixture fixture;
  Pair pair(fixture, options);
  pair.acceptor.make = [] {
    auto recorder = std::make_shared<Recorder>();
    recorder->keep_payload = false;
    return recorder;
  };
  for (int round = 0; round < 200; round++) {
    std::vector<std::byte> stream;
    for (int i = 0; i < 3; i++) {
      FrameHeader frame;
      frame.header_bytes = static_cast<uint32_t>(random() % 300);
      frame.segments = static_cast<uint32_t>(random() % 3);
      std::vector<uint64_t> segment_bytes;
      for (uint32_t k = 0; k < frame.segments; k++) segment_bytes.push_back(random() % 5000);
      for (const uint64_t each : segment_bytes) frame.payload_bytes += each;
      const auto* head = reinterpret_cast<const std::byte*>(&frame);
      const auto* table = reinterpret_cast<const std::byte*>(segment_bytes.data());
      stream.insert(stream.end(), head, head + sizeof(frame));
      stream.insert(stream.end(), table, table + segment_bytes.size() * sizeof(uint64_t));
      stream.resize(stream.size() + frame.header_bytes + frame.payload_bytes);
    }
    for (uint64_t flips = random() % 4; flips > 0; flips--) {
      stream[random() % std::min<size_t>(stream.size(), 60)] ^=
          std::byte{static_cast<uint8_t>(1 << random() % 8)};
    }
    if (random() % 2 == 0) stream.resize(random() % stream.size());
    fixture.SendRaw(pair.address, stream);
  }
  const size_t strangers = pair.acceptor.count();
  pair.connection = pair.Connect(pair.handler);
  ASSERT_EQ(pair.connection->Send(Note("fine")), Failure::kNone);
  EXPECT_TRUE(WaitFor(fixture, [&] { return pair.acceptor.handler(strangers)->received() == 1; }));
  EXPECT_GT(pair.server->stats().protocol_errors, 10u);
}

}  // namespace
}  // namespace larder::transport
