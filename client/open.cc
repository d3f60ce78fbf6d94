// Begin and end of a client: options, the first node table, namespaces, closing.
#include <string>

#include "client/host.h"
#include "client/shell.h"

namespace larder::client {
namespace {

transport::TransportOptions TransportOptionsOf(const ClientOptions& options) {
  transport::TransportOptions made;
  made.threads = options.io_threads;
  made.spin_us = options.spin_us;
  made.limits.header_bytes_max = kMessageBytesMax;  // what a node may answer at most
  return made;
}

CoreOptions CoreOptionsOf(const ClientOptions& options) {
  CoreOptions made;
  made.client = options;
  made.host_id = HostId();
  made.ucx = HasRdmaDevice();
  made.seed = transport::NowUs() * 0x9e3779b97f4a7c15ull >> 32;
  return made;
}

Status Check(const ClientOptions& options) {
  if (options.seeds.empty()) return Invalid("no seeds: name at least one node as host:port");
  const std::string& transport = options.transport;
  if (transport != "auto" && transport != "tcp" && transport != "shm" && transport != "ucx") {
    return Invalid("transport \"" + transport + "\": auto, tcp, shm or ucx");
  }
  if (options.io_threads < 1 || options.io_threads > 16) return Invalid("io_threads: from 1 to 16");
  if (options.connections_per_peer < 1 || options.connections_per_peer > 8) {
    return Invalid("connections_per_peer: from 1 to 8");
  }
  if (options.replicas < 1 || options.replicas > 4) return Invalid("replicas: from 1 to 4");
  if (options.token.size() > 256) return Invalid("token: at most 256 bytes");
  if (options.client_name.size() > 128) return Invalid("client_name: at most 128 bytes");
  if (options.operations_max == 0) return Invalid("operations_max: at least 1");
  if (options.bytes_in_flight_max < 4096 || options.peer_bytes_in_flight_max < 4096) {
    return Invalid("bytes_in_flight_max and peer_bytes_in_flight_max: at least 4096");
  }
  if (options.default_deadline_us == 0 || options.connect_timeout_us == 0) {
    return Invalid("default_deadline_us and connect_timeout_us: at least 1");
  }
  if (options.backoff_min_us > options.backoff_max_us)
    return Invalid("backoff_min_us is above backoff_max_us");
  return Status::Ok();
}

}  // namespace

Shell::Shell(const ClientOptions& options)
    : options_(options),
      transports_(std::make_shared<Transports>(TransportOptionsOf(options))),
      driver_(CoreOptionsOf(options), this),
      timer_([this] { driver_.OnTimer(); }) {}

Shell::~Shell() {
  driver_.Shutdown();
  timer_.Stop();
  transports_->Shutdown();  // every connection says OnClosed: no byte lands any more
}

Status Shell::Begin(uint64_t deadline_us) {
  auto operation = std::make_unique<OpenOperation>();
  CallOptions call;
  call.deadline_us = deadline_us;
  const Result<Completion> done = Run(std::unique_ptr<Operation>(std::move(operation)), call);
  return done.ok() ? done.value().status : done.status();
}

Result<NamespaceHandle> Shell::OpenNamespace(const Identity& identity, std::string_view tenant,
                                             std::string_view salt) {
  LARDER_RETURN_IF_ERROR(identity.Validate(true));  // whether a weak hash is allowed is the node's to say
  if (tenant.size() > kTenantBytesMax) {
    return Invalid("tenant of " + std::to_string(tenant.size()) + " bytes; the limit is " +
                   std::to_string(kTenantBytesMax));
  }
  Result<Grid> grid = GridOf(identity);
  if (!grid.ok()) return grid.status();
  ClientNamespace opened;
  opened.identity = identity.CanonicalText();
  if (opened.identity.size() > kIdentityBytesMax) return Invalid("identity: at most 16 KiB");
  opened.tenant = tenant;
  std::string_view node_salt;
  if (!salt.empty()) {
    opened.salt_digest = Sha256(AsBytes(salt));
    node_salt = {reinterpret_cast<const char*>(opened.salt_digest.data()), opened.salt_digest.size()};
  }
  opened.name_space = NamespaceOf(identity, tenant, node_salt);
  opened.grid = grid.value();
  NamespaceHandle handle;
  handle.name_space = opened.name_space;
  handle.grid = opened.grid;
  handle.index = driver_.AddNamespace(opened);
  return handle;
}

}  // namespace larder::client

namespace larder {

Result<std::unique_ptr<Client>> Client::Open(const ClientOptions& options, uint64_t deadline_us) {
  LARDER_RETURN_IF_ERROR(client::Check(options));
  auto shell = std::make_unique<client::Shell>(options);
  const Status begun = shell->Begin(deadline_us);
  if (!begun.ok()) return begun;
  return std::unique_ptr<Client>(std::move(shell));
}

}  // namespace larder
