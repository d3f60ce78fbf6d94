// Kills a node (or rather, has it killed), and looks at what it still has when it is back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/demo/report.h"
#include "tests/demo/worker.h"
#include "tests/demo/workload.h"

namespace larder::demo {

struct RecoveryOptions {
  WorkerOptions worker;
  std::string node;  // id
  // Written with the node's id in it when the node shall die; whoever started the nodes kills this one with
  // -9, starts it again, and removes the file.
  std::string request_path;
};

// Counts which of the requests' blocks the node has, asks for its death, and pulls and checks all of them
// when it is back. `stop` is asked often: true gives up.
Recovery KillAndRecall(const RecoveryOptions& options, const std::vector<Request>& requests,
                       const std::function<bool()>& stop);

}  // namespace larder::demo
