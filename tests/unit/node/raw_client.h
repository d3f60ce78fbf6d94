// A client made of one blocking socket: it can say anything, also half of it, and never helps a node along.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "proto/message.h"

namespace larder::node {

class RawClient {
 public:
  struct Message {
    Envelope envelope;
    Bytes record;
    std::vector<Bytes> segments;
  };

  explicit RawClient(const std::string& address);
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False once the peer has closed.
  bool SendRaw(ByteView bytes);
  // One frame; of the payload only the first `payload_bytes_max` bytes.
  bool SendMessage(const Bytes& header, const std::vector<Bytes>& segments = {},
                   size_t payload_bytes_max = SIZE_MAX);
  // nullopt: closed by the peer, or nothing came in time.
  std::optional<Message> Receive(int timeout_ms = 20'000);
  // Reads and drops until the peer closes.
  bool WaitClosed(int timeout_ms = 20'000);
  void Close();

  // Sends a request and waits for its answer; answers to others are dropped.
  template <typename Body>
  std::optional<Message> Ask(Verb verb, const Body& body, const std::vector<Bytes>& segments = {},
                             uint32_t deadline_us = 0) {
    Envelope envelope{.verb = verb, .deadline_us = deadline_us, .request_id = ++last_request};
    if (!SendMessage(Encode(envelope, body), segments)) return std::nullopt;
    return Await(last_request);
  }
  std::optional<Message> Await(uint64_t request_id);
  // The same for a request that must succeed.
  template <typename Reply, typename Body>
  Reply Call(Verb verb, const Body& body, const std::vector<Bytes>& segments = {}) {
    Reply reply;
    const std::optional<Message> message = Ask(verb, body, segments);
    EXPECT_TRUE(message.has_value());
    if (!message.has_value()) return reply;
    EXPECT_EQ(message->envelope.code, Code::kOk);
    if (message->envelope.code == Code::kOk) {
      EXPECT_TRUE(Decode(message->record, &reply).ok());
    }
    return reply;
  }

  // Hello and Open of a test namespace of `parts` layers.
  void Begin(uint16_t layers = 1, const std::string& token = "");
  std::vector<ReserveReply::Block> ReserveBlocks(const std::vector<ChainHash>& hashes, uint32_t part_bytes);
  bool SendData(const std::vector<uint64_t>& tickets, const std::vector<Bytes>& payloads,
                size_t payload_bytes_max = SIZE_MAX);
  std::vector<PutState> CommitBlocks(const std::vector<uint64_t>& tickets, const std::vector<Bytes>& payloads,
                                     uint32_t part_bytes);
  // All of it; the states of the commit, or of the reserve where there was no ticket.
  std::vector<PutState> PutBlocks(const std::vector<ChainHash>& hashes, const std::vector<Bytes>& payloads,
                                  uint32_t part_bytes);
  // The reply and its segments; every part is checked against the reply's checksums.
  std::optional<Message> GetBlocks(const std::vector<ChainHash>& hashes, GetReply* reply);
  std::vector<uint8_t> MatchBlocks(const std::vector<ChainHash>& hashes, bool in_payload = false);
  std::vector<BlockRef> RefsOf(const std::vector<ChainHash>& hashes) const;

  uint64_t last_request = 0;
  uint32_t number = 0;  // of the namespace
  Rectangle rectangle;

 private:
  bool ReadAll(void* to, size_t bytes, int timeout_ms);

  int fd_ = -1;
};

ChainHash TestHash(uint64_t number);
Bytes TestBytes(uint64_t number, size_t bytes);

}  // namespace larder::node
