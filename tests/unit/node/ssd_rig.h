// An owner over a simulated disk, with one session.
#pragma once

#include "tests/support/sim_disk.h"
#include "tests/unit/node/owner_fixture.h"

namespace larder::node {

inline constexpr uint32_t kPartBytes = 64 << 10;

struct SsdRig {
  explicit SsdRig(OwnerOptions options = {}, uint32_t segments = 64, uint64_t segment_bytes = 1 << 20)
      : media(segment_bytes, segments) {
    options.memory_bytes =
        options.memory_bytes == OwnerOptions{}.memory_bytes ? 4 << 20 : options.memory_bytes;
    given = options;
    Start();
  }
  // A new life over the same disk; everybody has to connect again.
  void Start() {
    test.reset();
    auto made = std::make_unique<testing::SimDisk>(&media, ++seed, false);
    disk = made.get();
    std::vector<std::unique_ptr<ssd::Disk>> disks;
    disks.push_back(std::move(made));
    ssd::TierOptions tier;
    tier.append_bytes = 256 << 10;
    test = std::make_unique<TestOwner>(given, std::make_unique<ssd::SsdTier>(tier, std::move(disks)));
    test->RunDisks(100);
    session = test->Connect({}, parts);
    number = test->OpenIdentity(session, OpaqueIdentity());
  }
  Spec Block(uint64_t key) const { return {key, part_bytes, {}, static_cast<uint32_t>(key)}; }
  void Put(uint64_t first, uint64_t count) {
    for (uint64_t key = first; key < first + count; ++key) {
      test->now_us += 1000;
      ASSERT_EQ(test->Put(session, number, Block(key)), PutState::kStored) << key;
      test->RunDisks(3);
    }
    test->RunDisks();
  }
  // 1, 2, ...; the last key.
  uint64_t PutUntilSpilling() {
    uint64_t key = 0;
    for (; key < 200 && stats().spilling_bytes == 0; test->now_us += 1000) {
      EXPECT_EQ(test->Put(session, number, Block(++key)), PutState::kStored);
    }
    return key;
  }
  Pulled Get(uint64_t key, uint32_t deadline_us = 0) {
    return test->GetOne(session, number, Block(key), true, deadline_us);
  }
  uint64_t Prefetch(uint64_t first, uint32_t count) {  // the request's number
    larder::Prefetch prefetch;
    prefetch.number = number;
    prefetch.groups = {0};
    for (uint64_t key = first; key < first + count; ++key) prefetch.hashes.push_back(HashOf(key));
    prefetch.hash_count = count;
    return test->Send(session, Verb::kPrefetch, prefetch, 1'000'000);
  }
  void Remove(uint64_t first, uint64_t count) {
    larder::Remove remove;
    remove.number = number;
    remove.groups = {0};
    for (uint64_t key = first; key < first + count; ++key) remove.hashes.push_back(HashOf(key));
    test->Send(session, Verb::kRemove, remove);
  }
  OwnerStats stats() const { return test->owner->stats(); }

  testing::SimMedia media;
  uint64_t seed = 40;
  uint32_t part_bytes = kPartBytes;
  bool parts = false;  // the session takes a get's answer in several replies
  OwnerOptions given;
  std::unique_ptr<TestOwner> test;
  testing::SimDisk* disk = nullptr;
  SessionId session = 0;
  uint32_t number = 0;
};

inline void ExpectBytes(const SsdRig& rig, const Pulled& pulled, uint64_t key) {
  ASSERT_TRUE(IsHit(pulled.presence)) << key << ": " << PresenceName(pulled.presence);
  EXPECT_TRUE(pulled.checksums_good) << key;
  EXPECT_EQ(pulled.payload, PartBytes(rig.Block(key), 0, 0)) << key;
}

}  // namespace larder::node
