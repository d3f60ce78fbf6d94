#include "node/mailbox.h"

#include <gtest/gtest.h>

#include <thread>

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
  mailbox.Sleep(60'000'000);  // returns at once
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
    mailbox.Sleep(60'000'000);  // a lost wake-up would take a minute
    mailbox.Take(&batch);
    for (const Mailbox::Item& item : batch.urgent) {
      ASSERT_EQ(std::get<Sent>(item.event).token, next[item.session]++);
    }
    got += batch.urgent.size();
    batch.urgent.clear();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace larder::node
