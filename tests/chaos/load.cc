#include "tests/chaos/load.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/demo/content.h"

namespace larder::chaos {

namespace {

constexpr size_t kBatchMax = 8;
constexpr size_t kBlockBytesMax = 1 << 20;
constexpr size_t kChainMax = 48;
constexpr uint64_t kPauseMaxUs = 6'000;  // between calls: the machine shall not be what is late
constexpr std::byte kUntouched{0xa5};
constexpr uint64_t kFreshBegin = 1ull << 40;
constexpr size_t kFreshBlocks = 48;
constexpr size_t kFreshBytes = 16 << 10;

// Sizes follow from the number too: 4 KiB to 1 MiB, small ones more often.
size_t BytesOf(uint64_t block) {
  constexpr std::array<size_t, 8> kSizes = {4 << 10,  4 << 10,  16 << 10,  16 << 10,
                                            64 << 10, 64 << 10, 256 << 10, 1 << 20};
  return kSizes[(block * 0x9e3779b97f4a7c15ull) >> 61];
}

void Pause(uint64_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace

// One thread. Its buffers hold kUntouched between calls, so that a byte that lands late is seen.
class Load::Worker {
 public:
  Worker(Load* load, uint64_t seed, bool only_gets) : load_(*load), only_gets_(only_gets), random_(seed) {
    for (auto& slot : slots_) slot.assign(kBlockBytesMax, kUntouched);
  }

  void Run() {
    while (!load_.stopping_) {
      const uint64_t dice = random_() % 100;
      if (dice < 60 || only_gets_) {
        GetSome();
      } else if (dice < 75) {
        PutSome(DrawBlocks());
      } else if (dice < 90) {
        MatchSome();
      } else if (dice < 95) {
        WaitSome();
      } else {
        RemoveOne();
      }
      Pause(random_() % kPauseMaxUs);
    }
  }

  uint64_t due_us() const { return due_us_; }

 private:
  uint64_t content() const { return load_.options_.content * 2 + space_; }
  const NamespaceHandle& space() const { return load_.spaces_[space_]; }

  // Blocks in a row, low numbers more often; of either namespace.
  std::vector<uint64_t> DrawBlocks() {
    space_ = random_() % load_.spaces_.size();
    const double where = std::pow(double(random_() >> 11) * 0x1p-53, 2.5);
    const uint64_t first = static_cast<uint64_t>(where * double(load_.options_.blocks));
    std::vector<uint64_t> blocks(1 + random_() % kBatchMax);
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = first + i;
    return blocks;
  }

  ChainHash HashOf(uint64_t block) const { return demo::HashOf(load_.options_.content, block); }

  CallOptions Begin(Ended* call, std::string what, size_t items) {
    constexpr std::array<double, 4> kShares = {0.2, 1, 1, 4};
    call->what = std::move(what);
    call->items = static_cast<uint32_t>(items);
    call->bound_us = static_cast<uint64_t>(double(load_.options_.deadline_us) * kShares[random_() % 4]);
    call->begin_us = NowUs();
    due_us_ = call->begin_us + call->bound_us;
    return {.deadline_us = call->bound_us,
            .priority = random_() % 4 == 0 ? Priority::kBatch : Priority::kInteractive};
  }

  void End(Ended* call) {
    call->end_us = NowUs();
    due_us_ = UINT64_MAX;
  }

  void GetSome() {
    const std::vector<uint64_t> blocks = DrawBlocks();
    std::vector<GetItem> items(blocks.size());
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].hash = HashOf(blocks[i]);
      items[i].extents = {{slots_[i].data(), BytesOf(blocks[i])}};
      Inspect(i);
    }
    Ended call;
    const CallOptions how = Begin(&call, "get", items.size());
    const std::vector<BlockResult> results = load_.client_->Get(space(), items, how);
    End(&call);
    std::vector<uint64_t> missing;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].outcome == Outcome::kHit) {
        ++call.hits;
        Verify(i, blocks[i], results[i]);
      } else {
        missing.push_back(blocks[i]);
        call.failed += results[i].outcome == Outcome::kTimedOut ||
                       (results[i].outcome == Outcome::kMiss && results[i].reason == Presence::kUnreachable);
        Miss(results[i]);
      }
      std::fill_n(slots_[i].data(), BytesOf(blocks[i]), kUntouched);
    }
    if (results.size() != items.size()) load_.tally_->Count("answers of a wrong length");
    load_.tally_->Note(call);
    // As an engine does: what is not there is computed and put, most of the time.
    if (!missing.empty() && !only_gets_ && random_() % 4 != 0) PutSome(missing);
  }

  void Verify(size_t slot, uint64_t block, const BlockResult& result) {
    load_.tally_->Count("hit " + std::string(PresenceName(result.reason)));
    const uint64_t wrong = demo::CountWrongBytes(slots_[slot].data(), BytesOf(block), content(), block);
    if (wrong == 0 && result.bytes == BytesOf(block)) return;
    load_.tally_->Wrong("block " + std::to_string(block) + " of namespace " + std::to_string(space_) + ": " +
                        std::to_string(wrong) + " of " + std::to_string(BytesOf(block)) + " bytes, tier " +
                        std::string(PresenceName(result.reason)) + ", at " + std::to_string(NowUs()) + " us");
  }

  void Miss(const BlockResult& result) {
    const bool miss = result.outcome == Outcome::kMiss;
    load_.tally_->Count("miss " +
                        std::string(miss ? PresenceName(result.reason) : OutcomeName(result.outcome)));
  }

  // Since its last call nothing may have landed here.
  void Inspect(size_t slot) {
    const std::byte* data = slots_[slot].data();
    if (data[0] == kUntouched && std::memcmp(data, data + 1, kBlockBytesMax - 1) == 0) return;
    load_.tally_->Wrong("bytes landed after their call had ended, seen at " + std::to_string(NowUs()) +
                        " us");
    std::fill(slots_[slot].begin(), slots_[slot].end(), kUntouched);
  }

  void PutSome(const std::vector<uint64_t>& blocks) {
    std::vector<PutItem> items(blocks.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const size_t bytes = BytesOf(blocks[i]);
      sources_[i].resize(kBlockBytesMax);
      demo::Fill(sources_[i].data(), bytes, content(), blocks[i]);
      items[i].hash = HashOf(blocks[i]);
      items[i].extents = {{sources_[i].data(), bytes}};
    }
    Ended call;
    const CallOptions how = Begin(&call, "put", items.size());
    const std::vector<PutResult> results = load_.client_->Put(space(), items, how);
    End(&call);
    for (const PutResult& result : results) {
      load_.tally_->Count("put " + std::string(PutStateName(result.state)));
      // Whoever writes a number writes the same bytes.
      if (result.state == PutState::kDiffers) load_.tally_->Count("puts that differ");
    }
    load_.tally_->Note(call);
  }

  void MatchSome() {
    const uint64_t first = DrawBlocks().front();
    std::vector<ChainHash> chain(1 + random_() % kChainMax);
    for (size_t i = 0; i < chain.size(); ++i) chain[i] = HashOf(first + i);
    Ended call;
    const CallOptions how = Begin(&call, "match", chain.size());
    const MatchResult match =
        load_.client_->Match(space(), {.chain = chain, .pin_us = random_() % 2 * 50'000}, how);
    End(&call);
    if (match.pin != 0) load_.client_->Release(match.pin);
    load_.client_->Touch(space(), {.chain = chain, .usable_length = match.usable_length});
    load_.tally_->Note(call);
  }

  void WaitSome() {
    const std::vector<uint64_t> blocks = DrawBlocks();
    std::vector<ChainHash> chain;
    for (const uint64_t block : blocks) chain.push_back(HashOf(block));
    Ended call;
    const CallOptions how = Begin(&call, "wait", chain.size());
    const bool prefetch = random_() % 2 == 0;
    if (prefetch) {
      (void)load_.client_->Prefetch(space(), {.chain = chain}, how);
    } else {
      (void)load_.client_->Wait(space(), {.chain = chain}, how);
    }
    End(&call);
    load_.tally_->Note(call);
  }

  void RemoveOne() {
    const std::vector<ChainHash> hashes = {HashOf(DrawBlocks().front())};
    const std::vector<uint16_t> groups = {0};
    Ended call;
    const CallOptions how = Begin(&call, "remove", 1);
    (void)load_.client_->Remove(space(), hashes, groups, how);
    End(&call);
    load_.tally_->Note(call);
  }

  Load& load_;
  const bool only_gets_;
  std::mt19937_64 random_;
  size_t space_ = 0;  // of the call under way
  std::array<std::vector<std::byte>, kBatchMax> slots_, sources_;
  std::atomic<uint64_t> due_us_ = UINT64_MAX;  // of the call under way
};

Load::Load(const LoadOptions& options, Tally* tally) : options_(options), tally_(tally) {}

Load::~Load() {
  End();
}

Result<std::unique_ptr<Load>> Load::Open(const LoadOptions& options, Tally* tally) {
  ClientOptions client_options;
  client_options.seeds = options.seeds;
  client_options.transport = options.transport;
  client_options.client_name = options.name;
  client_options.replicas = options.replicas;
  client_options.verify = options.verify;
  auto client = Client::Open(client_options, 10'000'000);
  if (!client.ok()) return client.status();
  std::unique_ptr<Load> load(new Load(options, tally));
  load->client_ = std::move(client).value();
  Identity identity;
  LARDER_RETURN_IF_ERROR(identity.Set("kind", "opaque"));
  LARDER_RETURN_IF_ERROR(identity.Set("model", "larder-chaos"));
  for (const char* tenant : {"one", "two"}) {
    auto space = load->client_->OpenNamespace(identity, tenant, "a salt");
    if (!space.ok()) return space.status();
    load->spaces_.push_back(space.value());
  }
  std::mt19937_64 random(options.seed);
  for (uint32_t i = 0; i < options.workers + options.getters; ++i) {
    load->workers_.push_back(std::make_unique<Worker>(load.get(), random(), i >= options.workers));
  }
  load->fresh_ = kFreshBegin + (options.seed << 20);
  return load;
}

void Load::Begin() {
  for (const auto& worker : workers_) threads_.emplace_back([&worker = *worker] { worker.Run(); });
}

void Load::End() {
  stopping_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

uint64_t Load::OverdueUs() const {
  const uint64_t now_us = NowUs();
  uint64_t overdue_us = 0;
  for (const auto& worker : workers_) {
    const uint64_t due_us = worker->due_us();
    if (due_us < now_us) overdue_us = std::max(overdue_us, now_us - due_us);
  }
  return overdue_us;
}

std::string Load::Settle(uint64_t budget_us) {
  const uint64_t end_us = NowUs() + budget_us;
  std::string why;
  do {
    why = SettleOnce();
    if (why.empty()) return "";
    Pause(200'000);
  } while (NowUs() < end_us);
  return why;
}

std::string Load::SettleOnce() {
  const uint64_t content = options_.content * 2;
  std::vector<std::byte> memory(kFreshBlocks * kFreshBytes);
  std::vector<PutItem> puts(kFreshBlocks);
  std::vector<GetItem> gets(kFreshBlocks);
  for (size_t i = 0; i < kFreshBlocks; ++i) {
    std::byte* data = memory.data() + i * kFreshBytes;
    demo::Fill(data, kFreshBytes, content, fresh_ + i);
    puts[i].hash = gets[i].hash = demo::HashOf(options_.content, fresh_ + i);
    puts[i].extents = {{data, kFreshBytes}};
    gets[i].extents = {{data, kFreshBytes}};
  }
  uint64_t few = 0;
  for (const PutResult& put : client_->Put(spaces_[0], puts, {.deadline_us = 2'000'000})) {
    if (!put.there()) return "a fresh block could not be put: " + put.why.ToString();
    few += put.copies < options_.replicas;
  }
  if (few != 0) return std::to_string(few) + " fresh blocks have fewer copies than asked for";
  std::fill(memory.begin(), memory.end(), kUntouched);
  const std::vector<BlockResult> got = client_->Get(spaces_[0], gets, {.deadline_us = 2'000'000});
  for (size_t i = 0; i < kFreshBlocks; ++i) {
    if (got[i].outcome != Outcome::kHit) {
      return "a fresh block was not got: " + std::string(OutcomeName(got[i].outcome)) + ", " +
             std::string(PresenceName(got[i].reason));
    }
    if (demo::CountWrongBytes(memory.data() + i * kFreshBytes, kFreshBytes, content, fresh_ + i) != 0) {
      tally_->Wrong("a fresh block has wrong bytes after the faults");
    }
  }
  fresh_ += kFreshBlocks;
  for (const NodeRecord& node : client_->table().nodes) {
    if (node.state == NodeState::kAway) continue;
    if (const auto ping = client_->Ping(node.id, {.deadline_us = 2'000'000}); !ping.ok()) {
      return "node " + node.id + " does not answer: " + ping.status().ToString();
    }
  }
  return "";
}

}  // namespace larder::chaos
