#include "node/membership/peer_calls.h"

#include "node/membership/control_calls.h"

namespace larder::node {

namespace api = larder::control::v1;

std::vector<PeerCalls::Answer> PeerCalls::Ask(const std::set<std::string>& addresses,
                                              const api::ExchangeRequest& request, uint64_t timeout_us) {
  CallQueue queue;
  std::vector<std::pair<std::string, std::unique_ptr<ControlCall<api::ExchangeResponse>>>> calls;
  for (const std::string& address : addresses) {
    std::shared_ptr<grpc::Channel>& channel = channels_[address];
    if (channel == nullptr) channel = ConnectToNode(address);
    auto call = std::make_unique<ControlCall<api::ExchangeResponse>>();
    Prepare(&call->context, token_, timeout_us);
    call->stub = api::Control::NewStub(channel);
    call->reader = call->stub->AsyncExchange(&call->context, request, queue.get());
    call->reader->Finish(&call->response, &call->status, call.get());
    calls.emplace_back(address, std::move(call));
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, call] : calls) {
      contexts_.insert(&call->context);
      if (stopping_) call->context.TryCancel();
    }
  }
  queue.Await();
  {
    const std::lock_guard lock(mutex_);
    contexts_.clear();
  }
  std::vector<Answer> answers;
  for (const auto& [address, call] : calls) {
    if (!call->status.ok()) channels_.erase(address);
    answers.push_back({address, std::move(call->status), std::move(call->response)});
  }
  return answers;
}

void PeerCalls::KeepOnly(const std::set<std::string>& addresses) {
  std::erase_if(channels_, [&](const auto& entry) { return addresses.count(entry.first) == 0; });
}

void PeerCalls::Stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  for (grpc::ClientContext* context : contexts_) context->TryCancel();
}

void PeerCalls::GoOn() {
  const std::lock_guard lock(mutex_);
  stopping_ = false;
}

}  // namespace larder::node
