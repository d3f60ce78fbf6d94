// Sizing: what the literature says, every kind of attention, and configs that make no sense.
#include "client/cli/sizing.h"

#include <gtest/gtest.h>

#include <random>

#include "client/cli/model_shape.h"

namespace larder::cli {
namespace {

Sizing SizeOfNamed(const char* name, const SizingRequest& request = {}) {
  const Result<ModelShape> shape = NamedShape(name);
  EXPECT_TRUE(shape.ok()) << shape.status().text();
  const Result<Sizing> sizing = SizeOf(shape.value(), request);
  EXPECT_TRUE(sizing.ok()) << sizing.status().text();
  return sizing.value();
}

ModelShape Shape(std::string_view json) {
  const Result<ModelShape> shape = ShapeFromConfig(json);
  EXPECT_TRUE(shape.ok()) << json << ": " << shape.status().text();
  return shape.ok() ? shape.value() : ModelShape{};
}

TEST(Sizing, Opt13bIsWhatTheVllmPaperSays) {
  const Sizing sizing = SizeOfNamed("opt-13b");
  EXPECT_EQ(sizing.bytes_per_token, 800u * 1024);
  EXPECT_EQ(sizing.bytes, 2048u * 800 * 1024);
  EXPECT_NEAR(static_cast<double>(sizing.bytes) / (1 << 30), 1.6, 0.05);
  EXPECT_EQ(Shape(R"({"model_type":"opt","hidden_size":5120,"num_attention_heads":40,"num_hidden_layers":40,
                      "torch_dtype":"float16"})")
                    .elements_per_token() *
                2,
            800u * 1024);
}

TEST(Sizing, Llama3Of70bIs320KiB) {
  EXPECT_EQ(SizeOfNamed("Llama-3-70B").bytes_per_token, 320u * 1024);
}

TEST(Sizing, DeepSeekV2AgainstDeepSeek67bIsWhatItsPaperSays) {
  const uint64_t dense = SizeOfNamed("deepseek-67b").bytes_per_token;
  EXPECT_EQ(dense, 95u * 2 * 8 * 128 * 2);
  SizingRequest request;
  EXPECT_EQ(SizeOfNamed("deepseek-v2", request).bytes_per_token, 60u * 576 * 2);
  EXPECT_NEAR(ChangePercent(dense, SizeOfNamed("deepseek-v2", request).bytes_per_token), -82.2, 0.05);
  // The paper's figure is of its deployment: 6 bits an element on average, against 16.
  request.bits = NamedShape("deepseek-v2").value().deployed_bits;
  EXPECT_EQ(request.bits, 6u);
  EXPECT_NEAR(ChangePercent(dense, SizeOfNamed("deepseek-v2", request).bytes_per_token), -93.3, 0.05);
}

TEST(Sizing, NamesAreForgiving) {
  for (const char* name : {"llama-3-70b", "Llama 3 70B", "meta-llama/Llama-3-70B", "LLAMA_3_70b"}) {
    EXPECT_EQ(NamedShape(name).value().name, "llama-3-70b") << name;
  }
  const auto missing = NamedShape("llama-9-1b");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_NE(missing.status().text().find("llama-2-7b"), std::string::npos);
  for (const ModelShape& shape : NamedShapes()) {
    EXPECT_EQ(NamedShape(shape.name).value().name, shape.name);
    EXPECT_TRUE(SizeOf(shape, {}).ok()) << shape.name;
  }
}

struct ConfigCase {
  const char* what;
  const char* json;
  Attention attention;
  uint64_t elements_per_token;
};

TEST(ModelShape, ReadsTheConfigsOfManyFamilies) {
  const ConfigCase cases[] = {
      {"llama 3 8b",
       R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8})",
       Attention::kGqa, 32u * 2 * 8 * 128},
      {"llama 2 7b has null", R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
        "num_key_value_heads":null,"head_dim":null})",
       Attention::kMha, 32u * 2 * 32 * 128},
      {"head_dim wins over hidden/heads (gemma 7b)", R"({"hidden_size":3072,"num_attention_heads":16,
        "num_hidden_layers":28,"num_key_value_heads":16,"head_dim":256})",
       Attention::kMha, 28u * 2 * 16 * 256},
      {"gpt2", R"({"n_embd":768,"n_head":12,"n_layer":12})", Attention::kMha, 12u * 2 * 768},
      {"gpt-bigcode", R"({"n_embd":6144,"n_head":48,"n_layer":40,"multi_query":true})", Attention::kMqa,
       40u * 2 * 128},
      {"falcon 7b", R"({"hidden_size":4544,"num_attention_heads":71,"num_hidden_layers":32,"multi_query":true,
        "new_decoder_architecture":false})",
       Attention::kMqa, 32u * 2 * 64},
      {"falcon 40b", R"({"hidden_size":8192,"num_attention_heads":128,"num_hidden_layers":60,"num_kv_heads":8,
        "multi_query":true,"new_decoder_architecture":true})",
       Attention::kGqa, 60u * 2 * 8 * 64},
      {"chatglm",
       R"({"hidden_size":4096,"num_attention_heads":32,"num_layers":28,"multi_query_attention":true,
        "multi_query_group_num":2,"kv_channels":128})",
       Attention::kGqa, 28u * 2 * 2 * 128},
      {"dbrx", R"({"d_model":6144,"n_heads":48,"n_layers":40,"attn_config":{"kv_n_heads":8}})",
       Attention::kGqa, 40u * 2 * 8 * 128},
      {"deepseek v3", R"({"hidden_size":7168,"num_attention_heads":128,"num_key_value_heads":128,
        "num_hidden_layers":61,"kv_lora_rank":512,"qk_rope_head_dim":64})",
       Attention::kMla, 61u * 576},
      {"multimodal", R"({"model_type":"x","text_config":{"hidden_size":4096,"num_attention_heads":32,
        "num_hidden_layers":32,"num_key_value_heads":8}})",
       Attention::kGqa, 32u * 2 * 8 * 128},
      {"two levels down", R"({"thinker_config":{"text_config":{"hidden_size":4096,"num_attention_heads":32,
        "num_hidden_layers":32,"num_key_value_heads":8}}})",
       Attention::kGqa, 32u * 2 * 8 * 128},
      {"qwen2 with its window off", R"({"model_type":"qwen2","hidden_size":3584,"num_attention_heads":28,
        "num_hidden_layers":28,"num_key_value_heads":4,"sliding_window":131072,"use_sliding_window":false})",
       Attention::kGqa, 28u * 2 * 4 * 128},
      {"jamba keeps one layer in eight",
       R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,
        "num_key_value_heads":8,"attn_layer_period":8,"attn_layer_offset":4})",
       Attention::kGqa, 4u * 2 * 8 * 128},
      {"offset 0", R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":9,
        "num_key_value_heads":8,"attn_layer_period":8,"attn_layer_offset":0})",
       Attention::kGqa, 2u * 2 * 8 * 128},
      {"nemotron-h",
       R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":5,"num_key_value_heads":8,
        "hybrid_override_pattern":"M-M*-"})",
       Attention::kGqa, 1u * 2 * 8 * 128},
      {"linear attention",
       R"({"hidden_size":2048,"num_attention_heads":16,"num_hidden_layers":4,"head_dim":256,
        "num_key_value_heads":2,"layer_types":["linear_attention","linear_attention","linear_attention",
        "full_attention"]})",
       Attention::kGqa, 1u * 2 * 2 * 256},
  };
  for (const ConfigCase& each : cases) {
    const ModelShape shape = Shape(each.json);
    EXPECT_EQ(shape.attention, each.attention) << each.what;
    EXPECT_EQ(shape.elements_per_token(), each.elements_per_token) << each.what << ": " << shape.Describe();
  }
}

