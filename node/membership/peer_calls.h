// Asks many nodes at the same time, over their control ports. A call that fails takes its connection along:
// the next one begins anew, so that nothing waits out a back-off, or speaks into a connection to what was
// there before.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "proto/control.pb.h"

namespace larder::node {

class PeerCalls {
 public:
  explicit PeerCalls(std::string token) : token_(std::move(token)) {}

  struct Answer {
    std::string address;
    grpc::Status status;
    control::v1::ExchangeResponse response;
  };
  // Returns when all have answered, failed, or used up their time; Stop ends it at once. One call at a time.
  std::vector<Answer> Ask(const std::set<std::string>& addresses, const control::v1::ExchangeRequest& request,
                          uint64_t timeout_us);
  // Connections to others are closed.
  void KeepOnly(const std::set<std::string>& addresses);
  void Stop();
  void GoOn();  // after Stop

 private:
  const std::string token_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
  std::mutex mutex_;  // guards the next two
  bool stopping_ = false;
  std::set<grpc::ClientContext*> contexts_;
};

}  // namespace larder::node
