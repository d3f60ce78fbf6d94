#include "node/owner/arena.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/node/owner_fixture.h"

namespace larder::node {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(Arena, RoundsPayloadsToPagesAndSmallOnesToLines) {
  EXPECT_EQ(SlotBytes(1), 64u);
  EXPECT_EQ(SlotBytes(65), 128u);
  EXPECT_EQ(SlotBytes(4095), 4096u);
  EXPECT_EQ(SlotBytes(4096), 4096u);
  EXPECT_EQ(SlotBytes(4097), 8192u);
  EXPECT_EQ(SlotBytes(65536), 65536u);
}

TEST(Arena, SlotsOfASlabAreContiguousAndPageAlignedBehindTheirHeaders) {
  HeapSlabs slabs;
  Arena arena(64 * kMiB, 0, &slabs);
  const uint32_t c = arena.ClassOf({1, 192, 65536});
  SlotPlace previous, place;
  ASSERT_TRUE(arena.Take(c, &previous));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.Payload(previous)) % 4096, 0u);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(arena.Take(c, &place));
    EXPECT_EQ(place.slab, previous.slab);
    EXPECT_EQ(arena.Payload(place) - arena.Payload(previous), 65536);
    EXPECT_EQ(arena.Header(place) - arena.Header(previous), 192);
    EXPECT_LT(arena.Header(place), arena.Payload(previous));
    previous = place;
  }
  EXPECT_EQ(arena.CheckInvariants(), "");
}

TEST(Arena, SlabsHoldAWholeNumberOfSlotsNearTheTarget) {
  HeapSlabs slabs;
  Arena arena(1024 * kMiB, 0, &slabs);  // target 16 MiB
  for (const uint64_t slot : {kMiB, 3 * kMiB, 5 * kMiB, 12 * kMiB, 40 * kMiB}) {
    const uint32_t c = arena.ClassOf({1, 256, slot});
    SlotPlace place;
    ASSERT_TRUE(arena.Take(c, &place));
    const uint64_t slots = arena.slab(place.slab).owners.size();
    EXPECT_EQ(arena.slab(place.slab).bytes, slots * slot + (slots * 256 + 4095) / 4096 * 4096);
    EXPECT_TRUE(slots == 1 || slots * slot <= 16 * kMiB + slot / 2);
    EXPECT_GE(slots * slot + slot / 2, 16 * kMiB);
  }
}

TEST(Arena, TheRemainderOfTheMemoryBecomesASmallerSlab) {
  HeapSlabs slabs;
  Arena arena(10 * kMiB, 4 * kMiB, &slabs);
  const uint32_t c = arena.ClassOf({1, 256, kMiB});
  SlotPlace place;
  uint32_t taken = 0;
  while (arena.Take(c, &place)) ++taken;
  EXPECT_EQ(taken, 9u);  // 4 + 4 + 1: three header arrays take the tenth
  EXPECT_LT(arena.SpareBytes(), kMiB);
  EXPECT_EQ(arena.CheckInvariants(), "");
}

TEST(Arena, ARetiredSlabCountsUntilItIsGone) {
  HeapSlabs slabs;
  slabs.gone_at_once = false;
  Arena arena(8 * kMiB, 4 * kMiB, &slabs);
  const uint32_t c = arena.ClassOf({1, 256, 2 * kMiB});
  SlotPlace place, other;
  ASSERT_TRUE(arena.Take(c, &place));
  const uint64_t bytes = arena.slab(place.slab).bytes;
  std::byte* base = arena.slab(place.slab).base;
  arena.Free(place);
  arena.Retire(place.slab);
  EXPECT_EQ(arena.slab_bytes(), bytes);
  EXPECT_EQ(arena.retiring_bytes(), bytes);
  EXPECT_EQ(arena.CheckInvariants(), "");
  EXPECT_FALSE(arena.classes()[c].live);  // went with its last slab
  arena.Gone(base);
  EXPECT_EQ(arena.slab_bytes(), 0u);
  arena.Gone(base);  // twice is harmless
  EXPECT_EQ(arena.slab_bytes(), 0u);
}

TEST(Arena, ASourceWithoutMemoryIsNoSlab) {
  HeapSlabs slabs;
  slabs.slabs_max = 1;
  Arena arena(64 * kMiB, 4 * kMiB, &slabs);
  const uint32_t c = arena.ClassOf({1, 256, 4 * kMiB});
  SlotPlace place;
  EXPECT_TRUE(arena.Take(c, &place));
  EXPECT_FALSE(arena.Take(c, &place));
  EXPECT_EQ(arena.CheckInvariants(), "");
}

TEST(Arena, ClassesAreBounded) {
  HeapSlabs slabs;
  Arena arena(64 * kMiB, 0, &slabs);
  for (uint32_t i = 0; i < Arena::kClassesMax; ++i) ASSERT_NE(arena.ClassOf({i, 256, 4096}), Arena::kNone);
  EXPECT_EQ(arena.ClassOf({Arena::kClassesMax, 256, 4096}), Arena::kNone);
  arena.DropIfUnused(7);
  EXPECT_EQ(arena.ClassOf({Arena::kClassesMax, 256, 4096}), 7u);
}

TEST(Arena, KeepsItsCountsThroughRandomUse) {
  std::mt19937_64 random(3);
  HeapSlabs slabs;
  Arena arena(32 * kMiB, 4 * kMiB, &slabs);
  std::vector<SlotPlace> taken;
  for (int step = 0; step < 4000; ++step) {
    const SlotShape shape{static_cast<uint32_t>(random() % 3), 192, 64 * 1024 * (1 + random() % 4)};
    SlotPlace place;
    const uint32_t c = arena.ClassOf(shape);
    if (random() % 3 != 0 && arena.Take(c, &place)) {
      taken.push_back(place);
    } else {
      arena.DropIfUnused(c);
      if (!taken.empty()) {
        std::swap(taken[random() % taken.size()], taken.back());
        const SlotPlace freed = taken.back();
        arena.Free(freed);
        taken.pop_back();
        if (arena.slab(freed.slab).used == 0 && random() % 2 == 0) {
          std::byte* base = arena.slab(freed.slab).base;
          arena.Retire(freed.slab);
          arena.Gone(base);
        }
      }
    }
    if (step % 50 == 0) {
      ASSERT_EQ(arena.CheckInvariants(), "") << "step " << step;
    }
  }
}

}  // namespace
}  // namespace larder::node
