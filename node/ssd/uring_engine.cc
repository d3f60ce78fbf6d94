#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>

#include "node/ssd/io_engine.h"
#include "transport/transport.h"

namespace larder::node::ssd {
namespace {

// One thread that submits, waits and verifies. An eventfd in the ring wakes it for new jobs.
class UringEngine final : public IoEngine {
 public:
  UringEngine(LaneQueue* queue, EngineCalls calls, uint32_t depth)
      : queue_(queue), calls_(std::move(calls)), depth_(depth), event_fd_(eventfd(0, EFD_CLOEXEC)) {}
  bool Start() {
    if (event_fd_ < 0 || io_uring_queue_init(depth_ * 4, &ring_, 0) != 0) return false;
    made_ = true;
    thread_ = std::thread([this] { Loop(); });
    return true;
  }
  ~UringEngine() override {
    if (made_) {
      stopping_ = true;
      Wake();
      thread_.join();
      io_uring_queue_exit(&ring_);
    }
    if (event_fd_ >= 0) close(event_fd_);
  }
  void Wake() override {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
  }
  const char* name() const override { return "io_uring"; }

 private:
  struct Transfer {
    Job job;
    uint64_t begun_us = 0, service_us = 0;
    std::vector<Run> runs;
    size_t open = 0;  // runs under way
    int failed = 0;   // errno
    std::list<Transfer>::iterator self;
  };
  struct Tag {
    Transfer* transfer;
    Run* run;
  };

  bool IsWrite(const Transfer& t) const { return t.job.kind == Job::Kind::kAppend; }

  void Loop() {
    ArmEvent();
    for (;;) {
      while (transfers_.size() < depth_) {
        std::optional<Job> job = queue_->TryPop(writes_open_);
        if (!job) break;
        Begin(std::move(*job));
      }
      if (stopping_ && transfers_.empty()) return;
      // What has moved is verified while the disk works on what comes next.
      if (moved_.empty()) {
        io_uring_submit_and_wait(&ring_, 1);
      } else {
        io_uring_submit(&ring_);
        for (Transfer* transfer : std::exchange(moved_, {})) Finish(transfer);
      }
      io_uring_cqe* done[kReap];
      const unsigned count = io_uring_peek_batch_cqe(&ring_, done, kReap);
      for (unsigned i = 0; i < count; ++i) {
        auto* tag = static_cast<Tag*>(io_uring_cqe_get_data(done[i]));
        const int result = done[i]->res;
        io_uring_cqe_seen(&ring_, done[i]);
        if (tag == nullptr) {
          ArmEvent();
        } else {
          OnMoved(tag, result);
        }
      }
    }
  }

  void ArmEvent() {
    io_uring_sqe* entry = Entry();
    io_uring_prep_read(entry, event_fd_, &event_count_, sizeof event_count_, 0);
    io_uring_sqe_set_data(entry, nullptr);
  }

  io_uring_sqe* Entry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    while (entry == nullptr) {
      io_uring_submit(&ring_);
      entry = io_uring_get_sqe(&ring_);
    }
    return entry;
  }

  void Begin(Job&& job) {
    Transfer& t = transfers_.emplace_back();
    t.self = std::prev(transfers_.end());
    t.job = std::move(job);
    if (IsWrite(t)) {
      ++writes_open_;
      if (t.job.check != nullptr) t.job.check(t.job);
    }
    t.begun_us = transport::NowUs();
    t.runs = RunsOf(t.job.ranges);
    t.open = t.runs.size();
    for (Run& run : t.runs) Submit(new Tag{&t, &run});
    if (t.open == 0) EndMove(&t);
  }

  void Submit(Tag* tag) {
    const int fd = calls_.fd_of(tag->transfer->job.segment);
    io_uring_sqe* entry = Entry();
    const auto parts = static_cast<unsigned>(tag->run->parts.size());
    if (IsWrite(*tag->transfer)) {
      io_uring_prep_writev(entry, fd, tag->run->parts.data(), parts, tag->run->offset);
    } else {
      io_uring_prep_readv(entry, fd, tag->run->parts.data(), parts, tag->run->offset);
    }
    io_uring_sqe_set_data(entry, tag);
  }

  void OnMoved(Tag* tag, int result) {
    Transfer* t = tag->transfer;
    if (result == -EINTR || result == -EAGAIN) return Submit(tag);
    if (result > 0 && Advance(tag->run, static_cast<uint64_t>(result))) return Submit(tag);
    if (result <= 0) t->failed = result == 0 ? EIO : -result;
    delete tag;
    if (--t->open == 0) EndMove(t);
  }

  void EndMove(Transfer* t) {
    t->service_us = transport::NowUs() - t->begun_us;
    if (IsWrite(*t)) --writes_open_;
    queue_->Moved(t->job);
    moved_.push_back(t);
  }

  void Finish(Transfer* t) {
    const bool write = IsWrite(*t);
    std::string error;
    if (t->failed != 0) error = std::string(write ? "write: " : "read: ") + std::strerror(t->failed);
    calls_.finish(std::move(t->job), t->failed == 0 ? DiskStatus::kOk : DiskStatus::kFailed, error,
                  t->service_us);
    transfers_.erase(t->self);
  }

  static constexpr unsigned kReap = 32;

  LaneQueue* const queue_;
  const EngineCalls calls_;
  const uint32_t depth_;
  const int event_fd_;
  io_uring ring_{};
  bool made_ = false;
  std::atomic<bool> stopping_{false};
  uint64_t event_count_ = 0;
  uint32_t writes_open_ = 0;
  std::list<Transfer> transfers_;
  std::vector<Transfer*> moved_;  // of them, those whose bytes have
  std::thread thread_;
};

}  // namespace

std::unique_ptr<IoEngine> MakeUringEngine(LaneQueue* queue, EngineCalls calls, uint32_t depth) {
  auto engine = std::make_unique<UringEngine>(queue, std::move(calls), depth);
  if (!engine->Start()) return nullptr;
  return engine;
}

}  // namespace larder::node::ssd
