#include "tests/simulation/sim_client.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "proto/checksum.h"

namespace larder::simulation {

namespace {
constexpr size_t kOperationsMax = 12;
constexpr size_t kQuietMax = 32;
// A transport may need so long to let go of memory after the deadline (client/core: kGraceUs, and a link's
// delay).
constexpr uint64_t kLateUs = 30'000;
constexpr std::byte kUntouched{0xA5};
}  // namespace

Universe::Universe(uint64_t seed, size_t chain_count, size_t blocks_max) {
  std::mt19937_64 random(seed);
  Identity identity;
  LARDER_CHECK(identity.Set("kind", "kv").ok() && identity.Set("layers", "4").ok() &&
               identity.Set("head_groups", "2").ok() && identity.Set("model", "simulated").ok());
  const Result<Grid> grid = GridOf(identity);
  LARDER_CHECK(grid.ok());
  name_space.identity = identity.CanonicalText();
  name_space.name_space = NamespaceOf(identity, "", "");
  name_space.grid = grid.value();
  block_bytes = 8 * (64 + 8 * (random() % 1024));
  for (size_t c = 0; c < chain_count; c++) {
    std::vector<ChainHash> chain;
    if (c > 0 && random() % 2 == 0) {  // begins like an earlier one
      const auto& other = chains[random() % c];
      chain.assign(other.begin(), other.begin() + static_cast<ptrdiff_t>(random() % (other.size() + 1)));
    }
    const size_t length = std::max<size_t>(chain.size(), 1 + random() % blocks_max);
    while (chain.size() < length) {
      const uint64_t salt = random();
      chain.push_back(NextLink(chain.empty() ? ChainHash{} : chain.back(),
                               {reinterpret_cast<const std::byte*>(&salt), sizeof salt}));
    }
    chains.push_back(std::move(chain));
  }
}

void Universe::Fill(const ChainHash& hash, std::span<std::byte> out) const {
  uint64_t state;
  std::memcpy(&state, hash.bytes.data(), sizeof state);
  for (size_t at = 0; at < out.size(); at += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(out.data() + at, &word, std::min<size_t>(8, out.size() - at));
  }
}

bool Universe::Equal(const ChainHash& hash, std::span<const std::byte> bytes) const {
  std::vector<std::byte> expected(bytes.size());
  Fill(hash, expected);
  return std::memcmp(expected.data(), bytes.data(), bytes.size()) == 0;
}

struct SimClient::Pending {
  client::Kind kind = client::Kind::kMatch;
  OperationId id = 0;
  uint64_t deadline_us = 0;  // absolute
  bool cancelled = false;
  std::vector<ChainHash> chain;
  std::vector<Rectangle> rectangles;           // of a get's items
  std::vector<std::vector<std::byte>> memory;  // of each item
};

struct SimClient::Sink final : client::CompletionSink {
  explicit Sink(std::shared_ptr<SimClient*> owner) : self(std::move(owner)) {}
  void Push(Completion&& completion) override { done.push_back(std::move(completion)); }
  void Wake() override {
    while (!done.empty() && *self != nullptr) {
      Completion completion = std::move(done.front());
      done.erase(done.begin());
      (*self)->OnDone(std::move(completion));
    }
  }
  std::shared_ptr<SimClient*> self;
  std::vector<Completion> done;
};

SimClient::SimClient(transport::loopback::Network* network, const Universe* universe,
                     const SimClientOptions& options, uint64_t seed)
    : network_(network),
      universe_(universe),
      options_(options),
      random_(seed),
      self_(std::make_shared<SimClient*>(this)),
      transport_(network->MakeTransport(options.name)),
      sink_(std::make_shared<Sink>(self_)) {
  client::CoreOptions core;
  core.client.seeds = options.seeds;
  core.client.transport = "auto";
  core.host_id = options.host_id;
  core.client.replicas = options.replicas;
  core.client.verify = options.verify;
  core.client.bytes_in_flight_max = 256 << 10;
  core.client.peer_bytes_in_flight_max = 128 << 10;
  core.client.operations_max = kOperationsMax;
  driver_ = std::make_unique<client::Driver>(core, this);
  namespace_ = driver_->AddNamespace(universe->name_space);
  handle_.index = namespace_;
  handle_.name_space = universe->name_space.name_space;
  handle_.grid = universe->name_space.grid;
  Open();
}

// As Client::Open does: until some seed has answered with the node table.
void SimClient::Open() {
  auto pending = std::make_unique<Pending>();
  pending->kind = client::Kind::kOpen;
  Submit(std::unique_ptr<client::Operation>(std::make_unique<client::OpenOperation>()), std::move(pending));
}

SimClient::~SimClient() {
  driver_->Shutdown();
  transport_->Shutdown();
  if (!operations_.empty()) std::fprintf(stderr, "a client ended with operations open\n");
  *self_ = nullptr;
}

transport::Transport* SimClient::TransportFor(const std::string& name, std::string* error) {
  if (name == "tcp" || name == "shm") return transport_.get();
  *error = "only loopback here";
  return nullptr;
}

void SimClient::TimerAt(uint64_t us) {
  network_->At(std::max(us, network_->now_us()), [self = self_] {
    if (*self != nullptr) (*self)->driver_->OnTimer();
  });
}

void SimClient::Fault(const std::string& what) {
  if (fault_.empty()) fault_ = options_.name + " at " + std::to_string(network_->now_us()) + " us: " + what;
}

void SimClient::Submit(Result<std::unique_ptr<client::Operation>> made, std::unique_ptr<Pending> pending) {
  if (!made.ok()) {
    Fault("a valid request was refused: " + made.status().ToString());
    return;
  }
  const uint64_t deadline_us = 200 + random_() % (random_() % 4 == 0 ? 5'000 : 2'000'000);
  pending->deadline_us = network_->now_us() + deadline_us;
  auto operation = std::move(made).value();
  operation->name_space = namespace_;
  operation->sink = sink_;
  operation->user_data = next_;
  operation->priority = random_() % 4 == 0 ? Priority::kBatch : Priority::kInteractive;
  operation->deadline_us = pending->deadline_us;
  Pending* const raw = pending.get();
  const uint64_t user_data = next_++;
  operations_.emplace(user_data, std::move(pending));
  const Result<OperationId> id = driver_->Submit(std::move(operation));
  if (!id.ok()) {
    if (id.status().code() != Code::kBusy) Fault("submit: " + id.status().ToString());
    operations_.erase(user_data);
    return;
  }
  const auto still = operations_.find(user_data);  // it may be complete already
  if (still == operations_.end()) return;
  raw->id = id.value();
  if (random_() % 16 == 0) {
    network_->At(network_->now_us() + random_() % 500, [self = self_, user_data] {
      if (*self == nullptr) return;
      const auto found = (*self)->operations_.find(user_data);
      if (found == (*self)->operations_.end()) return;
      found->second->cancelled = true;
      (*self)->driver_->Cancel(found->second->id);
    });
  }
}

void SimClient::Begin() {
  if (!open_ || operations_.size() >= kOperationsMax) return;
  const auto& whole = universe_->chains[random_() % universe_->chains.size()];
  const std::vector<ChainHash> chain(whole.begin(),
                                     whole.begin() + static_cast<ptrdiff_t>(1 + random_() % whole.size()));
  const uint64_t dice = random_() % 100;
  if (dice < 35) {
    BeginPut(chain);
  } else if (dice < 70) {
    BeginGet(chain);
  } else {
    BeginOther(chain, dice);
  }
}

void SimClient::BeginPut(const std::vector<ChainHash>& chain) {
  auto pending = std::make_unique<Pending>();
  pending->kind = client::Kind::kPut;
  pending->chain = chain;
  // Sometimes a TP rank's half of the heads.
  const uint64_t half = random_() % 4;  // 0, 1: that half; else all
  std::vector<PutItem> items;
  for (uint32_t i = 0; i < chain.size(); i++) {
    std::vector<std::byte> whole(universe_->block_bytes);
    universe_->Fill(chain[i], whole);
    PutItem item;
    item.hash = chain[i];
    item.depth = i;
    const Grid& grid = handle_.grid;
    if (half < grid.head_groups) {
      item.whole = false;
      item.rectangle = {0, grid.layers, static_cast<uint16_t>(half), static_cast<uint16_t>(half + 1)};
      const size_t part = whole.size() / (grid.layers * grid.head_groups);
      std::vector<std::byte> packed;
      for (size_t layer = 0; layer < grid.layers; layer++) {
        const auto begin = whole.begin() + static_cast<ptrdiff_t>((layer * grid.head_groups + half) * part);
        packed.insert(packed.end(), begin, begin + static_cast<ptrdiff_t>(part));
      }
      whole.swap(packed);
    }
    pending->memory.push_back(std::move(whole));
    auto& memory = pending->memory.back();
    const size_t cut = random_() % (memory.size() + 1);
    if (cut > 0) item.extents.push_back({memory.data(), cut});
    if (cut < memory.size()) item.extents.push_back({memory.data() + cut, memory.size() - cut});
    items.push_back(std::move(item));
  }
  auto made = client::MakePut(handle_, items);
  Submit(std::move(made), std::move(pending));
}

void SimClient::BeginGet(const std::vector<ChainHash>& chain) {
  auto pending = std::make_unique<Pending>();
  pending->kind = client::Kind::kGet;
  pending->chain = chain;
  const bool one_layer = random_() % 5 == 0;
  std::vector<GetItem> items;
  for (const ChainHash& hash : chain) {
    GetItem item;
    item.hash = hash;
    Rectangle rectangle = WholeOf(handle_.grid);
    if (one_layer) {
      rectangle.layer_begin = static_cast<uint16_t>(random_() % handle_.grid.layers);
      rectangle.layer_end = static_cast<uint16_t>(rectangle.layer_begin + 1);
    }
    item.whole = false;
    item.rectangle = rectangle;
    const size_t bytes = universe_->block_bytes / WholeOf(handle_.grid).parts() * rectangle.parts();
    pending->rectangles.push_back(rectangle);
    pending->memory.emplace_back(bytes, kUntouched);
    item.extents.push_back({pending->memory.back().data(), bytes});
    items.push_back(std::move(item));
  }
  auto made = client::MakeGet(handle_, items);
  Submit(std::move(made), std::move(pending));
}

void SimClient::BeginOther(const std::vector<ChainHash>& chain, uint64_t dice) {
  auto pending = std::make_unique<Pending>();
  pending->chain = chain;
  if (dice < 86) {
    MatchRequest request;
    request.chain = pending->chain;
    request.pin_us = random_() % 2 == 0 ? 0 : 1'000 + random_() % 500'000;
    pending->kind = client::Kind::kMatch;
    auto made = client::MakeMatch(handle_, request);
    Submit(std::move(made), std::move(pending));
  } else if (dice < 92) {
    WaitRequest request;
    request.chain = pending->chain;
    const bool prefetch = random_() % 3 == 0;
    pending->kind = prefetch ? client::Kind::kPrefetch : client::Kind::kWait;
    auto made = prefetch ? client::MakePrefetch(handle_, request) : client::MakeWait(handle_, request);
    Submit(std::move(made), std::move(pending));
  } else if (dice < 97) {
    TouchRequest touch;
    touch.chain = chain;
    touch.usable_length = static_cast<uint32_t>(chain.size());
    driver_->Touch(namespace_, touch);
    ReleasePins();
  } else if (dice < 99) {
    pending->kind = client::Kind::kRemove;
    const uint16_t group = 0;
    auto made = client::MakeRemove(handle_, chain, {&group, 1});
    Submit(std::move(made), std::move(pending));
  } else {
    pending->kind = client::Kind::kClear;
    Submit(std::unique_ptr<client::Operation>(std::make_unique<client::ClearOperation>()),
           std::move(pending));
  }
}

void SimClient::ReleasePins() {
  for (const uint64_t pin : std::exchange(pins_, {})) driver_->Release(pin);
}

void SimClient::OnDone(Completion&& completion) {
  const auto found = operations_.find(completion.user_data);
  if (found == operations_.end()) {
    Fault("an operation completed twice");
    return;
  }
  std::unique_ptr<Pending> pending = std::move(found->second);
  operations_.erase(found);
  completed_++;
  if (network_->now_us() > pending->deadline_us + kLateUs) {
    Fault("overran its deadline by " + std::to_string(network_->now_us() - pending->deadline_us) +
          " us, kind " + std::to_string(static_cast<int>(pending->kind)));
  }
  if (pending->kind == client::Kind::kOpen) {
    open_ = completion.status.ok();
    if (!open_)
      network_->At(network_->now_us(), [self = self_] {
        if (*self != nullptr) (*self)->Open();
      });
    return;
  }
  if (completion.match.pin != 0) pins_.push_back(completion.match.pin);
  if (completion.leading > pending->chain.size()) Fault("more leading blocks than the chain has");
  if (pending->kind == client::Kind::kPut) CheckPut(*pending, completion);
  if (pending->kind != client::Kind::kGet) return;
  CheckGet(*pending, completion);
  uint32_t crc = 0;
  for (const auto& memory : pending->memory) crc = Crc32c(crc, memory);
  quiet_.emplace_back(std::move(pending), crc);
  if (quiet_.size() > kQuietMax) {
    CheckQuiet(quiet_.front());
    quiet_.erase(quiet_.begin());
  }
}

// Memory of a completed get must stay as it was.
void SimClient::CheckQuiet(const Quiet& quiet) {
  uint32_t crc = 0;
  for (const auto& memory : quiet.first->memory) crc = Crc32c(crc, memory);
  if (crc != quiet.second) Fault("memory was written after its operation had completed");
}

void SimClient::CheckGet(const Pending& pending, const Completion& completion) {
  if (completion.blocks.size() != pending.chain.size()) {
    Fault("a get answered " + std::to_string(completion.blocks.size()) + " of " +
          std::to_string(pending.chain.size()) + " blocks");
    return;
  }
  const Grid& grid = handle_.grid;
  const size_t part = universe_->block_bytes / WholeOf(grid).parts();
  for (size_t i = 0; i < pending.chain.size(); i++) {
    if (completion.blocks[i].outcome != Outcome::kHit) continue;
    std::vector<std::byte> whole(universe_->block_bytes);
    universe_->Fill(pending.chain[i], whole);
    const Rectangle& rectangle = pending.rectangles[i];
    const size_t row = part * static_cast<size_t>(rectangle.head_end - rectangle.head_begin);
    const std::byte* at = pending.memory[i].data();
    for (size_t layer = rectangle.layer_begin; layer < rectangle.layer_end; layer++, at += row) {
      const std::byte* expected = whole.data() + (layer * grid.head_groups + rectangle.head_begin) * part;
      if (std::memcmp(at, expected, row) != 0) Fault("WRONG BYTES in a hit");
      bytes_checked_ += row;
    }
  }
}

void SimClient::CheckPut(const Pending& pending, const Completion& completion) {
  if (completion.puts.size() != pending.chain.size()) Fault("a put did not answer every block");
  for (const PutResult& put : completion.puts) {
    if (put.state == PutState::kDiffers) Fault("equal bytes were said to differ");
    if (put.state == PutState::kInvalid) Fault("a valid put was called invalid: " + put.why.ToString());
  }
}

std::string SimClient::Check(bool deep) {
  for (const Quiet& quiet : quiet_) {
    if (deep) CheckQuiet(quiet);
  }
  const std::string broken = driver_->CheckInvariants();
  if (!broken.empty()) Fault(broken);
  const ClientStats stats = driver_->stats();
  if (stats.bytes_in_flight_peak > 256 << 10) Fault("bytes in flight beyond the bound");
  for (const auto& [user_data, pending] : operations_) {
    if (network_->now_us() > pending->deadline_us + kLateUs) Fault("an operation hangs past its deadline");
  }
  return fault_;
}

}  // namespace larder::simulation
