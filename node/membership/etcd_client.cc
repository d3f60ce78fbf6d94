#include "node/membership/etcd_client.h"

#include <chrono>
#include <fstream>
#include <sstream>

namespace larder::node {

namespace {

Result<std::string> ReadFile(const char* knob, const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty()) {
    return Invalid(std::string(knob) + ": cannot read " + path + "; give a PEM file that this user may read");
  }
  return text.str();
}

// What the next endpoint may do better.
bool IsElsewhere(grpc::StatusCode code) {
  return code == grpc::StatusCode::UNAVAILABLE || code == grpc::StatusCode::DEADLINE_EXCEEDED;
}

// A connection makes progress only while some thread waits for it, and a call to one that is down fails at
// once.
void WaitConnected(grpc::Channel* channel) {
  constexpr std::chrono::milliseconds kPatience(500);
  if (channel->GetState(true) == GRPC_CHANNEL_READY) return;
  channel->WaitForConnected(std::chrono::system_clock::now() + kPatience);
}

Status FromGrpc(const grpc::Status& status, const std::string& endpoint) {
  const std::string text = "etcd at " + endpoint + ": " + status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return Status::Ok();
    case grpc::StatusCode::NOT_FOUND:
      return {Code::kNotFound, text};
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::INVALID_ARGUMENT:  // how etcd says that the password is wrong
      return {Code::kDenied, text};
    default:
      return {Code::kUnavailable, text};
  }
}

}  // namespace

Result<std::unique_ptr<EtcdClient>> EtcdClient::Open(const EtcdOptions& options) {
  Result<std::string> ca = ReadFile("etcd_ca", options.ca_path);
  Result<std::string> certificate = ReadFile("etcd_certificate", options.certificate_path);
  Result<std::string> key = ReadFile("etcd_key", options.key_path);
  for (const auto* file : {&ca, &certificate, &key}) {
    if (!file->ok()) return file->status();
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!ca->empty()) {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = ca.value();
    ssl.pem_cert_chain = certificate.value();
    ssl.pem_private_key = key.value();
    credentials = grpc::SslCredentials(ssl);
  }
  // A machine that is gone without a word must be noticed within a lease.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // Also how long a connection may take: an etcd that is just starting accepts and says nothing (default: 20
  // s).
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto client = std::unique_ptr<EtcdClient>(new EtcdClient(options));
  for (const std::string& endpoint : options.endpoints) {
    client->channels_.push_back(grpc::CreateCustomChannel(endpoint, credentials, arguments));
  }
  if (client->channels_.empty()) return Invalid("etcd_endpoints: name at least one host:port");
  return client;
}

std::string EtcdClient::token() const {
  const std::lock_guard lock(mutex_);
  return token_;
}

void EtcdClient::Prepare(grpc::ClientContext* context, bool deadline) {
  if (const std::string token = this->token(); !token.empty()) context->AddMetadata("token", token);
  if (!deadline) return;
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(options_.call_timeout_us));
}

Status EtcdClient::SignIn(size_t endpoint) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::microseconds(options_.call_timeout_us));
  etcdserverpb::AuthenticateRequest request;
  request.set_name(options_.user);
  request.set_password(options_.password);
  etcdserverpb::AuthenticateResponse response;
  const grpc::Status status =
      etcdserverpb::Auth::NewStub(channels_[endpoint])->Authenticate(&context, request, &response);
  if (!status.ok()) return FromGrpc(status, options_.endpoints[endpoint]);
  const std::lock_guard lock(mutex_);
  token_ = response.token();
  return Status::Ok();
}

