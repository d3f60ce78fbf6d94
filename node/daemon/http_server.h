// A small HTTP/1.1 server for /metrics and probes: one thread, GET and HEAD, no bodies.
//
// Everything is bounded: connections, bytes of a request's head, time for a head to come, time for an answer
// to be taken, idle time. When all connections are in use the one that has waited longest with no answer
// under way makes room, so that idle or slow peers never lock a probe out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "proto/status.h"

namespace larder::node {

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpOptions {
  std::string listen = "127.0.0.1:0";  // host:port; port 0 binds any
  uint32_t connections_max = 64;
  uint32_t head_bytes_max = 8192;
  uint64_t head_timeout_us = 5'000'000;   // from a request's first byte, or from accept, to its last
  uint64_t write_timeout_us = 5'000'000;  // for an answer to be taken
  uint64_t idle_timeout_us = 30'000'000;  // between requests of a connection
};

class HttpServer {
 public:
  // Called on the server's thread; a slow handler delays everybody, so a wedged node fails its probes.
  using Handler = std::function<HttpResponse(std::string_view path)>;

  // kInvalid: cannot listen there.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, Handler handler);
  ~HttpServer();  // closes everything and ends the thread

  const std::string& address() const { return address_; }  // as bound

 private:
  struct Loop;
  HttpServer(std::unique_ptr<Loop> loop, std::string address);
  std::unique_ptr<Loop> loop_;
  std::string address_;
};

}  // namespace larder::node
