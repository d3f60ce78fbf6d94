// Submit, completion queues, cancelling, buffers, and what bad arguments are answered.
#include <poll.h>

#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

class Async : public FakeCluster {};

bool Readable(int fd) {
  pollfd poller{fd, POLLIN, 0};
  return poll(&poller, 1, 0) == 1;
}

TEST_F(Async, CompletionsCarryTheirResultsAndUserData) {
  StartNodes(2);
  OpenClient();
  const auto chain = Chain(8);
  const auto queue = client_->MakeQueue();
  EXPECT_FALSE(Readable(queue->event_fd()));
  EXPECT_TRUE(queue->Poll(8, 0).empty());

  std::vector<Bytes> payloads;
  std::vector<PutItem> puts(chain.size());
  for (size_t i = 0; i < chain.size(); ++i) {
    payloads.push_back(Payload(chain[i], 8192));
    puts[i].hash = chain[i];
    puts[i].extents = {{payloads[i].data(), payloads[i].size()}};
  }
  const OperationId put = client_->SubmitPut(queue.get(), 11, ns_, puts).value();
  std::vector<Completion> done = queue->Poll(8, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].id, put);
  EXPECT_EQ(done[0].user_data, 11u);
  ASSERT_EQ(done[0].puts.size(), chain.size());
  for (const PutResult& result : done[0].puts) EXPECT_EQ(result.state, PutState::kStored);

  Blocks blocks(chain, 8192);
  MatchRequest match;
  match.chain = chain;
  WaitRequest wait;
  wait.chain = chain;
  ASSERT_TRUE(client_->SubmitGet(queue.get(), 1, ns_, blocks.items).ok());
  ASSERT_TRUE(client_->SubmitMatch(queue.get(), 2, ns_, match).ok());
  ASSERT_TRUE(client_->SubmitWait(queue.get(), 3, ns_, wait).ok());
  ASSERT_TRUE(client_->SubmitPrefetch(queue.get(), 4, ns_, wait).ok());
  size_t seen = 0;
  while (seen < 4) {
    for (const Completion& completion : queue->Poll(1, 10'000'000)) {
      ++seen;
      EXPECT_TRUE(completion.status.ok());
      EXPECT_EQ(completion.blocks.size(), completion.user_data == 1 ? chain.size() : 0);
      EXPECT_EQ(completion.match.usable_length, completion.user_data == 2 ? chain.size() : 0);
      EXPECT_EQ(completion.leading, completion.user_data == 3 ? chain.size() : 0);
      EXPECT_EQ(completion.count, completion.user_data == 4 ? chain.size() : 0);
      EXPECT_EQ(completion.kind == CompletionKind::kPrefetch, completion.user_data == 4);
    }
  }
  EXPECT_EQ(blocks.landed, payloads);
  EXPECT_FALSE(Readable(queue->event_fd()));
}

TEST_F(Async, TheEventfdIsReadableWhileSomethingIsThere) {
  StartNodes(1);
  OpenClient();
  const auto queue = client_->MakeQueue();
  const auto chain = Chain(1);
  MatchRequest match;
  match.chain = chain;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->SubmitMatch(queue.get(), 0, ns_, match).ok());
  pollfd poller{queue->event_fd(), POLLIN, 0};
  ASSERT_EQ(poll(&poller, 1, 10'000), 1);
  EXPECT_TRUE(Eventually([&] { return client_->stats().operations == 0; }));
  EXPECT_EQ(queue->Poll(2, 0).size(), 2u);
  EXPECT_TRUE(Readable(queue->event_fd()));
  EXPECT_EQ(queue->Poll(2, 0).size(), 1u);
  EXPECT_FALSE(Readable(queue->event_fd()));
}

TEST_F(Async, CancelWaitingLeavesWhatIsUnderWay) {
  StartNodes(1);
  OpenClient({.connections_per_peer = 1, .peer_bytes_in_flight_max = 16384});
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  const auto chain = Chain(4);
  StoreEverywhere(chain, 8192);
  const auto queue = client_->MakeQueue();
  Blocks blocks(chain, 8192);
  const OperationId id = client_->SubmitGet(queue.get(), 1, ns_, blocks.items).value();
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kGet) == 1; }));
  client_->CancelWaiting(id);
  EXPECT_TRUE(queue->Poll(1, 0).empty()) << "two blocks are still under way";
  nodes_[0]->SendSwallowed();
  const std::vector<Completion> done = queue->Poll(1, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].status.code(), Code::kCancelled);
  ASSERT_EQ(done[0].blocks.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(done[0].blocks[i].outcome, i < 2 ? Outcome::kHit : Outcome::kMiss) << i;
    if (i < 2) {
      EXPECT_EQ(blocks.landed[i], Payload(chain[i], 8192));
    }
  }
  EXPECT_EQ(nodes_[0]->seen(Verb::kGet), 1u);
  EXPECT_EQ(nodes_[0]->seen(Verb::kCancel), 0u);
}

