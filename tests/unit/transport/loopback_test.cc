// Loopback through the battery that every backend passes.
#include "transport/loopback/loopback.h"

#include <string>

#include "tests/unit/transport/battery.h"

namespace larder::transport {
namespace {

class LoopbackFixture : public Fixture {
 public:
  std::unique_ptr<Transport> Make(const TransportOptions& options) override {
    return network_.MakeTransport("host" + std::to_string(++hosts_), options.limits, options.stall_us);
  }
  std::string ListenAddress() override { return "any:0"; }
  std::string NobodyAddress() override { return "nobody:1"; }
  // Virtual time follows the clock, so that the battery's expiries mean the same here.
  void Pump() override { network_.RunUntil(NowUs()); }
  bool threaded() const override { return false; }

 private:
  loopback::Network network_{20240607, NowUs()};
  int hosts_ = 0;
};

std::unique_ptr<Fixture> MakeLoopbackFixture() {
  return std::make_unique<LoopbackFixture>();
}

INSTANTIATE_TEST_SUITE_P(Loopback, TransportBattery, testing::Values(&MakeLoopbackFixture));

}  // namespace
}  // namespace larder::transport
