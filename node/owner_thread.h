// The owner's thread: takes events from the mailbox, runs the Owner, and hands its actions to the sessions'
// connections, once a session and step. While it sleeps, a session's thread may stand in for it
// (Mailbox::StandIn).
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "node/background.h"
#include "node/mailbox.h"
#include "node/owner/owner.h"
#include "node/session.h"

namespace larder::node {

uint64_t UnixMs();  // this machine's clock

struct OwnerThreadOptions {
  OwnerOptions owner;
  size_t mailbox_max = 65536;
  uint32_t spin_us = 0;  // look for work so long before sleeping
  uint64_t hello_timeout_us = 5'000'000;
};

class OwnerThread final : private Outbox {
 public:
  // `slabs` and `background` outlive it. The background checks reported blocks: seconds of work for no
  // client's connection to wait for.
  OwnerThread(const OwnerThreadOptions& options, SlabSource* slabs, Background* background,
              std::unique_ptr<ssd::SsdTier> ssd = nullptr);
  ~OwnerThread() override;  // Stop

  // --- any thread ---
  bool Post(SessionId session, Event&& event);
  // Runs `call` on the owner's thread and waits for it. false: stopped, it did not run.
  bool Call(const std::function<void(Owner&)>& call);
  // Runs on the owner's thread when there are questions for other nodes; must not call back. Empty: no more.
  void SetOnQuestions(std::function<void()> on_questions);
  // The same when there are clears to be kept.
  void SetOnClears(std::function<void()> on_clears);
  void SetOnRevokes(std::function<void()> on_revokes);  // the same for copies that have to go
  // A disk of the SSD tier has something to say: the owner looks, once for many of these.
  void OnDisk();
  // As Call, without waiting.
  bool CallLater(std::function<void(Owner&)> call);
  // Sessions get their actions through their connection's thread. Register comes before the session's first
  // event; its Closed forgets it. A session that has not opened after hello_timeout_us is told so.
  void Register(const std::shared_ptr<ClientSession>& session,
                const std::shared_ptr<transport::Connection>& connection);
  size_t session_count() const;
  // On each session's own thread, in no order.
  void ForEachSession(const std::function<void(ClientSession&)>& work);

  // Handles what has been posted, then ends the thread. The owner is gone when it returns.
  void Stop();

 private:
  struct Peer {
    std::shared_ptr<ClientSession> session;
    std::shared_ptr<transport::Connection> connection;
  };

  struct Newcomer {
    SessionId session = 0;
    uint64_t hello_by_us = 0;
  };

  void Loop();
  void HandleAll(std::vector<Mailbox::Item>* items, bool urgent_between);
  void Handle(Mailbox::Item&& item);
  void SleepOrSpin();
  void ExpireHellos();
  void Flush();
  void Deliver(SessionId session, Action&& action) override;
  void OnQuestions() override {
    if (on_questions_) on_questions_();
  }
  void OnClears() override {
    if (on_clears_) on_clears_();
  }
  void OnRevokes() override {
    if (on_revokes_) on_revokes_();
  }

  const OwnerThreadOptions options_;
  Background* const background_;
  Mailbox mailbox_;

  std::atomic<bool> disk_posted_{false};
  mutable std::mutex peers_mutex_;
  std::unordered_map<SessionId, Peer> peers_;
  std::deque<Newcomer> newcomers_;  // in the order in which their time ends; also those that opened or left

  // The owner's thread, or whoever stands in for it.
  std::unique_ptr<Owner> owner_;
  std::unordered_map<SessionId, std::vector<Action>> outgoing_;
  std::function<void()> on_questions_, on_clears_, on_revokes_;
  uint64_t now_us_ = 0;
  uint64_t unix_ms_ = 0;
  uint64_t worked_us_ = 0;             // when something was there last
  uint64_t hello_by_us_ = UINT64_MAX;  // the first newcomer's

  std::thread thread_;
};

}  // namespace larder::node
