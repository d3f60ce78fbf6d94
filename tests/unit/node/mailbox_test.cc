#include "node/mailbox.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "transport/transport.h"

namespace larder::node {
namespace {

Request RequestOf(Priority priority, uint32_t hashes = 0) {
  Request request;
  request.envelope.priority = priority;
  Match match;
  match.hashes.resize(hashes);
  request.body = std::move(match);
  return request;
}

TEST(Mailbox, UrgentWorkAndBatchWorkAreApart) {
  Mailbox mailbox(100);
  EXPECT_TRUE(mailbox.Post(1, RequestOf(Priority::kBatch)));
  EXPECT_TRUE(mailbox.Post(1, Sent{5}));
  EXPECT_TRUE(mailbox.Post(2, RequestOf(Priority::kInteractive)));
  EXPECT_TRUE(mailbox.Post(1, Closed{}));
  Mailbox::Batch batch;
  mailbox.Take(&batch);
  ASSERT_EQ(batch.urgent.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<Sent>(batch.urgent[0].event));
  EXPECT_EQ(batch.urgent[1].session, 2u);
  ASSERT_EQ(batch.batch.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<Closed>(batch.batch[1].event)) << "behind the session's last request";

  mailbox.Post(1, RequestOf(Priority::kBatch));
  mailbox.Post(2, RequestOf(Priority::kInteractive));
  std::vector<Mailbox::Item> urgent;
  mailbox.TakeUrgent(&urgent);
  EXPECT_EQ(urgent.size(), 1u);
}

TEST(Mailbox, RequestsAreBoundedWhatFreesIsNot) {
  Mailbox mailbox(3, 100 * 32);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(mailbox.Post(1, RequestOf(Priority::kInteractive)));
  EXPECT_FALSE(mailbox.Post(1, RequestOf(Priority::kBatch)));
  EXPECT_TRUE(mailbox.Post(1, Sent{1}));
  EXPECT_TRUE(mailbox.Post(1, Committed{}));
  EXPECT_TRUE(mailbox.Post(1, Closed{}));
  Mailbox::Batch batch;
  mailbox.Take(&batch);
  EXPECT_TRUE(mailbox.Post(1, RequestOf(Priority::kInteractive, 90)));
  EXPECT_FALSE(mailbox.Post(1, RequestOf(Priority::kInteractive, 11)));
  std::vector<Mailbox::Item> urgent;
  mailbox.TakeUrgent(&urgent);
  EXPECT_TRUE(mailbox.Post(1, RequestOf(Priority::kInteractive, 100)));
}

TEST(Mailbox, AClosedOneStillHandsOutWhatItHas) {
  Mailbox mailbox(3);
  mailbox.PostCall([](Owner&) {});
  mailbox.Close();
  EXPECT_FALSE(mailbox.Post(1, Sent{1}));
  EXPECT_FALSE(mailbox.PostCall([](Owner&) {}));
  mailbox.SleepUntil(transport::NowUs() + 60'000'000);  // returns at once
  Mailbox::Batch batch;
  mailbox.Take(&batch);
  EXPECT_EQ(batch.calls.size(), 1u);
}

TEST(Mailbox, SleepersAreWoken) {
  Mailbox mailbox(1 << 20);
  constexpr int kThreads = 3, kEvents = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEvents; ++i) {
        mailbox.Post(static_cast<SessionId>(t), Sent{i});
        if (i % 512 == 0) std::this_thread::yield();
      }
    });
  }
  size_t got = 0;
  uint64_t next[kThreads] = {};
  Mailbox::Batch batch;
  while (got < size_t{kThreads} * kEvents) {
    mailbox.SleepUntil(transport::NowUs() + 60'000'000);  // a lost wake-up would take a minute
    mailbox.Take(&batch);
    for (const Mailbox::Item& item : batch.urgent) {
      ASSERT_EQ(std::get<Sent>(item.event).token, next[item.session]++);
    }
    got += batch.urgent.size();
    batch.urgent.clear();
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mailbox, NobodyStandsInForAnOwnerThatIsAwake) {
  Mailbox mailbox(10);
  EXPECT_FALSE(mailbox.StandIn(Sent{1}));
  mailbox.PostCall([](Owner&) {});
  mailbox.SleepUntil(transport::NowUs() + 60'000'000);  // returns at once
  EXPECT_FALSE(mailbox.StandIn(Sent{1}));
}

TEST(Mailbox, LongBatchedAndRareWorkIsTheOwners) {
  Mailbox mailbox(10);
  std::thread owner([&] { mailbox.SleepUntil(transport::NowUs() + 60'000'000); });
  while (!mailbox.StandIn(Sent{1})) std::this_thread::yield();
  EXPECT_FALSE(mailbox.StandIn(Sent{2})) << "one at a time";
  mailbox.StandBack(UINT64_MAX);
  Request clear;
  clear.body = Clear{};
  EXPECT_FALSE(mailbox.StandIn(clear));
  EXPECT_FALSE(mailbox.StandIn(Closed{}));
  EXPECT_FALSE(mailbox.StandIn(RequestOf(Priority::kBatch)));
  EXPECT_FALSE(mailbox.StandIn(RequestOf(Priority::kInteractive, 100'000)));
  EXPECT_TRUE(mailbox.StandIn(RequestOf(Priority::kInteractive, 100)));
  mailbox.StandBack(0);  // a timer that is over: the sleeper is woken
  owner.join();
}

// Three threads stand in where they can and post where they can't; the owner's thread has a timer every
// millisecond. One of them at a time, every event once and in its session's order, and nobody sleeps while
// something waits.
TEST(Mailbox, OneAtATimeIsTheOwner) {
  Mailbox mailbox(1 << 20);
  constexpr int kThreads = 3, kEvents = 20'000;
  uint64_t next[kThreads] = {};  // unguarded: TSan watches them
  int stood_in = 0;
  std::atomic<int> inside{0};
  std::atomic<size_t> left{size_t{kThreads} * kEvents};
  const auto handle = [&](SessionId session, uint64_t token) {
    EXPECT_EQ(inside.fetch_add(1), 0);
    EXPECT_EQ(token, next[session]++);
    inside.fetch_sub(1);
    left.fetch_sub(1);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kEvents; ++i) {
        Event event = Sent{i};
        if (mailbox.StandIn(event)) {
          handle(static_cast<SessionId>(t), i);
          ++stood_in;
          mailbox.StandBack(UINT64_MAX);
        } else {
          mailbox.Post(static_cast<SessionId>(t), std::move(event));
        }
        if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  }
  Mailbox::Batch batch;
  while (left > 0) {
    mailbox.SleepUntil(transport::NowUs() + 1'000);
    mailbox.Take(&batch);
    for (const Mailbox::Item& item : batch.urgent) handle(item.session, std::get<Sent>(item.event).token);
    batch.urgent.clear();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(stood_in, 0);
}

}  // namespace
}  // namespace larder::node
