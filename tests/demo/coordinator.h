// The coordinator: starts a prefill and a decode process, hands both each request in the order of arrival, a
// few at a time, and adds up what they report.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/demo/report.h"
#include "tests/demo/worker.h"
#include "tests/demo/workload.h"

namespace larder::demo {

struct PlayOptions {
  std::string program;  // this one, for the workers
  WorkerOptions worker;
  double speed = 0;     // of the workload's clock; 0: as fast as it goes
  uint32_t window = 4;  // requests that prefill may be ahead of decode
};

// Plays `requests` and returns what came of them. `stop` is asked often: true ends the play early. Workers
// are gone when it returns. A failure (a worker that died) stands in Totals::failure.
Totals Play(const PlayOptions& options, const std::vector<Request>& requests, const Ideal& ideal,
            const std::function<bool()>& stop);

}  // namespace larder::demo
