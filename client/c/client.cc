// Handles of clients and buffers: opening, closing, forks; and the names of codes.
#include <cstdio>
#include <cstdlib>

#include "client/c/handles.h"
#include "client/config/client_config.h"

namespace larder::c {

larder_code Answer(const Status& status, larder_error* error) {
  const auto code = static_cast<larder_code>(status.code());
  if (!status.ok() && error != nullptr) {
    error->code = code;
    std::snprintf(error->text, sizeof error->text, "%s", status.text().c_str());
  }
  return code;
}

ClientState::~ClientState() {
  OpenedNamespace* at = namespaces_.load(std::memory_order_acquire);
  while (at != nullptr) delete std::exchange(at, at->next);
}

Result<Client*> ClientState::Use() {
  if (closed_.load(std::memory_order_acquire)) return Invalid("the client of this handle is closed");
  if (ClientHold* mine = client_.Get()) [[likely]]
    return mine->client.get();
  if (!reopen_) {
    return Status(kForked,
                  "the client was opened by the parent process: open another one here, or open it with "
                  "LARDER_FORK_REOPEN");
  }
  Result<ClientHold*> made = client_.GetOrMake([this] { return Reopen(); });
  if (!made.ok()) return made.status();
  return made.value()->client.get();
}

void ClientState::Close() {
  closed_.store(true, std::memory_order_release);
  if (ClientHold* mine = client_.Get()) mine->client.reset();
}

void ClientState::Remember(std::unique_ptr<OpenedNamespace> opened) {
  OpenedNamespace* head = namespaces_.load(std::memory_order_acquire);
  for (const OpenedNamespace* at = head; at != nullptr; at = at->next) {
    if (at->handle.index == opened->handle.index) return;
  }
  OpenedNamespace* added = opened.release();
  added->next = head;
  while (!namespaces_.compare_exchange_weak(added->next, added, std::memory_order_acq_rel)) {
  }
}

// A client numbers its namespaces in the order of opening: the same order gives the same numbers.
Result<std::unique_ptr<ClientHold>> ClientState::Reopen() const {
  Result<std::unique_ptr<Client>> client = Client::Open(options_, open_deadline_us_);
  if (!client.ok()) return client.status();
  std::vector<const OpenedNamespace*> opened;
  for (const OpenedNamespace* at = namespaces_.load(std::memory_order_acquire); at != nullptr;
       at = at->next) {
    opened.push_back(at);
  }
  std::sort(opened.begin(), opened.end(), [](const OpenedNamespace* a, const OpenedNamespace* b) {
    return a->handle.index < b->handle.index;
  });
  for (const OpenedNamespace* each : opened) {
    const Result<NamespaceHandle> again =
        client.value()->OpenNamespace(each->identity, each->tenant, each->salt);
    if (!again.ok()) return again.status();
    // Two threads that opened one namespace may both have remembered it.
    if (again.value().name_space != each->handle.name_space || again.value().index != each->handle.index) {
      return Status(Code::kInternal, "a namespace has another number after the fork: open a new client");
    }
  }
  return std::make_unique<ClientHold>(ClientHold{std::move(client).value()});
}

namespace {

template <typename To, typename From>
void Over(From given, To* option) {
  if (given != 0) *option = static_cast<To>(given);
}

Status OptionsFrom(const larder_client_options& given, ClientOptions* options) {
  const Environment environment = given.ignore_environment != 0 ? Environment() : Environment(&std::getenv);
  const std::string path = given.config_file == nullptr ? "" : given.config_file;
  LARDER_RETURN_IF_ERROR(LoadClientOptions(path, environment, options));
  if (given.endpoints != nullptr) options->seeds = SplitEndpoints(given.endpoints);
  if (given.transport != nullptr) options->transport = given.transport;
  if (given.token != nullptr) options->token = given.token;
  if (given.client_name != nullptr) options->client_name = given.client_name;
  if (given.io_threads > 16) return Invalid("io_threads: from 1 to 16");
  Over(given.io_threads, &options->io_threads);
  Over(given.connections_per_peer, &options->connections_per_peer);
  Over(given.replicas, &options->replicas);
  Over(given.operations_max, &options->operations_max);
  Over(given.spin_us, &options->spin_us);
  Over(given.bytes_in_flight_max, &options->bytes_in_flight_max);
  Over(given.peer_bytes_in_flight_max, &options->peer_bytes_in_flight_max);
  Over(given.deadline_us, &options->default_deadline_us);
  Over(given.connect_timeout_us, &options->connect_timeout_us);
  Over(given.backoff_min_us, &options->backoff_min_us);
  Over(given.backoff_max_us, &options->backoff_max_us);
  if (given.fork_mode > LARDER_FORK_REOPEN)
    return Invalid("fork_mode: LARDER_FORK_ERROR or LARDER_FORK_REOPEN");
  if (options->seeds.empty()) {
    return Invalid(
        "no endpoints: give them in the options, in LARDER_ENDPOINTS or in a config file, as host:port");
  }
  return Status::Ok();
}

Status Open(const larder_client_options* options, larder_client** client) {
  if (client == nullptr) return Invalid("client is NULL");
  *client = nullptr;
  larder_client_options given{};
  if (options != nullptr) LARDER_RETURN_IF_ERROR(ReadSized(options, "larder_client_options", &given));
  ClientOptions made;
  LARDER_RETURN_IF_ERROR(OptionsFrom(given, &made));
  Result<std::unique_ptr<Client>> opened = Client::Open(made, given.open_deadline_us);
  if (!opened.ok()) return opened.status();
  *client = new larder_client{std::make_shared<ClientState>(
      made, given.open_deadline_us, given.fork_mode == LARDER_FORK_REOPEN, std::move(opened).value())};
  return Status::Ok();
}

void FillStats(const Client& client, larder_stats* out) {
  const ClientStats stats = client.stats();
  for (const PeerInfo& peer : client.peers()) {
    ++out->nodes;
    out->nodes_connected += peer.connected;
    out->nodes_left_alone += peer.retry_in_us != 0;
  }
  out->gets = stats.gets;
  out->hits = stats.hits;
  out->misses = stats.misses;
  out->corrupt = stats.corrupt;
  out->refused = stats.refused;
  out->timed_out = stats.timed_out;
  out->bytes_pulled = stats.bytes_pulled;
  out->puts = stats.puts;
  out->stored = stats.stored;
  out->exists = stats.exists;
  out->differs = stats.differs;
  out->not_stored = stats.not_stored;
  out->bytes_put = stats.bytes_put;
  out->matches = stats.matches;
  out->waits = stats.waits;
  out->reconnects = stats.reconnects;
  out->peers_down = stats.peers_down;
  out->reports = stats.reports;
  out->operations = stats.operations;
  out->bytes_in_flight = stats.bytes_in_flight;
  out->bytes_in_flight_peak = stats.bytes_in_flight_peak;
  out->prefetches = stats.prefetches;
  std::copy(std::begin(stats.miss_by_reason), std::end(stats.miss_by_reason),
            std::begin(out->miss_by_reason));
}

Status Stats(larder_client* client, larder_stats* stats) {
  if (client == nullptr) return Invalid("client is NULL");
  larder_stats out{};
  LARDER_RETURN_IF_ERROR(ReadSized(stats, "larder_stats", &out));
  const Result<Client*> used = client->state->Use();
  if (!used.ok()) return used.status();
  out = larder_stats{};
  FillStats(*used.value(), &out);
  WriteSized(out, stats);
  return Status::Ok();
}

Status Ping(larder_client* client, const char* node_id, uint64_t deadline_us, uint64_t* round_trip_us) {
  if (client == nullptr) return Invalid("client is NULL");
  const Result<Client*> used = client->state->Use();
  if (!used.ok()) return used.status();
  std::string node = node_id == nullptr ? "" : node_id;
  if (node_id == nullptr) {
    const NodeTable table = used.value()->table();
    if (table.nodes.empty()) return Status(Code::kNotFound, "the node table is empty");
    node = table.nodes.front().id;
  }
  const Result<uint64_t> answered = used.value()->Ping(node, {deadline_us});
  if (!answered.ok()) return answered.status();
  if (round_trip_us != nullptr) *round_trip_us = answered.value();
  return Status::Ok();
}

Result<larder_buffer*> Allocate(larder_client* client, size_t bytes) {
  if (client == nullptr) return Invalid("client is NULL");
  const Result<Client*> used = client->state->Use();
  if (!used.ok()) return used.status();
  Result<std::unique_ptr<Buffer>> buffer = used.value()->AllocateBuffer(bytes);
  if (!buffer.ok()) return buffer.status();
  void* data = buffer.value()->data();
  return new larder_buffer{PerProcess<Buffer>(std::move(buffer).value()), data, bytes};
}

}  // namespace
}  // namespace larder::c

