// The process that decodes: it waits for the blocks of a prefix, some of which prefill is still writing,
// pulls them, and compares every byte with what the block must hold.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/bench/measure.h"
#include "tests/demo/content.h"
#include "tests/demo/worker.h"

namespace larder::demo {

namespace {

using bench::NowUs;

constexpr uint64_t kWaitUs = 10'000'000;
constexpr uint64_t kLookUs = 250'000;     // how often it looks up from one wait
constexpr uint64_t kLastLookUs = 50'000;  // prefill is done: nothing more will come
constexpr std::byte kUntouched{0xa5};

class Decode {
 public:
  Decode(const WorkerOptions& options, Larder* larder, Buffer* memory, Jobs* jobs)
      : options_(options), larder_(*larder), memory_(*memory), jobs_(*jobs) {}

  nlohmann::json Serve(const Job& job) {
    counts_ = {};
    for (size_t begin = 0; begin < job.chain.size(); begin += larder_.batch_blocks) {
      ServeBatch(job, begin, std::min(job.chain.size(), begin + larder_.batch_blocks));
    }
    return {{"id", job.id},
            {"pulled", counts_.pulled},
            {"bytes", counts_.pulled * options_.block_bytes},
            {"tiers", counts_.tiers},
            {"missed", counts_.missed},
            {"wrong_bytes", counts_.wrong_bytes},
            {"wait_us", counts_.wait_us},
            {"pull_us", counts_.pull_us},
            {"peers", Peers()}};
  }

 private:
  struct Counts {
    uint64_t pulled = 0, wrong_bytes = 0, wait_us = 0;
    std::map<std::string, uint64_t> tiers, missed;
    std::vector<uint64_t> pull_us;
  };

  // Connected nodes by transport.
  std::map<std::string, uint64_t> Peers() const {
    std::map<std::string, uint64_t> peers;
    for (const PeerInfo& peer : larder_.client->peers()) {
      if (peer.connected) ++peers[peer.transport];
    }
    return peers;
  }

  // Until all are there, or prefill is done: what is missing then has left again (a disk fell behind) and
  // would have to be computed.
  void Await(uint64_t id, std::span<const ChainHash> chain) {
    const uint64_t end_us = NowUs() + kWaitUs;
    bool prefilled = false;
    while (!prefilled && NowUs() < end_us) {
      prefilled = jobs_.IsPrefilled(id);
      const WaitRequest request{.chain = chain};
      const uint64_t deadline_us = prefilled ? kLastLookUs : kLookUs;
      if (larder_.client->Wait(larder_.name_space, request, {.deadline_us = deadline_us}) == chain.size())
        return;
    }
  }

  void ServeBatch(const Job& job, size_t begin, size_t end) {
    const uint64_t start_us = NowUs();
    const std::span<const ChainHash> chain = std::span(job.chain).subspan(begin, end - begin);
    Await(job.id, chain);
    const uint64_t there_us = NowUs();
    std::vector<GetItem> items(chain.size());
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].hash = chain[i];
      items[i].extents = {{memory_.data() + i * options_.block_bytes, options_.block_bytes}};
    }
    const std::vector<BlockResult> results = larder_.client->Get(larder_.name_space, items);
    counts_.wait_us += there_us - start_us;
    counts_.pull_us.push_back(NowUs() - there_us);
    for (size_t i = 0; i < results.size(); ++i) {
      std::byte* data = memory_.data() + i * options_.block_bytes;
      if (results[i].outcome != Outcome::kHit) {
        const bool miss = results[i].outcome == Outcome::kMiss;
        ++counts_
              .missed[std::string(miss ? PresenceName(results[i].reason) : OutcomeName(results[i].outcome))];
        continue;
      }
      ++counts_.pulled;
      ++counts_.tiers[std::string(PresenceName(results[i].reason))];
      counts_.wrong_bytes +=
          CountWrongBytes(data, options_.block_bytes, options_.seed, job.blocks[begin + i]);
      // So that a hit which moved nothing can't pass for the block that was here before.
      data[0] = data[options_.block_bytes - 1] = kUntouched;
    }
  }

  const WorkerOptions& options_;
  Larder& larder_;
  Buffer& memory_;
  Jobs& jobs_;
  Counts counts_;
};

}  // namespace

int RunDecode(const WorkerOptions& options) {
  auto larder = OpenLarder(options, "decode");
  if (!larder.ok()) {
    std::cerr << "larder-demo decode: " << larder.status().ToString() << "\n";
    return 1;
  }
  auto memory = larder->client->AllocateBuffer(larder->batch_blocks * options.block_bytes);
  if (!memory.ok()) {
    std::cerr << "larder-demo decode: " << memory.status().ToString() << "\n";
    return 1;
  }
  Jobs jobs(options);
  Decode decode(options, &larder.value(), memory.value().get(), &jobs);
  for (Job job; jobs.Next(&job);) std::cout << decode.Serve(job).dump() << std::endl;
  return 0;
}

}  // namespace larder::demo
