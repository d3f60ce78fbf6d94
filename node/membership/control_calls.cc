#include "node/membership/control_calls.h"

#include <chrono>
#include <utility>

namespace larder::node {

std::shared_ptr<grpc::Channel> ConnectToNode(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

void Prepare(grpc::ClientContext* context, const std::string& token, uint64_t timeout_us) {
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(timeout_us));
  if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
}

void CallQueue::Await() {
  if (!std::exchange(shut_, true)) queue_.Shutdown();
  void* tag = nullptr;
  bool good = false;
  while (queue_.Next(&tag, &good)) {
  }
}

}  // namespace larder::node
