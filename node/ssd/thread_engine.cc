#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "node/ssd/io_engine.h"
#include "transport/transport.h"

namespace larder::node::ssd {

namespace {
constexpr size_t kPartsPerRun = 1024;  // IOV_MAX
}

std::vector<Run> RunsOf(const std::vector<Range>& ranges) {
  std::vector<Run> runs;
  uint64_t end = 0;
  for (const Range& range : ranges) {
    if (range.bytes == 0) continue;
    if (runs.empty() || range.offset != end || runs.back().parts.size() >= kPartsPerRun) {
      runs.push_back({range.offset, {}});
    }
    runs.back().parts.push_back({range.memory, range.bytes});
    end = range.offset + range.bytes;
  }
  return runs;
}

bool Advance(Run* run, uint64_t bytes) {
  run->offset += bytes;
  size_t whole = 0;
  while (whole < run->parts.size() && run->parts[whole].iov_len <= bytes)
    bytes -= run->parts[whole++].iov_len;
  run->parts.erase(run->parts.begin(), run->parts.begin() + static_cast<std::ptrdiff_t>(whole));
  if (run->parts.empty()) return false;
  run->parts[0].iov_base = static_cast<std::byte*>(run->parts[0].iov_base) + bytes;
  run->parts[0].iov_len -= bytes;
  return true;
}

namespace {

class ThreadEngine final : public IoEngine {
 public:
  ThreadEngine(LaneQueue* queue, EngineCalls calls, uint32_t threads)
      : queue_(queue), calls_(std::move(calls)) {
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  ~ThreadEngine() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Wake() override {}
  const char* name() const override { return "threads"; }

 private:
  void Loop() {
    while (std::optional<Job> job = queue_->Pop([this] { return writes_open_.load(); })) {
      const bool write = job->kind == Job::Kind::kAppend;
      if (write) ++writes_open_;
      std::string error;
      const uint64_t begun_us = transport::NowUs();
      const DiskStatus status = Move(*job, &error);
      const uint64_t service_us = transport::NowUs() - begun_us;
      if (write) --writes_open_;
      queue_->Moved(*job);
      calls_.finish(std::move(*job), status, error, service_us);
    }
  }

  DiskStatus Move(Job& job, std::string* error) {
    const bool write = job.kind == Job::Kind::kAppend;
    const int fd = calls_.fd_of(job.segment);
    if (write && job.check != nullptr) job.check(job);
    for (Run& run : RunsOf(job.ranges)) {
      for (;;) {
        const auto parts = static_cast<int>(run.parts.size());
        const auto offset = static_cast<off_t>(run.offset);
        const ssize_t moved = write ? pwritev(fd, run.parts.data(), parts, offset)
                                    : preadv(fd, run.parts.data(), parts, offset);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) {
          *error =
              std::string(write ? "write: " : "read: ") + (moved < 0 ? std::strerror(errno) : "end of file");
          return DiskStatus::kFailed;
        }
        if (!Advance(&run, static_cast<uint64_t>(moved))) break;
      }
    }
    return DiskStatus::kOk;
  }

  LaneQueue* const queue_;
  const EngineCalls calls_;
  std::atomic<uint32_t> writes_open_{0};
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> MakeThreadEngine(LaneQueue* queue, EngineCalls calls, uint32_t threads) {
  return std::make_unique<ThreadEngine>(queue, std::move(calls), threads);
}

}  // namespace larder::node::ssd
