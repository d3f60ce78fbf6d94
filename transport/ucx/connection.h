// One ucx connection: an endpoint of its worker, a queue that any thread may fill, what is on its way out and
// in, and the one way to close.
//
// Threads. mutex_ guards the queue and whether Send may still add to it; the rest belongs to the worker's
// thread. Handlers are called only from Turn, never with the mutex held, never inside a UCX callback.
//
// Closing. An endpoint is closed by force, then we wait until UCX has completed every send and receive of
// ours: only then no byte can move any more, and OnClosed gives the buffers back. Over UCX's shared memory
// sends to a peer that stopped reading never complete: after kCloseWaitUs only receives are waited for, since
// what is left of a send can only be read, and by nobody but that peer, whose checksums will tell.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "transport/extent_cursor.h"
#include "transport/tcp/resolve.h"
#include "transport/transport.h"
#include "transport/ucx/wire.h"
#include "transport/ucx/worker.h"

namespace larder::transport::ucx {

// A message that has begun to move.
struct Outgoing {
  OutMessage message;
  std::vector<uint64_t> segment_bytes;
  uint64_t frame_bytes = 0;
  uint32_t fragments = 0;  // posted so far
  uint32_t sends = 0;      // posted and not completed
  bool all_posted = false;
  bool reported = false;
  ExtentCursor<ConstExtent> cursor;
  bool completed() const { return all_posted && sends == 0; }
};

// One active message under way. UCX reads header and data until it completes.
struct SendOp {
  UcxConnection* connection = nullptr;  // null: it is an orphan
  std::shared_ptr<Outgoing> outgoing;   // null: a welcome or hello
  union {
    FrameHeader frame;
    FragmentHeader fragment;
    HelloHeader hello;
  };
  std::vector<std::byte> owned;  // the data, unless it is the caller's
  uint64_t bytes = 0;            // of payload
  std::list<SendOp>* home = nullptr;
  std::list<SendOp>::iterator self;
  SendOp() : frame() {}
};

class UcxConnection final : public Connection, public std::enable_shared_from_this<UcxConnection> {
 public:
  UcxConnection(std::shared_ptr<Shared> shared, std::shared_ptr<Worker> worker, std::string peer, bool batch);
  ~UcxConnection() override;

  Failure Send(OutMessage&& message) override;
  void Cancel(uint64_t token) override;
  void Divert(uint64_t landing_id) override;
  bool Run(std::function<void()> work) override;
  void Close(Failure why) override;
  void SetBatch(bool batch) override;
  const std::string& peer() const override { return peer_; }

  // On the worker's thread, after Worker::Add.
  void StartConnect(std::shared_ptr<Handler> handler, uint64_t timeout_us);
  void ConnectTo(const SocketAddress& address);
  void StartAccepted(std::shared_ptr<Handler> handler, ucp_conn_request_h request);
  void Abandon();  // instead of the above, from any thread: its worker has ended
  void Turn();
  void BeginClose(Error why, Failure queued);
  void FinishWithoutUcx();  // the worker is destroyed: report what is left and end
  // More than a window of messages waits to be handed on: before UCX is progressed again, they go.
  bool Backlogged() const;
  bool closing() const { return state_ >= State::kClosing; }
  bool batch() const { return batch_.load(std::memory_order_relaxed); }

  // The worker's notes.
  bool enqueued = false;
  bool timer_fired = false;
  uint64_t timer_us = 0;

