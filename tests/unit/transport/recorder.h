// What the battery and the backends' own tests share: a handler that remembers everything that happened to
// it, payloads that can be told apart, and bounded waits.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/transport/battery.h"

namespace larder::transport {

// Waits until pred() is true; false after a generous bound. Tests assert what happened, never how fast.
template <typename Pred>
bool WaitFor(Fixture& fixture, Pred pred, int seconds = 30) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!pred()) {
    if (std::chrono::steady_clock::now() > end) return false;
    fixture.Pump();
    if (fixture.threaded()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

std::vector<std::byte> Bytes(const std::string& text);
std::string Text(ByteView bytes);
// Bytes that no other seed gives.
std::vector<std::byte> Pattern(uint64_t seed, size_t bytes);

// A message without payload.
OutMessage Note(const std::string& header, uint64_t token = 0);
// One segment a piece of `payload`; each cut into extents of at most extent_bytes.
OutMessage Parcel(const std::string& header, const std::vector<std::byte>& payload, size_t segments,
                  size_t extent_bytes, uint64_t token);

class Recorder : public Handler {
 public:
  struct Message {
    std::string header;
    uint64_t landing_id = 0;
    bool landed = false;
    std::vector<std::byte> payload;  // what Place's memory held at OnMessage
  };

  // Called at the end of what is recorded, without the recorder's mutex.
  std::function<void(Connection&)> on_open;
  std::function<bool(Connection&, ByteView)> on_place;  // false: refuse
  std::function<void(Connection&, uint64_t)> on_bytes;  // with the landing id
  std::function<void(Connection&, const Message&)> on_message;
  std::function<void(Connection&, uint64_t, Failure)> on_sent;
  size_t extent_bytes = 1 << 20;  // landings are scattered over extents of this size
  bool keep_payload = true;

  void OnOpen(Connection& connection) override;
  bool Place(Connection& connection, ByteView header, std::span<const uint64_t> segment_bytes,
             Landing* landing) override;
  void OnBytes(Connection& connection, uint64_t landing_id, uint32_t segment, uint64_t offset,
               ByteView bytes) override;
  void OnMessage(Connection& connection, ByteView header, uint64_t landing_id, bool landed) override;
  void OnSent(Connection& connection, uint64_t token, Failure failure) override;
  void OnDiverted(Connection& connection, uint64_t landing_id) override;
  void OnClosed(Connection& connection, const Error& why) override;

  bool opened() const { return opened_; }
  bool closed() const { return closed_; }
  size_t received() const { return received_; }
  // How often the connection went from one thread to another.
  int moves() const { return moves_; }
  size_t sent_count() const { return sent_count_; }
  uint64_t bytes_landed() const { return bytes_landed_; }
  Error why();
  std::vector<Message> messages();
  std::vector<std::pair<uint64_t, Failure>> sent();
  std::vector<uint64_t> diverted();
  // What broke the contract, "" if nothing did.
  std::string complaint();

 private:
  void Complain(const std::string& text);

  std::atomic<bool> opened_{false}, closed_{false};
  std::atomic<size_t> received_{0}, sent_count_{0};
  std::atomic<uint64_t> bytes_landed_{0};

  std::atomic<bool> in_call_{false};
  std::atomic<std::thread::id> thread_{};
  std::atomic<int> moves_{0};

  std::mutex mutex_;
  std::vector<Message> messages_;
  std::vector<std::pair<uint64_t, Failure>> sent_;
  std::vector<uint64_t> diverted_;
  Error why_;
  std::string complaint_;

  // Of the connection's thread.
  std::vector<std::byte> memory_;
  std::vector<uint64_t> segment_bytes_;
  std::vector<uint64_t> segment_landed_;
  uint64_t next_landing_id_ = 1;
  class Call;
};

// Accepts all connections, each with a Recorder of its own made by `make`.
class RecordingAcceptor : public Acceptor {
 public:
  std::function<std::shared_ptr<Recorder>()> make = [] { return std::make_shared<Recorder>(); };
  std::shared_ptr<Handler> OnAccept(const std::shared_ptr<Connection>& connection) override;

  size_t count();
  std::shared_ptr<Recorder> handler(size_t index);
  std::shared_ptr<Connection> connection(size_t index);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Recorder>> handlers_;
  std::vector<std::shared_ptr<Connection>> connections_;
};

// Two transports of a fixture and an open connection between them.
struct Pair {
  explicit Pair(Fixture& f, const TransportOptions& options = {}) : Pair(f, options, options) {}
  Pair(Fixture& f, const TransportOptions& client_options, const TransportOptions& server_options);
  ~Pair();
  // Another connection; its server side is acceptor.handler(count - 1). nullptr after a failed expectation.
  std::shared_ptr<Connection> Connect(std::shared_ptr<Recorder> handler, const ConnectOptions& options = {});

  Fixture& fixture;
  RecordingAcceptor acceptor;
  std::string address;
  std::unique_ptr<Transport> server, client;
  std::shared_ptr<Recorder> handler = std::make_shared<Recorder>();  // the client's
  std::shared_ptr<Connection> connection;                            // the client's
  // Fills the two above, after the test has set its callbacks.
  void Open(const ConnectOptions& options = {});
  std::shared_ptr<Recorder> peer() { return acceptor.handler(0); }
  std::shared_ptr<Connection> peer_connection() { return acceptor.connection(0); }
};

}  // namespace larder::transport
