#include "node/owner_thread.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "transport/thread.h"

namespace larder::node {

uint64_t UnixMs() {
  using std::chrono::duration_cast;
  return static_cast<uint64_t>(
      duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
}

namespace {

// Actions leave after so many events, or so long, at the latest: a full mailbox delays nobody's answer by its
// length, nor do a few events that are long themselves (a match of a million cells).
constexpr size_t kFlushEvents = 64;
constexpr uint64_t kFlushUs = 200;
constexpr uint64_t kSleepUsMax = 60'000'000;

}  // namespace

OwnerThread::OwnerThread(const OwnerThreadOptions& options, SlabSource* slabs, Background* background,
                         std::unique_ptr<ssd::SsdTier> ssd)
    : options_(options),
      background_(background),
      mailbox_(options.mailbox_max),
      owner_(new Owner(options.owner, slabs, this, std::move(ssd))),
      thread_([this] { Loop(); }) {}

OwnerThread::~OwnerThread() {
  Stop();
}

bool OwnerThread::Post(SessionId session, Event&& event) {
  if (mailbox_.StandIn(event)) {
    now_us_ = transport::NowUs();
    unix_ms_ = UnixMs();
    Handle({session, std::move(event)});
    Flush();
    mailbox_.StandBack(std::min(owner_->NextTimerUs(), hello_by_us_));
    return true;
  }
  const bool closed = std::holds_alternative<Closed>(event);
  const bool posted = mailbox_.Post(session, std::move(event));
  if (closed) {
    Peer gone;  // let go outside the lock
    const std::lock_guard lock(peers_mutex_);
    const auto found = peers_.find(session);
    if (found != peers_.end()) {
      gone = std::move(found->second);
      peers_.erase(found);
    }
  }
  return posted;
}

bool OwnerThread::CallLater(std::function<void(Owner&)> call) {
  return mailbox_.PostCall(std::move(call));
}

void OwnerThread::SetOnQuestions(std::function<void()> on_questions) {
  Call([&](Owner&) { on_questions_ = std::move(on_questions); });
}

void OwnerThread::SetOnClears(std::function<void()> on_clears) {
  Call([&](Owner&) { on_clears_ = std::move(on_clears); });
}

void OwnerThread::SetOnRevokes(std::function<void()> on_revokes) {
  Call([&](Owner&) { on_revokes_ = std::move(on_revokes); });
}

void OwnerThread::OnDisk() {
  if (disk_posted_.exchange(true)) return;
  mailbox_.PostCall([this](Owner& owner) {
    disk_posted_ = false;
    owner.OnDisk(transport::NowUs(), UnixMs());
  });
}

bool OwnerThread::Call(const std::function<void(Owner&)>& call) {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  const bool posted = mailbox_.PostCall([&](Owner& owner) {
    call(owner);
    const std::lock_guard lock(mutex);
    done = true;
    done_changed.notify_one();
  });
  if (!posted) return false;
  std::unique_lock lock(mutex);
  done_changed.wait(lock, [&] { return done; });
  return true;
}

void OwnerThread::Register(const std::shared_ptr<ClientSession>& session,
                           const std::shared_ptr<transport::Connection>& connection) {
  bool first = false;
  {
    const std::lock_guard lock(peers_mutex_);
    peers_.emplace(session->id(), Peer{session, connection});
    first = newcomers_.empty();
    newcomers_.push_back({session->id(), transport::NowUs() + options_.hello_timeout_us});
  }
  // The owner may sleep for longer. It hears of the first one only: the others' time ends later.
  if (first) mailbox_.PostCall([this](Owner&) { ExpireHellos(); });
}

// Looks at those whose time is over and notes when the next one's is.
void OwnerThread::ExpireHellos() {
  std::vector<Peer> late;
  {
    const std::lock_guard lock(peers_mutex_);
    for (; !newcomers_.empty() && newcomers_.front().hello_by_us <= now_us_; newcomers_.pop_front()) {
      const auto found = peers_.find(newcomers_.front().session);
      if (found != peers_.end()) late.push_back(found->second);
    }
    hello_by_us_ = newcomers_.empty() ? UINT64_MAX : newcomers_.front().hello_by_us;
  }
  for (const Peer& peer : late) {
    peer.connection->Run([session = peer.session] { session->ExpireHello(); });
  }
}

size_t OwnerThread::session_count() const {
  const std::lock_guard lock(peers_mutex_);
  return peers_.size();
}

void OwnerThread::ForEachSession(const std::function<void(ClientSession&)>& work) {
  std::vector<Peer> peers;
  {
    const std::lock_guard lock(peers_mutex_);
    for (const auto& [id, peer] : peers_) peers.push_back(peer);
  }
  for (const Peer& peer : peers) {
    peer.connection->Run([session = peer.session, work] { work(*session); });
  }
}

void OwnerThread::Stop() {
  mailbox_.Close();
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(peers_mutex_);
  peers_.clear();
}

void OwnerThread::Loop() {
  transport::NameServingThread("larder-owner");
  Mailbox::Batch batch;
  for (;;) {
    const bool closed = mailbox_.closed();  // asked first: what was posted before is taken below
    mailbox_.Take(&batch);
    now_us_ = transport::NowUs();
    if (owner_->NextTimerUs() <= now_us_) owner_->OnTimer(now_us_);
    if (hello_by_us_ <= now_us_) ExpireHellos();
    if (batch.empty()) {
      Flush();
      if (closed) break;
      SleepOrSpin();
      continue;
    }
    worked_us_ = now_us_;
    HandleAll(&batch.urgent, false);
    for (Mailbox::Call& call : batch.calls) call(*owner_);
    HandleAll(&batch.batch, true);
    Flush();
    batch.urgent.clear();
    batch.batch.clear();
    batch.calls.clear();
  }
  owner_.reset();
}

void OwnerThread::HandleAll(std::vector<Mailbox::Item>* items, bool urgent_between) {
  std::vector<Mailbox::Item> urgent;
  unix_ms_ = UnixMs();
  for (size_t i = 0; i < items->size(); ++i) {
    const uint64_t now_us = transport::NowUs();
    if (i % kFlushEvents == 0 || now_us - now_us_ >= kFlushUs) {
      Flush();
      now_us_ = now_us;
      if (urgent_between && i != 0) {
        mailbox_.TakeUrgent(&urgent);
        HandleAll(&urgent, false);
        urgent.clear();
      }
    }
    Handle(std::move((*items)[i]));
  }
  Flush();
}

void OwnerThread::Handle(Mailbox::Item&& item) {
  owner_->Handle(item.session, std::move(item.event), now_us_, unix_ms_);
}

void OwnerThread::SleepOrSpin() {
  const uint64_t now_us = transport::NowUs();
  const uint64_t timer_us = std::min(owner_->NextTimerUs(), hello_by_us_);
  if (timer_us <= now_us) return;
  if (options_.spin_us != 0 && now_us - worked_us_ < options_.spin_us) return;
  mailbox_.SleepUntil(std::min(timer_us, now_us + kSleepUsMax));
}

void OwnerThread::Deliver(SessionId session, Action&& action) {
  if (auto* verify = std::get_if<Verify>(&action)) {
    background_->Post([this, session, job = std::move(*verify)] {
      const bool good = PartsVerify({job.payload.data, job.payload.bytes}, job.parts);
      mailbox_.Post(session, Verified{job.token, good});
    });
    return;
  }
  outgoing_[session].push_back(std::move(action));
}

void OwnerThread::Flush() {
  for (auto& [id, actions] : outgoing_) {
    Peer peer;
    {
      const std::lock_guard lock(peers_mutex_);
      const auto found = peers_.find(id);
      if (found == peers_.end()) continue;  // closed; its Closed gives everything back
      peer = found->second;
    }
    // Dropped when the connection closes first, which is the same.
    peer.connection->Run([session = std::move(peer.session), list = std::move(actions)]() mutable {
      for (Action& action : list) session->Deliver(std::move(action));
    });
  }
  outgoing_.clear();
}

}  // namespace larder::node
