// A process at the other end of a transport, for tests that kill it, stop it, or starve it of CPU.
//
//   transport_peer BACKEND listen|connect ADDRESS [--tls UCX_TLS] [--device D] [--shared]
//
// It says on stdout, a line each: "bound ADDRESS", "open", "landing" (the first bytes of a payload are here),
// "landed BYTES", "closed REASON". It obeys messages: "pull N" sends N bytes of payload, "echo ..." comes
// back. --shared: what it sends lies in a region. It ends when its stdin does, so that it can't outlive a
// test; a byte on stdin kills it from its connection's thread, between two steps of the transport.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace {

using namespace larder::transport;  // NOLINT: one file, one purpose

constexpr size_t kPieceBytes = 1 << 20;
std::byte* piece = nullptr;    // what is sent, again and again
std::byte* landing = nullptr;  // where all pieces land, one over the other
std::mutex output_mutex;

void Say(const std::string& line) {
  std::lock_guard<std::mutex> lock(output_mutex);
  printf("%s\n", line.c_str());
  fflush(stdout);
}

class Peer : public Handler {
 public:
  void OnOpen(Connection&) override { Say("open"); }
  bool Place(Connection&, ByteView, std::span<const uint64_t> segment_bytes, Landing* to) override {
    to->id = 1;
    landed_bytes_ = 0;
    for (uint64_t left : segment_bytes) {
      std::vector<Extent> extents;
      for (; left > 0; left -= extents.back().bytes) {
        extents.push_back({landing, left < kPieceBytes ? static_cast<size_t>(left) : kPieceBytes});
      }
      to->segments.Add(std::span<const Extent>(extents));
    }
    return true;
  }
  void OnBytes(Connection&, uint64_t, uint32_t, uint64_t, ByteView bytes) override {
    if (landed_bytes_ == 0) Say("landing");
    landed_bytes_ += bytes.size();
  }
  void OnMessage(Connection& connection, ByteView header, uint64_t id, bool) override {
    if (id != 0) Say("landed " + std::to_string(landed_bytes_));
    const std::string text(reinterpret_cast<const char*>(header.data()), header.size());
    OutMessage answer;
    answer.header.assign(header.begin(), header.end());
    if (text.rfind("pull ", 0) == 0) {
      answer.token = ++token_;
      for (uint64_t left = strtoull(text.c_str() + 5, nullptr, 10); left > 0;) {
        const size_t bytes = left < kPieceBytes ? static_cast<size_t>(left) : kPieceBytes;
        answer.segments.Add(ConstExtent{piece, bytes});
        left -= bytes;
      }
      (void)connection.Send(std::move(answer));
    } else if (text.rfind("echo", 0) == 0) {
      (void)connection.Send(std::move(answer));
    }
  }
  void OnClosed(Connection&, const Error& why) override {
    Say("closed " + std::string(FailureName(why.failure)) + " " + why.text);
  }

 private:
  uint64_t token_ = 0, landed_bytes_ = 0;
};

class Accept : public Acceptor {
 public:
  std::shared_ptr<Handler> OnAccept(const std::shared_ptr<Connection>& connection) override {
    std::lock_guard<std::mutex> lock(output_mutex);
    accepted_ = connection;
    return std::make_shared<Peer>();
  }
  std::shared_ptr<Connection> accepted() const {
    std::lock_guard<std::mutex> lock(output_mutex);
    return accepted_;
  }

 private:
  std::shared_ptr<Connection> accepted_;
};

void Die() {
  kill(getpid(), SIGKILL);
}

int Fail(const std::string& text) {
  fprintf(stderr, "transport_peer: %s\n", text.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return Fail("usage: BACKEND listen|connect ADDRESS [--tls T] [--device D] [--shared]");
  TransportOptions options;
  bool shared = false;
  for (int i = 4; i < argc; i++) {
    const std::string flag = argv[i];
    if (flag == "--shared") shared = true;
    if (flag == "--tls" && i + 1 < argc) options.ucx_tls = argv[++i];
    if (flag == "--device" && i + 1 < argc) options.device = argv[++i];
  }
  const int fd = memfd_create("transport-peer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, 2 * kPieceBytes) != 0) return Fail("no memory");
  void* memory = mmap(nullptr, 2 * kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Fail("no memory");
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
  piece = static_cast<std::byte*>(memory);
  landing = piece + kPieceBytes;
  memset(piece, 0x5a, kPieceBytes);

  Error error;
  auto transport = MakeTransport(argv[1], options, &error);
  if (!transport) return Fail(error.text);
  if (shared) error = transport->AddRegion({piece, 2 * kPieceBytes, fd});
  if (!error.ok()) return Fail(error.text);
  Accept acceptor;
  std::shared_ptr<Connection> connection;
  if (std::string(argv[2]) == "listen") {
    std::string bound;
    error = transport->Listen(argv[3], &acceptor, &bound);
    if (!error.ok()) return Fail(error.text);
    Say("bound " + bound);
  } else {
    connection = transport->Connect(argv[3], std::make_shared<Peer>(), {});
  }
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
    if (connection == nullptr) connection = acceptor.accepted();
    if (connection == nullptr || !connection->Run(&Die)) Die();
  }
  transport->Shutdown();
  return 0;
}
