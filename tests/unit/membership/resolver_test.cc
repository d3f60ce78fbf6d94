// Names in DNS, against a server of the test's own.
#include "node/membership/resolver.h"

#include <gtest/gtest.h>

#include "tests/unit/membership/dns_world.h"
#include "transport/transport.h"

namespace larder::node {
namespace {

using Addresses = std::vector<std::string>;

ResolverOptions Asking(const NameServer& server, const std::string& name) {
  ResolverOptions options;
  options.name = name;
  options.port = 7401;
  options.servers = {server.address()};
  return options;
}

TEST(DnsNames, AddressesComeSortedWithThePort) {
  NameServer server;
  server.SetAddresses("n.larder.test", {"127.0.0.3", "127.0.0.2", "127.0.0.3"});
  const Result<Resolved> found = Resolver(Asking(server, "n.larder.test")).Resolve();
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_EQ(found->addresses, (Addresses{"127.0.0.2:7401", "127.0.0.3:7401"}));
  EXPECT_EQ(found->left_out, 0u);
}

TEST(DnsNames, ServiceRecordsBringTheirPorts) {
  NameServer server;
  server.AddPort(9002);
  server.AddPort(9001);
  const Result<Resolved> found = Resolver(Asking(server, NameServer::kService)).Resolve();
  ASSERT_TRUE(found.ok()) << found.status().text();
  EXPECT_EQ(found->addresses, (Addresses{"127.0.0.1:9001", "127.0.0.1:9002"}));
}

TEST(DnsNames, MoreThanTheBoundAreCountedAndLeftOut) {
  NameServer server;
  server.SetAddresses("n.larder.test", {"127.0.0.1", "127.0.0.2", "127.0.0.3"});
  ResolverOptions options = Asking(server, "n.larder.test");
  options.addresses_max = 2;
  const Result<Resolved> found = Resolver(options).Resolve();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->addresses.size(), 2u);
  EXPECT_EQ(found->left_out, 1u);
}

TEST(DnsNames, ANameThatIsNotThereIsAnAnswerASilentServerIsNone) {
  NameServer server;
  const Result<Resolved> nothing = Resolver(Asking(server, "nobody.larder.test")).Resolve();
  ASSERT_TRUE(nothing.ok()) << nothing.status().text();
  EXPECT_TRUE(nothing->addresses.empty());
  server.SetSilent(true);
  ResolverOptions options = Asking(server, "n.larder.test");
  options.timeout_us = 300'000;
  const Result<Resolved> silent = Resolver(options).Resolve();
  EXPECT_EQ(silent.status().code(), Code::kUnavailable);
  EXPECT_NE(silent.status().text().find("n.larder.test"), std::string::npos);
}

TEST(DnsNames, StopEndsAQuestionThatNobodyAnswers) {
  NameServer server;
  server.SetSilent(true);
  ResolverOptions options = Asking(server, "n.larder.test");
  options.timeout_us = 600'000'000;
  Resolver resolver(options);
  std::thread stopper([&] { resolver.Stop(); });
  EXPECT_EQ(resolver.Resolve().status().code(), Code::kCancelled);
  stopper.join();
}

TEST(DnsNames, AServerIsWrittenAsAnAddress) {
  NameServer server;
  ResolverOptions options = Asking(server, "n.larder.test");
  EXPECT_TRUE(Resolver::Check(options).ok());
  options.servers = {"dns.larder.test:53"};
  EXPECT_EQ(Resolver::Check(options).code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder::node
