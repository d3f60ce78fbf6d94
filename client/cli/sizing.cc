#include "client/cli/sizing.h"

#include <algorithm>

namespace larder::cli {
namespace {

constexpr uint64_t kTokensMax = 100'000'000;

uint64_t BitsToBytes(uint64_t elements, uint32_t bits) {
  return (elements * bits + 7) / 8;
}

}  // namespace

Result<Sizing> SizeOf(const ModelShape& shape, const SizingRequest& request) {
  if (request.tokens == 0 || request.tokens > kTokensMax) return Invalid("--tokens is 1..100000000");
  if (request.block_tokens == 0 || request.block_tokens > 1'000'000)
    return Invalid("--block-tokens is 1..1000000");
  if (request.tp == 0 || request.tp > 1024) return Invalid("--tp is 1..1024");
  const bool split_heads = shape.attention != Attention::kMla;
  if (split_heads && request.tp > 1) {
    const bool even =
        request.tp <= shape.kv_heads ? shape.kv_heads % request.tp == 0 : request.tp % shape.kv_heads == 0;
    if (!even) {
      return Invalid("--tp " + std::to_string(request.tp) + " does not divide the model's " +
                     std::to_string(shape.kv_heads) + " KV heads evenly");
    }
  }
  Sizing out;
  out.bits = request.bits;
  if (out.bits == 0 && !shape.dtype.empty()) {
    const Result<uint32_t> bits = DtypeBits(shape.dtype);
    if (!bits.ok()) return bits.status();
    out.bits = bits.value();
  }
  if (out.bits == 0) {
    out.bits = 16;
    out.assumed_dtype = true;
  }
  const uint64_t elements = shape.elements_per_token();
  out.bytes_per_token = BitsToBytes(elements, out.bits);
  out.bytes_per_layer = BitsToBytes(shape.elements_per_layer(), out.bits);
  out.block_bytes = BitsToBytes(elements * request.block_tokens, out.bits);
  out.bytes = BitsToBytes(elements * request.tokens, out.bits);
  const uint64_t window = std::min<uint64_t>(request.tokens, shape.window_tokens);
  out.window_bytes = BitsToBytes(
      shape.elements_per_layer() * (shape.layers * request.tokens + shape.window_layers * window), out.bits);
  // A rank has its heads and at least one; the latent of MLA is on every rank.
  const uint64_t ranks_that_split = split_heads ? std::min(request.tp, shape.kv_heads) : 1;
  out.rank_bytes_per_token = BitsToBytes(elements / ranks_that_split, out.bits);
  out.store_bytes_per_token = out.bytes_per_token;
  if (request.memory_bytes != 0) {
    out.fit_blocks = request.memory_bytes / std::max<uint64_t>(out.block_bytes, 1);
    out.fit_tokens = out.fit_blocks * request.block_tokens;
    const uint64_t blocks_of_context = (request.tokens + request.block_tokens - 1) / request.block_tokens;
    out.fit_contexts = out.fit_blocks / blocks_of_context;
  }
  return out;
}

double ChangePercent(uint64_t from, uint64_t to) {
  return from == 0 ? 0 : (static_cast<double>(to) / static_cast<double>(from) - 1) * 100;
}

}  // namespace larder::cli
