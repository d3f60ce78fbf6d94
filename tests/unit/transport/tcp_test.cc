// tcp through the battery, and what only tcp has.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/transport/recorder.h"
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

}  // namespace
}  // namespace larder::transport
