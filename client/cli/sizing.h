// How large a model's KV cache is: a token, a block, a context; how many fit. Whole numbers, no I/O.
#pragma once

#include <cstdint>
#include <string>

#include "client/cli/model_shape.h"
#include "proto/status.h"

namespace larder::cli {

struct SizingRequest {
  uint32_t bits = 0;       // an element; 0: the model's dtype, else 16
  uint64_t tokens = 2048;  // of a context
  uint32_t block_tokens = 16;
  uint32_t tp = 1;            // tensor-parallel ranks
  uint64_t memory_bytes = 0;  // 0: don't ask what fits
};

struct Sizing {
  uint32_t bits = 0;
  bool assumed_dtype = false;    // neither asked for nor in the config: 16 bits
  uint64_t bytes_per_token = 0;  // rounded up where bits make fractions
  uint64_t bytes_per_layer = 0;  // of a token
  uint64_t block_bytes = 0;
  uint64_t bytes = 0;                  // of the context, every token in every layer
  uint64_t window_bytes = 0;           // what a decode needs of it: window layers only their window
  uint64_t rank_bytes_per_token = 0;   // what one rank holds; MLA and few heads are held by every rank
  uint64_t store_bytes_per_token = 0;  // what Larder keeps: each head once
  uint64_t fit_tokens = 0, fit_blocks = 0, fit_contexts = 0;
};

Result<Sizing> SizeOf(const ModelShape& shape, const SizingRequest& request);

// Change from `from` to `to` in percent: -93.3 says that `to` is 6.7 % of `from`.
double ChangePercent(uint64_t from, uint64_t to);

}  // namespace larder::cli