TEST(ModelShape, KnowsSlidingWindows) {
  const ModelShape listed =
      Shape(R"({"hidden_size":2880,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,
    "num_hidden_layers":4,"sliding_window":128,
    "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention"]})");
  EXPECT_EQ(listed.layers, 2u);
  EXPECT_EQ(listed.window_layers, 2u);
  EXPECT_EQ(listed.window_tokens, 128u);
  const Sizing sizing = SizeOf(listed, {}).value();
  EXPECT_EQ(sizing.bytes, 2048u * 4 * 2 * 8 * 64 * 2);
  EXPECT_EQ(sizing.window_bytes, (2048u * 2 + 128 * 2) * 2 * 8 * 64 * 2);
  const ModelShape pattern = Shape(R"({"hidden_size":5376,"num_attention_heads":32,"num_key_value_heads":16,
    "head_dim":128,"num_hidden_layers":62,"sliding_window":1024,"sliding_window_pattern":6})");
  EXPECT_EQ(pattern.layers, 10u);
  EXPECT_EQ(pattern.window_layers, 52u);
  const ModelShape mistral = Shape(R"({"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,
    "num_hidden_layers":32,"sliding_window":4096,"max_position_embeddings":32768})");
  EXPECT_EQ(mistral.window_layers, 32u);
  const ModelShape wide = Shape(R"({"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,
    "num_hidden_layers":32,"sliding_window":32768,"max_position_embeddings":32768})");
  EXPECT_EQ(wide.window_layers, 0u);
}