TEST_F(Async, AReportReachesEveryCopy) {
  StartNodes(2);
  OpenClient({.replicas = 2});
  const auto chain = Chain(3);
  EXPECT_TRUE(client_->Report(ns_, {.hashes = chain}).ok());
  EXPECT_TRUE(
      Eventually([&] { return nodes_[0]->seen(Verb::kReport) == 1 && nodes_[1]->seen(Verb::kReport) == 1; }));
  EXPECT_EQ(client_->stats().reports, 3u);
  const auto many = Chain(kBlocksMax + 1);
  EXPECT_EQ(client_->Report(ns_, {.hashes = many}).code(), Code::kInvalid);
}

TEST_F(Async, AnEventfdThatIsAskedForLateShowsWhatIsThere) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(1);
  const auto queue = client_->MakeQueue();
  ASSERT_TRUE(client_->SubmitMatch(queue.get(), 1, ns_, {.chain = chain}).ok());
  ASSERT_TRUE(Eventually([&] { return client_->stats().operations == 0; }));
  pollfd ready{queue->event_fd(), POLLIN, 0};
  ASSERT_GE(ready.fd, 0);
  EXPECT_EQ(poll(&ready, 1, 10'000), 1);
  EXPECT_EQ(queue->Poll(8, 0).size(), 1u);
  EXPECT_EQ(poll(&ready, 1, 0), 0);
}

TEST_F(Async, CancelEndsAnOperationAndFreesItsPlace) {
  StartNodes(1);
  OpenClient({.operations_max = 2});
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  const auto chain = Chain(2);
  StoreEverywhere(chain, 8192);
  const auto queue = client_->MakeQueue();
  Blocks blocks(chain, 8192);
  const OperationId first = client_->SubmitGet(queue.get(), 1, ns_, blocks.items).value();
  ASSERT_TRUE(client_->SubmitGet(queue.get(), 2, ns_, blocks.items).ok());
  EXPECT_EQ(client_->SubmitGet(queue.get(), 3, ns_, blocks.items).status().code(), Code::kBusy);
  EXPECT_EQ(client_->Get(ns_, blocks.items)[0].reason, Presence::kBusy);
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kGet) == 2; }));
  client_->Cancel(first);
  client_->Cancel(first + 1'000'000);  // unknown: nothing
  const std::vector<Completion> done = queue->Poll(8, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].user_data, 1u);
  EXPECT_EQ(done[0].status.code(), Code::kCancelled);
  ASSERT_EQ(done[0].blocks.size(), 2u);
  EXPECT_EQ(done[0].blocks[0].outcome, Outcome::kMiss);
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kCancel) == 1; }));
  EXPECT_TRUE(client_->SubmitGet(queue.get(), 4, ns_, blocks.items).ok());
}

TEST_F(Async, ClosingTheClientCompletesEverything) {
  StartNodes(1);
  OpenClient();
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet || envelope.verb == Verb::kWait ? Manners::kSwallow : Manners::kAnswer;
  };
  const auto chain = Chain(3);
  const auto queue = client_->MakeQueue();
  Blocks blocks(chain, 8192);
  WaitRequest wait;
  wait.chain = chain;
  ASSERT_TRUE(client_->SubmitGet(queue.get(), 1, ns_, blocks.items).ok());
  ASSERT_TRUE(client_->SubmitWait(queue.get(), 2, ns_, wait).ok());
  client_.reset();
  const std::vector<Completion> done = queue->Poll(8, 0);
  ASSERT_EQ(done.size(), 2u);
  for (const Completion& completion : done) EXPECT_EQ(completion.status.code(), Code::kCancelled);
}

TEST_F(Async, AQueueMayGoBeforeItsOperationsComplete) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(1);
  MatchRequest match;
  match.chain = chain;
  for (int i = 0; i < 100; ++i) {
    const auto queue = client_->MakeQueue();
    ASSERT_TRUE(client_->SubmitMatch(queue.get(), 0, ns_, match).ok());
  }
  EXPECT_TRUE(Eventually([&] { return client_->stats().operations == 0; }));
}

