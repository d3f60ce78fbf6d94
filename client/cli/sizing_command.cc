// larderctl sizing: how large a model's KV cache is.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/sizing.h"
#include "client/cli/text_table.h"
#include "proto/units.h"

namespace larder::cli {
namespace {

using nlohmann::ordered_json;

struct SizingArguments {
  std::string config, model, compare, dtype, memory;
  SizingRequest request;
  bool list = false;
};

// The other model of --compare: a name, or a config.json.
Result<ModelShape> ShapeOf(const std::string& text) {
  if (text.find(".json") != std::string::npos) return ShapeFromConfigFile(text);
  return NamedShape(text);
}

std::string Bytes(uint64_t bytes) {
  const std::string pretty = PrettyBytes(static_cast<double>(bytes));
  return bytes < 1024 ? pretty : pretty + " (" + Grouped(bytes) + " B)";
}

struct Comparison {
  ModelShape other;
  Sizing at_same_bits;        // of the other
  double change_percent = 0;  // this model against the other, elements of equal size
  bool deployed = false;      // one of the two has a deployment of its own
  uint32_t bits = 0, other_bits = 0;
  uint64_t deployed_bytes = 0, other_deployed_bytes = 0;
  double deployed_percent = 0;
};

Result<Comparison> Compare(const ModelShape& shape, const Sizing& sizing, const std::string& text) {
  Comparison out;
  Result<ModelShape> other = ShapeOf(text);
  if (!other.ok()) return other.status();
  out.other = std::move(other).value();
  SizingRequest request;
  request.bits = sizing.bits;
  const Result<Sizing> same = SizeOf(out.other, request);
  if (!same.ok()) return same.status();
  out.at_same_bits = same.value();
  out.change_percent = ChangePercent(same->bytes_per_token, sizing.bytes_per_token);
  out.deployed = shape.deployed_bits != 0 || out.other.deployed_bits != 0;
  if (out.deployed) {
    request.bits = shape.deployed_bits;
    const Result<Sizing> own = SizeOf(shape, request);
    request.bits = out.other.deployed_bits;
    const Result<Sizing> theirs = SizeOf(out.other, request);
    if (!own.ok()) return own.status();
    if (!theirs.ok()) return theirs.status();
    out.bits = own->bits;
    out.other_bits = theirs->bits;
    out.deployed_bytes = own->bytes_per_token;
    out.other_deployed_bytes = theirs->bytes_per_token;
    out.deployed_percent = ChangePercent(theirs->bytes_per_token, own->bytes_per_token);
  }
  return out;
}

double OneDecimal(double value) {
  return static_cast<double>(static_cast<int64_t>(value * 10 + (value < 0 ? -.5 : .5))) / 10;
}

void PrintSizingJson(const ModelShape& shape, const Sizing& s, const SizingArguments& arguments,
                     const Comparison* compared) {
  ordered_json out = {{"model", shape.name},
                      {"attention", AttentionName(shape.attention)},
                      {"shape", shape.Describe()},
                      {"layers", shape.kv_layers()},
                      {"bits_per_element", s.bits},
                      {"elements_per_token", shape.elements_per_token()},
                      {"bytes_per_token", s.bytes_per_token},
                      {"bytes_per_token_per_layer", s.bytes_per_layer},
                      {"block_tokens", arguments.request.block_tokens},
                      {"block_bytes", s.block_bytes},
                      {"tokens", arguments.request.tokens},
                      {"bytes", s.bytes},
                      {"tp", arguments.request.tp},
                      {"rank_bytes_per_token", s.rank_bytes_per_token}};
  if (shape.window_layers != 0) out["window_bytes"] = s.window_bytes;
  if (arguments.request.memory_bytes != 0) {
    out["memory_bytes"] = arguments.request.memory_bytes;
    out["fit_tokens"] = s.fit_tokens;
    out["fit_blocks"] = s.fit_blocks;
    out["fit_contexts"] = s.fit_contexts;
  }
  if (compared != nullptr) {
    ordered_json other = {{"model", compared->other.name},
                          {"bytes_per_token", compared->at_same_bits.bytes_per_token},
                          {"change_percent", OneDecimal(compared->change_percent)}};
    if (compared->deployed) {
      other["deployed"] = {{"bits_per_element", compared->bits},
                           {"bytes_per_token", compared->deployed_bytes},
                           {"other_bits_per_element", compared->other_bits},
                           {"other_bytes_per_token", compared->other_deployed_bytes},
                           {"change_percent", OneDecimal(compared->deployed_percent)}};
    }
    out["compare"] = std::move(other);
  }
  if (!shape.source.empty()) out["literature"] = shape.source;
  std::printf("%s\n", out.dump().c_str());
}

void PrintSizing(const ModelShape& shape, const Sizing& s, const SizingArguments& arguments,
                 const Comparison* compared) {
  const SizingRequest& r = arguments.request;
  std::printf("%s (%s): %s, %u bits an element%s\n", shape.name.c_str(),
              std::string(AttentionName(shape.attention)).c_str(), shape.Describe().c_str(), s.bits,
              s.assumed_dtype ? " (assumed: the config names no dtype)" : "");
  std::printf("  a token               %s\n", Bytes(s.bytes_per_token).c_str());
  std::printf("  a token and layer     %s\n", Bytes(s.bytes_per_layer).c_str());
  std::printf("  a block of %-10s %s\n", (Grouped(r.block_tokens) + " ").c_str(),
              Bytes(s.block_bytes).c_str());
  std::printf("  a context of %-8s %s, %.2f GB\n", Grouped(r.tokens).c_str(), Bytes(s.bytes).c_str(),
              static_cast<double>(s.bytes) / 1e9);
  if (shape.window_layers != 0) {
    std::printf("    of it to load       %s: window layers need only their window\n",
                Bytes(s.window_bytes).c_str());
  }
  if (r.tp > 1) {
    const bool whole = s.rank_bytes_per_token == s.bytes_per_token;
    std::printf("  a token on each of %u ranks %s%s\n", r.tp, Bytes(s.rank_bytes_per_token).c_str(),
                whole ? ": every rank holds all of it; Larder keeps it once" : "");
  }
  if (r.memory_bytes != 0) {
    std::printf("  in %s fit        %s tokens, %s blocks, %s contexts\n",
                PrettyBytes(static_cast<double>(r.memory_bytes)).c_str(), Grouped(s.fit_tokens).c_str(),
                Grouped(s.fit_blocks).c_str(), Grouped(s.fit_contexts).c_str());
  }
  if (compared != nullptr) {
    std::printf("  against %s (%s a token at %u bits): %+.1f %%\n", compared->other.name.c_str(),
                PrettyBytes(static_cast<double>(compared->at_same_bits.bytes_per_token)).c_str(), s.bits,
                compared->change_percent);
    if (compared->deployed) {
      std::printf(
          "    as deployed in their papers (%s at %u bits an element on average: %s; %s at %u: %s): %+.1f "
          "%%\n",
          shape.name.c_str(), compared->bits,
          PrettyBytes(static_cast<double>(compared->deployed_bytes)).c_str(), compared->other.name.c_str(),
          compared->other_bits, PrettyBytes(static_cast<double>(compared->other_deployed_bytes)).c_str(),
          compared->deployed_percent);
    }
  }
  if (!shape.source.empty()) std::printf("  literature: %s\n", shape.source.c_str());
}

int List(bool json) {
  ordered_json out = ordered_json::array();
  for (const ModelShape& shape : NamedShapes()) {
    const Sizing sizing = SizeOf(shape, {}).value();
    if (json) {
      out.push_back({{"model", shape.name}, {"bytes_per_token", sizing.bytes_per_token}});
    } else {
      std::printf("%-18s %-4s %10s a token  %s\n", shape.name.c_str(),
                  std::string(AttentionName(shape.attention)).c_str(),
                  PrettyBytes(static_cast<double>(sizing.bytes_per_token)).c_str(), shape.Describe().c_str());
    }
  }
  if (json) std::printf("%s\n", out.dump().c_str());
  return kExitOk;
}

int ShowSizing(const Globals& globals, SizingArguments arguments) {
  if (arguments.list) return List(globals.json());
  if (arguments.config.empty() == arguments.model.empty()) {
    return Fail(Invalid("sizing wants either --config FILE (a model's config.json) or a model's name"),
                kExitUsage);
  }
  if (!arguments.dtype.empty()) {
    if (arguments.request.bits != 0)
      return Fail(Invalid("--dtype and --bits exclude each other"), kExitUsage);
    const Result<uint32_t> bits = DtypeBits(arguments.dtype);
    if (!bits.ok()) return Fail(bits.status(), kExitUsage);
    arguments.request.bits = bits.value();
  }
  if (!arguments.memory.empty()) {
    const Result<uint64_t> bytes = ParseBytes(arguments.memory);
    if (!bytes.ok()) return Fail(Invalid("--memory: " + bytes.status().text()), kExitUsage);
    arguments.request.memory_bytes = bytes.value();
  }
  const Result<ModelShape> shape =
      arguments.config.empty() ? NamedShape(arguments.model) : ShapeFromConfigFile(arguments.config);
  if (!shape.ok()) return Fail(shape.status(), kExitUsage);
  const Result<Sizing> sizing = SizeOf(shape.value(), arguments.request);
  if (!sizing.ok()) return Fail(sizing.status(), kExitUsage);
  Comparison comparison;
  if (!arguments.compare.empty()) {
    Result<Comparison> compared = Compare(shape.value(), sizing.value(), arguments.compare);
    if (!compared.ok()) return Fail(compared.status(), kExitUsage);
    comparison = std::move(compared).value();
  }
  const Comparison* compared = arguments.compare.empty() ? nullptr : &comparison;
  (globals.json() ? PrintSizingJson : PrintSizing)(shape.value(), sizing.value(), arguments, compared);
  return kExitOk;
}

}  // namespace

void AddSizing(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("sizing", "bytes a token, a block and a context of a model; how many fit");
  auto arguments = std::make_shared<SizingArguments>();
  command->add_option("name", arguments->model, "a model that is known by name, like llama-3-70b");
  command->add_option("--model", arguments->model, "the same");
  command->add_option("--config", arguments->config, "the model's own config.json (Hugging Face)");
  command->add_option("--tokens", arguments->request.tokens, "tokens of a context")->capture_default_str();
  command->add_option("--block-tokens", arguments->request.block_tokens, "tokens of a block")
      ->capture_default_str();
  command->add_option("--dtype", arguments->dtype, "of the cache: fp32, bf16, fp16, fp8, int8, fp4, int4");
  command->add_option("--bits", arguments->request.bits, "bits an element, for quantised caches")
      ->check(CLI::Range(1, 64));
  command->add_option("--tp", arguments->request.tp, "tensor-parallel ranks")->capture_default_str();
  command->add_option("--memory", arguments->memory, "say what fits into so much, like 64GiB");
  command->add_option("--compare", arguments->compare, "another model's name or config.json");
  command->add_flag("--list", arguments->list, "the models known by name");
  command->callback([arguments, run] {
    *run = [arguments](const Globals& globals) { return ShowSizing(globals, *arguments); };
  });
}

}  // namespace larder::cli
