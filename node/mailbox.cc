#include "node/mailbox.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/transport.h"

namespace larder::node {

namespace {

// Memory that a request keeps, roughly: what a client can make large.
struct BytesOf {
  uint64_t operator()(const Open& body) const { return body.identity.size() + body.tenant.size(); }
  uint64_t operator()(const Match& body) const { return Hashes(body.hashes); }
  uint64_t operator()(const Get& body) const { return body.blocks.size() * sizeof(BlockRef); }
  uint64_t operator()(const Move& body) const { return body.blocks.size() * sizeof(BlockRef); }
  uint64_t operator()(const Lease& body) const { return body.blocks.size() * sizeof(BlockRef); }
  uint64_t operator()(const Reserve& body) const {
    uint64_t bytes = body.blocks.size() * sizeof(Reserve::Block);
    for (const Reserve::Block& block : body.blocks) {
      bytes += block.parts.size() * sizeof(PartRun) + block.codec_data.size() + Hashes(block.constituents);
    }
    return bytes;
  }
  uint64_t operator()(const Wait& body) const { return Hashes(body.hashes); }
  uint64_t operator()(const Prefetch& body) const { return Hashes(body.hashes); }
  uint64_t operator()(const Touch& body) const { return Hashes(body.hashes) + body.depths.size() * 4; }
  uint64_t operator()(const Report& body) const { return body.blocks.size() * sizeof(BlockRef); }
  uint64_t operator()(const Remove& body) const { return Hashes(body.hashes); }
  uint64_t operator()(const Clear&) const { return 0; }
  uint64_t operator()(const Cancel&) const { return 0; }
  static uint64_t Hashes(const std::vector<ChainHash>& hashes) { return hashes.size() * sizeof(ChainHash); }
};

// Some tens of microseconds of the owner's work: cells of a match, and what else comes in blocks.
constexpr uint64_t kStandInCellsMax = 2048;
constexpr size_t kStandInBlocksMax = 256;
constexpr uint64_t kStandInBytesMax = 64 << 10;  // of a request

// What readers and writers wait for, when it is small. A clear, a remove or an open may be long, or is rare.
bool IsSmall(const Event& event) {
  if (const auto* committed = std::get_if<Committed>(&event))
    return committed->blocks.size() <= kStandInBlocksMax;
  const auto* request = std::get_if<Request>(&event);
  if (request == nullptr) return std::holds_alternative<Sent>(event);
  if (std::visit(BytesOf(), request->body) > kStandInBytesMax) return false;
  if (const auto* get = std::get_if<Get>(&request->body)) return get->blocks.size() <= kStandInBlocksMax;
  if (const auto* put = std::get_if<Reserve>(&request->body)) return put->blocks.size() <= kStandInBlocksMax;
  const auto* match = std::get_if<Match>(&request->body);
  return match != nullptr && match->hashes.size() * match->groups.size() <= kStandInCellsMax;
}

// Which lane: a session's Closed stays behind all its requests, what frees memory goes ahead of batch work.
bool IsBatch(const Event& event) {
  if (const auto* request = std::get_if<Request>(&event)) {
    return request->envelope.priority == Priority::kBatch;
  }
  if (const auto* committed = std::get_if<Committed>(&event)) {
    return committed->envelope.priority == Priority::kBatch;
  }
  return std::holds_alternative<Closed>(event);
}

}  // namespace

Mailbox::Mailbox(size_t events_max, uint64_t bytes_max)
    : events_max_(events_max), bytes_max_(bytes_max), event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  LARDER_CHECK(event_fd_ >= 0);
}

Mailbox::~Mailbox() {
  close(event_fd_);
}

bool Mailbox::Post(SessionId session, Event&& event) {
  const auto* request = std::get_if<Request>(&event);
  const uint64_t bytes = request == nullptr ? 0 : std::visit(BytesOf(), request->body);
  const bool batch = IsBatch(event);
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  if (request != nullptr && (waiting_.urgent.size() + waiting_.batch.size() >= events_max_ ||
                             urgent_bytes_ + batch_bytes_ + bytes > bytes_max_)) {
    return false;
  }
  (batch ? batch_bytes_ : urgent_bytes_) += bytes;
  (batch ? waiting_.batch : waiting_.urgent).push_back({session, std::move(event)});
  Wake(&lock);
  return true;
}

bool Mailbox::StandIn(const Event& event) {
  if (IsBatch(event) || !IsSmall(event)) return false;
  const std::lock_guard lock(mutex_);
  if (!sleeping_ || closed_ || !waiting_.empty()) return false;
  sleeping_ = false;
  stood_in_ = true;
  return true;
}

void Mailbox::StandBack(uint64_t timer_us) {
  std::unique_lock lock(mutex_);
  stood_in_ = false;
  if (!in_poll_) return stood_back_.notify_one();  // its time came meanwhile, and it waits for us
  sleeping_ = true;
  if (closed_ || !waiting_.empty() || timer_us < until_us_) Wake(&lock);
}

bool Mailbox::PostCall(Call call) {
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  waiting_.calls.push_back(std::move(call));
  Wake(&lock);
  return true;
}

void Mailbox::Close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  Wake(&lock);
}

bool Mailbox::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

// Lets go of the lock first: the reader wakes at once, and would go to sleep again on it.
void Mailbox::Wake(std::unique_lock<std::mutex>* lock) {
  if (!sleeping_) return;
  sleeping_ = false;
  lock->unlock();
  const uint64_t one = 1;
  // A full counter would wake the reader as well; nothing else can go wrong with an eventfd.
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof one);
}

void Mailbox::Take(Batch* out) {
  const std::lock_guard lock(mutex_);
  std::swap(*out, waiting_);
  urgent_bytes_ = batch_bytes_ = 0;
}

void Mailbox::TakeUrgent(std::vector<Item>* out) {
  const std::lock_guard lock(mutex_);
  std::swap(*out, waiting_.urgent);
  urgent_bytes_ = 0;
}

void Mailbox::SleepUntil(uint64_t until_us) {
  const uint64_t now_us = transport::NowUs();
  const uint64_t timeout_us = until_us > now_us ? until_us - now_us : 0;
  {
    const std::lock_guard lock(mutex_);
    if (closed_ || !waiting_.empty()) return;
    sleeping_ = in_poll_ = true;
    until_us_ = until_us;
  }
  const timespec timeout = {static_cast<time_t>(timeout_us / 1'000'000),
                            static_cast<long>(timeout_us % 1'000'000 * 1000)};
  pollfd fd = {event_fd_, POLLIN, 0};
  ppoll(&fd, 1, &timeout, nullptr);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_fd_, &count, sizeof count);
  std::unique_lock lock(mutex_);
  sleeping_ = in_poll_ = false;
  stood_back_.wait(lock, [this] { return !stood_in_; });
}

}  // namespace larder::node
