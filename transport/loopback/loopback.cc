// Network and its transports: listening and connecting. Events are in core.cc.
#include "transport/loopback/loopback.h"

#include <algorithm>

#include "transport/loopback/connection.h"

namespace larder::transport::loopback {
namespace {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<Core> core, std::shared_ptr<Process> process)
      : core_(std::move(core)), process_(std::move(process)) {}
  ~LoopbackTransport() override { Shutdown(); }

  std::string_view name() const override { return "loopback"; }
  Error Listen(const std::string& address, Acceptor* acceptor, std::string* bound) override;
  std::shared_ptr<Connection> Connect(const std::string& address, std::shared_ptr<Handler> handler,
                                      const ConnectOptions& options) override;
  Error AddRegion(const Region& region) override {
    if (region.base == nullptr || region.bytes == 0) return {Failure::kInvalid, "empty region"};
    return {};
  }
  void RemoveRegion(const std::byte* base, std::function<void()> released) override {
    (void)base;
    if (released) released();
  }
  TransportStats stats() const override {
    TransportStats stats = process_->stats;
    stats.connections = process_->connections.size();
    return stats;
  }
  void Shutdown() override;

 private:
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Process> process_;
};

Error LoopbackTransport::Listen(const std::string& address, Acceptor* acceptor, std::string* bound) {
  if (!process_->alive) return {Failure::kPeerClosed, "this transport is shut down or its host crashed"};
  if (acceptor == nullptr || address.empty()) return {Failure::kInvalid, "address and acceptor are needed"};
  std::string name = address;
  if (name.ends_with(":0")) name = name.substr(0, name.size() - 1) + std::to_string(10'000 + core_->NextId());
  if (!core_->listeners().emplace(name, Listener{process_, acceptor}).second) {
    return {Failure::kSystem, name + " is in use"};
  }
  if (bound != nullptr) *bound = name;
  return {};
}

// The connect reaches the listener's host: ask its acceptor and send the answer back.
void Arrive(const std::shared_ptr<Core>& core, const std::shared_ptr<LoopbackConnection>& connector,
            const std::string& address, const std::string& to) {
  const std::string from = connector->process()->host;
  const auto answer = [&](std::function<void()> work) { core->Deliver(to, from, 0, false, std::move(work)); };
  const auto found = core->listeners().find(address);
  if (connector->closed()) return;
  if (found == core->listeners().end()) {
    answer([connector, address] {
      connector->CloseLater({Failure::kUnreachable, "nobody listens at " + address}, Failure::kUnreachable);
    });
    return;
  }
  const auto process = found->second.process;
  const auto accepted = std::make_shared<LoopbackConnection>(core, process, from, from, false);
  process->connections[accepted->id()] = accepted;
  LoopbackConnection::Pair(connector, accepted);
  auto handler = found->second.acceptor->OnAccept(accepted);
  if (!process->alive) return;
  if (!handler) {
    process->connections.erase(accepted->id());
    accepted->Refuse();
    answer([connector, address] {
      connector->CloseLater({Failure::kRefused, address + " refused the connection"}, Failure::kRefused);
    });
    return;
  }
  accepted->Attach(std::move(handler));
  accepted->Open();
  answer([connector] { connector->Open(); });
}

std::shared_ptr<Connection> LoopbackTransport::Connect(const std::string& address,
                                                       std::shared_ptr<Handler> handler,
                                                       const ConnectOptions& options) {
  const auto found = core_->listeners().find(address);
  const bool known = found != core_->listeners().end();
  const std::string to = known ? found->second.process->host : std::string();
  const auto connection = std::make_shared<LoopbackConnection>(core_, process_, address, to, options.batch);
  if (!process_->alive) {
    connection->Die();
    return connection;
  }
  connection->Attach(std::move(handler));
  process_->connections[connection->id()] = connection;
  core_->Post(core_->now_us() + options.timeout_us, false, [connection] { connection->OnConnectTimeout(); });
  core_->Deliver(process_->host, to, 0, false,
                 [core = core_, connection, address, to] { Arrive(core, connection, address, to); });
  return connection;
}

void LoopbackTransport::Shutdown() {
  if (!process_->alive) return;
  process_->alive = false;  // from here on nothing new
  auto& listeners = core_->listeners();
  std::erase_if(listeners, [this](const auto& entry) { return entry.second.process == process_; });
  const auto connections = process_->connections;
  for (const auto& [id, connection] : connections) {
    connection->Close(Failure::kCancelled);
    connection->FinishClose();
  }
  process_->connections.clear();
  std::erase(core_->processes(), process_);
}

}  // namespace

Network::Network(uint64_t seed, uint64_t start_us) : core_(std::make_shared<Core>(seed, start_us)) {}

Network::~Network() {
  core_->End();
}

std::unique_ptr<Transport> Network::MakeTransport(const std::string& host, const Limits& limits,
                                                  uint64_t stall_us) {
  auto process = std::make_shared<Process>();
  process->host = host;
  process->limits = limits;
  process->stall_us = stall_us;
  core_->processes().push_back(process);
  return std::make_unique<LoopbackTransport>(core_, std::move(process));
}

uint64_t Network::now_us() const {
  return core_->now_us();
}
uint64_t Network::NextEventUs() const {
  return core_->NextEventUs();
}
bool Network::Step() {
  return core_->Step();
}
void Network::RunUntil(uint64_t us) {
  core_->RunUntil(us);
}
void Network::At(uint64_t us, std::function<void()> work) {
  core_->Post(us, false, std::move(work));
}
void Network::SetLinks(const Link& link) {
  core_->SetDefault(link);
}
void Network::SetLink(const std::string& from, const std::string& to, const Link& link) {
  core_->SetLink(from, to, link);
}
void Network::Cut(const std::string& from, const std::string& to, bool cut) {
  core_->Cut(from, to, cut);
}
void Network::Isolate(const std::string& host, bool isolated) {
  core_->Isolate(host, isolated);
}
void Network::Stall(const std::string& from, const std::string& to, uint64_t us) {
  core_->Stall(from, to, us);
}
void Network::ResetNext(const std::string& from, const std::string& to) {
  core_->ResetNext(from, to);
}
void Network::CorruptNext(const std::string& from, const std::string& to) {
  core_->CorruptNext(from, to);
}
void Network::Crash(const std::string& host) {
  core_->Crash(host);
}
const NetworkStats& Network::stats() const {
  return core_->stats();
}
uint64_t Network::trace_digest() const {
  return core_->trace_digest();
}

}  // namespace larder::transport::loopback
