// What copies of hot blocks are worth on a trace: sixteen owners with their sessions and as many clients with
// their cores, one of each on a host, over loopback in virtual time, play it by its own times: without
// copies, with those of hot blocks, and with near ones too. A request looks how much of its chain is there,
// gets that, puts the rest and touches it all. Prints what the busiest node is read, against the mean, and
// how many of the hits were served on the reader's own host.
//
//   larder-hot-trace TRACE [REQUESTS]    fails when it is more than 1.10 with copies, or near copies serve
//                                        fewer on the own host than there are without; exit 77: no such file
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>

#include "client/driver.h"
#include "tests/bench/sim/sim_trace.h"
#include "tests/simulation/sim_copies.h"

namespace larder::simulation {
namespace {

using transport::loopback::Network;

constexpr int kNodes = 16;
constexpr uint64_t kSeed = 7;
constexpr size_t kBlockBytes = 64;
constexpr int kSkipped = 77;
constexpr uint64_t kSecondUs = 1'000'000;

client::ClientNamespace TraceNamespace() {
  Identity identity;
  LARDER_CHECK(identity.Set("kind", "kv").ok() && identity.Set("layers", "1").ok() &&
               identity.Set("head_groups", "1").ok() && identity.Set("model", "trace").ok());
  client::ClientNamespace out;
  out.identity = identity.CanonicalText();
  out.name_space = NamespaceOf(identity, "", "");
  out.grid = GridOf(identity).value();
  return out;
}

void Fill(const ChainHash& hash, std::vector<std::byte>* out) {
  out->resize(kBlockBytes);
  for (size_t at = 0; at < kBlockBytes; at += sizeof hash.bytes)
    std::memcpy(out->data() + at, hash.bytes.data(), sizeof hash.bytes);
}

// One host's engine: one request at a time, the others wait.
class Engine final : public client::World {
 public:
  Engine(Network* network, const std::string& name, const std::vector<std::string>& seeds, uint64_t seed)
      : network_(network), transport_(network->MakeTransport(name)), sink_(std::make_shared<Sink>(this)) {
    client::CoreOptions core;
    core.client.seeds = seeds;
    core.client.transport = "auto";
    core.host_id = name;
    core.seed = seed;
    driver_ = std::make_unique<client::Driver>(core, this);
    const client::ClientNamespace name_space = TraceNamespace();
    handle_.index = driver_->AddNamespace(name_space);
    handle_.name_space = name_space.name_space;
    handle_.grid = name_space.grid;
    Submit(std::make_unique<client::OpenOperation>());
  }
  ~Engine() override {
    driver_->Shutdown();
    transport_->Shutdown();
  }

  void Play(std::vector<ChainHash>&& chain) {
    waiting_.push_back(std::move(chain));
    if (ready_ && waiting_.size() == 1) Begin();
  }
  bool idle() const { return waiting_.empty(); }
  uint64_t hits() const { return hits_; }
  uint64_t local_hits() const { return driver_->stats().local_hits; }
  uint64_t wrong() const { return wrong_; }
  uint64_t lost() const { return lost_; }

 private:
  struct Sink final : client::CompletionSink {
    explicit Sink(Engine* engine) : owner(engine) {}
    void Push(Completion&& completion) override { done.push_back(std::move(completion)); }
    void Wake() override {
      while (!done.empty()) {
        const Completion completion = std::move(done.front());
        done.pop_front();
        owner->OnDone(completion);
      }
    }
    Engine* const owner;
    std::deque<Completion> done;
  };

  uint64_t NowUs() override { return network_->now_us(); }
  transport::Transport* TransportFor(const std::string&, std::string*) override { return transport_.get(); }
  void TimerAt(uint64_t us) override {
    network_->At(std::max(us, network_->now_us()), [this] { driver_->OnTimer(); });
  }

