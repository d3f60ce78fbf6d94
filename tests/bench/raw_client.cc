// The measuring side of the raw sockets.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/bench/raw_sockets.h"

namespace larder::bench {
namespace {

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  raw::SetBuffers(fd);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(uint16_t(port));
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Lets the connections of one batch begin the next one together. Spins first: a futex wake on every batch of
// 1 MiB would cost a third of the limit that this is to show.
class Together {
 public:
  explicit Together(uint32_t threads) : threads_(threads) {}
  // True when every thread goes on: all of them get the same answer.
  bool GoOn(bool enough) {
    const uint32_t round = round_.load();
    if (enough) enough_.store(true);
    if (arrived_.fetch_add(1) + 1 == threads_) {
      over_.store(enough_.load());
      arrived_.store(0);
      round_.fetch_add(1);
      round_.notify_all();
      return !over_.load();
    }
    for (int i = 0; i < kSpins && round_.load() == round; ++i) __builtin_ia32_pause();
    while (round_.load() == round) round_.wait(round);
    return !over_.load();
  }

 private:
  static constexpr int kSpins = 2000;
  const uint32_t threads_;
  std::atomic<uint32_t> arrived_{0};
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> enough_{false};
  std::atomic<bool> over_{false};
};

// What one connection's thread has done within the measured time.
struct Tally {
  uint64_t bytes = 0;
  std::vector<double> batch_us;
  bool failed = false;
};

class Worker {
 public:
  Worker(const RawServer& server, const RawOptions& options, int index, uint32_t blocks)
      : options_(options),
        fd_(Connect(server.port())),
        blocks_(blocks),
        memory_(options.verb == RawVerb::kEcho ? std::max(options.request_bytes, options.answer_bytes) + 4096
                                               : options.block_bytes * blocks),
        // Each connection walks its own part of the server's region.
        next_block_(server.working_set_bytes() / options.block_bytes / uint64_t(options.connections) *
                    uint64_t(index)) {
    if (options.verb != RawVerb::kGet) FillPattern(memory_.data(), memory_.bytes(), uint64_t(index) + 1);
  }
  ~Worker() {
    if (fd_ >= 0) close(fd_);
  }

  bool connected() const { return fd_ >= 0; }

  // One batch after the other until `end_us`. Bytes count when a step of them is through before the end, so
  // that a long last batch is neither lost nor counted whole.
  void Run(uint64_t end_us, Together* together, Tally* tally) {
    if (options_.stream) Ask();
    bool enough = false;
    while (!enough) {
      const uint64_t start_us = NowUs();
      tally->failed = !RunBatch(end_us, tally);
      const uint64_t now_us = NowUs();
      enough = now_us >= end_us || tally->failed;
      if (!enough) tally->batch_us.push_back(double(now_us - start_us));
      if (together != nullptr) enough = !together->GoOn(enough);
    }
  }

 private:
  bool Ask() {
    const bool echo = options_.verb == RawVerb::kEcho;
    const raw::Request request{options_.verb, blocks_, echo ? options_.request_bytes : options_.block_bytes,
                               next_block_, options_.answer_bytes};
    next_block_ += blocks_;
    return raw::SendAll(fd_, &request, sizeof(request));
  }

  template <typename Move>
  bool InSteps(size_t bytes, uint64_t end_us, Tally* tally, Move move) {
    for (size_t at = 0; at < bytes; at += raw::kStepBytes) {
      const size_t step = std::min(raw::kStepBytes, bytes - at);
      if (!move(memory_.data() + at, step)) return false;
      if (NowUs() < end_us) tally->bytes += step;
    }
    return true;
  }

  bool RunBatch(uint64_t end_us, Tally* tally) {
    if (!Ask()) return false;
    const size_t bytes = options_.block_bytes * blocks_;
    const auto receive = [this](std::byte* to, size_t step) { return raw::ReceiveAll(fd_, to, step); };
    const auto send = [this](std::byte* from, size_t step) { return raw::SendAll(fd_, from, step); };
    switch (options_.verb) {
      case RawVerb::kGet:
        return ReceiveBlocks(end_us, tally);
      case RawVerb::kPut: {
        std::byte done;
        return InSteps(bytes, end_us, tally, send) && raw::ReceiveAll(fd_, &done, 1);
      }
      case RawVerb::kEcho:
        return send(memory_.data(), options_.request_bytes) && receive(memory_.data(), options_.answer_bytes);
    }
    return false;
  }

  // Block by block, as a store's client has them: a block smaller than a step is a call of its own.
  bool ReceiveBlocks(uint64_t end_us, Tally* tally) {
    const auto receive = [this](std::byte* to, size_t step) { return raw::ReceiveAll(fd_, to, step); };
    return InSteps(options_.block_bytes * blocks_, end_us, tally, receive);
  }

  const RawOptions& options_;
  int fd_;
  uint32_t blocks_;
  TouchedMemory memory_;
  uint64_t next_block_;
};

}  // namespace

Sample MeasureRaw(const RawServer& server, const RawOptions& options) {
  const int connections = options.connections;
  const uint32_t blocks = options.one_batch ? options.blocks / uint32_t(connections) : options.blocks;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < connections; ++i) {
    workers.push_back(std::make_unique<Worker>(server, options, i, blocks));
    if (!workers.back()->connected()) return {.error = "the raw server does not answer"};
  }
  std::vector<Tally> tallies(size_t(connections), Tally{});
  Together together{uint32_t(connections)};
  const double cpu = OwnCpuSeconds() + CpuSecondsOf(server.pid());
  const uint64_t start_us = NowUs();
  const uint64_t end_us = start_us + uint64_t(options.seconds * 1e6);
  std::vector<std::thread> threads;
  for (int i = 0; i < connections; ++i) {
    threads.emplace_back([&, i] {
      workers[size_t(i)]->Run(end_us, options.one_batch ? &together : nullptr, &tallies[size_t(i)]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double cpu_used = OwnCpuSeconds() + CpuSecondsOf(server.pid()) - cpu;

  Sample sample;
  uint64_t bytes = 0;
  std::vector<double> batch_us;
  for (const Tally& tally : tallies) {
    if (tally.failed) return {.error = "a raw connection broke"};
    bytes += tally.bytes;
    batch_us.insert(batch_us.end(), tally.batch_us.begin(), tally.batch_us.end());
  }
  sample.p50_us = Percentile(&batch_us, 0.50);
  sample.p99_us = Percentile(&batch_us, 0.99);
  if (options.verb == RawVerb::kEcho) {
    sample.value = sample.p50_us;
    return sample;
  }
  sample.value = double(bytes) / options.seconds * 1e-9;
  sample.cpu_s_per_gib = bytes == 0 ? 0 : cpu_used / (double(bytes) / kGib);
  return sample;
}

Sample MeasureRawBest(const RawServer& server, RawOptions options) {
  Sample best;
  for (const int connections : {1, 2, 4}) {
    options.connections = connections;
    Sample sample = MeasureRaw(server, options);
    sample.detail = std::to_string(connections) + (connections == 1 ? " connection" : " connections");
    if (!sample.error.empty()) return sample;
    if (sample.value > best.value) best = sample;
  }
  return best;
}

}  // namespace larder::bench
