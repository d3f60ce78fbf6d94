// The gRPC side of larderctl. Each call opens a channel of its own: this is a tool that asks once.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>

#include "client/cli/cluster.h"
#include "proto/control.grpc.pb.h"
#include "proto/health.grpc.pb.h"

namespace larder::cli {
namespace {

namespace api = larder::control::v1;

constexpr int kAnswerBytesMax = 256 << 20;  // thousands of namespaces with their identities
constexpr auto kBusyPause = std::chrono::milliseconds(50);

Status FromGrpc(const std::string& address, const grpc::Status& status) {
  if (status.ok()) return Status::Ok();
  Code code = Code::kInternal;
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      code = Code::kUnavailable;
      break;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      code = Code::kTimedOut;
      break;
    case grpc::StatusCode::NOT_FOUND:
      code = Code::kNotFound;
      break;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED:
      code = Code::kDenied;
      break;
    case grpc::StatusCode::INVALID_ARGUMENT:
      code = Code::kInvalid;
      break;
    default:
      break;
  }
  return {code, address + ": " + status.error_message()};
}

template <typename Service, typename Request, typename Response>
Status Ask(const std::string& address, uint64_t timeout_us,
           grpc::Status (Service::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
           const Request& request, Response* out, const std::string& token = "") {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  const auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  const auto stub = Service::NewStub(channel);
  const auto deadline = std::chrono::system_clock::now() + std::chrono::microseconds(timeout_us);
  for (;;) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
    const grpc::Status status = (stub.get()->*method)(&context, request, out);
    const bool busy = status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;  // too many ask at once
    if (!busy || std::chrono::system_clock::now() + kBusyPause >= deadline) return FromGrpc(address, status);
    std::this_thread::sleep_for(kBusyPause);
  }
}

}  // namespace

Status AskInfo(const std::string& address, uint64_t timeout_us, api::GetInfoResponse* out) {
  return Ask<api::Control>(address, timeout_us, &api::Control::Stub::GetInfo, api::GetInfoRequest(), out);
}

Status AskStats(const std::string& address, const Globals& globals, api::StatsResponse* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Stats, api::StatsRequest(), out,
                           globals.token);
}

Status AskHealth(const std::string& address, uint64_t timeout_us, std::string* out) {
  grpc::health::v1::HealthCheckResponse response;
  const Status status =
      Ask<grpc::health::v1::Health>(address, timeout_us, &grpc::health::v1::Health::Stub::Check,
                                    grpc::health::v1::HealthCheckRequest(), &response);
  *out = grpc::health::v1::HealthCheckResponse::ServingStatus_Name(response.status());
  return status;
}

Status AskNamespaces(const std::string& address, const Globals& globals, api::NamespacesResponse* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Namespaces,
                           api::NamespacesRequest(), out, globals.token);
}

Status AskClear(const std::string& address, const Globals& globals, const std::string& hex, uint64_t stamp_ms,
                api::ClearResponse* out) {
  api::ClearRequest request;
  request.set_stamp_unix_ms(stamp_ms);
  request.set_hex(hex);
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Clear, request, out,
                           globals.token);
}

Status AskDrain(const std::string& address, const Globals& globals, api::DrainResponse* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Drain, api::DrainRequest(), out,
                           globals.token);
}

Status AskExplain(const std::string& address, const Globals& globals, const api::ExplainRequest& request,
                  api::ExplainResponse* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Explain, request, out,
                           globals.token);
}

Status AskMatch(const std::string& address, const Globals& globals, const api::MatchRequest& request,
                api::MatchResponse* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::Match, request, out,
                           globals.token);
}

Status AskQuarantine(const std::string& address, const Globals& globals, api::QuarantineState* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::GetQuarantine,
                           api::GetQuarantineRequest(), out, globals.token);
}

Status AskAddQuarantine(const std::string& address, const Globals& globals,
                        const api::AddQuarantineRequest& request, api::QuarantineState* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::AddQuarantine, request, out,
                           globals.token);
}

Status AskLiftQuarantine(const std::string& address, const Globals& globals,
                         const api::LiftQuarantineRequest& request, api::QuarantineState* out) {
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::LiftQuarantine, request, out,
                           globals.token);
}

Status AskBypass(const std::string& address, const Globals& globals, bool on, api::QuarantineState* out) {
  api::SetBypassRequest request;
  request.set_on(on);
  return Ask<api::Control>(address, globals.timeout_us, &api::Control::Stub::SetBypass, request, out,
                           globals.token);
}

}  // namespace larder::cli