  static ucs_status_t OnFrameArrived(void* worker, const void* header, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnFragmentArrived(void* worker, const void* header, size_t header_bytes, void* data,
                                        size_t bytes, const ucp_am_recv_param_t* param);
  static ucs_status_t OnHelloArrived(void* worker, const void* header, size_t header_bytes, void* data,
                                     size_t bytes, const ucp_am_recv_param_t* param);

 private:
  enum class State : uint8_t { kConnecting, kOpen, kClosing, kClosed };

  // A fragment that arrived before its turn: UCX's descriptor of a rendezvous, or a copy of its bytes.
  struct Early {
    void* descriptor = nullptr;
    std::vector<std::byte> copy;
    uint64_t bytes = 0;
  };
  struct Incoming {
    bool has_frame = false;
    FrameHeader frame;
    std::vector<std::byte> data;  // of the frame
    std::map<uint32_t, Early> early;
  };
  // A fragment on its way into memory.
  struct Arriving {
    UcxConnection* connection = nullptr;
    uint32_t segment = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::vector<Extent> to;               // none: thrown away
    std::unique_ptr<std::byte[]> bounce;  // first stop when the destination is scattered
    bool done = false;
  };
  // The message whose turn it is, with payload.
  struct LandingState {
    bool active = false;
    bool landed = false;  // false: refused
    bool diverted = false;
    std::vector<uint64_t> segment_bytes;
    Landing landing;
    ExtentCursor<Extent> cursor;  // where the next fragment will begin
    uint32_t segment = 0;         // the same place, also without a landing
    uint64_t offset = 0;
    uint32_t next_fragment = 0;
    uint64_t left_bytes = 0;  // not yet begun to arrive
    std::deque<std::unique_ptr<Arriving>> arriving;
  };

  // connection.cc
  Failure CheckSend(const OutMessage& message) const;
  void FinishIfQuiet();
  void OrphanSends();
  void HandleTimer();
  void UpdateTimer();
  void Fail(Failure failure, std::string text);
  void NoteTooLarge(const char* what);
  void CloseEndpoint();
  void FinishClose();
  void TakeCancelled();
  void TakeFromQueue(const std::function<bool(const OutMessage&)>& which, Failure failure);
  bool CreateEndpoint(ucp_ep_params_t* params);
  static void OnEndpointError(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static void OnEndpointClosed(void* request, ucs_status_t status, void* self);
  // send.cc
  void Pump();
  bool MayBegin() const;
  bool BeginNext();
  void PostFrame(const std::shared_ptr<Outgoing>& outgoing);
  void PostFragment();
  SendOp* NewOp(std::shared_ptr<Outgoing> outgoing);
  void PostOp(SendOp* op, unsigned id, const void* header, size_t header_bytes, const void* data,
              size_t bytes, bool rendezvous);
  void PostHello(unsigned id);
  static void OnSendDone(void* request, ucs_status_t status, void* op);
  static void CompleteOp(SendOp* op, ucs_status_t status);
  void OnOpCompleted(const SendOp& op, ucs_status_t status);
  void ReportSent();
  // receive.cc
  Incoming* FindIncoming(uint64_t sequence);
  void TakeFrame(const void* header, size_t header_bytes, const void* data, size_t bytes, bool rendezvous);
  ucs_status_t TakeFragment(const FragmentHeader& header, void* data, size_t bytes, bool rendezvous);
  void Receive();
  bool DeliverNext();
  bool ParseSizes(const Incoming& incoming, std::vector<uint64_t>* segment_bytes,
                  uint64_t* payload_bytes) const;
  void BeginLanding(Incoming* incoming, std::vector<uint64_t> segment_bytes, uint64_t payload_bytes);
  void StartArrivals(Incoming* incoming);
  void StartArrival(Early early);
  bool LocateArrival(Arriving* arriving);
  void DeliverArrived();
  void EndMessage(bool landed);
  void ReleaseEarly();
  void AnswerDiverts();
  static void OnReceiveDone(void* request, ucs_status_t status, size_t bytes, void* arriving);
  ByteView HeaderOf(const Incoming& incoming) const;

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Worker> worker_;
  const std::string peer_;
  std::atomic<bool> batch_;
  static constexpr uint64_t kNever = ~uint64_t{0};

  std::mutex mutex_;  // guards the next ones
  bool accepts_sends_ = true;
  bool turn_posted_ = false;
  std::deque<OutMessage> queue_;
  std::vector<uint64_t> cancelled_;  // tokens taken out of queue_, OnSent still to call
  uint64_t queued_header_bytes_ = 0;
  uint64_t next_expire_us_ = kNever;  // the earliest of queue_, or earlier

  // Of the worker's thread.
  State state_ = State::kConnecting;
  std::shared_ptr<Handler> handler_;
  ucp_ep_h endpoint_ = nullptr;
  bool endpoint_closed_ = true;
  uint64_t close_deadline_us_ = kNever;
  bool opened_ = false;  // OnOpen was called
  bool is_connector_ = false;
  bool hello_sent_ = false;
  bool hello_arrived_ = false;            // or the welcome
  bool ready_ = false;                    // to open, see wire.h
  ucs_status_t endpoint_error_ = UCS_OK;  // noted by UCX's callback
  std::string protocol_error_;            // noted by ours: what the peer sent
  Failure protocol_failure_ = Failure::kProtocol;
  uint64_t connect_deadline_us_ = kNever;
  Error why_;
  Failure queued_failure_ = Failure::kCancelled;

  uint64_t last_sequence_ = 0;
  std::list<SendOp> ops_;
  uint64_t frame_bytes_in_flight_ = 0;
  uint64_t last_sent_us_ = 0;
  std::shared_ptr<Outgoing> posting_;                  // its fragments are not all posted
  std::deque<std::shared_ptr<Outgoing>> outgoing_;     // from the oldest not completed on
  std::vector<std::pair<uint64_t, Failure>> reports_;  // OnSent to call

  uint64_t next_sequence_ = 1;  // the message whose turn it is
  std::map<uint64_t, Incoming> incoming_;
  uint64_t early_bytes_ = 0;
  uint32_t early_fragments_ = 0;
  uint32_t receives_in_flight_ = 0;
  uint64_t last_received_us_ = 0;
  LandingState landing_;
  std::vector<uint64_t> diverts_;  // asked for, not answered
};

}  // namespace larder::transport::ucx
