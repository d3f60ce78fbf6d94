#include "tests/bench/store.h"

#include <algorithm>
#include <cstring>

namespace larder::bench {

namespace {

uint64_t Mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

// Items of one batch, made once and renamed from batch to batch.
template <typename Item, typename Extent>
std::vector<Item> ItemsOver(BatchMemory memory, uint64_t block_bytes) {
  std::vector<Item> items(kBatchBlocks);
  for (uint32_t i = 0; i < kBatchBlocks; ++i)
    items[i].extents = {Extent{memory.data + i * block_bytes, block_bytes}};
  return items;
}

class Clock {
 public:
  explicit Clock(const LoopOptions& options)
      : options_(options),
        cpu_(OwnCpuSeconds() + CpuSecondsOf(options.node_pid)),
        start_us_(NowUs()),
        last_us_(start_us_),
        end_us_(start_us_ + uint64_t(options.seconds * 1e6)) {}

  bool Running() const { return last_us_ < end_us_; }
  void Batch(uint64_t started_us) {
    last_us_ = NowUs();
    batch_us_.push_back(double(last_us_ - started_us));
  }
  Sample Result() {
    const double cpu = OwnCpuSeconds() + CpuSecondsOf(options_.node_pid) - cpu_;
    const double bytes = double(batch_us_.size()) * double(options_.block_bytes) * kBatchBlocks;
    Sample sample;
    sample.value = bytes / double(last_us_ - start_us_) * 1e-3;
    sample.cpu_s_per_gib = cpu / (bytes / kGib);
    sample.p50_us = Percentile(&batch_us_, 0.50);
    sample.p99_us = Percentile(&batch_us_, 0.99);
    return sample;
  }

