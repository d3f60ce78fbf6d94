// The gRPC side of larderctl events: a stream without an end.
#include <grpcpp/grpcpp.h>

#include <chrono>

#include "client/cli/cluster.h"
#include "proto/control.grpc.pb.h"

namespace larder::cli {

namespace {
constexpr int kMessageBytesMax = 16 << 20;
}

Status FollowEvents(const std::string& address, const Globals& globals,
                    const control::v1::EventsRequest& request,
                    const std::function<bool(const control::v1::EventsResponse&)>& take) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto connect_by = std::chrono::system_clock::now() + std::chrono::microseconds(globals.timeout_us);
  if (!channel->WaitForConnected(connect_by)) {
    return {Code::kUnavailable, address + ": nobody answers"};
  }
  const auto stub = control::v1::Control::NewStub(channel);
  grpc::ClientContext context;
  if (!globals.token.empty()) context.AddMetadata("authorization", "Bearer " + globals.token);
  const auto reader = stub->Events(&context, request);
  for (control::v1::EventsResponse response; reader->Read(&response);) {
    if (take(response)) continue;
    context.TryCancel();
    while (reader->Read(&response)) {
    }
    reader->Finish();
    return Status::Ok();
  }
  const grpc::Status status = reader->Finish();
  const bool denied = status.error_code() == grpc::StatusCode::UNAUTHENTICATED;
  return {denied ? Code::kDenied : Code::kUnavailable,
          address + ": " + (status.ok() ? "the stream ended" : status.error_message())};
}

}  // namespace larder::cli
