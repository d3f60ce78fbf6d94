// Carries out what the core decides, over real transports or over loopback in virtual time: one lock around
// the core, an outbox for each connection that is emptied without it, and checksums on the connections' own
// threads.
//
// Lock order: the driver's lock, then an outbox's. No transport, sink or world is called with either held,
// but CompletionSink::Push with the driver's.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "client/core/core.h"

namespace larder::client {

// The clock, the transports and the alarm clock of a driver.
class World {
 public:
  virtual ~World() = default;
  virtual uint64_t NowUs() = 0;
  // Made on first use; nullptr, with the reason, where this machine has none.
  virtual transport::Transport* TransportFor(const std::string& name, std::string* error) = 0;
  // Call Driver::OnTimer at `us` or soon after; replaces what was asked before. Not from inside this call.
  virtual void TimerAt(uint64_t us) = 0;
};

class LinkIo;

class Driver : private Effects {
 public:
  Driver(const CoreOptions& options, World* world);
  ~Driver() override;  // after Shutdown and after every transport was shut down
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Thread-safe; each returns soon. The operation has its sink, class and deadline.
  uint32_t AddNamespace(const ClientNamespace& name_space);
  Result<OperationId> Submit(std::unique_ptr<Operation> operation);
  void Cancel(OperationId id);
  void CancelWaiting(OperationId id);
  void Report(uint32_t name_space, const std::vector<BlockRef>& blocks);
  void Touch(uint32_t name_space, const TouchRequest& request);
  void Release(uint64_t pin);
  void OnTimer();
  // Cancels everything. The caller then shuts its transports down, and what is left completes meanwhile.
  void Shutdown();

  NodeTable table() const;
  std::vector<PeerInfo> peers() const;
  ClientStats stats() const;
  std::string CheckInvariants() const;

 private:
  friend class LinkIo;
  // What one entry into the core left to do without the lock.
  struct Rest {
    std::vector<std::shared_ptr<LinkIo>> links;
    std::vector<NodeTable> tables;
    std::vector<std::shared_ptr<CompletionSink>> sinks;
    uint64_t timer_us = UINT64_MAX;
  };

  // Runs `work(core, now)` under the lock, then does the rest.
  template <typename Work>
  void Enter(Work&& work) {
    Rest rest;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work(core_, world_->NowUs());
      TakeRest(&rest);
    }
    if (!rest.links.empty() || !rest.tables.empty() || !rest.sinks.empty() || rest.timer_us != UINT64_MAX) {
      Finish(std::move(rest));
    }
  }
  void TakeRest(Rest* rest);
  void Finish(Rest&& rest);
  LinkIo* Touched(LinkId link);

  void Connect(LinkId link, const Endpoint& endpoint, Priority lane, int loop, uint64_t timeout_us) override;
  void Send(LinkId link, transport::OutMessage&& message) override;
  void SendPut(LinkId link, PutJob&& job) override;
  void CancelSend(LinkId link, uint64_t token) override;
  void Divert(LinkId link, uint64_t landing_id) override;
  void Close(LinkId link, transport::Failure why) override;
  void BuildRouting(NodeTable&& table) override;
  void Complete(std::shared_ptr<CompletionSink> sink, Completion&& completion) override;

  World* world_;
  mutable std::mutex mutex_;
  Core core_;
  std::unordered_map<LinkId, std::shared_ptr<LinkIo>> links_;
  Rest rest_;  // of the entry under way
  uint64_t armed_us_ = UINT64_MAX;
};

}  // namespace larder::client
