// A prefill and a decode, the smallest useful pair: prefill writes the blocks of a prompt layer group by
// layer group, decode asks how much of the prompt is there, pulls it and tells the store what it used.
//
//   larder-node --data-listen 127.0.0.1:7400 &
//   build/release/bin/example_prefill_decode 127.0.0.1:7400
#include <cstdio>
#include <cstring>
#include <vector>

#include "client/client.h"

namespace {

using namespace larder;

constexpr uint32_t kLayers = 4;
constexpr uint32_t kHeadGroups = 2;
constexpr uint32_t kBlockTokens = 16;
constexpr size_t kPartBytes = 16 * 1024;  // one layer of one head group: [K/V][head][token][dim]
constexpr size_t kBlockBytes = kLayers * kHeadGroups * kPartBytes;

// What makes two caches interchangeable. An engine fills this in from its model and its configuration.
Result<NamespaceHandle> OpenModel(Client* client) {
  Identity identity;
  const std::pair<const char*, const char*> fields[] = {
      {"kind", "kv"},         {"model", "example/tiny"}, {"weights_digest", "0123abcd"},
      {"kv_dtype", "bf16"},   {"attention", "gqa"},      {"kv_heads", "8"},
      {"head_dim", "128"},    {"layers", "4"},           {"head_groups", "2"},
      {"block_tokens", "16"}, {"hash", "sha256"}};
  for (const auto& [name, value] : fields) LARDER_RETURN_IF_ERROR(identity.Set(name, value));
  return client->OpenNamespace(identity, "example-tenant", "a secret of the tenant");
}

// Stands in for the engine's attention: any bytes do, as long as they follow from the prefix.
void Compute(const ChainHash& hash, std::vector<std::byte>* block) {
  block->resize(kBlockBytes);
  for (size_t i = 0; i < block->size(); i += hash.bytes.size()) {
    std::memcpy(block->data() + i, hash.bytes.data(), hash.bytes.size());
  }
}

int Prefill(Client* client, const NamespaceHandle& ns, std::span<const ChainHash> chain) {
  std::vector<std::vector<std::byte>> blocks(chain.size());
  std::vector<PutItem> items;
  for (size_t i = 0; i < chain.size(); ++i) {
    Compute(chain[i], &blocks[i]);
    // A piece is a rectangle of layers x head groups. Here the upper and the lower half of the layers are two
    // pieces, as a prefill writes them that streams; a tensor-parallel rank would write its head groups
    // instead.
    for (uint16_t half = 0; half < 2; ++half) {
      PutItem item;
      item.hash = chain[i];
      item.whole = false;
      item.rectangle = {static_cast<uint16_t>(half * kLayers / 2),
                        static_cast<uint16_t>((half + 1) * kLayers / 2), 0, kHeadGroups};
      item.extents = {{blocks[i].data() + half * kBlockBytes / 2, kBlockBytes / 2}};
      item.depth = static_cast<uint32_t>(i);  // the end of a prefix is evicted before its beginning
      items.push_back(item);
    }
  }
  // The memory must stay as it is until Put returns. Every item has an outcome of its own.
  size_t there = 0;
  for (const PutResult& result : client->Put(ns, items)) {
    if (result.there()) {
      ++there;
    } else {
      std::printf("prefill: not stored: %s\n", result.why.ToString().c_str());  // costs a miss later, no more
    }
  }
  std::printf("prefill: %zu of %zu pieces are there\n", there, items.size());
  return there == items.size() ? 0 : 1;
}

int Decode(Client* client, const NamespaceHandle& ns, std::span<const ChainHash> chain) {
  // Prefill may still be writing: wait for the whole prompt, for 200 ms at most.
  WaitRequest wait;
  wait.chain = chain;
  const uint32_t written = client->Wait(ns, wait, {.deadline_us = 200'000});

  // How much of the prefix can be used? The pin keeps it from being evicted between Match and Get.
  MatchRequest match;
  match.chain = chain;
  match.pin_us = 5'000'000;
  const MatchResult found = client->Match(ns, match);
  std::printf("decode: %u blocks written, %u usable\n", written, found.usable_length);

  std::vector<std::vector<std::byte>> memory(found.usable_length, std::vector<std::byte>(kBlockBytes));
  std::vector<GetItem> items(found.usable_length);
  for (uint32_t i = 0; i < found.usable_length; ++i) {
    items[i].hash = chain[i];
    // Several extents, as a paged KV cache has them: here one a layer.
    for (size_t layer = 0; layer < kLayers; ++layer) {
      items[i].extents.push_back({memory[i].data() + layer * kBlockBytes / kLayers, kBlockBytes / kLayers});
    }
  }
  // 100 ms, then compute what is missing: a get that runs out of time has its leading blocks.
  const std::vector<BlockResult> results = client->Get(ns, items, {.deadline_us = 100'000});
  uint32_t pulled = 0;
  while (pulled < results.size() && results[pulled].outcome == Outcome::kHit) ++pulled;
  for (uint32_t i = pulled; i < results.size(); ++i) {
    std::printf("decode: block %u is a %s (%s)\n", i, std::string(OutcomeName(results[i].outcome)).c_str(),
                std::string(PresenceName(results[i].reason)).c_str());
  }

  // Once a request, so that the store knows what was of use; then the pin goes back.
  TouchRequest touch;
  touch.chain = chain.first(pulled);
  touch.usable_length = pulled;
  client->Touch(ns, touch);
  client->Release(found.pin);

  std::vector<std::byte> expected;
  for (uint32_t i = 0; i < pulled; ++i) {
    Compute(chain[i], &expected);
    if (memory[i] != expected) {
      std::printf("decode: WRONG BYTES in block %u\n", i);  // never: the client verified them
      return 1;
    }
  }
  std::printf("decode: %u of %zu blocks pulled, the rest is computed\n", pulled, chain.size());
  return pulled == chain.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  ClientOptions options;
  for (int i = 1; i < argc; ++i) options.seeds.push_back(argv[i]);
  if (options.seeds.empty()) {
    std::fprintf(stderr, "usage: %s HOST:PORT...   addresses of any nodes\n", argv[0]);
    return 2;
  }
  options.client_name = "example prefill_decode";
  const Result<std::unique_ptr<Client>> client = Client::Open(options, 2'000'000);
  if (!client.ok()) {
    std::fprintf(stderr, "no node: %s\n", client.status().ToString().c_str());
    return 1;
  }
  const Result<NamespaceHandle> ns = OpenModel(client.value().get());
  if (!ns.ok()) {
    std::fprintf(stderr, "%s\n", ns.status().ToString().c_str());
    return 1;
  }
  // Engines bring their own block hashes; without one, tokens will do. 100 tokens are 6 whole blocks.
  std::vector<uint32_t> prompt(100);
  for (uint32_t i = 0; i < prompt.size(); ++i) prompt[i] = 1000 + i * i;
  const std::vector<ChainHash> chain = ChainHashes(prompt, kBlockTokens);
  const int wrote = Prefill(client.value().get(), ns.value(), chain);
  const int read = Decode(client.value().get(), ns.value(), chain);
  return wrote != 0 ? wrote : read;
}
