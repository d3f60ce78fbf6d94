// One battery for every transport backend: a double that behaves differently proves nothing.
//
// A backend plugs in with one file, <backend>_test.cc, that derives a Fixture and instantiates the suites:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportBattery, testing::Values(&MakeLoopbackFixture));
//   INSTANTIATE_TEST_SUITE_P(Tcp, TransportPeerBattery, testing::Values(&MakeTcpFixture));
//
// TransportBattery needs nothing but the Fixture; TransportPeerBattery runs real child processes
// (tests/support/transport_peer.cc), for backends that work across processes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace larder::transport {

// Where one test gets its transports from. Made fresh for each test.
class Fixture {
 public:
  virtual ~Fixture() = default;

  // A transport with these options; never nullptr. All of one fixture can reach each other.
  virtual std::unique_ptr<Transport> Make(const TransportOptions& options) = 0;
  // An address to give to Listen; a new one each call (or "any", like port 0).
  virtual std::string ListenAddress() = 0;
  // A well-formed address at which nobody listens.
  virtual std::string NobodyAddress() = 0;

  // Backends without threads move here: one or more steps of the network. The battery calls it in every
  // wait, and only there: while it does not wait, nothing moves.
  virtual void Pump() {}
  // False: handlers run inside Pump(), so a test must not block in one.
  virtual bool threaded() const { return true; }
  // Sends `bytes` raw to a listener, as a stranger would. False: the backend has no raw byte stream.
  virtual bool SendRaw(const std::string& address, ByteView bytes) {
    (void)address, (void)bytes;
    return false;
  }
  // The name MakeTransport and the helper program know it by; for TransportPeerBattery.
  virtual std::string backend() const { return ""; }
  // True: a peer may only be killed between two steps of the backend (PeerProcess::KillBetweenSteps).
  virtual bool dies_between_steps() const { return false; }
  // More arguments for the helper program.
  virtual std::vector<std::string> peer_arguments() const { return {}; }
};

using FixtureFactory = std::unique_ptr<Fixture> (*)();

class TransportBattery : public testing::TestWithParam<FixtureFactory> {
 protected:
  void SetUp() override { fixture_ = GetParam()(); }
  void TearDown() override { fixture_.reset(); }
  std::unique_ptr<Fixture> fixture_;
};

class TransportPeerBattery : public TransportBattery {};

}  // namespace larder::transport