  void Submit(std::unique_ptr<client::Operation> operation) {
    operation->name_space = handle_.index;
    operation->sink = sink_;
    operation->deadline_us = network_->now_us() + 5 * kSecondUs;
    kind_ = operation->kind;
    LARDER_CHECK(driver_->Submit(std::move(operation)).ok());
  }
  void Begin() {
    MatchRequest request;
    request.chain = waiting_.front();
    Submit(client::MakeMatch(handle_, request).value());
  }
  void OnDone(const Completion& completion) {
    switch (kind_) {
      case client::Kind::kOpen:
        LARDER_CHECK(completion.status.ok());
        ready_ = true;
        break;
      case client::Kind::kMatch:
        usable_ = completion.match.usable_length;
        return usable_ != 0 ? Get() : Put();
      case client::Kind::kGet:
        CheckGet(completion);
        return usable_ < waiting_.front().size() ? Put() : Finish();
      default:
        return Finish();
    }
    if (!waiting_.empty()) Begin();
  }
  void Get() {
    const std::vector<ChainHash>& chain = waiting_.front();
    memory_.assign(usable_, std::vector<std::byte>(kBlockBytes));
    std::vector<GetItem> items(usable_);
    for (size_t i = 0; i < usable_; ++i) {
      items[i].hash = chain[i];
      items[i].extents.push_back({memory_[i].data(), kBlockBytes});
    }
    Submit(client::MakeGet(handle_, items).value());
  }
  void CheckGet(const Completion& completion) {
    std::vector<std::byte> expected;
    for (size_t i = 0; i < usable_; ++i) {
      Fill(waiting_.front()[i], &expected);
      const bool hit = completion.blocks[i].outcome == Outcome::kHit;
      hits_ += hit ? 1 : 0;
      lost_ += hit ? 0 : 1;
      wrong_ += hit && memory_[i] != expected ? 1 : 0;
    }
  }
  void Put() {
    const std::vector<ChainHash>& chain = waiting_.front();
    memory_.assign(chain.size() - usable_, {});
    std::vector<PutItem> items(memory_.size());
    for (size_t i = 0; i < items.size(); ++i) {
      Fill(chain[usable_ + i], &memory_[i]);
      items[i].hash = chain[usable_ + i];
      items[i].depth = static_cast<uint32_t>(usable_ + i);
      items[i].extents.push_back({memory_[i].data(), kBlockBytes});
    }
    Submit(client::MakePut(handle_, items).value());
  }
  void Finish() {
    TouchRequest touch;
    touch.chain = waiting_.front();
    touch.usable_length = static_cast<uint32_t>(usable_);
    driver_->Touch(handle_.index, touch);
    waiting_.pop_front();
    if (!waiting_.empty()) Begin();
  }

