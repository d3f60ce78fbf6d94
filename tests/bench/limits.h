// The limits that legs are compared with, by name:
//   sockets           one batch of 16 blocks at a time, request and response, carried by 1, 2 or 4 raw
//                     connections: the best of the three
//   sockets-stream    the same connections, each with its own batch, the next request on its way before the
//   answer
//                     is read
//   sockets-parallel  1, 2 or 4 connections, each with its own batch: as many batches at a time
//   copy              memcpy and CRC-32C in steps of 64 KiB, one thread, from (or into) a region as large as
//   the
//                     node's resident set into (or out of) one batch
//   ucx_perftest      UCX's own benchmark: active messages over its shared memory
#pragma once

#include <string>

#include "tests/bench/leg.h"
#include "tests/bench/raw_sockets.h"

namespace larder::bench {

enum class Direction { kGet, kPut };

// Starts the raw server, which serves until the program ends. Before this process has threads or sockets: the
// server is a fork that would keep them open.
void PrepareSockets(const Options& options);

// `which` is one of the first three names.
Sample MeasureSockets(const std::string& which, Direction direction, uint64_t block_bytes,
                      const Options& options, double seconds);
// Round trip of `request_bytes` and `answer_bytes` over one raw connection.
Sample MeasureEcho(uint64_t request_bytes, uint64_t answer_bytes, const Options& options, double seconds);
Sample MeasureCopy(Direction direction, uint64_t block_bytes, const Options& options, double seconds);
Sample MeasureUcxPerftest(uint64_t block_bytes, double seconds);

}  // namespace larder::bench
