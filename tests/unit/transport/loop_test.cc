// The event loop by itself.
#include "transport/loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace larder::transport {
namespace {

// Writes its letter down each turn; asks for `again` more turns.
class Letter : public Source {
 public:
  Letter(Loop& loop, char letter, bool batch, int again, std::string* log)
      : loop_(loop), letter_(letter), again_(again), log_(log) {
    batch_source_ = batch;
  }
  void OnTurn(uint32_t events) override {
    if ((events & kStop) != 0) return loop_.Remove(this);
    *log_ += letter_;
    turns++;
    if (again_-- > 0) loop_.Again(this);
  }
  static std::atomic<int> turns;

 private:
  Loop& loop_;
  const char letter_;
  int again_;
  std::string* const log_;
};

std::atomic<int> Letter::turns{0};

TEST(Loop, ServesInteractiveSourcesBeforeOneBatchSource) {
  Letter::turns = 0;
  Loop loop(0);
  ASSERT_TRUE(loop.Start().ok());
  std::string log;
  const std::pair<char, bool> letters[] = {{'X', true}, {'a', false}, {'Y', true}, {'b', false}};
  loop.Post([&] {
    for (const auto& [letter, batch] : letters) {
      auto source = std::make_shared<Letter>(loop, letter, batch, 2, &log);
      Letter* raw = source.get();
      loop.Add(std::move(source));
      loop.Again(raw);
    }
  });
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (Letter::turns < 12 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  loop.Stop();
  // Each round: all interactive ones, then the batch one that waited longest.
  EXPECT_EQ(log.substr(0, 9), "abXabYabX");
  EXPECT_EQ(log.size(), 12u);
}

class Ticker : public Source {
 public:
  explicit Ticker(Loop& loop) : loop_(loop) {}
  void OnTurn(uint32_t events) override {
    if ((events & kStop) != 0) return loop_.Remove(this);
    if ((events & kTimer) == 0) return;
    EXPECT_GE(NowUs(), due_us);
    if (++fired < 3) Arm();
  }
  void Arm() { loop_.SetTimer(this, due_us = NowUs() + 2000); }
  std::atomic<int> fired{0};
  uint64_t due_us = 0;

 private:
  Loop& loop_;
};

TEST(Loop, TimersFireOnceAndNotEarly) {
  for (const uint32_t spin_us : {0u, 500u}) {
    Loop loop(spin_us);
    ASSERT_TRUE(loop.Start().ok());
    auto ticker = std::make_shared<Ticker>(loop);
    auto silent = std::make_shared<Ticker>(loop);
    loop.Post([&] {
      loop.Add(ticker);
      loop.Add(silent);
      ticker->Arm();
      silent->Arm();
      loop.SetTimer(silent.get(), 0);
    });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (ticker->fired < 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    loop.Stop();
    EXPECT_EQ(ticker->fired, 3);
    EXPECT_EQ(silent->fired, 0);
  }
}

TEST(Loop, PostsRunInOrderAndAreRefusedAfterStop) {
  Loop loop(0);
  ASSERT_TRUE(loop.Start().ok());
  int next = 0;
  for (int i = 0; i < 1000; i++) {
    ASSERT_TRUE(loop.Post([&next, i] { EXPECT_EQ(next++, i); }));
    if (i % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // let it fall asleep
  }
  loop.Stop();
  EXPECT_EQ(next, 1000);
  EXPECT_FALSE(loop.Post([&next] { next++; }));
  EXPECT_FALSE(loop.Post(std::make_shared<Ticker>(loop)));
  EXPECT_EQ(next, 1000);
}

TEST(Loop, ForgetsTurnsOfSourcesThatWereRemoved) {
  Loop loop(0);
  ASSERT_TRUE(loop.Start().ok());
  std::string log;
  auto source = std::make_shared<Letter>(loop, 'x', false, 0, &log);
  loop.Post([&] {
    loop.Add(source);
    loop.Again(source.get());
    loop.SetTimer(source.get(), NowUs() + 1);
    loop.Remove(source.get());
  });
  loop.Post(source);
  loop.Stop();
  EXPECT_EQ(log, "");
}

}  // namespace
}  // namespace larder::transport