Status EtcdClient::Call(
    const std::function<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext*)>& call) {
  Status last(Code::kUnavailable, "etcd: stopped");
  const size_t first = current_;
  bool signed_in = false;
  for (size_t i = 0; i < channels_.size() && !stopped_;) {
    const size_t at = (first + i) % channels_.size();
    WaitConnected(channels_[at].get());
    if (!options_.user.empty() && token().empty()) {
      last = SignIn(at);
      if (!last.ok()) {
        ++i;
        continue;
      }
      signed_in = true;
    }
    grpc::ClientContext context;
    Prepare(&context, true);
    const grpc::Status status = call(channels_[at], &context);
    last = FromGrpc(status, options_.endpoints[at]);
    if (last.ok()) {
      current_ = at;
      return last;
    }
    if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED && !options_.user.empty() && !signed_in) {
      const std::lock_guard lock(mutex_);
      token_.clear();  // it has run out: the same endpoint again with a new one
      continue;
    }
    if (!IsElsewhere(status.error_code())) return last;
    ++i;
  }
  return last;
}

Status EtcdClient::Range(const etcdserverpb::RangeRequest& request, etcdserverpb::RangeResponse* response) {
  return Call([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
    return etcdserverpb::KV::NewStub(channel)->Range(context, request, response);
  });
}

Status EtcdClient::Txn(const etcdserverpb::TxnRequest& request, etcdserverpb::TxnResponse* response) {
  return Call([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
    return etcdserverpb::KV::NewStub(channel)->Txn(context, request, response);
  });
}

Result<int64_t> EtcdClient::GrantLease(int64_t ttl_s) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(ttl_s);
  etcdserverpb::LeaseGrantResponse response;
  LARDER_RETURN_IF_ERROR(
      Call([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
        return etcdserverpb::Lease::NewStub(channel)->LeaseGrant(context, request, &response);
      }));
  return response.id();
}

Status EtcdClient::RevokeLease(int64_t lease) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  return Call([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
    etcdserverpb::LeaseRevokeResponse response;
    return etcdserverpb::Lease::NewStub(channel)->LeaseRevoke(context, request, &response);
  });
}

Status EtcdClient::KeepAlive(int64_t lease) {
  bool expired = false;
  LARDER_RETURN_IF_ERROR(
      Call([&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context) {
        auto stream = etcdserverpb::Lease::NewStub(channel)->LeaseKeepAlive(context);
        etcdserverpb::LeaseKeepAliveRequest request;
        request.set_id(lease);
        etcdserverpb::LeaseKeepAliveResponse response;
        const bool heard = stream->Write(request) && stream->Read(&response);
        expired = heard && response.ttl() <= 0;
        if (!heard) return stream->Finish();
        context->TryCancel();
        stream->Finish();
        return grpc::Status::OK;
      }));
  if (expired) return {Code::kNotFound, "etcd: this node's lease has expired"};
  return Status::Ok();
}

Status EtcdClient::Watch(const std::string& prefix, int64_t revision,
                         const std::function<void(const etcdserverpb::WatchResponse&)>& seen) {
  const size_t at = current_;
  WaitConnected(channels_[at].get());
  grpc::ClientContext context;
  Prepare(&context, false);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return {Code::kCancelled, "etcd: stopped"};
    watching_ = &context;
  }
  auto stream = etcdserverpb::Watch::NewStub(channels_[at])->Watch(&context);
  etcdserverpb::WatchRequest request;
  auto* create = request.mutable_create_request();
  create->set_key(prefix);
  std::string end = prefix;
  ++end.back();
  create->set_range_end(end);
  create->set_start_revision(revision);
  Status status;
  etcdserverpb::WatchResponse response;
  if (stream->Write(request)) {
    while (status.ok() && stream->Read(&response)) {
      if (response.compact_revision() != 0) {
        status = {Code::kNotFound, "etcd: the revision was compacted"};
      } else if (response.canceled()) {
        status = {Code::kUnavailable, "etcd ended the watch: " + response.cancel_reason()};
      } else {
        seen(response);
      }
    }
  }
  context.TryCancel();
  const grpc::Status finished = stream->Finish();
  {
    const std::lock_guard lock(mutex_);
    watching_ = nullptr;
    if (finished.error_code() == grpc::StatusCode::UNAUTHENTICATED) token_.clear();
  }
  if (!status.ok()) return status;
  // The next call finds out which endpoint answers.
  return FromGrpc(finished.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the watch ended") : finished,
                  options_.endpoints[at]);
}

void EtcdClient::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (watching_ != nullptr) watching_->TryCancel();
}

}  // namespace larder::node
