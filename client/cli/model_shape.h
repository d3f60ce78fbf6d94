// What of a model decides the size of its KV cache: from a Hugging Face config.json, or by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace larder::cli {

// "gqa": fewer KV heads than query heads. "mla": one latent and one rope key a token and layer.
enum class Attention : uint8_t { kMha, kGqa, kMqa, kMla };
std::string_view AttentionName(Attention attention);

struct ModelShape {
  std::string name;  // for people
  Attention attention = Attention::kMha;
  uint32_t layers = 0;         // that keep keys and values of every token (full attention)
  uint32_t window_layers = 0;  // that look back `window_tokens` only
  uint32_t window_tokens = 0;
  uint32_t state_layers = 0;                             // recurrent ones: no bytes a token
  uint32_t query_heads = 0, kv_heads = 0, head_dim = 0;  // unused by MLA
  uint32_t latent_dim = 0, rope_dim = 0;                 // MLA
  std::string dtype;                                     // of the weights' file: "bf16", ...; empty: not said
  // Bits an element when the model's own paper says how it is deployed; 0: as its dtype.
  uint32_t deployed_bits = 0;
  std::string source;  // what the figures of a named model come from

  uint32_t kv_layers() const { return layers + window_layers; }
  // Of one token in one layer: 2 x kv_heads x head_dim, or latent + rope.
  uint64_t elements_per_layer() const;
  uint64_t elements_per_token() const { return elements_per_layer() * kv_layers(); }
  std::string Describe() const;  // "80 layers x 2 x 8 KV heads x 128"
};

// Text of a config.json. kInvalid names the field that is missing or senseless.
Result<ModelShape> ShapeFromConfig(std::string_view json_text);
Result<ModelShape> ShapeFromConfigFile(const std::string& path);

// "llama-3-70b", any case; kNotFound suggests the nearest.
Result<ModelShape> NamedShape(std::string_view name);
std::vector<ModelShape> NamedShapes();

// Bits of an element: "bf16" 16, "fp8" 8, "int4" 4, "float32" 32 ...
Result<uint32_t> DtypeBits(std::string_view dtype);

}  // namespace larder::cli
