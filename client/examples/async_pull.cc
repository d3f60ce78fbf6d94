// Pulling a long prefix without blocking, as a decode engine's scheduler does: batches in flight side by
// side, an eventfd in the engine's own loop, transfer memory that moves without a copy on one host, and a
// deadline after which the engine computes the rest itself.
//
//   larder-node --data-listen 127.0.0.1:7400 &
//   build/release/bin/example_async_pull 127.0.0.1:7400
#include <poll.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "client/client.h"

namespace {

using namespace larder;

constexpr size_t kBlocks = 64;
constexpr size_t kBlockBytes = 256 * 1024;
constexpr size_t kBatchBlocks = 16;
constexpr size_t kBatchesInFlight = 2;  // one lands while the next is on its way

// Opaque blocks have no layers or heads: one part of any size.
Result<NamespaceHandle> OpenFiles(Client* client) {
  Identity identity;
  LARDER_RETURN_IF_ERROR(identity.Set("kind", "opaque"));
  LARDER_RETURN_IF_ERROR(identity.Set("model", "example/async"));
  return client->OpenNamespace(identity);
}

std::vector<ChainHash> MakeChain() {
  std::vector<ChainHash> chain;
  ChainHash parent;
  for (size_t i = 0; i < kBlocks; ++i) {
    const std::string name = "block " + std::to_string(i);
    parent = NextLink(parent, AsBytes(name));
    chain.push_back(parent);
  }
  return chain;
}

void Fill(std::byte* memory, const ChainHash& hash) {
  for (size_t i = 0; i < kBlockBytes; i += hash.bytes.size()) std::memcpy(memory + i, hash.bytes.data(), 32);
}

// Puts everything from one buffer of the library. On the node's host it is handed over as shared memory.
bool PutAll(Client* client, const NamespaceHandle& ns, std::span<const ChainHash> chain) {
  Result<std::unique_ptr<Buffer>> buffer = client->AllocateBuffer(kBlocks * kBlockBytes);
  if (!buffer.ok()) return false;
  std::vector<PutItem> items(chain.size());
  for (size_t i = 0; i < chain.size(); ++i) {
    std::byte* memory = buffer.value()->data() + i * kBlockBytes;
    Fill(memory, chain[i]);
    items[i].hash = chain[i];
    items[i].extents = {{memory, kBlockBytes}};
    items[i].depth = static_cast<uint32_t>(i);
  }
  // The batch class: it never makes an interactive pull wait.
  bool all = true;
  for (const PutResult& result : client->Put(ns, items, {.priority = Priority::kBatch}))
    all &= result.there();
  return all;
}

Status SubmitBatch(Client* client, CompletionQueue* queue, const NamespaceHandle& ns,
                   std::span<const ChainHash> chain, size_t batch, std::byte* memory) {
  std::vector<GetItem> items(kBatchBlocks);
  for (size_t i = 0; i < kBatchBlocks; ++i) {
    const size_t block = batch * kBatchBlocks + i;
    items[i].hash = chain[block];
    items[i].extents = {{memory + block * kBlockBytes, kBlockBytes}};
  }
  // The items are copied; the memory is the library's until the completion is there.
  return client->SubmitGet(queue, batch, ns, items, {.deadline_us = 500'000}).status();
}

// Blocks that landed verified, in order from the first.
size_t PullAll(Client* client, const NamespaceHandle& ns, std::span<const ChainHash> chain,
               std::byte* memory) {
  const std::unique_ptr<CompletionQueue> queue = client->MakeQueue();
  std::vector<bool> landed(chain.size(), false);
  const size_t batches = chain.size() / kBatchBlocks;
  size_t submitted = 0, completed = 0;
  while (completed < batches) {
    while (submitted < batches && submitted - completed < kBatchesInFlight) {
      const Status status = SubmitBatch(client, queue.get(), ns, chain, submitted, memory);
      if (status.code() == Code::kBusy) break;  // operations_max: a completion makes room
      if (!status.ok()) return 0;
      ++submitted;
    }
    // An engine adds this descriptor to the loop that it has anyway.
    pollfd poller{queue->event_fd(), POLLIN, 0};
    if (poll(&poller, 1, 1000) != 1) continue;
    for (const Completion& completion : queue->Poll(8, 0)) {
      ++completed;
      for (size_t i = 0; i < completion.blocks.size(); ++i) {
        landed[completion.user_data * kBatchBlocks + i] = completion.blocks[i].outcome == Outcome::kHit;
      }
    }
  }
  size_t leading = 0;
  while (leading < landed.size() && landed[leading]) ++leading;
  return leading;
}

}  // namespace

int main(int argc, char** argv) {
  ClientOptions options;
  for (int i = 1; i < argc; ++i) options.seeds.push_back(argv[i]);
  if (options.seeds.empty()) {
    std::fprintf(stderr, "usage: %s HOST:PORT...   addresses of any nodes\n", argv[0]);
    return 2;
  }
  const Result<std::unique_ptr<Client>> client = Client::Open(options, 2'000'000);
  if (!client.ok()) {
    std::fprintf(stderr, "no node: %s\n", client.status().ToString().c_str());
    return 1;
  }
  const Result<NamespaceHandle> ns = OpenFiles(client.value().get());
  if (!ns.ok()) return 1;
  const std::vector<ChainHash> chain = MakeChain();
  if (!PutAll(client.value().get(), ns.value(), chain)) std::printf("not everything was stored\n");

  std::vector<std::byte> memory(kBlocks * kBlockBytes);
  const size_t pulled = PullAll(client.value().get(), ns.value(), chain, memory.data());
  std::vector<std::byte> expected(kBlockBytes);
  for (size_t i = 0; i < pulled; ++i) {
    Fill(expected.data(), chain[i]);
    if (std::memcmp(expected.data(), memory.data() + i * kBlockBytes, kBlockBytes) != 0) {
      std::printf("WRONG BYTES in block %zu\n", i);
      return 1;
    }
  }
  for (const PeerInfo& peer : client.value()->peers()) {
    std::printf("%s over %s\n", peer.record.id.c_str(), peer.transport.c_str());
  }
  std::printf("pulled %zu of %zu blocks\n", pulled, chain.size());
  return pulled == chain.size() ? 0 : 1;
}
