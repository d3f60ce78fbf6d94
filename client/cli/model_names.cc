// Models by name: the figures of their own config.json files and papers.
#include <algorithm>

#include "client/cli/model_shape.h"

namespace larder::cli {
namespace {

struct Row {
  const char* name;
  uint32_t layers, query_heads, kv_heads, head_dim;
  const char* dtype = "bf16";
  uint32_t window_layers = 0, window_tokens = 0;  // of `layers`
  const char* source = "";
};

constexpr Row kRows[] = {
    {"opt-6.7b", 32, 32, 32, 128, "fp16"},
    {"opt-13b", 40, 40, 40, 128, "fp16", 0, 0,
     "the vLLM paper (SOSP'23) says 800 KB a token and 1.6 GB at 2,048 tokens; its KB and GB are KiB and "
     "GiB"},
    {"opt-30b", 48, 56, 56, 128, "fp16"},
    {"opt-66b", 64, 72, 72, 128, "fp16"},
    {"opt-175b", 96, 96, 96, 128, "fp16"},
    {"llama-2-7b", 32, 32, 32, 128, "fp16"},
    {"llama-2-13b", 40, 40, 40, 128, "fp16"},
    {"llama-2-70b", 80, 64, 8, 128, "fp16"},
    {"llama-3-8b", 32, 32, 8, 128},
    {"llama-3-70b", 80, 64, 8, 128},
    {"llama-3.1-8b", 32, 32, 8, 128},
    {"llama-3.1-70b", 80, 64, 8, 128},
    {"llama-3.1-405b", 126, 128, 8, 128},
    {"llama-3.2-1b", 16, 32, 8, 64},
    {"llama-3.2-3b", 28, 24, 8, 128},
    {"llama-3.3-70b", 80, 64, 8, 128},
    {"qwen2.5-0.5b", 24, 14, 2, 64},
    {"qwen2.5-1.5b", 28, 12, 2, 128},
    {"qwen2.5-3b", 36, 16, 2, 128},
    {"qwen2.5-7b", 28, 28, 4, 128},
    {"qwen2.5-14b", 48, 40, 8, 128},
    {"qwen2.5-32b", 64, 40, 8, 128},
    {"qwen2.5-72b", 80, 64, 8, 128},
    {"qwen3-8b", 36, 32, 8, 128},
    {"qwen3-30b-a3b", 48, 32, 4, 128},
    {"qwen3-32b", 64, 64, 8, 128},
    {"qwen3-235b-a22b", 94, 64, 4, 128},
    {"mistral-7b", 32, 32, 8, 128},
    {"mixtral-8x7b", 32, 32, 8, 128},
    {"mixtral-8x22b", 56, 48, 8, 128},
    {"falcon-7b", 32, 71, 1, 64},
    {"gpt-oss-20b", 24, 64, 8, 64, "bf16", 12, 128},
    {"gpt-oss-120b", 36, 64, 8, 64, "bf16", 18, 128},
    {"deepseek-67b", 95, 64, 8, 128},
};

struct LatentRow {
  const char* name;
  uint32_t layers, latent_dim, rope_dim;
  uint32_t deployed_bits = 0;
  const char* source = "";
};

constexpr LatentRow kLatentRows[] = {
    {"deepseek-v2", 60, 512, 64, 6,
     "the DeepSeek-V2 paper says -93.3 % against DeepSeek 67B; it deploys V2's cache at 6 bits an element on "
     "average"},
    {"deepseek-v2-lite", 27, 512, 64},
    {"deepseek-v3", 61, 512, 64},
    {"deepseek-r1", 61, 512, 64},
    {"kimi-k2", 61, 512, 64},
};

}  // namespace

std::vector<ModelShape> NamedShapes() {
  std::vector<ModelShape> out;
  for (const Row& row : kRows) {
    ModelShape shape;
    shape.name = row.name;
    shape.attention = row.kv_heads == row.query_heads ? Attention::kMha
                      : row.kv_heads == 1             ? Attention::kMqa
                                                      : Attention::kGqa;
    shape.layers = row.layers - row.window_layers;
    shape.window_layers = row.window_layers;
    shape.window_tokens = row.window_tokens;
    shape.query_heads = row.query_heads;
    shape.kv_heads = row.kv_heads;
    shape.head_dim = row.head_dim;
    shape.dtype = row.dtype;
    shape.source = row.source;
    out.push_back(std::move(shape));
  }
  for (const LatentRow& row : kLatentRows) {
    ModelShape shape;
    shape.name = row.name;
    shape.attention = Attention::kMla;
    shape.layers = row.layers;
    shape.latent_dim = row.latent_dim;
    shape.rope_dim = row.rope_dim;
    shape.dtype = "bf16";
    shape.deployed_bits = row.deployed_bits;
    shape.source = row.source;
    out.push_back(std::move(shape));
  }
  return out;
}

Result<ModelShape> NamedShape(std::string_view name) {
  std::string
      lower;  // letters, digits and points only: "Llama-3-70B", "llama 3 70b" and "meta/Llama_3-70b" meet
  for (const char c : name.substr(name.rfind('/') == name.npos ? 0 : name.rfind('/') + 1)) {
    if (c >= 'A' && c <= 'Z')
      lower += static_cast<char>(c - 'A' + 'a');
    else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.')
      lower += c;
  }
  std::string close;
  for (ModelShape& shape : NamedShapes()) {
    std::string plain = shape.name;
    std::erase(plain, '-');
    if (plain == lower) return std::move(shape);
    const bool near = lower.size() >= 3 && plain.compare(0, 3, lower, 0, 3) == 0;
    if (near) close += (close.empty() ? "" : ", ") + shape.name;
  }
  return Status(Code::kNotFound,
                "no model is called \"" + std::string(name) + "\" here; " +
                    (close.empty() ? "larderctl sizing --list names all" : "there are " + close) +
                    "; any other works by --config, its config.json");
}

}  // namespace larder::cli
