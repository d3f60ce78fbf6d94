#include "tests/unit/transport/recorder.h"

#include <algorithm>
#include <cstring>

namespace larder::transport {

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::string Text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> Pattern(uint64_t seed, size_t bytes) {
  std::vector<std::byte> result(bytes);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (size_t i = 0; i < bytes; i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    memcpy(result.data() + i, &state, std::min<size_t>(8, bytes - i));
  }
  return result;
}

OutMessage Note(const std::string& header, uint64_t token) {
  OutMessage message;
  message.header = Bytes(header);
  message.token = token;
  return message;
}

OutMessage Parcel(const std::string& header, const std::vector<std::byte>& payload, size_t segments,
                  size_t extent_bytes, uint64_t token) {
  OutMessage message = Note(header, token);
  const size_t each = payload.size() / segments;
  for (size_t i = 0; i < segments; i++) {
    const size_t begin = i * each, end = i + 1 == segments ? payload.size() : begin + each;
    std::vector<ConstExtent> extents;
    for (size_t at = begin; at < end; at += extent_bytes) {
      extents.push_back({payload.data() + at, std::min(extent_bytes, end - at)});
    }
    message.segments.Add(std::span<const ConstExtent>(extents));
  }
  return message;
}

void Recorder::Complain(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (complaint_.empty()) complaint_ = text;
}

// A call of the handler: one at a time, none after the last.
class Recorder::Call {
 public:
  explicit Call(Recorder* recorder) : recorder_(recorder) {
    if (recorder->in_call_.exchange(true)) recorder->Complain("handler called on two threads at a time");
    const std::thread::id here = std::this_thread::get_id(), before = recorder->thread_.exchange(here);
    if (before != std::thread::id{} && before != here) recorder->moves_++;
    if (recorder->closed_) recorder->Complain("handler called after OnClosed");
  }
  ~Call() { recorder_->in_call_ = false; }

 private:
  Recorder* const recorder_;
};

void Recorder::OnOpen(Connection& connection) {
  const Call call(this);
  if (opened_.exchange(true)) Complain("OnOpen twice");
  if (on_open) on_open(connection);
}

bool Recorder::Place(Connection& connection, ByteView header, std::span<const uint64_t> segment_bytes,
                     Landing* landing) {
  const Call call(this);
  if (on_place && !on_place(connection, header)) return false;
  segment_bytes_.assign(segment_bytes.begin(), segment_bytes.end());
  segment_landed_.assign(segment_bytes.size(), 0);
  uint64_t total = 0;
  for (const uint64_t bytes : segment_bytes) total += bytes;
  memory_.assign(total, std::byte{0xee});
  size_t at = 0;
  for (const uint64_t bytes : segment_bytes) {
    std::vector<Extent> extents;
    for (uint64_t done = 0; done < bytes;) {
      const uint64_t step = std::min<uint64_t>(extent_bytes, bytes - done);
      extents.push_back({memory_.data() + at, step});
      done += step;
      at += step;
    }
    landing->segments.Add(std::span<const Extent>(extents));
  }
  landing->id = next_landing_id_++;
  return true;
}

void Recorder::OnBytes(Connection& connection, uint64_t landing_id, uint32_t segment, uint64_t offset,
                       ByteView bytes) {
  const Call call(this);
  if (bytes.empty() || bytes.size() > (1 << 20)) Complain("a step of " + std::to_string(bytes.size()));
  if (landing_id + 1 != next_landing_id_) Complain("bytes for another landing");
  if (segment >= segment_bytes_.size()) return Complain("bytes for segment " + std::to_string(segment));
  if (offset != segment_landed_[segment]) Complain("a step out of order");
  size_t base = 0;
  for (uint32_t i = 0; i < segment; i++) base += segment_bytes_[i];
  if (bytes.data() != memory_.data() + base + offset) Complain("a step in the wrong place");
  segment_landed_[segment] += bytes.size();
  bytes_landed_ += bytes.size();
  if (on_bytes) on_bytes(connection, landing_id);
}

void Recorder::OnMessage(Connection& connection, ByteView header, uint64_t landing_id, bool landed) {
  const Call call(this);
  Message message{Text(header), landing_id, landed, {}};
  if (landed && landing_id != 0) {
    if (segment_landed_ != segment_bytes_) Complain("a message before all of its bytes");
    if (keep_payload) message.payload = memory_;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    messages_.push_back(message);
  }
  received_++;
  if (on_message) on_message(connection, message);
}

void Recorder::OnSent(Connection& connection, uint64_t token, Failure failure) {
  const Call call(this);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [seen, ignored] : sent_) {
      if (seen == token && complaint_.empty()) complaint_ = "OnSent twice for " + std::to_string(token);
    }
    sent_.emplace_back(token, failure);
  }
  sent_count_++;
  if (on_sent) on_sent(connection, token, failure);
}

