// Moves verified blocks over the ucx transport between two processes, and nothing else: what the RDMA guest
// runs to show that payloads go by RDMA read without a copy.
//
//   blocks_over_verbs serve ADDRESS TLS DEVICE
//   blocks_over_verbs drive ADDRESS TLS DEVICE BLOCKS BLOCK_BYTES put|get|both
//
// A put is a message "P" + number with the block as payload; the server keeps it in registered memory and
// answers "S". A get is "G" + number; the answer is "B" + number with the block. The content of a block
// follows from its number; both sides check what lands, byte by byte.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "transport/transport.h"

namespace larder::transport {
namespace {

constexpr size_t kArenaBytes = 256 << 20;

// Memory that both sides register and cut blocks from.
struct Arena {
  explicit Arena(Transport& transport) {
    void* mapped = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    base = static_cast<std::byte*>(mapped);
    error = transport.AddRegion({base, kArenaBytes, -1});
  }
  std::byte* base = nullptr;
  Error error{Failure::kSystem, "no memory"};
};

void Fill(uint64_t number, std::byte* to, size_t bytes) {
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ull + i;
    memcpy(to + i, &word, 8);
  }
}

bool Check(uint64_t number, const std::byte* at, size_t bytes) {
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = (number + 1) * 0x9e3779b97f4a7c15ull + i;
    if (memcmp(at + i, &word, 8) != 0) return false;
  }
  return true;
}

// A message's header: a verb, and which block.
struct Block {
  char verb = 0;
  uint64_t number = 0, bytes = 0;
  std::byte* In(std::byte* arena) const { return arena + number * bytes; }
};

std::vector<std::byte> Encode(const Block& block) {
  std::vector<std::byte> header(sizeof block);
  memcpy(header.data(), &block, sizeof block);
  return header;
}

bool Decode(ByteView header, Block* block) {
  if (header.size() != sizeof *block) return false;
  memcpy(block, header.data(), sizeof *block);
  return block->bytes != 0 && block->number < kArenaBytes / block->bytes;
}

// Both roles: lands what comes at its block's place, checks it, answers or counts.
class Peer : public Handler {
 public:
  Peer(std::byte* arena, bool serves) : arena_(arena), serves_(serves) {}

  void OnOpen(Connection&) override { opened = true; }
  bool Place(Connection&, ByteView header, std::span<const uint64_t> segment_bytes,
             Landing* landing) override {
    Block block;
    if (!Decode(header, &block) || segment_bytes.size() != 1 || segment_bytes[0] != block.bytes) return false;
    landing->id = block.number + 1;
    landing->segments.Add(Extent{block.In(arena_), block.bytes});
    return true;
  }
  void OnMessage(Connection& connection, ByteView header, uint64_t, bool landed) override {
    Block block;
    const bool known = Decode(header, &block);
    const bool carries = block.verb == 'P' || block.verb == 'B';
    if (!known || block.verb == 'W' || !landed ||
        (carries && !Check(block.number, block.In(arena_), block.bytes)))
      wrong++;
    if (known && (block.verb == 'P' || block.verb == 'G')) {
      Answer(connection, block);
    } else {
      answers++;
    }
  }
  void OnClosed(Connection&, const Error& why) override {
    if (!serves_ && why.failure != Failure::kCancelled) fprintf(stderr, "closed: %s\n", why.text.c_str());
    closed = true;
  }

  std::atomic<bool> opened{false}, closed{false};
  std::atomic<uint64_t> answers{0}, wrong{0};

 private:
  void Answer(Connection& connection, Block block) {
    OutMessage message;
    if (block.verb == 'G') {
      message.segments.Add(ConstExtent{block.In(arena_), block.bytes});
      message.token = block.number + 1;
    }
    block.verb = block.verb == 'G' ? 'B' : wrong == 0 ? 'S' : 'W';
    message.header = Encode(block);
    if (connection.Send(std::move(message)) != Failure::kNone) connection.Close(Failure::kSystem);
  }

  std::byte* const arena_;
  const bool serves_;
};

class ServeAll : public Acceptor {
 public:
  explicit ServeAll(std::byte* arena) : arena_(arena) {}
  std::shared_ptr<Handler> OnAccept(const std::shared_ptr<Connection>&) override {
    return std::make_shared<Peer>(arena_, true);
  }

 private:
  std::byte* const arena_;
};

template <typename Pred>
bool WaitFor(Pred pred) {
  for (int i = 0; i < 240'000; i++) {
    if (pred()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

int Serve(Transport& transport, std::byte* arena, const std::string& address) {
  ServeAll acceptor(arena);
  std::string bound;
  const Error error = transport.Listen(address, &acceptor, &bound);
  if (!error.ok()) return fprintf(stderr, "%s\n", error.text.c_str()), 1;
  printf("listening %s\n", bound.c_str());
  fflush(stdout);
  for (;;) pause();
}

int Drive(Transport& transport, std::byte* arena, const std::string& address, uint64_t blocks,
          size_t block_bytes, const std::string& what) {
  const auto peer = std::make_shared<Peer>(arena, false);
  ConnectOptions options;
  options.timeout_us = 30'000'000;
  const auto connection = transport.Connect(address, peer, options);
  if (!WaitFor([&] { return peer->opened || peer->closed; }) || peer->closed) return 1;
  uint64_t moved = 0;
  for (const char verb : {'P', 'G'}) {
    if ((verb == 'P' && what == "get") || (verb == 'G' && what == "put")) continue;
    const uint64_t before = peer->answers;
    for (uint64_t i = 0; i < blocks; i++) {
      OutMessage message;
      const Block block{verb, i, block_bytes};
      message.header = Encode(block);
      if (verb == 'P') {
        Fill(i, block.In(arena), block_bytes);
        message.segments.Add(ConstExtent{block.In(arena), block_bytes});
        message.token = i + 1;
      }
      if (connection->Send(std::move(message)) != Failure::kNone) return 1;
    }
    if (!WaitFor([&] { return peer->answers - before == blocks || peer->closed; }) || peer->closed) return 1;
    moved += blocks;
    if (verb == 'P') memset(arena, 0, blocks * block_bytes);
  }
  printf("moved %llu blocks of %zu bytes, wrong %llu\n", static_cast<unsigned long long>(moved), block_bytes,
         static_cast<unsigned long long>(peer->wrong.load()));
  return peer->wrong == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (!(role == "serve" && argc == 5) && !(role == "drive" && argc == 8)) {
    fprintf(stderr,
            "usage: %s serve ADDRESS TLS DEVICE | drive ADDRESS TLS DEVICE BLOCKS BYTES put|get|both\n",
            argv[0]);
    return 2;
  }
  TransportOptions options;
  options.threads = 1;
  options.ucx_tls = argv[3];
  options.device = argv[4];
  Error error;
  const auto transport = MakeTransport("ucx", options, &error);
  if (!transport) return fprintf(stderr, "%s\n", error.text.c_str()), 1;
  const Arena arena(*transport);
  if (!arena.error.ok()) return fprintf(stderr, "%s\n", arena.error.text.c_str()), 1;
  if (role == "serve") return Serve(*transport, arena.base, argv[2]);
  return Drive(*transport, arena.base, argv[2], std::stoull(argv[5]), std::stoull(argv[6]), argv[7]);
}

}  // namespace
}  // namespace larder::transport

int main(int argc, char** argv) {
  return larder::transport::Main(argc, argv);
}
