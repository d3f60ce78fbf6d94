// Which of its I/O threads a client's connections live on.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "client/driver.h"
#include "tests/unit/client/client_fixture.h"

namespace larder::testing {
namespace {

// tcp, and a note of each connection's thread.
class NotingTransport final : public transport::Transport {
 public:
  explicit NotingTransport(int loops) {
    transport::TransportOptions options;
    options.threads = loops;
    transport::Error error;
    real_ = transport::MakeTransport("tcp", options, &error);
    EXPECT_TRUE(error.ok()) << error.text;
  }
  std::string_view name() const override { return real_->name(); }
  transport::Error Listen(const std::string& address, transport::Acceptor* acceptor,
                          std::string* bound) override {
    return real_->Listen(address, acceptor, bound);
  }
  std::shared_ptr<transport::Connection> Connect(const std::string& address,
                                                 std::shared_ptr<transport::Handler> handler,
                                                 const transport::ConnectOptions& options) override {
    const std::lock_guard lock(mutex_);
    loops_.push_back(options.loop);
    return real_->Connect(address, std::move(handler), options);
  }
  transport::Error AddRegion(const transport::Region& region) override { return real_->AddRegion(region); }
  void RemoveRegion(const std::byte* base, std::function<void()> released) override {
    real_->RemoveRegion(base, std::move(released));
  }
  transport::TransportStats stats() const override { return real_->stats(); }
  void Shutdown() override { real_->Shutdown(); }

  std::vector<int> loops() const {
    const std::lock_guard lock(mutex_);
    return loops_;
  }

 private:
  std::unique_ptr<transport::Transport> real_;
  mutable std::mutex mutex_;
  std::vector<int> loops_;
};

struct OneTransport final : client::World {
  explicit OneTransport(int loops) : tcp(loops) {}
  uint64_t NowUs() override { return transport::NowUs(); }
  transport::Transport* TransportFor(const std::string&, std::string*) override { return &tcp; }
  void TimerAt(uint64_t) override {}
  NotingTransport tcp;
};

class Loops : public FakeCluster {
 protected:
  struct Sink final : client::CompletionSink {
    void Push(Completion&& completion) override {
      const std::lock_guard lock(mutex);
      statuses.push_back(completion.status);
    }
    size_t count() {
      const std::lock_guard lock(mutex);
      return statuses.size();
    }
    std::mutex mutex;
    std::vector<Status> statuses;
  };

  void Run(client::Driver* driver, std::unique_ptr<client::Operation> operation) {
    const auto sink = std::make_shared<Sink>();
    operation->sink = sink;
    operation->deadline_us = transport::NowUs() + 10'000'000;
    ASSERT_TRUE(driver->Submit(std::move(operation)).ok());
    ASSERT_TRUE(Eventually([&] { return sink->count() == 1; }));
    ASSERT_TRUE(sink->statuses[0].ok()) << sink->statuses[0].ToString();
  }
};

// The connection to the seed becomes the first one of its node. Its second one was put on the same thread, so
// that half of the threads received everything.
TEST_F(Loops, TheConnectionsOfANodeAreSpreadOverTheThreadsCountingItsSeed) {
  StartNodes(1);
  const auto chain = Chain(64);
  StoreEverywhere(chain, 65536);
  for (const int threads : {2, 4}) {
    OneTransport world(threads);
    client::CoreOptions options;
    options.client.seeds = {nodes_[0]->address()};
    options.client.transport = "tcp";
    options.client.io_threads = threads;
    options.client.connections_per_peer = static_cast<uint32_t>(threads);
    client::Driver driver(options, &world);
    client::ClientNamespace made;
    OpenClient();  // says what the namespace is
    NamespaceHandle handle = ns_;
    made.identity = TestIdentity().CanonicalText();
    made.name_space = ns_.name_space;
    made.grid = ns_.grid;
    handle.index = driver.AddNamespace(made);
    Run(&driver, std::make_unique<client::OpenOperation>());
    Blocks blocks(chain, 65536);
    auto get = client::MakeGet(handle, blocks.items);
    ASSERT_TRUE(get.ok());
    get.value()->name_space = handle.index;
    Run(&driver, std::move(get).value());

    std::vector<int> loops = world.tcp.loops();
    std::sort(loops.begin(), loops.end());
    ASSERT_GE(loops.size(), 2u);
    EXPECT_GE(loops.front(), 0) << "a connection left to chance";
    EXPECT_EQ(std::unique(loops.begin(), loops.end()), loops.end()) << "two connections on one thread";
    driver.Shutdown();
    world.tcp.Shutdown();
  }
}

}  // namespace
}  // namespace larder::testing
