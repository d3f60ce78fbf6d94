#include "tests/unit/node/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/checksum.h"
#include "transport/socket/frame.h"

namespace larder::node {

using transport::FrameHeader;

RawClient::RawClient(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  EXPECT_EQ(inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr), 1);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << address;
}

void RawClient::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool RawClient::SendRaw(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool RawClient::SendMessage(const Bytes& header, const std::vector<Bytes>& segments,
                            size_t payload_bytes_max) {
  FrameHeader frame;
  frame.header_bytes = static_cast<uint32_t>(header.size());
  frame.segments = static_cast<uint32_t>(segments.size());
  for (const Bytes& segment : segments) frame.payload_bytes += segment.size();
  Bytes out;
  Writer writer(&out);
  writer.Raw(&frame, sizeof frame);
  for (const Bytes& segment : segments) writer.U64(segment.size());
  writer.View(header);
  if (!SendRaw(out)) return false;
  for (const Bytes& segment : segments) {
    const size_t bytes = std::min(segment.size(), payload_bytes_max);
    if (!SendRaw(ByteView(segment).first(bytes))) return false;
    payload_bytes_max -= bytes;
  }
  return true;
}

bool RawClient::ReadAll(void* to, size_t bytes, int timeout_ms) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    pollfd fd = {fd_, POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) != 1) return false;
    const ssize_t got = recv(fd_, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

std::optional<RawClient::Message> RawClient::Receive(int timeout_ms) {
  FrameHeader frame;
  if (!ReadAll(&frame, sizeof frame, timeout_ms)) return std::nullopt;
  EXPECT_EQ(frame.magic, FrameHeader::kMagic);
  std::vector<uint64_t> sizes(frame.segments);
  Bytes header(frame.header_bytes);
  if (!ReadAll(sizes.data(), sizes.size() * 8, timeout_ms)) return std::nullopt;
  if (!ReadAll(header.data(), header.size(), timeout_ms)) return std::nullopt;
  Message message;
  for (const uint64_t bytes : sizes) {
    message.segments.emplace_back(bytes);
    if (!ReadAll(message.segments.back().data(), bytes, timeout_ms)) return std::nullopt;
  }
  ByteView record;
  EXPECT_TRUE(DecodeEnvelope(header, &message.envelope, &record).ok());
  message.record.assign(record.begin(), record.end());
  return message;
}

bool RawClient::WaitClosed(int timeout_ms) {
  char drop[4096];
  for (;;) {
    pollfd fd = {fd_, POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) != 1) return false;
    if (recv(fd_, drop, sizeof drop, 0) <= 0) return true;
  }
}

std::optional<RawClient::Message> RawClient::Await(uint64_t request_id) {
  for (;;) {
    std::optional<Message> message = Receive();
    if (!message.has_value() || (message->envelope.request_id == request_id && message->envelope.reply)) {
      return message;
    }
  }
}

void RawClient::Begin(uint16_t layers, const std::string& token) {
  Hello hello;
  hello.token = token;
  (void)Call<HelloReply>(Verb::kHello, hello);
  Identity identity;
  EXPECT_TRUE(identity.Set("kind", "kv").ok());
  EXPECT_TRUE(identity.Set("layers", std::to_string(layers)).ok());
  EXPECT_TRUE(identity.Set("kv_heads", "1").ok());
  EXPECT_TRUE(identity.Set("head_dim", "64").ok());
  EXPECT_TRUE(identity.Set("block_tokens", "16").ok());
  EXPECT_TRUE(identity.Set("head_groups", "1").ok());
  EXPECT_TRUE(identity.Set("hash", "sha256").ok());
  Open open;
  open.identity = identity.CanonicalText();
  number = Call<OpenReply>(Verb::kOpen, open).number;
  rectangle = {0, layers, 0, 1};
}

std::vector<BlockRef> RawClient::RefsOf(const std::vector<ChainHash>& hashes) const {
  std::vector<BlockRef> refs;
  for (const ChainHash& hash : hashes) refs.push_back({hash, 0, rectangle});
  return refs;
}

std::vector<ReserveReply::Block> RawClient::ReserveBlocks(const std::vector<ChainHash>& hashes,
                                                          uint32_t part_bytes) {
  Reserve reserve;
  reserve.number = number;
  for (const BlockRef& ref : RefsOf(hashes)) {
    auto& block = reserve.blocks.emplace_back();
    block.ref = ref;
    block.parts = {{rectangle.parts(), part_bytes}};
    block.depth = static_cast<uint32_t>(reserve.blocks.size());
  }
  return Call<ReserveReply>(Verb::kReserve, reserve).blocks;
}

