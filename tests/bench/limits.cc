#include "tests/bench/limits.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace larder::bench {

namespace {

const RawServer* Server(const Options& options) {
  static const std::unique_ptr<RawServer> server = RawServer::Start(options.working_set_bytes);
  return server.get();
}

constexpr uint64_t kCopyStep = 64 * 1024;

}  // namespace

void PrepareSockets(const Options& options) {
  (void)Server(options);
}

Sample MeasureSockets(const std::string& which, Direction direction, uint64_t block_bytes,
                      const Options& options, double seconds) {
  const RawServer* server = Server(options);
  if (server == nullptr) return {.error = "the raw socket server did not start"};
  RawOptions raw;
  raw.verb = direction == Direction::kGet ? RawVerb::kGet : RawVerb::kPut;
  raw.block_bytes = block_bytes;
  raw.blocks = kBatchBlocks;
  raw.seconds = seconds;
  raw.one_batch = which == "sockets";
  raw.stream = which == "sockets-stream";
  return MeasureRawBest(*server, raw);
}

Sample MeasureEcho(uint64_t request_bytes, uint64_t answer_bytes, const Options& options, double seconds) {
  const RawServer* server = Server(options);
  if (server == nullptr) return {.error = "the raw socket server did not start"};
  return MeasureRaw(*server, {.verb = RawVerb::kEcho,
                              .request_bytes = request_bytes,
                              .answer_bytes = answer_bytes,
                              .seconds = seconds});
}

Sample MeasureCopy(Direction direction, uint64_t block_bytes, const Options& options, double seconds) {
  static TouchedMemory region(options.working_set_bytes);
  static const bool filled = (FillPattern(region.data(), region.bytes(), 3), true);
  (void)filled;
  static uint64_t at = 0;  // goes on where the last measurement stopped: nothing is in cache twice
  TouchedMemory batch(block_bytes * kBatchBlocks);
  const double cpu = OwnCpuSeconds();
  const uint64_t start_us = NowUs();
  const uint64_t end_us = start_us + uint64_t(seconds * 1e6);
  uint64_t bytes = 0, now_us = start_us;
  std::vector<double> batch_us;
  volatile uint32_t sink = 0;
  while (now_us < end_us) {
    for (uint64_t offset = 0; offset < batch.bytes(); offset += block_bytes) {
      if (at + block_bytes > region.bytes()) at = 0;
      std::byte* in_region = region.data() + at;
      std::byte* in_batch = batch.data() + offset;
      std::byte* to = direction == Direction::kGet ? in_batch : in_region;
      const std::byte* from = direction == Direction::kGet ? in_region : in_batch;
      unsigned crc = 0;
      for (uint64_t done = 0; done < block_bytes; done += kCopyStep) {
        const uint64_t step = std::min(kCopyStep, block_bytes - done);
        std::memcpy(to + done, from + done, step);
        crc = crc32_iscsi(reinterpret_cast<unsigned char*>(to + done), int(step), crc);
      }
      sink = crc;
      at += block_bytes;
    }
    bytes += batch.bytes();
    const uint64_t before_us = now_us;
    now_us = NowUs();
    batch_us.push_back(double(now_us - before_us));
  }
  (void)sink;
  Sample sample;
  sample.value = double(bytes) / double(now_us - start_us) * 1e-3;
  sample.p50_us = Percentile(&batch_us, 0.50);
  sample.p99_us = Percentile(&batch_us, 0.99);
  sample.cpu_s_per_gib = (OwnCpuSeconds() - cpu) / (double(bytes) / kGib);
  sample.detail = "one thread";
  return sample;
}

}  // namespace larder::bench