 private:
  const LoopOptions& options_;
  double cpu_;
  uint64_t start_us_, last_us_, end_us_;
  std::vector<double> batch_us_;
};

void NameBatch(std::vector<GetItem>* items, const LoopOptions& options) {
  for (GetItem& item : *items)
    item.hash = HashOf(options.family, (*options.cursor)++ % options.resident_blocks);
}

std::string Complaint(const std::vector<BlockResult>& results) {
  for (const BlockResult& result : results) {
    if (result.outcome != Outcome::kHit) {
      return "a get was " + std::string(OutcomeName(result.outcome)) + ", " +
             std::string(PresenceName(result.reason));
    }
  }
  return "";
}

std::string Complaint(const std::vector<PutResult>& results) {
  for (const PutResult& result : results) {
    if (result.state != PutState::kStored) {
      return "a put was " + std::string(PutStateName(result.state)) + ", " + result.why.text();
    }
  }
  return "";
}

}  // namespace

Store OpenStore(const std::string& data_address, const std::string& transport, bool verify,
                std::string* error) {
  ClientOptions options;
  options.seeds = {data_address};
  options.transport = transport;
  options.verify = verify;
  options.client_name = "larder-bench";
  auto client = Client::Open(options);
  if (!client.ok()) {
    *error = "the client can't open " + data_address + ": " + client.status().ToString();
    return {};
  }
  Identity identity;
  Status status = identity.Set("kind", "opaque");
  if (status.ok()) status = identity.Set("model", "larder-bench");
  Store store{std::move(client).value(), {}};
  auto name_space = store.client->OpenNamespace(identity, "bench");
  if (!status.ok() || !name_space.ok()) {
    *error = "the namespace can't be opened: " + name_space.status().ToString();
    return {};
  }
  store.name_space = name_space.value();
  return store;
}

ChainHash HashOf(uint64_t family, uint64_t index) {
  ChainHash hash;
  uint64_t state = Mix(family) ^ index;
  for (size_t at = 0; at < hash.bytes.size(); at += 8) {
    state = Mix(state + at);
    std::memcpy(hash.bytes.data() + at, &state, 8);
  }
  return hash;
}

void FillBlock(std::byte* data, size_t bytes, uint64_t index) {
  FillPattern(data, bytes, index + 1);
}

bool IsBlock(const std::byte* data, size_t bytes, uint64_t index) {
  std::vector<std::byte> expected(bytes);
  FillBlock(expected.data(), bytes, index);
  return std::memcmp(expected.data(), data, bytes) == 0;
}

bool FillNode(Store* store, uint64_t family, uint64_t block_bytes, uint64_t count, std::string* error) {
  // Small blocks travel in larger batches, so that a million of them take seconds.
  const auto batch = uint32_t(std::clamp<uint64_t>((8ull << 20) / block_bytes, 1, kBlocksMax));
  TouchedMemory memory(block_bytes * batch);
  std::vector<PutItem> items;
  for (uint64_t first = 0; first < count; first += batch) {
    items.resize(size_t(std::min<uint64_t>(batch, count - first)));
    for (uint32_t i = 0; i < items.size(); ++i) {
      std::byte* data = memory.data() + i * block_bytes;
      FillBlock(data, block_bytes, first + i);
      items[i].hash = HashOf(family, first + i);
      items[i].extents = {{data, block_bytes}};
      items[i].depth = uint32_t(first + i);
    }
    *error = Complaint(store->client->Put(store->name_space, items));
    if (!error->empty()) return false;
  }
  return true;
}

Sample GetLoop(Store* store, const LoopOptions& options, BatchMemory memory) {
  auto items = ItemsOver<GetItem, MutableExtent>(memory, options.block_bytes);
  Clock clock(options);
  while (clock.Running()) {
    NameBatch(&items, options);
    const uint64_t started_us = NowUs();
    const std::string complaint = Complaint(store->client->Get(store->name_space, items, options.call));
    if (!complaint.empty()) return {.error = complaint};
    clock.Batch(started_us);
  }
  // One block of the last batch, byte for byte: a bench that measures wrong bytes measures nothing.
  const uint64_t last = (*options.cursor - 1) % options.resident_blocks;
  const std::byte* data = memory.data + (kBatchBlocks - 1) * options.block_bytes;
  if (!IsBlock(data, options.block_bytes, last)) return {.error = "a get returned wrong bytes"};
  return clock.Result();
}

Sample GetStreamLoop(Store* store, const LoopOptions& options, BatchMemory first, BatchMemory second) {
  const std::unique_ptr<CompletionQueue> queue = store->client->MakeQueue();
  std::vector<GetItem> items[2] = {ItemsOver<GetItem, MutableExtent>(first, options.block_bytes),
                                   ItemsOver<GetItem, MutableExtent>(second, options.block_bytes)};
  uint64_t started_us[2] = {};
  std::string complaint;
  const auto submit = [&](uint64_t slot) {
    NameBatch(&items[slot], options);
    started_us[slot] = NowUs();
    auto id = store->client->SubmitGet(queue.get(), slot, store->name_space, items[slot], options.call);
    if (!id.ok()) complaint = id.status().ToString();
    return id.ok();
  };
  Clock clock(options);
  int open = int(submit(0)) + int(submit(1));
  while (open > 0) {
    for (Completion& done : queue->Poll(2, 1'000'000)) {
      --open;
      if (complaint.empty()) complaint = Complaint(done.blocks);
      if (clock.Running()) {
        clock.Batch(started_us[done.user_data]);
        if (clock.Running() && complaint.empty()) open += int(submit(done.user_data));
      }
    }
  }
  if (!complaint.empty()) return {.error = complaint};
  return clock.Result();
}

Sample PutLoop(Store* store, const LoopOptions& options, BatchMemory memory) {
  auto items = ItemsOver<PutItem, ConstExtentRef>(memory, options.block_bytes);
  Clock clock(options);
  while (clock.Running()) {
    for (PutItem& item : items) item.hash = HashOf(1, (*options.cursor)++);
    const uint64_t started_us = NowUs();
    const std::string complaint = Complaint(store->client->Put(store->name_space, items, options.call));
    if (!complaint.empty()) return {.error = complaint};
    clock.Batch(started_us);
  }
  return clock.Result();
}

}  // namespace larder::bench
