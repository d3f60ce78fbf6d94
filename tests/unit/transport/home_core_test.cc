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

// In a thread of its own: the affinity of the test's stays.
template <typename Body>
void InThread(Body body) {
  std::thread(body).join();
}

TEST(HomeCore, SettlesOnOneCoreAndGivesTheOthersBack) {
  InThread([] {
    const cpu_set_t before = Affinity();
    HomeCore home(0, 1);
    home.Settle(1);
    EXPECT_TRUE(home.staying());
    cpu_set_t now = Affinity();
    EXPECT_EQ(CPU_COUNT(&now), 1);
    home.Release();
    now = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&now, &before));
  });
}

TEST(HomeCore, ThreadsOfOneSetSettleOnDifferentCores) {
  cpu_set_t all = Affinity();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one core";
  cpu_set_t taken[2];
  for (const uint32_t at : {0u, 1u}) {
    InThread([&] {
      HomeCore home(at, 2);
      home.Settle(1);
      taken[at] = Affinity();
    });
  }
  EXPECT_FALSE(CPU_EQUAL(&taken[0], &taken[1]));
}

TEST(HomeCore, LetsTheSchedulerChooseNowAndThen) {
  InThread([] {
    HomeCore home(0, 1);
    uint64_t now_us = 1;
    home.Settle(now_us);
    home.Settle(now_us += HomeCore::kStayUs);
    EXPECT_TRUE(home.staying());
    home.Settle(now_us += 1);
    EXPECT_FALSE(home.staying());
    home.Settle(now_us += HomeCore::kFreeUs - 1);
    EXPECT_FALSE(home.staying());
    home.Settle(now_us += 1);
    EXPECT_TRUE(home.staying());
  });
}

TEST(HomeCore, FollowsOnlyWhereItMayRunAndNotTooOften) {
  cpu_set_t all = Affinity();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one core";
  int first = 0;
  while (!CPU_ISSET(first, &all)) first++;
  int second = first + 1;
  while (!CPU_ISSET(second, &all)) second++;
  InThread([&] {
    HomeCore home(0, 1);
    for (const int nonsense : {-1, CPU_SETSIZE, CPU_SETSIZE - 1}) home.Follow(nonsense, 1);
    cpu_set_t now = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&now, &all));
    home.Follow(second, 1);
    now = Affinity();
    EXPECT_TRUE(CPU_ISSET(second, &now) && CPU_COUNT(&now) == 1);
    home.Follow(first, HomeCore::kHoldUs);
    now = Affinity();
    EXPECT_TRUE(CPU_ISSET(second, &now));
    home.Follow(first, HomeCore::kHoldUs + 1);
    now = Affinity();
    EXPECT_TRUE(CPU_ISSET(first, &now) && CPU_COUNT(&now) == 1);
    home.Release();
    now = Affinity();
    EXPECT_TRUE(CPU_EQUAL(&now, &all));
  });
}

}  // namespace
}  // namespace larder::transport
