#include "node/membership/peer_calls.h"

#include "node/membership/control_calls.h"
#include "proto/control.grpc.pb.h"

namespace larder::node {

namespace {

namespace api = larder::control::v1;

struct Call {
  grpc::ClientContext context;
  std::unique_ptr<api::Control::Stub> stub;
  std::unique_ptr<grpc::ClientAsyncResponseReader<api::ExchangeResponse>> reader;
  PeerCalls::Answer answer;
};

}  // namespace

std::vector<PeerCalls::Answer> PeerCalls::Ask(const std::set<std::string>& addresses,
                                              const api::ExchangeRequest& request, uint64_t timeout_us) {
  CallQueue queue;
  std::vector<std::unique_ptr<Call>> calls;
  for (const std::string& address : addresses) {
    std::shared_ptr<grpc::Channel>& channel = channels_[address];
    if (channel == nullptr) channel = ConnectToNode(address);
    auto call = std::make_unique<Call>();
    call->answer.address = address;
    Prepare(&call->context, token_, timeout_us);
    call->stub = api::Control::NewStub(channel);
    call->reader = call->stub->AsyncExchange(&call->context, request, queue.get());
    call->reader->Finish(&call->answer.response, &call->answer.status, call.get());
    calls.push_back(std::move(call));
  }
  {
    const std::lock_guard lock(mutex_);
    for (const auto& call : calls) {
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
  for (const auto& call : calls) {
    if (!call->answer.status.ok()) channels_.erase(call->answer.address);
    answers.push_back(std::move(call->answer));
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
