// shm through the battery, and what only shm has.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/unit/transport/recorder.h"
#include "transport/socket/frame.h"

namespace larder::transport {
namespace {

class ShmFixture : public Fixture {
 public:
  ShmFixture() {
    char name[] = "/tmp/larder-shm-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ShmFixture() override {
    for (const std::string& path : paths_) unlink(path.c_str());
    rmdir(folder_.c_str());
  }
  std::unique_ptr<Transport> Make(const TransportOptions& options) override {
    Error error;
    auto transport = MakeTransport("shm", options, &error);
    EXPECT_TRUE(transport) << error.text;
    return transport;
  }
  std::string ListenAddress() override {
    paths_.push_back(folder_ + "/" + std::to_string(paths_.size()));
    return paths_.back();
  }
  std::string NobodyAddress() override { return folder_ + "/nobody"; }
  bool SendRaw(const std::string& address, ByteView bytes) override {
    const int fd = ConnectRaw(address);
    (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    char answer;
    while (recv(fd, &answer, 1, 0) > 0) {
    }
    close(fd);
    return true;
  }
  std::string backend() const override { return "shm"; }

  static int ConnectRaw(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

 private:
  std::string folder_;
  std::vector<std::string> paths_;
};

std::unique_ptr<Fixture> MakeShmFixture() {
  return std::make_unique<ShmFixture>();
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportBattery, testing::Values(&MakeShmFixture));
INSTANTIATE_TEST_SUITE_P(Shm, TransportPeerBattery, testing::Values(&MakeShmFixture));

// Shared memory as an engine or a node would make it.
struct Memory {
  explicit Memory(size_t n, int seals = F_SEAL_SHRINK, const char* name = "larder-test") : bytes(n) {
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(n)), 0);
    base = static_cast<std::byte*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    EXPECT_NE(static_cast<void*>(base), MAP_FAILED);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
  }
  ~Memory() {
    munmap(base, bytes);
    close(fd);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Region region() const { return {base, bytes, fd}; }
  size_t bytes;
  int fd = -1;
  std::byte* base = nullptr;
};

size_t MappingsNamed(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:" + name) != std::string::npos;
  return count;
}

FrameHeader Frame(FrameType type, uint32_t segments, uint64_t payload_bytes, uint64_t number) {
  FrameHeader frame;
  frame.type = type;
  frame.segments = segments;
  frame.payload_bytes = payload_bytes;
  frame.number = number;
  return frame;
}

// A peer that we play by hand.
class Stranger {
 public:
  explicit Stranger(Pair& pair) : fd_(ShmFixture::ConnectRaw(pair.address)) {}
  ~Stranger() { close(fd_); }
  void Say(const FrameHeader& frame, const std::vector<uint64_t>& body = {},
           const std::vector<int>& fds = {}) {
    iovec parts[2] = {{const_cast<FrameHeader*>(&frame), sizeof(frame)},
                      {const_cast<uint64_t*>(body.data()), body.size() * sizeof(uint64_t)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      memcpy(CMSG_DATA(head), fds.data(), sizeof(int) * fds.size());
    }
    (void)!sendmsg(fd_, &message, MSG_NOSIGNAL);
  }

 private:
  const int fd_;
};

// What the server makes of a stranger's frames: why it closed the connection.
template <typename Talk>
Failure Verdict(Talk talk) {
  ShmFixture fixture;
  Pair pair(fixture);
  Stranger stranger(pair);
  talk(stranger);
  EXPECT_TRUE(WaitFor(fixture, [&] { return pair.acceptor.count() == 1 && pair.peer()->closed(); }));
  EXPECT_EQ(pair.server->stats().protocol_errors, 1u);
  return pair.peer()->why().failure;
}

TEST(Shm, MemoryThatCanShrinkIsRefused) {
  const Memory unsealed(1 << 20, 0), small(4096);
  EXPECT_EQ(
      Verdict([&](Stranger& peer) { peer.Say(Frame(FrameType::kRegion, 0, 1 << 20, 1), {}, {unsealed.fd}); }),
      Failure::kNotSealed);
  EXPECT_EQ(
      Verdict([&](Stranger& peer) { peer.Say(Frame(FrameType::kRegion, 0, 1 << 20, 1), {}, {small.fd}); }),
      Failure::kNotSealed);
  EXPECT_EQ(Verdict([&](Stranger& peer) {  // not even a memfd
              peer.Say(Frame(FrameType::kRegion, 0, 4096, 1), {}, {STDIN_FILENO});
            }),
            Failure::kNotSealed);
}

TEST(Shm, NonsenseFromAPeerClosesItsConnection) {
  const Memory memory(1 << 20);
  const auto open = [&](Stranger& peer) {
    peer.Say(Frame(FrameType::kRegion, 0, 1 << 20, 1), {}, {memory.fd});
    peer.Say(Frame(FrameType::kMessage, 1, 100, 0), {100});
  };
  const std::vector<std::function<void(Stranger&)>> talks = {
      [&](Stranger& p) { p.Say(Frame(FrameType::kRegion, 0, 4096, 1)); },  // without a descriptor
      [&](Stranger& p) { open(p), p.Say(Frame(FrameType::kRegion, 0, 4096, 1), {}, {memory.fd}); },  // twice
      [&](Stranger& p) {
        p.Say(Frame(FrameType::kData, 1, 100, 1), {1, 0, 100});
      },  // no message
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 100, 2), {1, 0, 100});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 101, 1), {1, 0, 101});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 100, 1), {2, 0, 100});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 100, 1), {1, 0, 99});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 100, 1), {1, (1 << 20) - 99, 100});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 1, 100, 1), {1, ~uint64_t{0} - 50, 100});
      },
      [&](Stranger& p) {
        open(p), p.Say(Frame(FrameType::kData, 2, 100, 1), {1, 0, 0, 1, 0, 100});
      },
      [&](Stranger& p) { open(p), p.Say(Frame(FrameType::kMessage, 0, 0, 0)); },  // within a payload
      [&](Stranger& p) {
        p.Say(Frame(FrameType::kMessage, 2, 10, 0), {~uint64_t{0}, 11});
      },
      [&](Stranger& p) { p.Say(Frame(FrameType::kAck, 0, 0, 1)); },
      [&](Stranger& p) { p.Say(Frame(FrameType::kUnmap, 0, 0, 7)); },
      [&](Stranger& p) { p.Say(Frame(FrameType::kUnmapped, 0, 0, 7)); },
      [&](Stranger& p) { p.Say(Frame(FrameType::kMessage, 0, 0, 0), {}, std::vector<int>(40, memory.fd)); },
  };
  for (size_t i = 0; i < talks.size(); i++) EXPECT_EQ(Verdict(talks[i]), Failure::kProtocol) << "talk " << i;
}