  Network* const network_;
  std::unique_ptr<transport::Transport> transport_;
  std::shared_ptr<Sink> sink_;
  std::unique_ptr<client::Driver> driver_;
  NamespaceHandle handle_;
  client::Kind kind_ = client::Kind::kOpen;
  bool ready_ = false;
  size_t usable_ = 0;
  std::deque<std::vector<ChainHash>> waiting_;
  std::vector<std::vector<std::byte>> memory_;
  uint64_t hits_ = 0, lost_ = 0, wrong_ = 0;
};

struct Load {
  double max_over_mean = 0, own_host = 0;  // of the hits
  uint64_t reads = 0, lost = 0, wrong = 0, copies = 0, copied = 0, copy_reads = 0;
  std::string broken;
};

struct Kind {
  const char* name;
  uint32_t copies_max, near_share;
};

Load Play(const sim::SimTrace& trace, size_t requests, const Kind& kind) {
  std::mt19937_64 random(kSeed);
  Network network(random());
  NodeTable table;
  table.epoch = 1;
  std::vector<std::string> seeds;
  for (int i = 0; i < kNodes; ++i) {
    NodeRecord record;
    record.id = "node-" + std::to_string(i);
    record.data_address = record.id + ":7400";
    record.host_id = "host-" + std::to_string(i);
    record.shm_path = record.data_address;  // what is over shm goes over loopback too
    table.nodes.push_back(record);
    seeds.push_back(record.data_address);
  }
  table.Normalize();
  std::map<std::string, std::unique_ptr<SimNode>> nodes;
  for (const NodeRecord& record : table.nodes) {
    SimNodeOptions options;
    options.name = record.id;
    options.table = table;
    options.owner.memory_bytes = 64 << 20;
    options.owner.eviction_policy = node::PolicyKind::kLru;
    options.owner.hot_copies_max = kind.copies_max;
    options.owner.near_share_percent = kind.near_share;
    nodes[record.id] = std::make_unique<SimNode>(&network, options, random(), 1);
  }
  SimCopies copies(&network, table,
                   [&](const std::string&, const std::string& name) { return nodes.at(name).get(); });
  std::vector<std::unique_ptr<Engine>> engines;
  for (int i = 0; i < kNodes; ++i) {
    engines.push_back(std::make_unique<Engine>(&network, "host-" + std::to_string(i), seeds, random()));
  }
  network.RunUntil(network.now_us() + kSecondUs);
  const uint64_t begin_us = network.now_us();
  uint64_t round_us = begin_us;
  for (size_t i = 0; i < std::min(requests, trace.requests.size()); ++i) {
    const sim::SimRequest& request = trace.requests[i];
    for (const uint64_t at_us = begin_us + request.now_us; round_us <= at_us; round_us += kSecondUs) {
      network.RunUntil(round_us);
      for (const auto& [name, node] : nodes) copies.Round(node.get());
    }
    network.RunUntil(begin_us + request.now_us);
    std::vector<ChainHash> chain;
    for (const uint32_t block : trace.BlocksOf(request)) chain.push_back(sim::HashOfBlock(block));
    engines[random() % kNodes]->Play(std::move(chain));
  }
  network.RunUntil(network.now_us() + 10 * kSecondUs);
  Load load;
  uint64_t most = 0, hits = 0, local_hits = 0;
  for (const auto& [name, node] : nodes) {
    const node::OwnerStats stats = node->owner().stats();
    most = std::max(most, stats.get_hits);
    load.reads += stats.get_hits;
    load.copies += stats.hot_copies;
    load.copied += stats.hot_copied;
    load.copy_reads += stats.copy_reads;
    if (load.broken.empty()) load.broken = node->Check();
  }
  for (const auto& engine : engines) {
    if (!engine->idle() && load.broken.empty()) load.broken = "a request has not ended";
    hits += engine->hits();
    local_hits += engine->local_hits();
    load.lost += engine->lost();
    load.wrong += engine->wrong();
  }
  load.max_over_mean = static_cast<double>(most) * kNodes / static_cast<double>(load.reads);
  load.own_host = static_cast<double>(local_hits) / static_cast<double>(hits);
  return load;
}

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "larder-hot-trace TRACE [REQUESTS]\n");
    return 2;
  }
  if (!std::filesystem::exists(argv[1])) {
    std::printf("%s is not here\n", argv[1]);
    return kSkipped;
  }
  const Result<sim::SimTrace> trace = sim::ReadSimTrace(argv[1]);
  if (!trace.ok()) {
    std::fprintf(stderr, "%s\n", trace.status().text().c_str());
    return 2;
  }
  const size_t requests = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : SIZE_MAX;
  bool well = true;
  double own_host = 1;  // of the last kind
  for (const Kind& kind :
       {Kind{"without copies", 0, 0}, Kind{"with hot copies", 63, 0}, Kind{"with near copies too", 63, 20}}) {
    const Load load = Play(trace.value(), requests, kind);
    std::printf(
        "%s: read load max/mean %.3f; %.1f %% of the hits on the own host; %llu reads, %llu of them from "
        "copies; %llu copies at the end, %llu "
        "made; %llu matched blocks were gone when asked for, %llu wrong%s%s\n",
        kind.name, load.max_over_mean, load.own_host * 100, static_cast<unsigned long long>(load.reads),
        static_cast<unsigned long long>(load.copy_reads), static_cast<unsigned long long>(load.copies),
        static_cast<unsigned long long>(load.copied), static_cast<unsigned long long>(load.lost),
        static_cast<unsigned long long>(load.wrong), load.broken.empty() ? "" : "; ", load.broken.c_str());
    std::fflush(stdout);
    well = well && load.broken.empty() && load.wrong == 0 && load.lost == 0;
    if (kind.copies_max != 0) well = well && load.max_over_mean <= 1.10;
    if (kind.near_share != 0) well = well && load.own_host > own_host;
    own_host = load.own_host;
  }
  return well ? 0 : 1;
}

}  // namespace
}  // namespace larder::simulation

int main(int argc, char** argv) {
  return larder::simulation::Main(argc, argv);
}