TEST(ModelShape, SaysWhatIsWrongWithAConfig) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "no JSON object"},
      {"[]", "no JSON object"},
      {"{", "no JSON object"},
      {"{}", "num_hidden_layers"},
      {R"({"num_hidden_layers":32})", "num_attention_heads"},
      {R"({"num_hidden_layers":32,"num_attention_heads":32})", "hidden_size"},
      {R"({"num_hidden_layers":-1})", "num_hidden_layers"},
      {R"({"num_hidden_layers":"many"})", "num_hidden_layers"},
      {R"({"num_hidden_layers":1e9})", "num_hidden_layers"},
      {R"({"num_hidden_layers":18446744073709551615})", "num_hidden_layers"},
      {R"({"num_hidden_layers":32,"num_attention_heads":33,"hidden_size":4096})", "no multiple"},
      {R"({"num_hidden_layers":32,"num_attention_heads":8,"num_key_value_heads":32,"hidden_size":4096})",
       "above"},
      {R"({"num_hidden_layers":32,"kv_lora_rank":512})", "qk_rope_head_dim"},
      {R"({"num_hidden_layers":10000000,"num_attention_heads":10000000,"head_dim":10000000})", "too large"},
      {R"({"num_hidden_layers":2,"layer_types":["full_attention"],"num_attention_heads":1,"head_dim":1})",
       "names 1"},
      {R"({"num_hidden_layers":6,"is_encoder_decoder":true})", "encoder-decoder"},
      {R"({"num_hidden_layers":2,"hybrid_override_pattern":"MM","num_attention_heads":1,"head_dim":1})",
       "no layer"},
  };
  for (const auto& [json, expected] : cases) {
    const auto shape = ShapeFromConfig(json);
    EXPECT_FALSE(shape.ok()) << json;
    EXPECT_NE(shape.status().text().find(expected), std::string::npos)
        << json << ": " << shape.status().text();
  }
  EXPECT_NE(ShapeFromConfigFile("/nowhere/config.json").status().text().find("No such file"),
            std::string::npos);
  EXPECT_FALSE(ShapeFromConfigFile("/tmp").ok());
}

TEST(ModelShape, SurvivesBrokenConfigs) {
  std::mt19937_64 random(13);
  const std::string good =
      R"({"hidden_size":4096,"num_attention_heads":32,"num_hidden_layers":32,"sliding_window":4,
    "num_key_value_heads":8,"layer_types":["full_attention"],"text_config":{"n_layer":1},"kv_lora_rank":null})";
  for (int i = 0; i < 20'000; i++) {
    std::string text = good;
    for (size_t flips = 1 + random() % 4; flips > 0; flips--)
      text[random() % text.size()] = static_cast<char>(random());
    const auto shape = ShapeFromConfig(text);
    if (shape.ok()) {
      EXPECT_GT(shape->elements_per_token(), 0u);
    }
  }
}

TEST(Sizing, TensorParallelRanksHoldTheirHeads) {
  SizingRequest request;
  request.tp = 4;
  EXPECT_EQ(SizeOfNamed("llama-3-70b", request).rank_bytes_per_token, 80u * 1024);
  request.tp = 16;  // two ranks share each of eight heads
  EXPECT_EQ(SizeOfNamed("llama-3-70b", request).rank_bytes_per_token, 40u * 1024);
  EXPECT_EQ(SizeOfNamed("deepseek-v3", request).rank_bytes_per_token, 61u * 576 * 2);
  request.tp = 3;
  EXPECT_FALSE(SizeOf(NamedShape("llama-3-70b").value(), request).ok());
}

TEST(Sizing, TellsWhatFits) {
  SizingRequest request;
  request.memory_bytes = 64ull << 30;
  request.tokens = 1000;
  const Sizing sizing = SizeOfNamed("llama-3-70b", request);
  EXPECT_EQ(sizing.block_bytes, 16u * 320 * 1024);
  EXPECT_EQ(sizing.fit_blocks, (64ull << 30) / (16 * 320 * 1024));
  EXPECT_EQ(sizing.fit_contexts, sizing.fit_blocks / 63) << "1,000 tokens take 63 blocks";
}

TEST(Sizing, BitsAndDtypes) {
  SizingRequest request;
  request.bits = 8;
  EXPECT_EQ(SizeOfNamed("llama-3-70b", request).bytes_per_token, 160u * 1024);
  EXPECT_EQ(DtypeBits("float8_e4m3fn").value(), 8u);
  EXPECT_FALSE(DtypeBits("bf17").ok());
  ModelShape shape = NamedShape("llama-3-8b").value();
  shape.dtype.clear();
  EXPECT_TRUE(SizeOf(shape, {}).value().assumed_dtype);
  shape.dtype = "float64";
  EXPECT_FALSE(SizeOf(shape, {}).ok());
}

}  // namespace
}  // namespace larder::cli
