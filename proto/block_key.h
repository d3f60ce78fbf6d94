// What a block is called: identity -> namespace, chain hash, group, rectangle.
//
// design.md section 3 and formats.md "Names and numbers" are the source; the golden vectors are in
// tests/unit/proto/vectors. Nothing here depends on the machine, the language or the environment.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/bytes.h"
#include "proto/status.h"

namespace larder {

using Digest = std::array<std::byte, 32>;  // SHA-256

Digest Sha256(ByteView bytes);
std::string ToHex(ByteView bytes);                         // lower case
Status FromHex(std::string_view text, Digest* out);        // 64 hex digits, either case

// Covers all tokens up to the block's end. Engines bring their own (vLLM, SGLang: SHA-256).
struct ChainHash {
  Digest bytes{};
  auto operator<=>(const ChainHash&) const = default;
};

// SHA-256 over identity digest and tenant.
struct Namespace {
  Digest bytes{};
  auto operator<=>(const Namespace&) const = default;
};

// The part grid of a namespace: a payload is `[layer][head group][K/V][head][token][dim]`, packed.
// An opaque namespace (files, foreign names) has one part of any size.
struct Grid {
  uint16_t layers = 1;
  uint16_t head_groups = 1;
  auto operator<=>(const Grid&) const = default;
};

// A rectangle of layers x head groups, half open. Pieces are written by rectangle, reads ask for one;
// 1x1 is one part. The unit is the head group, so every rectangle is aligned to parts by construction.
struct Rectangle {
  uint16_t layer_begin = 0;
  uint16_t layer_end = 1;
  uint16_t head_begin = 0;
  uint16_t head_end = 1;

  uint32_t parts() const { return uint32_t(layer_end - layer_begin) * uint32_t(head_end - head_begin); }
  bool valid() const { return layer_begin < layer_end && head_begin < head_end; }
  bool Contains(const Rectangle& other) const {
    return layer_begin <= other.layer_begin && other.layer_end <= layer_end &&
           head_begin <= other.head_begin && other.head_end <= head_end;
  }
  bool Contains(uint16_t layer, uint16_t head) const {
    return layer_begin <= layer && layer < layer_end && head_begin <= head && head < head_end;
  }
  // Position of a part in this rectangle's packed order (layer-major).
  uint32_t PartIndex(uint16_t layer, uint16_t head) const {
    return uint32_t(layer - layer_begin) * uint32_t(head_end - head_begin) + uint32_t(head - head_begin);
  }
  auto operator<=>(const Rectangle&) const = default;
};

inline Rectangle WholeOf(const Grid& grid) { return {0, grid.layers, 0, grid.head_groups}; }

// What makes two caches interchangeable. TP, PP and context-parallel coordinates are not in it.
// Canonical text: one `name=value` line a field, names sorted bytewise, `\n` ended, values
// percent-encoded (everything outside [A-Za-z0-9._:/+-]); empty fields are left out. The digest is
// SHA-256 of that text. Known names, all optional but `kind`:
//   kind            "kv" or "opaque"
//   model           model name, for people           weights_digest  of the weights' index or headers
//   weights_epoch   raised when an engine reloads    weights_quant   weight quantisation
//   kv_dtype        "bf16", "fp8_e4m3", ...          kv_scales       digest of scales, if any
//   attention       "mha", "gqa", "mqa", "mla"       kv_heads, head_dim, layers, block_tokens: numbers
//   head_groups     parts a layer; default gcd(kv_heads, 8), 1 for mla (see GridOf)
//   draft_layers    layers of a draft model          rope            overrides
//   layout          in-block layout and packing      hash            algorithm of the chain hash
//   lora            adapter's digest                 engine_layout   engine layout version
// Further names are kept as they are: unknown is different, never ignored.
class Identity {
 public:
  // Name: [a-z][a-z0-9_]{0,63}; value: at most 1,024 bytes. An empty value removes the field.
  Status Set(std::string_view name, std::string_view value);
  std::string_view Get(std::string_view name) const;  // empty when absent
  std::string CanonicalText() const;                  // at most 16 KiB
  static Result<Identity> Parse(std::string_view canonical_text);  // refuses what is not canonical
  // `kind` is known, numbers are numbers, hash algorithm is cryptographic (sha256, sha256_cbor, sha256_64bit
  // is not) unless allow_weak_hash.
  Status Validate(bool allow_weak_hash = false) const;
  Digest digest() const;
  const std::map<std::string, std::string>& fields() const { return fields_; }

 private:
  std::map<std::string, std::string> fields_;
};

inline constexpr size_t kIdentityBytesMax = 16 * 1024;
inline constexpr size_t kTenantBytesMax = 128;

Result<Grid> GridOf(const Identity& identity);

// SHA-256("larder namespace 1\n" + identity digest + u32 tenant length + tenant + u32 salt length + salt).
Namespace NamespaceOf(const Identity& identity, std::string_view tenant, std::string_view salt);

// The token-level chain hash for callers without one of their own:
// h(i) = SHA-256("larder chain 1\n" + h(i-1) + u32 count + count x u32 token), h(-1) = 32 zero bytes.
// Whole blocks only: tokens.size() / block_tokens hashes.
std::vector<ChainHash> ChainHashes(std::span<const uint32_t> tokens, uint32_t block_tokens);

// One step of a chain from bytes of any kind (files, generators): SHA-256("larder link 1\n" + parent + bytes).
ChainHash NextLink(const ChainHash& parent, ByteView bytes);

}  // namespace larder
