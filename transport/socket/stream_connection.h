// What tcp and shm connections have in common: the queue that any thread may fill, the frames that come in,
// the landing of payloads, timers, and the one way to close. The derived class moves the bytes.
//
// Threads. mutex_ guards the queue and what decides whether another thread may write to the socket itself;
// everything else belongs to the loop's thread. No handler is called with the mutex held.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/extent_cursor.h"
#include "transport/loop.h"
#include "transport/socket/frame.h"
#include "transport/socket/socket.h"
#include "transport/transport.h"

namespace larder::transport {

// Options and counters of one transport. Shared by its connections, since callers may keep one longer than
// the transport.
struct StreamShared {
  explicit StreamShared(const TransportOptions& o) : options(o) {}
  virtual ~StreamShared() = default;
  const TransportOptions options;
  std::vector<std::unique_ptr<Loop>> loops;  // all of the transport's; unchanged once it has started
  std::atomic<uint64_t> connections{0}, sent_messages{0}, received_messages{0}, sent_bytes{0},
      received_bytes{0}, refused_messages{0}, protocol_errors{0}, stalled_closed{0};
};

class StreamConnection : public Connection,
                         public Source,
                         public std::enable_shared_from_this<StreamConnection> {
 public:
  // `loop` is one of shared->loops.
  StreamConnection(std::shared_ptr<StreamShared> shared, Loop* loop, std::string peer);
  ~StreamConnection() override;

  Failure Send(OutMessage&& message) override;
  void Cancel(uint64_t token) override;
  void Divert(uint64_t landing_id) override;
  bool Run(std::function<void()> work) override;
  void Close(Failure why) override;
  void SetBatch(bool batch) override;
  const std::string& peer() const override { return peer_; }

  void OnTurn(uint32_t events) override;

  // Once, on the loop's thread, after Loop::Add.
  void StartAccepted(int fd, Acceptor* acceptor);
  void StartConnect(std::shared_ptr<Handler> handler, uint64_t timeout_us);
  // Then one of: try these in turn, or give up.
  void ConnectTo(std::vector<SocketAddress> addresses);
  void FailConnect(Error why);
  void UseBatch(bool batch) { batch_source_ = batch; }

 protected:
  static constexpr size_t kBatchStepBytes = 256 * 1024;
  static constexpr uint64_t kNever = ~uint64_t{0};

  // A message taken from the queue: from now on it has begun.
  struct OutFrame {
    FrameHeader frame;
    std::vector<uint64_t> segment_bytes;
    OutMessage message;
    size_t sent_bytes = 0;  // of frame, body and (tcp) payload
    ExtentCursor<ConstExtent> cursor;
  };
  // The message whose payload is on its way in.
  struct Incoming {
    bool active = false;
    bool landed = false;  // false: thrown away
    std::vector<std::byte> header;
    std::vector<uint64_t> segment_bytes;
    uint64_t payload_bytes = 0;
    uint64_t payload_left = 0;
    Landing landing;
    ExtentCursor<Extent> cursor;
  };

  virtual void ReadTurn() = 0;
  virtual void WriteTurn() = 0;
  // Received work waits for a turn without news from the socket.
  virtual bool WantsTurn() const { return false; }
  // A frame with its whole body. kMessage frames go on to BeginMessage.
  virtual void OnFrame(const FrameHeader& frame, ByteView body) = 0;
  // How much of `bytes` is payload of incoming_; tcp only.
  virtual size_t TakePayload(ByteView bytes) { return (void)bytes, 0; }
  virtual bool IsShm() const = 0;
  virtual void OnSocket(int fd) { (void)fd; }  // before connect and after accept: options
  virtual void OnOpen() {}
  // The connection closes: Finish() for each begun message's token, and let go of everything else.
  virtual void DropBegun(Failure why) = 0;
  // The next time that OnTimers wants to be called; kNever: not at all.
  virtual uint64_t NextTimerUs() const { return kNever; }
  virtual void OnTimers(uint64_t now_us) { (void)now_us; }

  // Takes the next message that has not expired; false: none. `keep_busy`: the caller has others in hand, so
  // that no other thread may write to the socket.
  bool TakeNext(uint64_t now_us, bool keep_busy, OutFrame* out);
  // No other thread may write to the socket until ReleaseWriter. True: one has left the beginning of a
  // message there, so that TakeNext's message must go before anything else.
  bool HoldWriter();
  // False: messages wait, the writer goes on.
  bool ReleaseWriter();
  void Finish(uint64_t token, Failure failure);  // OnSent at the end of the turn
  void Feed(ByteView bytes);
  void BeginMessage(const FrameHeader& frame, ByteView body);
  void Landed(ByteView bytes);  // bytes lie at incoming_.cursor
  void Skipped(size_t bytes);   // thrown away
  void FinishMessage();
  void Fail(Failure failure, std::string text);  // the turn ends with the connection closed
  void FailErrno(const char* what, int error);
  bool closing() const { return close_wanted_.load(std::memory_order_relaxed); }
  void WantWrite(bool want);
  int fd() const { return fd_; }
  bool batch() const { return batch_source_; }
  bool dialed() const { return dialed_; }
  bool open() const { return state_ == State::kOpen; }
  Loop& loop() { return *loop_; }
  // A turn moved so many bytes of payload: now and then, whether another loop has more room. An accepted
  // connection goes there by itself (stream_move.cc); who dialed has chosen its loop.
  void CountMoved(size_t bytes);
  StreamShared& shared() const { return *shared_; }
  void Wake();  // a turn soon; any thread

  Incoming incoming_;
  uint64_t last_progress_us_ = 0;  // a byte of a begun message moved
  std::string peer_;

 private:
  enum class State : uint8_t { kNew, kConnecting, kOpen, kClosed };

  bool TryConnect();
  void FinishConnect(uint32_t events);
  void Opened();
  void ExpireQueued(uint64_t now_us);
  void ArmTimer();
  void DeliverSent();
  void TearDown();
  bool ParseFrame(ByteView* bytes);

  struct Queued {
    OutMessage message;
    uint64_t payload_bytes = 0;
    std::vector<uint64_t> segment_bytes;
    size_t sent_bytes = 0;  // not 0: begun by WriteDirectly
  };

  bool WriteDirectly(Queued* queued);

  // kLeaving: still on its loop, what Run was given since waits. kBetween: on none.
  enum class Place : uint8_t { kSettled, kLeaving, kBetween };

  void ForgetLoads();
  void MoveTo(Loop* target);
  void Leave(Loop* target, bool runs_are_in);
  void Arrive();

  const std::shared_ptr<StreamShared> shared_;
  Loop* loop_;  // of shared_->loops; changed between two turns, with the mutex held

  std::mutex mutex_;  // guards the next block
  Place place_ = Place::kSettled;
  std::vector<std::function<void()>> waiting_runs_;
  std::atomic<int> posting_runs_{0};  // Run is about to post to loop_; only lessened without the mutex
  std::deque<Queued> queue_;
  uint64_t queued_header_bytes_ = 0;
  uint64_t queue_expire_us_ = kNever;  // no later than the first expiry in the queue
  std::vector<std::pair<uint64_t, Failure>> sent_;
  bool writer_busy_ = false;  // the loop's thread has begun messages in hand
  bool direct_ok_ = false;    // the socket is open
  bool wake_pending_ = false;
  bool close_local_ = false;
  Error close_why_;
  std::atomic<bool> close_wanted_{false};  // set with the mutex held

  State state_ = State::kNew;
  int fd_ = -1;  // changed by the loop's thread with the mutex held
  uint32_t watched_ = 0;
  bool in_turn_ = false;
  uint64_t connect_deadline_us_ = kNever;
  std::vector<SocketAddress> candidates_;
  Error connect_error_;
  std::shared_ptr<Handler> handler_;
  bool dialed_ = false;                // we connected, the peer accepted
  Loop* move_target_ = nullptr;        // at the end of the turn
  uint64_t counted_bytes_ = 0;         // of payload since the loads were noted
  uint64_t noted_moves_ = 0;           // of our loop
  std::vector<uint64_t> noted_loads_;  // moved_bytes of each loop
  bool stranger_ = false;              // accepted, and no message came yet
  FrameHeader partial_frame_;
  std::vector<std::byte> partial_;  // the beginning of a frame
};

}  // namespace larder::transport