using namespace larder::c;  // NOLINT: the C functions below are its interface

extern "C" {

const char* larder_code_name(larder_code code) {
  if (code == LARDER_FORKED) return "forked";
  if (code < 0 || code > LARDER_INTERNAL) return "unknown";
  return larder::CodeName(static_cast<larder::Code>(code)).data();
}

const char* larder_outcome_name(uint8_t outcome) {
  return larder::OutcomeName(static_cast<larder::Outcome>(outcome)).data();
}

const char* larder_presence_name(uint8_t presence) {
  return larder::PresenceName(static_cast<larder::Presence>(presence)).data();
}

const char* larder_put_state_name(uint8_t state) {
  return larder::PutStateName(static_cast<larder::PutState>(state)).data();
}

const char* larder_version(void) {
  return LARDER_VERSION;
}

larder_code larder_client_open(const larder_client_options* options, larder_client** client,
                               larder_error* error) {
  return Answer(Open(options, client), error);
}

void larder_client_close(larder_client* client) {
  if (client == nullptr) return;
  client->state->Close();
  delete client;
}

larder_code larder_client_stats(larder_client* client, larder_stats* stats, larder_error* error) {
  return Answer(Stats(client, stats), error);
}

larder_code larder_client_ping(larder_client* client, const char* node_id, uint64_t deadline_us,
                               uint64_t* round_trip_us, larder_error* error) {
  return Answer(Ping(client, node_id, deadline_us, round_trip_us), error);
}

larder_code larder_buffer_allocate(larder_client* client, size_t bytes, larder_buffer** buffer,
                                   larder_error* error) {
  const larder::Result<larder_buffer*> made = Allocate(client, bytes);
  if (made.ok()) *buffer = made.value();
  return Answer(made.status(), error);
}

void* larder_buffer_data(const larder_buffer* buffer) {
  return buffer->data;
}

size_t larder_buffer_bytes(const larder_buffer* buffer) {
  return buffer->bytes;
}

void larder_buffer_free(larder_buffer* buffer) {
  delete buffer;
}

larder_code larder_memory_register(larder_client* client, void* data, size_t bytes, larder_error* error) {
  if (client == nullptr) return Answer(larder::Invalid("client is NULL"), error);
  const larder::Result<larder::Client*> used = client->state->Use();
  return Answer(used.ok() ? used.value()->RegisterMemory(data, bytes) : used.status(), error);
}

larder_code larder_memory_unregister(larder_client* client, void* data, larder_error* error) {
  if (client == nullptr) return Answer(larder::Invalid("client is NULL"), error);
  const larder::Result<larder::Client*> used = client->state->Use();
  return Answer(used.ok() ? used.value()->UnregisterMemory(data) : used.status(), error);
}

}  // extern "C"
