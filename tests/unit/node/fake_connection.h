// A connection whose peer is the test: what the session sends is kept, what it asks for is counted.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/session.h"
#include "proto/message.h"
#include "transport/extent_cursor.h"

namespace larder::node {

// Bytes that differ by seed and place.
inline Bytes Pattern(size_t bytes, uint8_t seed) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 7 + seed + i / 251);
  return out;
}

class FakeConnection final : public transport::Connection {
 public:
  transport::Failure Send(transport::OutMessage&& message) override {
    if (send_result != transport::Failure::kNone) return send_result;
    sent.push_back(std::move(message));
    return transport::Failure::kNone;
  }
  void Cancel(uint64_t) override {}
  void Divert(uint64_t landing_id) override { diverted.push_back(landing_id); }
  bool Run(std::function<void()> work) override {
    work();
    return true;
  }
  void Close(transport::Failure why) override { closed.push_back(why); }
  void SetBatch(bool value) override { batch = value; }
  const std::string& peer() const override { return peer_; }

  std::vector<transport::OutMessage> sent;
  std::vector<uint64_t> diverted;
  std::vector<transport::Failure> closed;
  bool batch = false;
  transport::Failure send_result = transport::Failure::kNone;

 private:
  std::string peer_ = "test";
};

class FakePort final : public OwnerPort {
 public:
  bool Post(SessionId, Event&& event) override {
    if (full && std::holds_alternative<Request>(event)) return false;
    events.push_back(std::move(event));
    return true;
  }
  uint64_t NowUs() override { return now_us; }
  Bytes EncodedTable() override { return table; }

  template <typename T>
  std::vector<T> Of() const {
    std::vector<T> out;
    for (const Event& event : events) {
      if (const T* found = std::get_if<T>(&event)) out.push_back(*found);
    }
    return out;
  }

  std::vector<Event> events;
  uint64_t now_us = 1'000'000'000;
  Bytes table = Bytes(5, std::byte{7});
  bool full = false;
};

// A session between the two, with helpers that play the transport.
struct SessionRig {
  explicit SessionRig(std::vector<Credential> credentials = {}) {
    shared->owner = &port;
    shared->node_id = "node";
    shared->incarnation = 42;
    shared->credentials = std::move(credentials);
    shared->requests_max = 4;
    shared->waits_max = 2;
    session = std::make_shared<ClientSession>(1, connection, shared);
  }

  void Receive(const Bytes& header) { session->OnMessage(*connection, header, 0, true); }
  template <typename Body>
  void Receive(Verb verb, uint64_t request_id, const Body& body) {
    Receive(Encode(Envelope{.verb = verb, .request_id = request_id}, body));
  }
  void SayHello(const std::string& token = "") {
    Hello hello;
    hello.token = token;
    Receive(Verb::kHello, 1, hello);
  }
  // A message with payload: lands it, if the session takes it. Returns whether it did.
  bool ReceivePayload(const Bytes& header, const std::vector<Bytes>& segments, size_t step = 1000,
                      bool finish = true) {
    std::vector<uint64_t> sizes;
    for (const Bytes& segment : segments) sizes.push_back(segment.size());
    transport::Landing landing;
    const bool taken = session->Place(*connection, header, sizes, &landing);
    if (taken) Land(landing, segments, step);
    if (finish) session->OnMessage(*connection, header, taken ? landing.id : 0, taken);
    if (taken) last_landing = landing.id;
    return taken;
  }
  void Land(const transport::Landing& landing, const std::vector<Bytes>& segments, size_t step) {
    ASSERT_EQ(landing.segments.size(), segments.size());
    transport::ExtentCursor<transport::Extent> cursor(&landing.segments);
    while (!cursor.done()) {
      const transport::Extent to = cursor.Here();
      const uint32_t segment = cursor.segment();
      const uint64_t at = cursor.segment_offset();
      const size_t bytes = std::min(step, to.bytes);
      ASSERT_LE(at + bytes, segments[segment].size());
      std::memcpy(to.data, segments[segment].data() + at, bytes);
      cursor.Advance(bytes);
      session->OnBytes(*connection, landing.id, segment, at, {to.data, bytes});
    }
  }
  Envelope LastEnvelope() const {
    Envelope envelope;
    ByteView record;
    if (!connection->sent.empty()) (void)DecodeEnvelope(connection->sent.back().header, &envelope, &record);
    return envelope;
  }
  template <typename Body>
  Body LastBody() const {
    Envelope envelope;
    ByteView record;
    Body body;
    EXPECT_TRUE(DecodeEnvelope(connection->sent.back().header, &envelope, &record).ok());
    EXPECT_TRUE(Decode(record, &body).ok());
    return body;
  }
  void OwnerAnswers(Verb verb, uint64_t request_id) {
    session->Deliver(Reply{Encode(ReplyTo(Envelope{.verb = verb, .request_id = request_id})), {}, 0, 0});
  }

  FakePort port;
  std::shared_ptr<SessionShared> shared = std::make_shared<SessionShared>();
  std::shared_ptr<FakeConnection> connection = std::make_shared<FakeConnection>();
  std::shared_ptr<ClientSession> session;
  uint64_t last_landing = 0;
};

}  // namespace larder::node
