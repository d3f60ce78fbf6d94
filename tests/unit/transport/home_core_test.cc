#include "transport/home_core.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace larder::transport {
namespace {

cpu_set_t Affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return set;
}

void StayOn(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  EXPECT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
}

// Two cores that this process may use, in a thread of its own: the affinity of the test's stays.
template <typename Body>
void OnTwoCores(Body body) {
  const cpu_set_t all = Affinity();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one core";
  int first = 0;
  while (!CPU_ISSET(first, &all)) first++;
  int second = first + 1;
  while (!CPU_ISSET(second, &all)) second++;
  std::thread(body, first, second).join();
}

TEST(HomeCore, GoesThereAndKeepsTheAffinityOfItsThread) {
  OnTwoCores([](int, int second) {
    const cpu_set_t before = Affinity();
    HomeCore home;
    uint64_t now_us = 0;
    bool went = false, there = false;
    for (int i = 0; i < 1000 && !(went && there); i++) {  // the scheduler may be quicker, either way
      went = home.Follow(second, now_us += HomeCore::kHoldUs);
      there = sched_getcpu() == second;
      const cpu_set_t now = Affinity();
      ASSERT_TRUE(CPU_EQUAL(&now, &before));
      if (!went) std::this_thread::yield();
    }
    EXPECT_TRUE(there);
  });
}

TEST(HomeCore, GoesOnlyWhereItMayRun) {
  OnTwoCores([](int first, int second) {
    StayOn(first);
    HomeCore home;
    for (const int core : {second, -1, CPU_SETSIZE, CPU_SETSIZE - 1, first}) {
      EXPECT_FALSE(home.Follow(core, HomeCore::kHoldUs)) << core;
    }
    EXPECT_EQ(sched_getcpu(), first);
  });
}

TEST(HomeCore, GoesNotTooOften) {
  OnTwoCores([](int first, int second) {
    const cpu_set_t all = Affinity();
    HomeCore home;
    uint64_t went_us = 0;
    for (uint64_t now_us = HomeCore::kHoldUs; now_us < 20 * HomeCore::kHoldUs; now_us += 100) {
      if (!home.Follow(sched_getcpu() == first ? second : first, now_us)) continue;
      EXPECT_GE(now_us - went_us, HomeCore::kHoldUs);
      went_us = now_us;
    }
    EXPECT_GT(went_us, 0u);
    const cpu_set_t now = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&now, &all));
  });
}

}  // namespace
}  // namespace larder::transport
