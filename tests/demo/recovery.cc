#include "tests/demo/recovery.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/bench/measure.h"
#include "tests/demo/content.h"

namespace larder::demo {

namespace {

using bench::NowUs;

constexpr uint64_t kBackUs = 60'000'000;    // a node that takes longer is not coming
constexpr uint64_t kLoadedUs = 10'000'000;  // for what it says that it has to be there
constexpr useconds_t kPauseUs = 20'000;

// The chain hashes whose home is the node; their numbers lie beside them.
struct Blocks {
  std::vector<uint64_t> numbers;
  std::vector<ChainHash> hashes;
};

Blocks BlocksOf(const std::string& node, const NodeTable& table, uint64_t seed,
                const std::vector<Request>& requests) {
  std::set<uint64_t> distinct;
  for (const Request& request : requests) distinct.insert(request.blocks.begin(), request.blocks.end());
  const Placement placement(table, 1);
  Blocks blocks;
  for (const uint64_t number : distinct) {
    const ChainHash hash = HashOf(seed, number);
    const auto order = placement.Order(hash);
    if (order.empty() || table.nodes[order[0]].id != node) continue;
    blocks.numbers.push_back(number);
    blocks.hashes.push_back(hash);
  }
  return blocks;
}

std::vector<Presence> Ask(Larder* larder, const Blocks& blocks) {
  std::vector<Presence> presence;
  for (size_t begin = 0; begin < blocks.hashes.size(); begin += kHashesMax) {
    const size_t count = std::min<size_t>(kHashesMax, blocks.hashes.size() - begin);
    const MatchResult match =
        larder->client->Match(larder->name_space, {.chain = std::span(blocks.hashes).subspan(begin, count)});
    presence.insert(presence.end(), match.presence.begin(), match.presence.end());
  }
  presence.resize(blocks.hashes.size(), Presence::kUnreachable);
  return presence;
}

uint64_t Hits(const std::vector<Presence>& presence) {
  uint64_t hits = 0;
  for (const Presence one : presence) hits += IsHit(one) ? 1 : 0;
  return hits;
}

// Pulls what was there before, and compares every byte.
void PullAll(const WorkerOptions& options, Larder* larder, const Blocks& blocks,
             const std::vector<Presence>& before, Recovery* recovery) {
  auto memory = larder->client->AllocateBuffer(larder->batch_blocks * options.block_bytes);
  if (!memory.ok()) {
    recovery->failure = memory.status().ToString();
    return;
  }
  std::vector<size_t> held;
  for (size_t i = 0; i < before.size(); ++i) {
    if (IsHit(before[i])) held.push_back(i);
  }
  for (size_t begin = 0; begin < held.size(); begin += larder->batch_blocks) {
    const size_t count = std::min<size_t>(larder->batch_blocks, held.size() - begin);
    std::vector<GetItem> items(count);
    for (size_t i = 0; i < count; ++i) {
      items[i].hash = blocks.hashes[held[begin + i]];
      items[i].extents = {{memory.value()->data() + i * options.block_bytes, options.block_bytes}};
    }
    const std::vector<BlockResult> results = larder->client->Get(larder->name_space, items);
    for (size_t i = 0; i < count; ++i) {
      if (results[i].outcome != Outcome::kHit) {
        ++recovery->lost[std::string(PresenceName(results[i].reason))];
        continue;
      }
      ++recovery->back;
      recovery->bytes_back += options.block_bytes;
      recovery->wrong_bytes +=
          CountWrongBytes(memory.value()->data() + i * options.block_bytes, options.block_bytes, options.seed,
                          blocks.numbers[held[begin + i]]);
    }
  }
}

}  // namespace

Recovery KillAndRecall(const RecoveryOptions& options, const std::vector<Request>& requests,
                       const std::function<bool()>& stop) {
  Recovery recovery;
  recovery.node = options.node;
  const auto fail = [&](const std::string& why) {
    recovery.failure = why;
    return recovery;
  };
  auto larder = OpenLarder(options.worker, "recall", false);
  if (!larder.ok()) return fail(larder.status().ToString());
  const Blocks blocks = BlocksOf(options.node, larder.value().client->table(), options.worker.seed, requests);
  const std::vector<Presence> before = Ask(&larder.value(), blocks);
  for (const Presence one : before) {
    recovery.held_ram += one == Presence::kRam ? 1 : 0;
    recovery.held_ssd += one == Presence::kSsd ? 1 : 0;
  }
  std::ofstream request(options.request_path);
  request << options.node << "\n";
  request.close();
  if (!request) return fail("can't write " + options.request_path);
  const uint64_t asked_us = NowUs();
  while (std::filesystem::exists(options.request_path)) {
    if (stop()) return fail("interrupted");
    if (NowUs() - asked_us > kBackUs) return fail(options.node + " did not come back");
    usleep(kPauseUs);
  }
  // A client that has not seen it die, so that no back-off is measured.
  larder = OpenLarder(options.worker, "recall", false);
  if (!larder.ok()) return fail(larder.status().ToString());
  const uint64_t back_us = NowUs();
  for (uint64_t hits = 0; hits < recovery.held_ssd && NowUs() - back_us < kLoadedUs && !stop();) {
    hits = Hits(Ask(&larder.value(), blocks));
    if (hits != 0 && recovery.seconds == 0) recovery.seconds = double(NowUs() - asked_us) * 1e-6;
    if (hits < recovery.held_ssd) usleep(kPauseUs);
  }
  PullAll(options.worker, &larder.value(), blocks, before, &recovery);
  return recovery;
}

}  // namespace larder::demo
