// The limit beside the tcp legs: what plain blocking sockets move between two processes on this machine.
//
// Written for the bench, with everything that makes it fast and nothing that a store needs: a thread for each
// connection on both sides, socket buffers fixed at 256 KiB, blocks out of (into) a region as large as the
// node's resident set, receives in steps of 1 MiB with MSG_WAITALL, no framing but a fixed request, no
// checksums.
#pragma once

#include <sys/types.h>

#include <memory>

#include "tests/bench/measure.h"

namespace larder::bench {

enum class RawVerb : uint32_t {
  kGet = 1,   // the answer is the batch's blocks
  kPut = 2,   // the request carries the blocks, the answer is one byte
  kEcho = 3,  // a request and an answer of given sizes: what a match moves
};

struct RawOptions {
  RawVerb verb = RawVerb::kGet;
  int connections = 1;
  uint64_t block_bytes = 1 << 20;
  uint32_t blocks = 16;        // a batch
  bool one_batch = false;      // one batch in all at a time, divided over the connections
  bool stream = false;         // gets only: the next request is on its way before the answer is read
  uint64_t request_bytes = 0;  // kEcho
  uint64_t answer_bytes = 0;   // kEcho
  double seconds = 0.5;
};

// The serving side, a process of its own. Make it before this process has threads.
class RawServer {
 public:
  static std::unique_ptr<RawServer> Start(uint64_t working_set_bytes);
  ~RawServer();  // ends the process and waits for it
  int port() const { return port_; }
  pid_t pid() const { return pid_; }
  uint64_t working_set_bytes() const { return working_set_bytes_; }

 private:
  RawServer() = default;
  pid_t pid_ = -1;
  int port_ = 0;
  uint64_t working_set_bytes_ = 0;
};

// One measurement. kEcho: `value` is the median round trip in microseconds.
Sample MeasureRaw(const RawServer& server, const RawOptions& options);

// The best of 1, 2 and 4 connections, `options.seconds` each.
Sample MeasureRawBest(const RawServer& server, RawOptions options);

namespace raw {

inline constexpr int kSocketBytes = 256 * 1024;
inline constexpr size_t kStepBytes = 1 << 20;

struct Request {
  RawVerb verb = RawVerb::kGet;
  uint32_t blocks = 0;
  uint64_t block_bytes = 0;
  uint64_t first_block = 0;   // in the server's region, modulo its size
  uint64_t answer_bytes = 0;  // kEcho
};

// All or nothing; false when the peer has gone.
bool SendAll(int fd, const void* data, size_t bytes);
bool ReceiveAll(int fd, void* data, size_t bytes);
void SetBuffers(int fd);

// The serving process; never returns.
[[noreturn]] void Serve(int listener, uint64_t working_set_bytes);

}  // namespace raw
}  // namespace larder::bench
