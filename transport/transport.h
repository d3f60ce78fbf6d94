// The contract of every backend: a message is a small header and an optional payload of segments, and the
// receiver decides where the payload lands before it moves, or refuses it. transport knows no KV.
//
// Threads. A connection belongs to one thread of its transport (its loop; loopback: whoever steps the
// network). All Handler calls of a connection come from that thread, one at a time, in order. An accepted
// connection that is busy may go to another thread between two calls, its Run()s in order with it. Send,
// Cancel, Divert, Run and Close may be called from any thread, also from inside a Handler call.
//
// Order. Messages of one connection arrive whole and in the order in which Send accepted them.
//
// Buffers. DESIGN.md has the table; in short: a sender's payload is the transport's until OnSent, a
// receiver's extents are the transport's from Place until OnMessage, OnDiverted of that landing, or OnClosed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace larder::transport {

using ByteView = std::span<const std::byte>;

enum class Failure : uint8_t {
  kNone = 0,
  kRefused,     // the acceptor or the receiver's Place said no
  kTooLarge,    // header, segments or payload over the limits
  kBusy,        // this connection's send queue is full: nothing was taken, try after an OnSent
  kPeerClosed,  // the peer closed or died
  kTimedOut,    // an expiry, a connect or a stalled peer ran out of time
  kCancelled,
  kProtocol,     // the peer sent what makes no sense
  kNotSealed,    // shm: the peer's buffer could be shrunk under our feet
  kUnreachable,  // nobody listens at the address, or it can't be resolved
  kInvalid,      // the caller's arguments
  kUnsupported,  // this build or machine lacks what the backend needs
  kSystem,       // a system call failed; the text has errno
};
std::string_view FailureName(Failure failure);

struct Error {
  Failure failure = Failure::kNone;
  std::string text;  // what to do about it, for people
  bool ok() const { return failure == Failure::kNone; }
};

struct Extent {
  std::byte* data = nullptr;
  size_t bytes = 0;
};
struct ConstExtent {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// A list of segments, each of one or more extents, kept flat.
template <typename E>
struct SegmentList {
  std::vector<E> extents;
  std::vector<uint32_t> counts;  // extents of each segment

  void Add(const E& extent) {
    extents.push_back(extent);
    counts.push_back(1);
  }
  void Add(std::span<const E> segment) {
    extents.insert(extents.end(), segment.begin(), segment.end());
    counts.push_back(static_cast<uint32_t>(segment.size()));
  }
  size_t size() const { return counts.size(); }
  void clear() {
    extents.clear();
    counts.clear();
  }
};
using SendSegments = SegmentList<ConstExtent>;
using LandSegments = SegmentList<Extent>;

struct Limits {
  uint32_t header_bytes_max = 1 << 20;
  uint32_t segments_max = 8192;
  uint64_t payload_bytes_max = 1ull << 30;      // of one message
  uint32_t queued_messages_max = 1024;          // of one connection, not yet begun
  uint64_t queued_header_bytes_max = 16 << 20;  // of one connection, not yet begun
};

struct OutMessage {
  std::vector<std::byte> header;  // the transport's from Send on
  SendSegments segments;          // the bytes stay the caller's; unchanged until OnSent
  uint64_t token = 0;             // OnSent(token); 0: no OnSent wanted (only without payload)
  uint64_t expire_us = 0;         // on NowUs(); not begun by then: OnSent(kTimedOut). 0: never
};

// Where one payload lands. Each segment's extents add up to exactly that segment's bytes.
struct Landing {
  uint64_t id = 0;  // the receiver's own name for it, for Divert
  LandSegments segments;
};

class Connection;

class Handler {
 public:
  virtual ~Handler() = default;
  // Connect succeeded, or an accepted connection is ready for Send.
  virtual void OnOpen(Connection&) {}
  // The header of a message with payload is here. Fill `landing` and return true, or return false: then the
  // payload is thrown away and OnMessage comes with landed == false.
  virtual bool Place(Connection&, ByteView header, std::span<const uint64_t> segment_bytes,
                     Landing* landing) = 0;
  // `bytes` bytes have just landed at `data`, offset `offset` of segment `segment`, and are still in cache.
  // Steps of a segment come in order, each contiguous in memory, at most 1 MiB.
  virtual void OnBytes(Connection&, uint64_t landing_id, uint32_t segment, uint64_t offset, ByteView bytes) {
    (void)landing_id, (void)segment, (void)offset, (void)bytes;
  }
  // A whole message. `header` is valid during the call. landed: all payload is where Place said (true when
  // there was none); false: refused or diverted.
  virtual void OnMessage(Connection&, ByteView header, uint64_t landing_id, bool landed) = 0;
  // The transport has let go of the payload of the message with this token. kNone: it is on its way (tcp), or
  // the receiver has it (shm, ucx). Called exactly once for each accepted Send with a token, before OnClosed.
  virtual void OnSent(Connection&, uint64_t token, Failure failure) { (void)token, (void)failure; }
  // After Divert(id): no byte will land for this id any more.
  virtual void OnDiverted(Connection&, uint64_t landing_id) { (void)landing_id; }
  // The last call. Every buffer is the caller's again. Comes once, also for a Connect that failed.
  virtual void OnClosed(Connection&, const Error& why) = 0;
};

class Connection {
 public:
  virtual ~Connection() = default;
  // Takes the message, or takes nothing and says why (kBusy, kTooLarge, kPeerClosed, kInvalid).
  virtual Failure Send(OutMessage&& message) = 0;
  // If the message has not begun to move: OnSent(token, kCancelled). Else it goes on.
  virtual void Cancel(uint64_t token) = 0;
  // Stop landing bytes for this id: what still comes is thrown away. Always answered by OnDiverted, unless
  // OnClosed comes first. The handler's Place must refuse the id from the call of Divert on.
  virtual void Divert(uint64_t landing_id) = 0;
  // Runs `work` on the connection's thread; dropped (returns false) once the connection is closed.
  virtual bool Run(std::function<void()> work) = 0;
  // Closes at once; what is queued gets OnSent(kCancelled), then OnClosed(why).
  virtual void Close(Failure why) = 0;
  // Batch connections of a loop are served after its interactive ones and in steps of at most 256 KiB.
  virtual void SetBatch(bool batch) = 0;
  virtual const std::string& peer() const = 0;  // address, for people
};

// Asked for each incoming connection, on some loop's thread. nullptr refuses it (it is closed at once).
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual std::shared_ptr<Handler> OnAccept(const std::shared_ptr<Connection>& connection) = 0;
};

