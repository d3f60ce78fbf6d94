// The owner on real traffic: eviction through the very path that a node takes, and its memory a block.
#include <malloc.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint32_t kPayload = 64;  // what is stored doesn't matter, how many does

std::vector<uint64_t> HashIdsOf(const std::string& line) {
  std::vector<uint64_t> ids;
  size_t at = line.find("\"hash_ids\"");
  if (at == std::string::npos) return ids;
  at = line.find('[', at);
  const size_t end = line.find(']', at);
  while (at < end) {
    char* after = nullptr;
    const uint64_t id = std::strtoull(line.c_str() + at + 1, &after, 10);
    const auto next = static_cast<size_t>(after - line.c_str());
    if (next == at + 1) break;
    ids.push_back(id);
    at = next;
  }
  return ids;
}

uint64_t MillisecondsOf(const std::string& line) {
  const size_t at = line.find("\"timestamp\":");
  return at == std::string::npos ? 0 : std::strtoull(line.c_str() + at + 12, nullptr, 10);
}

// Cheap distinct hashes: 182,790 SHA-256 would take longer than the rest.
ChainHash TraceHash(uint64_t id) {
  ChainHash hash;
  for (int i = 0; i < 32; i += 8) {
    uint64_t word = (id + 1) * (0x9e3779b97f4a7c15ull + 2 * static_cast<uint64_t>(i));
    std::memcpy(hash.bytes.data() + i, &word, 8);
  }
  return hash;
}

class TracePlayer {
 public:
  explicit TracePlayer(uint64_t memory_bytes, PolicyKind policy = kPolicyDefault)
      : node_(Options(memory_bytes, policy)) {
    session_ = node_.Connect();
    number_ = node_.OpenIdentity(session_, OpaqueIdentity());
  }
  static OwnerOptions Options(uint64_t memory_bytes, PolicyKind policy) {
    OwnerOptions options;
    options.eviction_policy = policy;
    options.memory_bytes = memory_bytes;
    return options;
  }

  void Play(const std::vector<uint64_t>& ids, uint64_t now_us) {
    node_.now_us = std::max(node_.now_us + 16, now_us);
    Match match;
    match.number = number_;
    match.groups = {0};
    Touch touch;
    touch.number = number_;
    touch.groups = {0};
    for (const uint64_t id : ids) {
      touch.depths.push_back(static_cast<uint32_t>(match.hashes.size()));
      match.hashes.push_back(TraceHash(id));
    }
    touch.hashes = match.hashes;
    const auto reply = node_.Ask<MatchReply>(session_, Verb::kMatch, match);
    ASSERT_TRUE(reply.ok());
    const auto& presence = reply.value().presence;
    size_t prefix = 0;
    while (prefix < presence.size() && presence[prefix] == 0) ++prefix;
    hits += prefix;
    references += ids.size();
    touch.usable_length = static_cast<uint32_t>(prefix);
    touch.chain_length = static_cast<uint32_t>(ids.size());
    std::memcpy(&touch.root, touch.hashes[0].bytes.data(), sizeof touch.root);
    Reserve reserve;
    reserve.number = number_;
    for (size_t i = prefix; i < ids.size(); ++i) {
      reserve.blocks.emplace_back();
      reserve.blocks.back().ref.hash = touch.hashes[i];
      reserve.blocks.back().parts = {{1, kPayload}};
      reserve.blocks.back().depth = static_cast<uint32_t>(i);
    }
    if (!reserve.blocks.empty()) PutAll(reserve);
    node_.Send(session_, Verb::kTouch, touch);
  }

  uint64_t hits = 0, references = 0;
  TestOwner& node() { return node_; }

 private:
  void PutAll(const Reserve& reserve) {
    const auto reply = node_.Ask<ReserveReply>(session_, Verb::kReserve, reserve);
    ASSERT_TRUE(reply.ok());
    Committed committed;
    for (const auto& block : reply.value().blocks) {
      if (block.state == PutState::kTicket) committed.blocks.push_back({block.ticket, true, true, {1}});
    }
    node_.Give(session_, committed);
    node_.outbox.grants.clear();
    node_.outbox.replies.clear();
  }

  TestOwner node_;
  SessionId session_ = 0;
  uint32_t number_ = 0;
};

double HitPercent(const std::string& path, uint64_t memory_bytes, PolicyKind policy, uint64_t* pieces_max) {
  TracePlayer player(memory_bytes, policy);
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) player.Play(HashIdsOf(line), MillisecondsOf(line) * 1000);
  *pieces_max = player.node().owner->stats().pieces;
  player.node().Check();
  return 100.0 * static_cast<double>(player.hits) / static_cast<double>(player.references);
}

TEST(OwnerTrace, OnTheConversationTraceHitsWhatTheSimulatorSays) {
  const std::string path = std::string(LARDER_TRACES) + "/conversation_trace.jsonl";
  if (access(path.c_str(), R_OK) != 0)
    GTEST_SKIP() << "no trace at " << path << ": the hit rates were NOT checked";
  uint64_t pieces = 0;
  EXPECT_NEAR(HitPercent(path, 1 << 30, kPolicyDefault, &pieces), 36.6, 0.1);  // without eviction: the ideal
  EXPECT_EQ(pieces, 182'790u);
  // 10 % of the distinct blocks; slots of 64 bytes, headers of 192.
  const uint64_t tenth = 18'279ull * (64 + 192) + 2 * 4096;
  EXPECT_NEAR(HitPercent(path, tenth, PolicyKind::kLru, &pieces), 27.9, 0.3);
  EXPECT_NEAR(static_cast<double>(pieces), 18'279, 100);
  EXPECT_NEAR(HitPercent(path, tenth, kPolicyDefault, &pieces), 29.2, 0.5);
}

TEST(OwnerTrace, MetadataOfAMillionBlocksIsAtMost128BytesEachByCountAndByResidentMemory) {
  constexpr uint64_t kBlocks = 1 << 20;
  TracePlayer player(2ull << 30);
  player.node().slabs.touch_pages = true;
  const auto resident = [] {
    malloc_trim(0);
    std::ifstream statm("/proc/self/statm");
    uint64_t size = 0, pages = 0;
    statm >> size >> pages;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  };
  const auto fill = [&](uint64_t from, uint64_t to) {
    for (uint64_t id = from; id < to;) {
      std::vector<uint64_t> ids;
      for (; ids.size() < 512 && id < to; ++id) ids.push_back(id);
      player.Play(ids, 0);
    }
  };
  fill(0, 4096);  // what a node needs before its first block is not a block's
  const OwnerStats before = player.node().owner->stats();
  const uint64_t resident_before = resident();
  fill(4096, kBlocks);
  const OwnerStats after = player.node().owner->stats();
  ASSERT_EQ(after.pieces, kBlocks);
  const double blocks = static_cast<double>(after.pieces);
  EXPECT_LE(static_cast<double>(after.metadata_bytes) / blocks, 128);
  const double slabs = static_cast<double>(after.slab_bytes - before.slab_bytes);
  const double by_resident = (static_cast<double>(resident() - resident_before) - slabs) / (blocks - 4096);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(by_resident, 128);
  EXPECT_GE(by_resident, 100);  // sanitizers keep memory of their own
#endif
  RecordProperty("bytes_by_count", std::to_string(static_cast<double>(after.metadata_bytes) / blocks));
  RecordProperty("bytes_by_resident_memory", std::to_string(by_resident));
}

}  // namespace
}  // namespace larder::node
