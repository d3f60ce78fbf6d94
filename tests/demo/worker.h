// The prefill and the decode process. Each reads requests from standard input, one JSON object a line, serves
// them in order, and writes one result a line to standard output:
//
//   prefill   in   {"id": 7, "blocks": [0, 12, 13]}
//             out  {"id": 7, "hit": 1, "tiers": {"ram": 1}, "put": 2, "put_bytes": .., "not_stored": {"full":
//             1},
//                   "match_us": .., "put_us": ..}
//   decode    in   the same
//             out  {"id": 7, "pulled": 3, "bytes": .., "tiers": {"ram": 2, "ssd": 1}, "missed": {"evicted":
//             1},
//                   "wrong_bytes": 0, "wait_us": .., "pull_us": [one number a batch], "peers": {"shm": 3}}
//             in   {"prefilled": 7}, at any time: all that prefill puts of request 7 has been put
//
// The first line out is {"ready": true}. They end when standard input does, and leave signals of the terminal
// to the coordinator.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"

namespace larder::demo {

struct WorkerOptions {
  std::vector<std::string> nodes;  // seeds
  std::string transport = "auto";
  uint64_t block_bytes = 1 << 20;
  uint64_t seed = 1;
};

// Exit code; on failure a sentence on standard error.
int RunPrefill(const WorkerOptions& options);
int RunDecode(const WorkerOptions& options);

// What all have: a client, the demo's namespace, how many blocks a batch has.
struct Larder {
  std::unique_ptr<Client> client;
  NamespaceHandle name_space;
  uint32_t batch_blocks = 1;
};
// `ready`: writes the line that says so.
Result<Larder> OpenLarder(const WorkerOptions& options, const std::string& name, bool ready = true);

struct Job {
  uint64_t id = 0;
  std::vector<uint64_t> blocks;
  std::vector<ChainHash> chain;
};

// What the coordinator writes to standard input.
class Jobs {
 public:
  explicit Jobs(const WorkerOptions& options) : options_(options) {}
  // Waits for the next one; false at the end of the input.
  bool Next(Job* job);
  // Whether the coordinator has said so by now.
  bool IsPrefilled(uint64_t id);

 private:
  // Takes in what is there, after at most timeout_ms (-1: however long); false at the end of the input.
  bool Read(int timeout_ms);
  void Take(const std::string& line);

  const WorkerOptions& options_;
  std::string text_;
  std::deque<Job> jobs_;
  uint64_t prefilled_ = 0;  // requests, in order
};

}  // namespace larder::demo
