// The C interface, called from C11 (c_abi.c), against a real node; and what liblarder.so shows to the world.
#include "tests/integration/c_abi.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>

#include "tests/integration/node_process.h"

#ifdef __SANITIZE_THREAD__
// A child that opens a client of its own starts threads.
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}
#endif

namespace larder {
namespace {

class CAbi : public ::testing::TestWithParam<unsigned> {
 protected:
  static void SetUpTestSuite() { node_ = new test::NodeProcess(); }
  static void TearDownTestSuite() { delete std::exchange(node_, nullptr); }
  static test::NodeProcess* node_;
};
test::NodeProcess* CAbi::node_ = nullptr;

TEST_P(CAbi, Holds) {
  ASSERT_TRUE(node_->serves());
  const char* wrong = kCAbiCases[GetParam()].check(node_->data().c_str());
  EXPECT_EQ(wrong, nullptr) << wrong;
}
INSTANTIATE_TEST_SUITE_P(Case, CAbi, ::testing::Range(0u, kCAbiCaseCount),
                         [](const auto& one) { return std::string(kCAbiCases[one.param].name); });

std::string OutputOf(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return output;
}

TEST(CLibrary, ExportsItsInterfaceAndNothingElse) {
  const std::string symbols = OutputOf("nm -D --defined-only -j " LARDER_LIBRARY);
  std::set<std::string> seen;
  for (size_t at = 0; at < symbols.size();) {
    const size_t end = symbols.find('\n', at);
    const std::string symbol = symbols.substr(at, end - at);
    at = end + 1;
    seen.insert(symbol);
    EXPECT_TRUE(symbol.rfind("larder_", 0) == 0 || symbol == "LARDER_0@@LARDER_0" || symbol == "LARDER_0")
        << symbol;
  }
  EXPECT_GT(seen.size(), 30u);
}

TEST(CLibrary, NeedsNoCxxRuntimeAndNoUcx) {
  const std::string dynamic = OutputOf("readelf -dW " LARDER_LIBRARY);
  EXPECT_NE(dynamic.find("liblarder.so.0"), std::string::npos);
  for (const char* never : {"libstdc++", "libgcc_s", "libucp", "libucs", "libgrpc", "libprotobuf"}) {
    EXPECT_EQ(dynamic.find(never), std::string::npos) << never;
  }
}

}  // namespace
}  // namespace larder