TEST(Shm, DescriptorsAreClosedWhateverHappens) {
  const auto open_fds = [] {
    size_t count = 0;
    for (int fd = 0; fd < 1000; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
  };
  const Memory memory(1 << 20);
  const size_t before = open_fds();
  for (int i = 0; i < 3; i++) {
    Verdict([&](Stranger& p) {
      p.Say(Frame(FrameType::kMessage, 0, 0, 0), {}, std::vector<int>(9, memory.fd));
      p.Say(Frame(FrameType::kUnmap, 0, 0, 7));
    });
  }
  EXPECT_EQ(open_fds(), before);
}

TEST(Shm, RegionsMustBeSealedAndApart) {
  ShmFixture fixture;
  auto transport = fixture.Make({});
  const Memory unsealed(8192, 0), memory(8192);
  EXPECT_EQ(transport->AddRegion(unsealed.region()).failure, Failure::kNotSealed);
  EXPECT_EQ(transport->AddRegion({memory.base, 12288, memory.fd}).failure, Failure::kInvalid);
  EXPECT_TRUE(transport->AddRegion(memory.region()).ok());
  EXPECT_EQ(transport->AddRegion({memory.base + 4096, 4096, memory.fd}).failure, Failure::kInvalid);
  EXPECT_TRUE(transport->AddRegion({unsealed.base, 8192, -1}).ok());  // can't be shown, is copied
}

TEST(Shm, RegionsAreMappedReadAndUnmapped) {
  const std::string name = "larder-mapped-region";
  Memory memory(8 << 20, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, name.c_str());
  const std::vector<std::byte> content = Pattern(50, memory.bytes), other = Pattern(51, 300'000);
  std::copy(content.begin(), content.end(), memory.base);
  ShmFixture fixture;
  Pair pair(fixture);
  pair.Open();
  auto second_handler = std::make_shared<Recorder>();
  auto second = pair.Connect(second_handler);
  ASSERT_TRUE(pair.client->AddRegion(memory.region()).ok());
  EXPECT_EQ(MappingsNamed(name), 1u);
  // Extents of the region, of other memory, and of both in one segment.
  OutMessage mixed = Note("mixed", 1);
  const ConstExtent parts[] = {{memory.base + 4096, 1 << 20}, {other.data(), 100'001}, {memory.base, 4097}};
  mixed.segments.Add(std::span<const ConstExtent>(parts));
  mixed.segments.Add(ConstExtent{other.data() + 100'001, 199'999});
  ASSERT_EQ(pair.connection->Send(std::move(mixed)), Failure::kNone);
  OutMessage whole = Note("whole", 2);
  whole.segments.Add(ConstExtent{memory.base, memory.bytes});
  ASSERT_EQ(second->Send(std::move(whole)), Failure::kNone);
  ASSERT_TRUE(
      WaitFor(fixture, [&] { return pair.handler->sent_count() + second_handler->sent_count() == 2; }));
  std::vector<std::byte> expected(memory.base + 4096, memory.base + 4096 + (1 << 20));
  expected.insert(expected.end(), other.begin(), other.begin() + 100'001);
  expected.insert(expected.end(), memory.base, memory.base + 4097);
  expected.insert(expected.end(), other.begin() + 100'001, other.end());
  EXPECT_TRUE(pair.peer()->messages()[0].payload == expected);
  EXPECT_TRUE(pair.acceptor.handler(1)->messages()[0].payload == content);
  EXPECT_EQ(MappingsNamed(name), 2u);  // ours, and one for both connections

  std::atomic<bool> released{false};
  pair.client->RemoveRegion(memory.base, [&] { released = true; });
  ASSERT_TRUE(WaitFor(fixture, [&] { return released.load(); }));
  EXPECT_EQ(MappingsNamed(name), 1u);
  // It still can be sent from, as any memory.
  OutMessage again = Note("again", 3);
  again.segments.Add(ConstExtent{memory.base, 100'000});
  ASSERT_EQ(pair.connection->Send(std::move(again)), Failure::kNone);
  ASSERT_TRUE(WaitFor(fixture, [&] { return pair.handler->sent_count() == 2; }));
  EXPECT_EQ(MappingsNamed(name), 1u);
}

TEST(Shm, RegionsAreReleasedAtOnceOrWithTheConnection) {
  const Memory unshown(8192), shown(8192);
  ShmFixture fixture;
  Pair pair(fixture);
  pair.Open();
  ASSERT_TRUE(pair.client->AddRegion(unshown.region()).ok());
  ASSERT_TRUE(pair.client->AddRegion(shown.region()).ok());
  bool released = false;
  pair.client->RemoveRegion(unshown.base, [&] { released = true; });
  EXPECT_TRUE(released);
  OutMessage message = Note("shown", 1);
  message.segments.Add(ConstExtent{shown.base, 8192});
  ASSERT_EQ(pair.connection->Send(std::move(message)), Failure::kNone);
  ASSERT_TRUE(WaitFor(fixture, [&] { return pair.handler->sent_count() == 1; }));
  pair.client->Shutdown();
  released = false;
  pair.client->RemoveRegion(shown.base, [&] { released = true; });
  EXPECT_TRUE(released);
}

// A reader that was stopped can't hold the sender's memory for ever.
TEST(Shm, PayloadIsGivenBackWhenAReaderDoesNotCopyIt) {
  const Memory memory(1 << 20);
  TransportOptions options;
  options.stall_us = 600'000'000;
  ShmFixture fixture;
  auto transport = fixture.Make(options);
  ASSERT_TRUE(transport->AddRegion(memory.region()).ok());
  RecordingAcceptor acceptor;
  std::string address;
  ASSERT_TRUE(transport->Listen(fixture.ListenAddress(), &acceptor, &address).ok());
  const int reader = ShmFixture::ConnectRaw(address);  // takes the frames into its socket, and that is all
  ASSERT_TRUE(WaitFor(fixture, [&] { return acceptor.count() == 1; }));
  OutMessage message = Note("held", 1);
  message.segments.Add(ConstExtent{memory.base, memory.bytes});
  message.expire_us = NowUs() + 20'000;
  ASSERT_EQ(acceptor.connection(0)->Send(std::move(message)), Failure::kNone);
  ASSERT_TRUE(WaitFor(fixture, [&] { return acceptor.handler(0)->sent_count() == 1; }));
  EXPECT_EQ(acceptor.handler(0)->sent()[0].second, Failure::kTimedOut);
  EXPECT_FALSE(acceptor.handler(0)->closed());
  close(reader);
  EXPECT_TRUE(WaitFor(fixture, [&] { return acceptor.handler(0)->closed(); }));
}

TEST(Shm, ListensWhereADeadProcessLeftItsSocket) {
  ShmFixture fixture;
  const std::string path = fixture.ListenAddress();
  const int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(dead, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  close(dead);
  RecordingAcceptor acceptor;  // outlives the transport, which may accept the other's knock when all is said
  auto first = fixture.Make({}), second = fixture.Make({});
  EXPECT_TRUE(first->Listen(path, &acceptor, nullptr).ok());
  const Error error = second->Listen(path, &acceptor, nullptr);
  EXPECT_NE(error.text.find("another process uses it"), std::string::npos) << error.text;
  for (const std::string& bad : {std::string(), std::string(200, 'x')}) {
    EXPECT_EQ(first->Listen(bad, &acceptor, nullptr).failure, Failure::kInvalid);
  }
}

}  // namespace
}  // namespace larder::transport
