// The process that computes prefixes: it asks how much of a prefix is there, makes the rest, and puts it.
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/bench/measure.h"
#include "tests/demo/content.h"
#include "tests/demo/worker.h"

namespace larder::demo {

namespace {

using bench::NowUs;

constexpr uint64_t kPinUs = 30'000'000;  // longer than any request takes

class Prefill {
 public:
  Prefill(const WorkerOptions& options, Larder* larder, Buffer* memory)
      : options_(options), larder_(*larder), memory_(*memory) {}

  nlohmann::json Serve(const Job& job) {
    nlohmann::json result = {{"id", job.id}};
    const uint64_t start_us = NowUs();
    const MatchRequest request{.chain = job.chain, .pin_us = kPinUs};
    const MatchResult match = larder_.client->Match(larder_.name_space, request);
    const uint64_t matched_us = NowUs();
    result["hit"] = match.usable_length;
    std::map<std::string, uint64_t> tiers;
    for (uint32_t i = 0; i < match.usable_length; ++i) ++tiers[std::string(PresenceName(match.presence[i]))];
    result["tiers"] = tiers;
    result["match_us"] = matched_us - start_us;

    std::map<std::string, uint64_t> not_stored;
    uint64_t put = 0;
    for (size_t at = match.usable_length; at < job.chain.size(); at += larder_.batch_blocks) {
      put += PutBatch(job, at, std::min(job.chain.size(), at + larder_.batch_blocks), &not_stored);
    }
    result["put"] = put;
    result["put_bytes"] = put * options_.block_bytes;
    result["put_us"] = NowUs() - matched_us;
    result["not_stored"] = not_stored;

    // Once a request, over the whole prefix: of one chain the deepest block is then the coldest.
    larder_.client->Touch(larder_.name_space, {.chain = job.chain, .usable_length = match.usable_length});
    if (match.pin != 0) larder_.client->Release(match.pin);
    return result;
  }

 private:
  // Blocks that this put stored.
  uint64_t PutBatch(const Job& job, size_t begin, size_t end, std::map<std::string, uint64_t>* not_stored) {
    std::vector<PutItem> items(end - begin);
    for (size_t i = 0; i < items.size(); ++i) {
      std::byte* data = memory_.data() + i * options_.block_bytes;
      Fill(data, options_.block_bytes, options_.seed, job.blocks[begin + i]);
      items[i].hash = job.chain[begin + i];
      items[i].extents = {{data, options_.block_bytes}};
      items[i].depth = uint32_t(begin + i);
    }
    uint64_t stored = 0;
    for (const PutResult& put : larder_.client->Put(larder_.name_space, items)) {
      if (put.state == PutState::kStored) {
        ++stored;
      } else {
        ++(*not_stored)[std::string(PutStateName(put.state))];
      }
    }
    return stored;
  }

  const WorkerOptions& options_;
  Larder& larder_;
  Buffer& memory_;
};

}  // namespace

int RunPrefill(const WorkerOptions& options) {
  auto larder = OpenLarder(options, "prefill");
  if (!larder.ok()) {
    std::cerr << "larder-demo prefill: " << larder.status().ToString() << "\n";
    return 1;
  }
  auto memory = larder->client->AllocateBuffer(larder->batch_blocks * options.block_bytes);
  if (!memory.ok()) {
    std::cerr << "larder-demo prefill: " << memory.status().ToString() << "\n";
    return 1;
  }
  Prefill prefill(options, &larder.value(), memory.value().get());
  Jobs jobs(options);
  for (Job job; jobs.Next(&job);) std::cout << prefill.Serve(job).dump() << std::endl;
  return 0;
}

}  // namespace larder::demo
