// UCX through the battery: over its shared memory, and over its TCP (which is for tests only).
#include <string>
#include <vector>

#include "tests/unit/transport/battery.h"
#include "transport/ucx/ucx_transport.h"

namespace larder::transport {
namespace {

class UcxFixture : public Fixture {
 public:
  explicit UcxFixture(std::string tls) : tls_(std::move(tls)) {}

  std::unique_ptr<Transport> Make(const TransportOptions& options) override {
    TransportOptions own = options;
    own.ucx_tls = tls_;
    own.device = "lo";
    Error error;
    auto transport = MakeUcxTransport(own, &error);
    EXPECT_TRUE(transport) << error.text;
    return transport;
  }
  std::string ListenAddress() override { return "127.0.0.1:0"; }
  std::string NobodyAddress() override { return "127.0.0.1:9"; }
  std::string backend() const override { return "ucx"; }
  // A peer that dies inside a slot of UCX's shared queue leaves the whole worker deaf
  // (transport/ucx/DESIGN.md): no client after it is heard. Seen once in some 300 kills; why production has
  // no shared memory of UCX.
  bool dies_between_steps() const override { return tls_.find("posix") != std::string::npos; }
  std::vector<std::string> peer_arguments() const override { return {"--tls", tls_, "--device", "lo"}; }

 private:
  const std::string tls_;
};

std::unique_ptr<Fixture> MakeUcxShmFixture() {
  return std::make_unique<UcxFixture>("tcp,self,posix,sysv,cma");
}
std::unique_ptr<Fixture> MakeUcxTcpFixture() {
  return std::make_unique<UcxFixture>("tcp,self");
}

INSTANTIATE_TEST_SUITE_P(UcxShm, TransportBattery, testing::Values(&MakeUcxShmFixture));
INSTANTIATE_TEST_SUITE_P(UcxShm, TransportPeerBattery, testing::Values(&MakeUcxShmFixture));
INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportBattery, testing::Values(&MakeUcxTcpFixture));
INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportPeerBattery, testing::Values(&MakeUcxTcpFixture));

}  // namespace
}  // namespace larder::transport
