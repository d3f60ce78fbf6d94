// One end of a loopback connection. See loopback.h.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/loopback/core.h"

namespace larder::transport::loopback {

class LoopbackConnection final : public Connection, public std::enable_shared_from_this<LoopbackConnection> {
 public:
  LoopbackConnection(std::shared_ptr<Core> core, std::shared_ptr<Process> process, std::string peer_name,
                     std::string peer_host, bool batch);

  Failure Send(OutMessage&& message) override;
  void Cancel(uint64_t token) override;
  void Divert(uint64_t landing_id) override;
  bool Run(std::function<void()> work) override;
  void Close(Failure why) override;
  void SetBatch(bool batch) override { batch_ = batch; }
  const std::string& peer() const override { return peer_name_; }

  uint64_t id() const { return id_; }
  const std::shared_ptr<Process>& process() const { return process_; }
  bool closed() const { return state_ >= State::kClosing; }
  void Attach(std::shared_ptr<Handler> handler) { handler_ = std::move(handler); }
  // Makes the two ends of one connection; `acceptor_side` opens at once, the other when the news reaches it.
  static void Pair(const std::shared_ptr<LoopbackConnection>& connector,
                   const std::shared_ptr<LoopbackConnection>& acceptor_side);
  void Open();                                 // OnOpen, unless it came or is too late
  void OnConnectTimeout();                     // closes what has not opened
  void CloseLater(Error why, Failure queued);  // OnClosed in an event of its own, OnSent(queued) before it
  void FinishClose();                          // that event; also called by Shutdown
  void Die();     // its process is gone: no calls, nothing held; the peer will hear
  void Refuse();  // the acceptor said no: the same, and the peer hears from elsewhere

 private:
  enum class State : uint8_t { kConnecting, kOpen, kClosing, kClosed };
  struct Queued {
    uint64_t serial = 0;
    OutMessage message;
  };
  struct Moving {  // the message on its way to the peer
    uint64_t serial = 0;
    OutMessage message;
    std::vector<uint64_t> segment_bytes;
    uint64_t payload_bytes = 0;
    uint64_t moved_bytes = 0;
    uint64_t last_move_us = 0;
    Fate fate;
    // Where we are in the source and, once placed, in the landing.
    size_t segment = 0, source_extent = 0, land_extent = 0;
    uint64_t segment_offset = 0, source_offset = 0, land_offset = 0;
    Landing landing;
    bool landed = false;
  };
  struct Unacknowledged {
    uint64_t serial = 0, token = 0, expire_us = 0, last_move_us = 0;
  };

  Failure CheckSend(const OutMessage& message) const;
  void PumpLater();
  void Pump();
  bool BeginNext();
  void OnHeaderThere(uint64_t serial);
  bool PlaceAtPeer(LoopbackConnection& peer);
  void ScheduleStep(uint64_t bytes);
  uint64_t NextStepBytes() const;
  void OnStep(uint64_t serial, uint64_t bytes);
  void CopyStep(LoopbackConnection& peer, uint64_t bytes);
  void Complete(LoopbackConnection& peer);
  void OnAcknowledged(uint64_t serial);
  void Break();  // the link resets this connection
  void OnExpire(uint64_t serial);
  void CheckStall(uint64_t serial);
  void Report(uint64_t token, Failure failure);  // OnSent in an event of its own
  void FlushReports();
  bool IsMoving(uint64_t serial) const { return moving_ && moving_->serial == serial; }

  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Process> process_;
  const std::string peer_name_;
  const std::string peer_host_;
  const uint64_t id_;
  std::shared_ptr<Handler> handler_;
  std::weak_ptr<LoopbackConnection> peer_;
  State state_ = State::kConnecting;
  bool batch_ = false;
  bool pump_posted_ = false;
  bool flush_posted_ = false;
  Error why_;  // of the close under way
  Failure queued_failure_ = Failure::kCancelled;
  uint64_t last_serial_ = 0;
  uint64_t queued_header_bytes_ = 0;
  std::deque<Queued> queue_;
  std::unique_ptr<Moving> moving_;
  std::deque<Unacknowledged> unacknowledged_;
  std::vector<std::pair<uint64_t, Failure>> reports_;
  std::vector<uint64_t> diverted_;     // asked for and not answered yet
  std::vector<uint64_t> landing_now_;  // 0 or 1 ids that bytes are landing for; erased by Divert
};

}  // namespace larder::transport::loopback
