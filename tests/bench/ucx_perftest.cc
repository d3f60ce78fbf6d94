// Runs UCX's own benchmark, two processes, over its shared memory.
#include <algorithm>
#include <sstream>

#include "tests/bench/limits.h"
#include "tests/bench/process.h"
#include "tests/support/free_port.h"

namespace larder::bench {

namespace {

// The last line: iterations, three overheads in us, then bandwidth in MiB/s (average, overall), then two
// rates.
double MibPerSecond(const std::string& output) {
  std::istringstream lines(output);
  std::string line, last;
  while (std::getline(lines, line)) {
    if (line.find_first_of("0123456789") != std::string::npos && line.find('|') == std::string::npos)
      last = line;
  }
  std::istringstream words(last);
  double iterations = 0, overhead = 0, average = 0, overall = 0;
  words >> iterations >> overhead >> overhead >> overhead >> average >> overall;
  return words ? overall : 0;
}

}  // namespace

Sample MeasureUcxPerftest(uint64_t block_bytes, double seconds) {
  const double guessed_bytes_per_s = 8e9;
  const auto iterations = uint64_t(std::max(50.0, seconds * guessed_bytes_per_s / double(block_bytes)));
  const std::vector<std::pair<std::string, std::string>> environment = {{"UCX_TLS", "posix,cma,self"},
                                                                        {"UCX_WARN_UNUSED_ENV_VARS", "n"}};
  for (int attempt = 0; attempt < 5; ++attempt) {
    const std::string port = std::to_string(testing::FreePort());
    const pid_t server = Spawn({.argv = {"ucx_perftest", "-p", port}, .environment = environment});
    usleep(100'000);
    const std::string output =
        OutputOf({.argv = {"ucx_perftest", "127.0.0.1", "-p", port, "-t", "ucp_am_bw", "-f", "-s",
                           std::to_string(block_bytes), "-n", std::to_string(iterations), "-w", "50"},
                  .environment = environment},
                 60'000);
    End(server, 200);
    const double mib_per_s = MibPerSecond(output);
    if (mib_per_s > 0) return {.value = mib_per_s * 1048576 * 1e-9, .detail = "ucp_am_bw, posix and cma"};
  }
  return {.error = "ucx_perftest did not run (package ucx-utils)"};
}

}  // namespace larder::bench
