// The HTTP server: what it answers, and that no peer can hold it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "node/daemon/config.h"
#include "node/daemon/http_request.h"
#include "node/daemon/http_server.h"

namespace larder::node {
namespace {

class Peer {
 public:
  explicit Peer(const HttpServer& server) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(ParseHostPort(server.address())->port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Peer() { close(fd_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  bool Send(const std::string& text) {
    return send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // Until the peer closes, `stop` has come, or ten seconds without a byte.
  std::string Receive(const std::string& stop = "") {
    std::string text;
    char buffer[65536];
    pollfd wait{fd_, POLLIN, 0};
    while (poll(&wait, 1, 10'000) == 1) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) {
        closed_ = true;
        break;
      }
      text.append(buffer, static_cast<size_t>(n));
      if (!stop.empty() && text.find(stop) != std::string::npos) break;
    }
    return text;
  }
  bool closed() const { return closed_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  bool closed_ = false;
};

std::unique_ptr<HttpServer> StartServer(HttpOptions options = {}) {
  auto server = HttpServer::Start(options, [](std::string_view path) {
    if (path == "/big") return HttpResponse{200, "text/plain", std::string(8 << 20, 'b')};
    if (path == "/hello") return HttpResponse{200, "text/plain", "hello\n"};
    return HttpResponse{404, "text/plain", "no\n"};
  });
  EXPECT_TRUE(server.ok()) << server.status().text();
  return std::move(server).value();
}

TEST(HttpParse, Heads) {
  struct Case {
    const char* text;
    HttpParse result;
    const char* path;
    bool keep_alive;
  };
  const Case cases[] = {
      {"GET / HTTP/1.1\r\n\r\n", HttpParse::kOk, "/", true},
      {"GET / HTTP/1.0\r\n\r\n", HttpParse::kOk, "/", false},
      {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", HttpParse::kOk, "/", true},
      {"GET / HTTP/1.1\r\nCONNECTION:close\r\n\r\n", HttpParse::kOk, "/", false},
      {"\r\nGET /metrics?x=1 HTTP/1.1\nHost: a\n\n", HttpParse::kOk, "/metrics", true},
      {"GET http://a:1/readyz HTTP/1.1\r\n\r\n", HttpParse::kOk, "/readyz", true},
      {"GET http://a:1 HTTP/1.1\r\n\r\n", HttpParse::kOk, "/", true},
      {"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n", HttpParse::kOk, "/", true},
      {"", HttpParse::kIncomplete, "", true},
      {"GET / HTTP/1.1\r\n", HttpParse::kIncomplete, "", true},
      {"GET / HTTP/2.0\r\n\r\n", HttpParse::kBad, "", true},
      {"GET /\r\n\r\n", HttpParse::kBad, "", true},
      {"GET  HTTP/1.1\r\n\r\n", HttpParse::kBad, "", true},
      {"GET metrics HTTP/1.1\r\n\r\n", HttpParse::kBad, "", true},
      {"GET /a b HTTP/1.1\r\n\r\n", HttpParse::kBad, "", true},
      {"GET /\x01 HTTP/1.1\r\n\r\n", HttpParse::kBad, "", true},
      {"G@T / HTTP/1.1\r\n\r\n", HttpParse::kBad, "", true},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", HttpParse::kBad, "", true},
      {"GET / HTTP/1.1\r\n: x\r\n\r\n", HttpParse::kBad, "", true},
      {"GET / HTTP/1.1\r\nHost : x\r\n\r\n", HttpParse::kBad, "", true},
      {"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", HttpParse::kBad, "", true},
  };
  for (const Case& each : cases) {
    HttpRequest request;
    ASSERT_EQ(ParseHttpRequest(each.text, &request), each.result) << each.text;
    if (each.result != HttpParse::kOk) continue;
    EXPECT_EQ(request.path, each.path) << each.text;
    EXPECT_EQ(request.keep_alive, each.keep_alive) << each.text;
    EXPECT_EQ(request.head_bytes, std::string_view(each.text).size());
  }
  HttpRequest request;
  EXPECT_EQ(ParseHttpRequest("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", &request), HttpParse::kOk);
  EXPECT_TRUE(request.has_body);
  EXPECT_EQ(ParseHttpRequest("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", &request),
            HttpParse::kOk);
  EXPECT_TRUE(request.has_body);
}

TEST(HttpParse, SurvivesRandomBytes) {
  std::mt19937_64 random(7402);
  const std::string good = "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  for (int i = 0; i < 20'000; i++) {
    std::string text = good.substr(0, random() % (good.size() + 1));
    for (size_t flips = random() % 4; flips > 0 && !text.empty(); flips--) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    HttpRequest request;
    if (ParseHttpRequest(text, &request) == HttpParse::kOk) {
      EXPECT_LE(request.head_bytes, text.size());
    }
  }
}

TEST(HttpServer, AnswersKeepsAliveAndPipelines) {
  auto server = StartServer();
  Peer peer(*server);
  peer.Send("GET /hello HTTP/1.1\r\n\r\n");
  EXPECT_NE(peer.Receive("hello\n").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  peer.Send(
      "HEAD /hello HTTP/1.1\r\n\r\nGET /none HTTP/1.1\r\n\r\nGET /hello HTTP/1.1\r\nConnection: "
      "close\r\n\r\n");
  const std::string text = peer.Receive();
  EXPECT_NE(text.find("Content-Length: 6\r\n"), std::string::npos);
  EXPECT_NE(text.find("HTTP/1.1 404 Not Found\r\n"), std::string::npos);
  EXPECT_EQ(text.substr(text.size() - 6), "hello\n");
  EXPECT_EQ(text.find("hello\n"), text.size() - 6) << "HEAD has no body";
  EXPECT_TRUE(peer.closed());
}

TEST(HttpServer, RefusesWhatItDoesNotTake) {
  auto server = StartServer();
  const std::pair<std::string, std::string> cases[] = {
      {"POST /hello HTTP/1.1\r\n\r\n", "405"},
      {"POST /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "413"},
      {"nonsense\r\n\r\n", "400"},
      {"\x16\x03\x01\x02\r\n\r\n", "400"},
      {"GET /hello HTTP/1.1\r\nA: " + std::string(9000, 'a'), "431"},
      {"GET /hello HTTP/1.1\r\nA: " + std::string(9000, 'a') + "\r\n\r\n", "431"},
  };
  for (const auto& [text, status] : cases) {
    Peer peer(*server);
    peer.Send(text);
    const std::string answer = peer.Receive("\r\n\r\n");
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 " + status) << text.substr(0, 40);
  }
}

TEST(HttpServer, SendsLargeAnswersToSlowReaders) {
  auto server = StartServer();
  Peer peer(*server);
  const int small = 64 * 1024;
  setsockopt(peer.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  peer.Send("GET /big HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_GT(peer.Receive().size(), size_t{8} << 20);
}

TEST(HttpServer, CutsOffSlowAndIdlePeers) {
  HttpOptions options;
  options.head_timeout_us = 100'000;
  options.idle_timeout_us = 100'000;
  options.write_timeout_us = 100'000;
  auto server = StartServer(options);
  Peer silent(*server), half(*server), idle(*server), deaf(*server);
  half.Send("GET /hel");
  idle.Send("GET /hello HTTP/1.1\r\n\r\n");
  deaf.Send("GET /big HTTP/1.1\r\n\r\n");
  EXPECT_EQ(silent.Receive(), "");
  EXPECT_TRUE(silent.closed());
  EXPECT_EQ(half.Receive(), "");
  EXPECT_TRUE(half.closed());
  EXPECT_NE(idle.Receive(), "");
  EXPECT_TRUE(idle.closed());
  // A trickle does not extend the time that a head may take.
  Peer slow(*server);
  bool open = true;
  for (int i = 0; i < 1000 && open; i++) {
    open = slow.Send("x");
    usleep(10'000);
  }
  EXPECT_FALSE(open);
  // The deaf peer took nothing: the rest of its answer was given up.
  EXPECT_LT(deaf.Receive().size(), size_t{8} << 20);
}

TEST(HttpServer, IdlePeersNeverLockOutAProbe) {
  HttpOptions options;
  options.connections_max = 8;
  auto server = StartServer(options);
  std::vector<std::unique_ptr<Peer>> hoard;
  for (int i = 0; i < 40; i++) {
    hoard.push_back(std::make_unique<Peer>(*server));
    if (i % 2 == 0) hoard.back()->Send("GET /he");
  }
  Peer probe(*server);
  probe.Send("GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_NE(probe.Receive().find("200 OK"), std::string::npos);
}

TEST(HttpServer, SaysWhyItCannotListen) {
  auto server = StartServer();
  HttpOptions options;
  options.listen = server->address();
  const auto second = HttpServer::Start(options, [](std::string_view) { return HttpResponse{}; });
  EXPECT_NE(second.status().text().find("in use"), std::string::npos);
  options.listen = "203.0.113.7:80";
  EXPECT_FALSE(HttpServer::Start(options, [](std::string_view) { return HttpResponse{}; }).ok());
}

}  // namespace
}  // namespace larder::node
