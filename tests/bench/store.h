// What the legs share on the client's side: opening, keys, filling a node, the loops that get and put.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/bench/leg.h"
#include "tests/bench/node_process.h"

namespace larder::bench {

struct Store {
  std::unique_ptr<Client> client;
  NamespaceHandle name_space;
};

// nullptr client with a sentence in `error` when it can't be opened.
Store OpenStore(const std::string& data_address, const std::string& transport, bool verify,
                std::string* error);

// The chain hash of block `index` in family `family`.
ChainHash HashOf(uint64_t family, uint64_t index);
// What block `index` holds.
void FillBlock(std::byte* data, size_t bytes, uint64_t index);
bool IsBlock(const std::byte* data, size_t bytes, uint64_t index);

// Puts blocks [0, count) of `family`. False with a sentence in `error`.
bool FillNode(Store* store, uint64_t family, uint64_t block_bytes, uint64_t count, std::string* error);

// Where a loop's batches land or come from.
struct BatchMemory {
  std::byte* data = nullptr;
  size_t bytes = 0;  // of one batch
};

struct LoopOptions {
  uint64_t family = 0;  // of gets
  uint64_t block_bytes = 0;
  uint64_t resident_blocks = 0;  // gets walk over them in order
  uint64_t* cursor = nullptr;    // next block to get, or next key to put: goes on from loop to loop
  double seconds = 0.5;
  pid_t node_pid = -1;
  CallOptions call;
};

Sample GetLoop(Store* store, const LoopOptions& options, BatchMemory memory);
// Two batches in flight through the asynchronous calls.
Sample GetStreamLoop(Store* store, const LoopOptions& options, BatchMemory first, BatchMemory second);
Sample PutLoop(Store* store, const LoopOptions& options, BatchMemory memory);

}  // namespace larder::bench