struct ConnectOptions {
  uint64_t timeout_us = 1'000'000;
  bool batch = false;
  int loop = -1;  // which of the transport's threads; -1: the least loaded
};

// Memory that is often sent from or landed in. ucx registers it; shm passes `fd` to peers, read-only or not
// as its seals say, the first time something from it is sent to them. Sending from other memory always works,
// it is only slower.
struct Region {
  std::byte* base = nullptr;  // page-aligned
  size_t bytes = 0;
  int fd = -1;  // memfd with F_SEAL_SHRINK, stays the caller's; -1: none
};

struct TransportStats {
  uint64_t connections = 0;  // open now
  uint64_t sent_messages = 0, received_messages = 0, sent_bytes = 0, received_bytes = 0;
  uint64_t refused_messages = 0, protocol_errors = 0, stalled_closed = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;  // like Shutdown
  virtual std::string_view name() const = 0;
  // tcp, ucx: "host:port", port 0 binds any. shm: path of a Unix socket. `bound` is the address to connect
  // to.
  virtual Error Listen(const std::string& address, Acceptor* acceptor, std::string* bound) = 0;
  // Never blocks: OnOpen or OnClosed follows on the connection's thread (nullptr and neither after Shutdown).
  // The handler is kept until OnClosed returned. Shared, since any thread may Send while the connection's own
  // thread closes it.
  virtual std::shared_ptr<Connection> Connect(const std::string& address, std::shared_ptr<Handler> handler,
                                              const ConnectOptions& options) = 0;
  virtual Error AddRegion(const Region& region) = 0;
  // `released` runs once no peer has the region mapped any more (at once where that never happens); the
  // caller keeps the memory until then. Called on any thread.
  virtual void RemoveRegion(const std::byte* base, std::function<void()> released) = 0;
  virtual TransportStats stats() const = 0;
  // Stops listening, closes every connection; when it returns no Handler call will come any more. Not from
  // inside a Handler call.
  virtual void Shutdown() = 0;
};

// Microseconds of CLOCK_MONOTONIC: the clock of expire_us.
uint64_t NowUs();

struct TransportOptions {
  int threads = 2;  // loops
  Limits limits;
  uint64_t stall_us = 2'000'000;       // a begun and expired message that moves no byte for so long closes
                                       // its connection
  uint32_t user_timeout_ms = 5000;     // tcp: TCP_USER_TIMEOUT
  uint32_t socket_bytes = 256 * 1024;  // tcp: SO_SNDBUF and SO_RCVBUF, set before connect and listen
  uint32_t spin_us = 0;                // poll so long before sleeping
  std::string device;                  // ucx: UCX_NET_DEVICES; empty: what UCX finds
  std::string ucx_tls;  // ucx: UCX_TLS; empty: rc,ud,dc,self where there is RDMA, else ucx_transport.h
};

// name: "tcp", "shm", "ucx". nullptr with an error when this build or machine can't.
std::unique_ptr<Transport> MakeTransport(std::string_view name, const TransportOptions& options,
                                         Error* error);

}  // namespace larder::transport