void Recorder::OnDiverted(Connection&, uint64_t landing_id) {
  const Call call(this);
  std::lock_guard<std::mutex> lock(mutex_);
  diverted_.push_back(landing_id);
}

void Recorder::OnClosed(Connection&, const Error& why) {
  const Call call(this);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    why_ = why;
  }
  memory_.clear();
  memory_.shrink_to_fit();  // a byte that still lands is found by AddressSanitizer
  closed_ = true;
}

Error Recorder::why() {
  std::lock_guard<std::mutex> lock(mutex_);
  return why_;
}
std::vector<Recorder::Message> Recorder::messages() {
  std::lock_guard<std::mutex> lock(mutex_);
  return messages_;
}
std::vector<std::pair<uint64_t, Failure>> Recorder::sent() {
  std::lock_guard<std::mutex> lock(mutex_);
  return sent_;
}
std::vector<uint64_t> Recorder::diverted() {
  std::lock_guard<std::mutex> lock(mutex_);
  return diverted_;
}
std::string Recorder::complaint() {
  std::lock_guard<std::mutex> lock(mutex_);
  return complaint_;
}

std::shared_ptr<Handler> RecordingAcceptor::OnAccept(const std::shared_ptr<Connection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Recorder> handler = make();
  if (handler) {
    handlers_.push_back(handler);
    connections_.push_back(connection);
  }
  return handler;
}

size_t RecordingAcceptor::count() {
  std::lock_guard<std::mutex> lock(mutex_);
  return handlers_.size();
}
std::shared_ptr<Recorder> RecordingAcceptor::handler(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  return handlers_.at(index);
}
std::shared_ptr<Connection> RecordingAcceptor::connection(size_t index) {
  std::lock_guard<std::mutex> lock(mutex_);
  return connections_.at(index);
}

Pair::Pair(Fixture& f, const TransportOptions& client_options, const TransportOptions& server_options)
    : fixture(f), server(f.Make(server_options)), client(f.Make(client_options)) {
  const Error error = server->Listen(f.ListenAddress(), &acceptor, &address);
  EXPECT_TRUE(error.ok()) << error.text;
}

Pair::~Pair() {
  client->Shutdown();
  server->Shutdown();
  EXPECT_EQ(handler->complaint(), "");
  for (size_t i = 0; i < acceptor.count(); i++) {
    EXPECT_EQ(acceptor.handler(i)->complaint(), "");
    EXPECT_TRUE(acceptor.handler(i)->closed());
  }
}

std::shared_ptr<Connection> Pair::Connect(std::shared_ptr<Recorder> recorder, const ConnectOptions& options) {
  const size_t before = acceptor.count();
  auto made = client->Connect(address, recorder, options);
  EXPECT_TRUE(WaitFor(fixture, [&] {
    return recorder->closed() ||
           (recorder->opened() && acceptor.count() > before && acceptor.handler(before)->opened());
  }));
  EXPECT_FALSE(recorder->closed()) << recorder->why().text;
  return made;
}

void Pair::Open(const ConnectOptions& options) {
  connection = Connect(handler, options);
}

}  // namespace larder::transport
