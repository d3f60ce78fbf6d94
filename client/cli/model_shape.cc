// A model's shape out of its config.json. Field names differ between model families; each is looked up under
// all its names.
#include "client/cli/model_shape.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>

namespace larder::cli {
namespace {

using nlohmann::json;

constexpr size_t kConfigBytesMax = 16 << 20;
constexpr uint64_t kElementsMax = 1ull << 28;  // a token; the largest models have about 10 million

const json* Find(const json& config, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto it = config.find(name);
    if (it != config.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

// 0 when absent. A senseless value is an error.
Result<uint32_t> Number(const json& config, std::initializer_list<const char*> names) {
  const json* value = Find(config, names);
  if (value == nullptr) return uint32_t{0};
  if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > 10'000'000) {
    return Invalid(std::string("\"") + *names.begin() + "\" is " + value->dump().substr(0, 40) +
                   ", not a number from 1 to 10000000");
  }
  return static_cast<uint32_t>(value->get<int64_t>());
}

// 0 for everything that is no positive number: fields that say "none" as 0, -1 or null.
uint32_t NumberOr0(const json& config, std::initializer_list<const char*> names) {
  const Result<uint32_t> number = Number(config, names);
  return number.ok() ? number.value() : 0;
}

bool Flag(const json& config, const char* name, bool otherwise = false) {
  const json* value = Find(config, {name});
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

std::string Text(const json& config, std::initializer_list<const char*> names) {
  const json* value = Find(config, names);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

// Multimodal models keep the language model's fields one level down.
const json& LanguageModel(const json& config) {
  const json* part = &config;
  for (int depth = 0; depth < 3; depth++) {
    if (Find(*part, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"}) != nullptr) break;
    const json* inner =
        Find(*part, {"text_config", "llm_config", "language_config", "thinker_config", "llm"});
    if (inner == nullptr || !inner->is_object()) break;
    part = inner;
  }
  return *part;
}

#define SET(field, ...)                                  \
  do {                                                   \
    const Result<uint32_t> number = Number(__VA_ARGS__); \
    if (!number.ok()) return number.status();            \
    field = number.value();                              \
  } while (false)

// Sorts `count` layers into full, window and state by what the config says about each.
Status CountLayers(const json& config, uint32_t count, ModelShape* shape) {
  shape->layers = count;
  const json* list = Find(config, {"layer_types", "layers_block_type"});
  uint32_t window = 0;
  const bool windows_off =
      !Flag(config, "use_sliding_window", Text(config, {"model_type"}).rfind("qwen", 0) != 0);
  if (!windows_off || list != nullptr) window = NumberOr0(config, {"sliding_window", "sliding_window_size"});
  if (list != nullptr && list->is_array()) {
    shape->layers = 0;
    for (const json& each : *list) {
      const std::string kind = each.is_string() ? each.get<std::string>() : "";
      const bool slides = kind.find("sliding") != kind.npos || kind.find("chunked") != kind.npos;
      if (slides && window != 0)
        shape->window_layers++;
      else if (kind.find("attention") != kind.npos && kind.find("linear") == kind.npos)
        shape->layers++;
      else
        shape->state_layers++;
    }
    if (list->size() != count) {
      return Invalid("\"layer_types\" names " + std::to_string(list->size()) +
                     " layers, \"num_hidden_layers\" " + std::to_string(count));
    }
  } else if (const std::string pattern = Text(config, {"hybrid_override_pattern"}); !pattern.empty()) {
    shape->layers = static_cast<uint32_t>(std::count(pattern.begin(), pattern.end(), '*'));
    shape->state_layers = static_cast<uint32_t>(std::count(pattern.begin(), pattern.end(), 'M'));
  } else if (Find(config, {"attn_layer_period"}) != nullptr) {
    uint32_t period = 0;
    SET(period, config, {"attn_layer_period"});
    const uint32_t offset = NumberOr0(config, {"attn_layer_offset"});
    shape->layers = offset < count ? (count - offset - 1) / period + 1 : 0;
    shape->state_layers = count - shape->layers;
  } else if (window != 0 && !windows_off) {
    uint32_t every = NumberOr0(config, {"sliding_window_pattern"});
    const uint32_t positions = NumberOr0(config, {"max_position_embeddings"});
    if (every == 0 && Text(config, {"model_type"}) == "gemma2") every = 2;
    if (positions == 0 || window < positions) {  // every so-manieth layer is full; without a pattern none is
      shape->layers = every == 0 ? 0 : count / every;
      shape->window_layers = count - shape->layers;
    }
  }
  shape->window_tokens = shape->window_layers == 0 ? 0 : window;
  return Status::Ok();
}

Status ReadHeads(const json& config, ModelShape* shape) {
  uint32_t hidden = 0;
  SET(hidden, config, {"hidden_size", "n_embd", "d_model", "model_dim"});
  SET(shape->query_heads, config, {"num_attention_heads", "n_head", "n_heads", "num_heads"});
  if (shape->query_heads == 0) return Invalid("it has no \"num_attention_heads\"");
  const json* inner = Find(config, {"attn_config", "ffn_config"});
  SET(shape->kv_heads, config, {"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"});
  if (shape->kv_heads == 0 && inner != nullptr && inner->is_object())
    SET(shape->kv_heads, *inner, {"kv_n_heads"});
  if (Flag(config, "multi_query_attention")) SET(shape->kv_heads, config, {"multi_query_group_num"});
  // Falcon's older architecture and GPT-BigCode share one head whatever else they say.
  if (Flag(config, "multi_query") && !Flag(config, "new_decoder_architecture")) shape->kv_heads = 1;
  if (shape->kv_heads == 0) shape->kv_heads = shape->query_heads;
  SET(shape->head_dim, config, {"head_dim", "kv_channels", "attention_head_dim"});
  if (shape->head_dim == 0) {
    if (hidden == 0) return Invalid("it has neither \"head_dim\" nor \"hidden_size\"");
    if (hidden % shape->query_heads != 0) {
      return Invalid("\"hidden_size\" " + std::to_string(hidden) +
                     " is no multiple of \"num_attention_heads\" " + std::to_string(shape->query_heads));
    }
    shape->head_dim = hidden / shape->query_heads;
  }
  if (shape->kv_heads > shape->query_heads) {
    return Invalid("\"num_key_value_heads\" " + std::to_string(shape->kv_heads) +
                   " is above \"num_attention_heads\" " + std::to_string(shape->query_heads));
  }
  shape->attention = shape->kv_heads == shape->query_heads ? Attention::kMha
                     : shape->kv_heads == 1                ? Attention::kMqa
                                                           : Attention::kGqa;
  return Status::Ok();
}

}  // namespace

std::string_view AttentionName(Attention attention) {
  switch (attention) {
    case Attention::kMha:
      return "mha";
    case Attention::kGqa:
      return "gqa";
    case Attention::kMqa:
      return "mqa";
    case Attention::kMla:
      return "mla";
  }
  return "";
}

uint64_t ModelShape::elements_per_layer() const {
  if (attention == Attention::kMla) return uint64_t{latent_dim} + rope_dim;
  return uint64_t{2} * kv_heads * head_dim;
}

std::string ModelShape::Describe() const {
  std::string out = std::to_string(kv_layers()) + " layers x ";
  if (attention == Attention::kMla) {
    out += "(" + std::to_string(latent_dim) + " latent + " + std::to_string(rope_dim) + " rope)";
  } else {
    out += "2 x " + std::to_string(kv_heads) + (kv_heads == 1 ? " KV head x " : " KV heads x ") +
           std::to_string(head_dim);
  }
  if (window_layers != 0) {
    out += ", " + std::to_string(window_layers) + " of them with a window of " +
           std::to_string(window_tokens) + " tokens";
  }
  if (state_layers != 0)
    out += ", beside " + std::to_string(state_layers) + " layers without keys and values";
  return out;
}

Result<ModelShape> ShapeFromConfig(std::string_view json_text) {
  const json root = json::parse(json_text, nullptr, false);
  if (root.is_discarded() || !root.is_object()) return Invalid("that is no JSON object");
  const json& config = LanguageModel(root);
  ModelShape shape;
  shape.name = Text(root, {"_name_or_path", "model_type"});
  shape.dtype = Text(config, {"torch_dtype", "dtype"});
  if (shape.dtype.empty()) shape.dtype = Text(root, {"torch_dtype", "dtype"});
  if (shape.dtype == "auto") shape.dtype.clear();
  if (Flag(root, "is_encoder_decoder")) {
    return Status(Code::kUnsupported, "it is an encoder-decoder model; its two caches are not known here");
  }
  uint32_t count = 0;
  SET(count, config, {"num_hidden_layers", "n_layer", "n_layers", "num_layers"});
  if (count == 0) return Invalid("it has no \"num_hidden_layers\"");
  LARDER_RETURN_IF_ERROR(CountLayers(config, count, &shape));
  SET(shape.latent_dim, config, {"kv_lora_rank"});
  if (shape.latent_dim != 0 && Flag(config, "use_mla", true)) {
    shape.attention = Attention::kMla;
    SET(shape.rope_dim, config, {"qk_rope_head_dim"});
    if (shape.rope_dim == 0) return Invalid("it has \"kv_lora_rank\" and no \"qk_rope_head_dim\"");
  } else {
    shape.latent_dim = 0;
    LARDER_RETURN_IF_ERROR(ReadHeads(config, &shape));
  }
  if (shape.kv_layers() == 0) return Status(Code::kUnsupported, "it has no layer that keeps keys and values");
  if (shape.elements_per_token() > kElementsMax) return Invalid("its numbers are too large for a model");
  return shape;
}

Result<ModelShape> ShapeFromConfigFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Invalid("cannot open " + path + ": " + std::strerror(errno));
  std::string text(kConfigBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  if (text.empty()) return Invalid("cannot read " + path + ": it is empty, or no file");
  if (text.size() > kConfigBytesMax) return Invalid(path + " is larger than 16 MiB; that is no config.json");
  Result<ModelShape> shape = ShapeFromConfig(text);
  if (!shape.ok()) return Status(shape.status().code(), path + ": " + shape.status().text());
  if (shape->name.empty()) shape->name = path;
  return shape;
}

Result<uint32_t> DtypeBits(std::string_view dtype) {
  struct Row {
    std::string_view name;
    uint32_t bits;
  };
  static constexpr Row kRows[] = {{"fp32", 32},       {"float32", 32}, {"float", 32},   {"bf16", 16},
                                  {"bfloat16", 16},   {"fp16", 16},    {"float16", 16}, {"half", 16},
                                  {"fp8", 8},         {"fp8_e4m3", 8}, {"fp8_e5m2", 8}, {"float8_e4m3fn", 8},
                                  {"float8_e5m2", 8}, {"int8", 8},     {"fp4", 4},      {"int4", 4}};
  for (const Row& row : kRows) {
    if (row.name == dtype) return row.bits;
  }
  return Invalid("dtype \"" + std::string(dtype) +
                 "\" is not known; use fp32, bf16, fp16, fp8, int8, fp4 or int4, or --bits");
}

}  // namespace larder::cli