TEST_F(Async, BuffersOutliveTheirHandlesWhileTheyAreUsed) {
  StartNodes(1);
  OpenClient();
  nodes_[0]->manners = [](const Envelope& envelope) {
    return envelope.verb == Verb::kGet ? Manners::kSwallow : Manners::kAnswer;
  };
  const auto chain = Chain(1);
  StoreEverywhere(chain, 1 << 20);
  const auto queue = client_->MakeQueue();
  Result<std::unique_ptr<Buffer>> buffer = client_->AllocateBuffer((1 << 20) + 5);
  ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
  EXPECT_EQ(buffer.value()->bytes(), (1u << 20) + 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.value()->data()) % 4096, 0u);
  GetItem item;
  item.hash = chain[0];
  item.extents = {{buffer.value()->data(), 1 << 20}};
  ASSERT_TRUE(client_->SubmitGet(queue.get(), 1, ns_, {&item, 1}).ok());
  EXPECT_TRUE(Eventually([&] { return nodes_[0]->seen(Verb::kGet) == 1; }));
  buffer.value().reset();  // too early, but not a crash
  nodes_[0]->SendSwallowed();
  const std::vector<Completion> done = queue->Poll(1, 10'000'000);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].blocks[0].outcome, Outcome::kHit);
  EXPECT_FALSE(client_->AllocateBuffer(0).ok());
}

TEST_F(Async, BadArgumentsAreAnsweredNotActedOn) {
  StartNodes(1);
  OpenClient();
  const auto chain = Chain(3);
  Bytes memory(8192);
  MatchRequest match;
  match.chain = chain;
  EXPECT_EQ(client_->Match(NamespaceHandle{}, match).status.code(), Code::kInvalid);
  match.groups.clear();
  EXPECT_EQ(client_->Match(ns_, match).status.code(), Code::kInvalid);
  match.groups.assign(kGroupsMax + 1, {});
  EXPECT_EQ(client_->Match(ns_, match).status.code(), Code::kInvalid);
  match.groups = {{}};
  const std::vector<ChainHash> too_long(kHashesMax + 1);
  match.chain = too_long;
  EXPECT_EQ(client_->Match(ns_, match).status.code(), Code::kInvalid);
  match.chain = {};
  EXPECT_EQ(client_->Match(ns_, match).usable_length, 0u);
  EXPECT_TRUE(client_->Match(ns_, match).status.ok());

  PutItem put;
  put.hash = chain[0];
  put.extents = {{memory.data(), 8191}};  // not eight equal parts
  EXPECT_EQ(client_->Put(ns_, {&put, 1})[0].state, PutState::kInvalid);
  put.extents = {{memory.data(), 8192}};
  put.parts = {{8, 1023}};
  EXPECT_EQ(client_->Put(ns_, {&put, 1})[0].why.code(), Code::kInvalid);
  put.parts = {{7, 1024}, {1, 1024}};
  EXPECT_EQ(client_->Put(ns_, {&put, 1})[0].state, PutState::kStored);
  put.whole = false;
  put.rectangle = {0, 5, 0, 1};
  EXPECT_EQ(client_->Put(ns_, {&put, 1})[0].state, PutState::kInvalid);
  put.extents = {{nullptr, 10}};
  EXPECT_EQ(client_->Put(ns_, {&put, 1})[0].state, PutState::kInvalid);

  GetItem get;
  get.hash = chain[0];
  EXPECT_EQ(client_->Get(ns_, {&get, 1})[0].outcome, Outcome::kRefused);
  EXPECT_TRUE(client_->Get(ns_, {}).empty());
  EXPECT_TRUE(client_->Put(ns_, {}).empty());

  Identity identity;
  ASSERT_TRUE(identity.Set("kind", "nonsense").ok());
  EXPECT_FALSE(client_->OpenNamespace(identity).ok());
  EXPECT_FALSE(client_->OpenNamespace(TestIdentity(), std::string(kTenantBytesMax + 1, 'x')).ok());
}

TEST_F(Async, BadOptionsSayWhatIsWrong) {
  const auto refused = [](const std::function<void(ClientOptions*)>& change) {
    ClientOptions options;
    options.seeds = {"127.0.0.1:1"};
    change(&options);
    const auto client = Client::Open(options, 1000);
    return !client.ok() && client.status().code() == Code::kInvalid && !client.status().text().empty();
  };
  EXPECT_TRUE(refused([](ClientOptions* options) { options->seeds.clear(); }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->transport = "pigeon"; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->io_threads = 0; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->connections_per_peer = 9; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->replicas = 0; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->token = std::string(257, 'x'); }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->operations_max = 0; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->bytes_in_flight_max = 1; }));
  EXPECT_TRUE(refused([](ClientOptions* options) { options->backoff_min_us = options->backoff_max_us + 1; }));
}

}  // namespace
}  // namespace larder::testing