bool RawClient::SendData(const std::vector<uint64_t>& tickets, const std::vector<Bytes>& payloads,
                         size_t payload_bytes_max) {
  return SendMessage(Encode(Envelope{.verb = Verb::kData, .request_id = ++last_request}, Data{tickets}),
                     payloads, payload_bytes_max);
}

std::vector<PutState> RawClient::CommitBlocks(const std::vector<uint64_t>& tickets,
                                              const std::vector<Bytes>& payloads, uint32_t part_bytes) {
  Commit commit;
  for (size_t i = 0; i < tickets.size(); ++i) {
    auto& block = commit.blocks.emplace_back();
    block.ticket = tickets[i];
    for (size_t at = 0; at < payloads[i].size(); at += part_bytes) {
      block.crc32c.push_back(Crc32c(0, ByteView(payloads[i]).subspan(at, part_bytes)));
    }
  }
  return Call<CommitReply>(Verb::kCommit, commit).states;
}

std::vector<PutState> RawClient::PutBlocks(const std::vector<ChainHash>& hashes,
                                           const std::vector<Bytes>& payloads, uint32_t part_bytes) {
  std::vector<PutState> states;
  std::vector<uint64_t> tickets;
  std::vector<Bytes> sent;
  std::vector<size_t> at;
  const std::vector<ReserveReply::Block> reserved = ReserveBlocks(hashes, part_bytes);
  for (size_t i = 0; i < reserved.size(); ++i) {
    states.push_back(reserved[i].state);
    if (reserved[i].state != PutState::kTicket) continue;
    tickets.push_back(reserved[i].ticket);
    sent.push_back(payloads[i]);
    at.push_back(i);
  }
  if (tickets.empty()) return states;
  EXPECT_TRUE(SendData(tickets, sent));
  const std::vector<PutState> committed = CommitBlocks(tickets, sent, part_bytes);
  for (size_t i = 0; i < committed.size(); ++i) states[at[i]] = committed[i];
  return states;
}

std::optional<RawClient::Message> RawClient::GetBlocks(const std::vector<ChainHash>& hashes,
                                                       GetReply* reply) {
  Get get;
  get.number = number;
  get.blocks = RefsOf(hashes);
  std::optional<Message> message = Ask(Verb::kGet, get);
  EXPECT_TRUE(message.has_value());
  if (!message.has_value()) return message;
  EXPECT_EQ(message->envelope.code, Code::kOk);
  EXPECT_TRUE(Decode(message->record, reply).ok());
  size_t segment = 0;
  for (const GetReply::Block& block : reply->blocks) {
    for (const GetReply::Source& source : block.sources) {
      EXPECT_LT(segment, message->segments.size());
      if (segment >= message->segments.size()) return message;
      ByteView payload = message->segments[segment++];
      for (const PartRecord& part : source.parts) {
        EXPECT_EQ(Crc32c(0, payload.first(part.bytes)), part.crc32c);
        payload = payload.subspan(part.bytes);
      }
    }
  }
  EXPECT_EQ(segment, message->segments.size());
  return message;
}

std::vector<uint8_t> RawClient::MatchBlocks(const std::vector<ChainHash>& hashes, bool in_payload) {
  Match match;
  match.number = number;
  match.rectangle = rectangle;
  match.groups = {0};
  match.hash_count = static_cast<uint32_t>(hashes.size());
  match.hashes_in_payload = in_payload;
  std::vector<Bytes> segments;
  if (in_payload) {
    const auto* begin = reinterpret_cast<const std::byte*>(hashes.data());
    segments.emplace_back(begin, begin + hashes.size() * sizeof(ChainHash));
  } else {
    match.hashes = hashes;
  }
  return Call<MatchReply>(Verb::kMatch, match, segments).presence;
}

ChainHash TestHash(uint64_t number) {
  return NextLink({}, {reinterpret_cast<const std::byte*>(&number), 8});
}

Bytes TestBytes(uint64_t number, size_t bytes) {
  Bytes out((bytes + 7) / 8 * 8);
  uint64_t state = number * 0x9e3779b97f4a7c15ull + 1;
  for (size_t at = 0; at < out.size(); at += 8) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t mixed = state ^ state >> 29;
    std::memcpy(out.data() + at, &mixed, 8);
  }
  out.resize(bytes);
  return out;
}

}  // namespace larder::node
