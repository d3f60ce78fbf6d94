// Calls from one node to the control ports of others, many at the same time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "proto/control.grpc.pb.h"

namespace larder::node {

// One asynchronous call to another node, from its Prepare to the end of its queue's Await.
template <typename Response>
struct ControlCall {
  grpc::ClientContext context;
  std::unique_ptr<larder::control::v1::Control::Stub> stub;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
  Response response;
  grpc::Status status;
};

// By no proxy that the environment names, and with a connection of its own.
std::shared_ptr<grpc::Channel> ConnectToNode(const std::string& address);

// As whom a call asks, and for how long. No token: as nobody.
void Prepare(grpc::ClientContext* context, const std::string& token, uint64_t timeout_us);

// Where the ends of asynchronous calls arrive. Each call ends by its deadline at the latest.
class CallQueue {
 public:
  ~CallQueue() { Await(); }
  grpc::CompletionQueue* get() { return &queue_; }
  // Until all calls have ended; none begins afterwards.
  void Await();

 private:
  grpc::CompletionQueue queue_;
  bool shut_ = false;
};

}  // namespace larder::node
