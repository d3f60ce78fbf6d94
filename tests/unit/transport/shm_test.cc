// shm through the battery, and what only shm has.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/unit/transport/recorder.h"

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

}  // namespace
}  // namespace larder::transport
