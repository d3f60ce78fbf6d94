// Namespaces and the blocking calls.
#include <numeric>

#include "client/c/requests.h"
#include "client/config/identity_text.h"

namespace larder::c {
namespace {

constexpr uint64_t kForeverUs = UINT64_MAX;

// The asynchronous call, waited for: it says why nothing was begun, which the client's blocking calls can't.
template <typename Submit>
Result<Completion> Run(Client* client, const Submit& submit) {
  const std::unique_ptr<CompletionQueue> queue = client->MakeQueue();
  const Result<OperationId> id = submit(queue.get());
  if (!id.ok()) return id.status();
  return std::move(queue->Poll(1, kForeverUs).front());
}

Status OpenNamespace(larder_client* client, const larder_namespace_options* options, larder_namespace** ns) {
  if (ns == nullptr) return Invalid("ns is NULL");
  *ns = nullptr;
  larder_namespace_options given{};
  LARDER_RETURN_IF_ERROR(ReadSized(options, "larder_namespace_options", &given));
  const Result<Client*> used = ClientOf(client, "client");
  if (!used.ok()) return used.status();
  if (given.identity == nullptr) return Invalid("identity is NULL: give at least kind=kv or kind=opaque");
  const Result<Identity> identity = IdentityFromText(given.identity);
  if (!identity.ok()) return identity.status();
  auto opened = std::make_unique<OpenedNamespace>();
  opened->identity = identity.value();
  if (given.tenant != nullptr) opened->tenant = given.tenant;
  if (given.salt != nullptr) opened->salt.assign(static_cast<const char*>(given.salt), given.salt_bytes);
  const Result<NamespaceHandle> handle =
      used.value()->OpenNamespace(opened->identity, opened->tenant, opened->salt);
  if (!handle.ok()) return handle.status();
  opened->handle = handle.value();
  client->state->Remember(std::move(opened));
  *ns = new larder_namespace{client->state, handle.value()};
  return Status::Ok();
}

Status Describe(const larder_namespace* ns, larder_namespace_info* info) {
  if (ns == nullptr) return Invalid("ns is NULL");
  larder_namespace_info out{};
  LARDER_RETURN_IF_ERROR(ReadSized(info, "larder_namespace_info", &out));
  out.layers = ns->handle.grid.layers;
  out.head_groups = ns->handle.grid.head_groups;
  std::memcpy(out.id, ns->handle.name_space.bytes.data(), LARDER_HASH_BYTES);
  WriteSized(out, info);
  return Status::Ok();
}

Status RunMatch(larder_namespace* ns, const larder_match_request* request, larder_match_result* result) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  MatchAsk ask;
  LARDER_RETURN_IF_ERROR(ReadMatch(request, &ask));
  larder_match_result known;
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_match_result", &known));
  const Result<Completion> done = Run(client.value(), [&](CompletionQueue* queue) {
    return client.value()->SubmitMatch(queue, 0, ns->handle, ask.request, ask.options);
  });
  if (!done.ok()) return done.status();
  LARDER_RETURN_IF_ERROR(done.value().match.status);
  return WriteMatch(done.value().match, result);
}

// `submit` is the client's SubmitWait or SubmitPrefetch.
template <typename Submit>
Result<Completion> RunChain(larder_namespace* ns, const larder_wait_request* request, const Submit& submit) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  WaitAsk ask;
  LARDER_RETURN_IF_ERROR(ReadWait(request, &ask));
  return Run(client.value(), [&](CompletionQueue* queue) {
    return (client.value()->*submit)(queue, 0, ns->handle, ask.request, ask.options);
  });
}

Status RunWait(larder_namespace* ns, const larder_wait_request* request, uint32_t* leading) {
  const Result<Completion> done = RunChain(ns, request, &Client::SubmitWait);
  if (!done.ok()) return done.status();
  if (leading != nullptr) *leading = done.value().leading;
  return done.value().status;
}

Status RunPrefetch(larder_namespace* ns, const larder_wait_request* request, uint64_t* blocks) {
  const Result<Completion> done = RunChain(ns, request, &Client::SubmitPrefetch);
  if (!done.ok()) return done.status();
  if (blocks != nullptr) *blocks = done.value().count;
  return done.value().status;
}

Status RunGet(larder_namespace* ns, const larder_get_request* request, larder_get_result* result) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  GetAsk ask;
  LARDER_RETURN_IF_ERROR(ReadGet(request, &ask));
  larder_get_result known;
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_get_result", &known));
  const Result<Completion> done = Run(client.value(), [&](CompletionQueue* queue) {
    return client.value()->SubmitGet(queue, 0, ns->handle, ask.items, ask.options);
  });
  if (!done.ok()) return done.status();
  return WriteGet(done.value().blocks, result);
}

Status RunPut(larder_namespace* ns, const larder_put_request* request, larder_put_result* result) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  PutAsk ask;
  LARDER_RETURN_IF_ERROR(ReadPut(request, &ask));
  larder_put_result known;
  LARDER_RETURN_IF_ERROR(ReadSized(result, "larder_put_result", &known));
  const Result<Completion> done = Run(client.value(), [&](CompletionQueue* queue) {
    return client.value()->SubmitPut(queue, 0, ns->handle, ask.items, ask.options);
  });
  if (!done.ok()) return done.status();
  return WritePut(done.value().puts, result);
}

struct Keys {
  std::vector<ChainHash> hashes;
  std::vector<uint16_t> groups = {0};
  larder_keys given{};
};

Status ReadKeys(const larder_keys* given, Keys* keys) {
  LARDER_RETURN_IF_ERROR(ReadSized(given, "larder_keys", &keys->given));
  LARDER_RETURN_IF_ERROR(HashesFrom(keys->given.hashes, keys->given.count, &keys->hashes));
  if (keys->given.groups == nullptr) return Status::Ok();
  if (keys->given.group_count == 0 || keys->given.group_count > kGroupsMax) {
    return Invalid("group_count: from 1 to " + std::to_string(kGroupsMax));
  }
  keys->groups.assign(keys->given.groups, keys->given.groups + keys->given.group_count);
  return Status::Ok();
}

Status RunTouch(larder_namespace* ns, const larder_keys* given, bool finishes) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  Keys keys;
  LARDER_RETURN_IF_ERROR(ReadKeys(given, &keys));
  TouchRequest touch{keys.hashes, keys.groups, keys.given.usable, Retention::kNone, finishes};
  LARDER_RETURN_IF_ERROR(RetentionFrom(keys.given.retention, &touch.retention));
  client.value()->Touch(ns->handle, touch);
  return Status::Ok();
}

Status RunReport(larder_namespace* ns, const larder_keys* given) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  Keys keys;
  LARDER_RETURN_IF_ERROR(ReadKeys(given, &keys));
  ReportRequest report;
  report.hashes = keys.hashes;
  report.groups = keys.groups;
  if (const larder_rectangle* asked = keys.given.rectangle) {
    report.rectangle = {asked->layer_begin, asked->layer_end, asked->head_begin, asked->head_end};
    report.whole = false;
  }
  return client.value()->Report(ns->handle, report);
}

Status RunRemove(larder_namespace* ns, const larder_keys* given, uint64_t* removed) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  Keys keys;
  LARDER_RETURN_IF_ERROR(ReadKeys(given, &keys));
  const Result<uint32_t> gone =
      client.value()->Remove(ns->handle, keys.hashes, keys.groups, {keys.given.deadline_us});
  if (gone.ok() && removed != nullptr) *removed = gone.value();
  return gone.status();
}

Status RunClear(larder_namespace* ns, uint64_t deadline_us, uint64_t* removed) {
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  const Result<uint64_t> gone = client.value()->Clear(ns->handle, {deadline_us});
  if (gone.ok() && removed != nullptr) *removed = gone.value();
  return gone.status();
}

Status HashTokens(const uint32_t* tokens, size_t count, uint32_t block_tokens, uint8_t* hashes) {
  if (block_tokens == 0) return Invalid("block_tokens: at least 1");
  if (count >= block_tokens && (tokens == nullptr || hashes == nullptr))
    return Invalid("tokens or hashes is NULL");
  if (count < block_tokens) return Status::Ok();
  const std::vector<ChainHash> chain = ChainHashes({tokens, count}, block_tokens);
  std::memcpy(hashes, chain.data(), chain.size() * LARDER_HASH_BYTES);
  return Status::Ok();
}

}  // namespace
}  // namespace larder::c

using namespace larder::c;  // NOLINT: the C functions below are its interface

extern "C" {

larder_code larder_namespace_open(larder_client* client, const larder_namespace_options* options,
                                  larder_namespace** ns, larder_error* error) {
  return Answer(OpenNamespace(client, options, ns), error);
}

larder_code larder_namespace_describe(const larder_namespace* ns, larder_namespace_info* info,
                                      larder_error* error) {
  return Answer(Describe(ns, info), error);
}

void larder_namespace_close(larder_namespace* ns) {
  delete ns;
}

larder_code larder_hash_tokens(const uint32_t* tokens, size_t count, uint32_t block_tokens, uint8_t* hashes,
                               larder_error* error) {
  return Answer(HashTokens(tokens, count, block_tokens, hashes), error);
}

void larder_hash_link(const uint8_t* parent, const void* bytes, size_t count, uint8_t* hash) {
  larder::ChainHash from;
  if (parent != nullptr) std::memcpy(from.bytes.data(), parent, LARDER_HASH_BYTES);
  const larder::ChainHash made = larder::NextLink(from, {static_cast<const std::byte*>(bytes), count});
  std::memcpy(hash, made.bytes.data(), LARDER_HASH_BYTES);
}

larder_code larder_match(larder_namespace* ns, const larder_match_request* request,
                         larder_match_result* result, larder_error* error) {
  return Answer(RunMatch(ns, request, result), error);
}

void larder_release(larder_client* client, uint64_t pin) {
  const larder::Result<larder::Client*> used = ClientOf(client, "client");
  if (used.ok()) used.value()->Release(pin);
}

larder_code larder_wait(larder_namespace* ns, const larder_wait_request* request, uint32_t* leading,
                        larder_error* error) {
  return Answer(RunWait(ns, request, leading), error);
}

larder_code larder_prefetch(larder_namespace* ns, const larder_wait_request* request, uint64_t* blocks,
                            larder_error* error) {
  return Answer(RunPrefetch(ns, request, blocks), error);
}

larder_code larder_get(larder_namespace* ns, const larder_get_request* request, larder_get_result* result,
                       larder_error* error) {
  return Answer(RunGet(ns, request, result), error);
}

larder_code larder_put(larder_namespace* ns, const larder_put_request* request, larder_put_result* result,
                       larder_error* error) {
  return Answer(RunPut(ns, request, result), error);
}

larder_code larder_touch(larder_namespace* ns, const larder_keys* keys, larder_error* error) {
  return Answer(RunTouch(ns, keys, false), error);
}

larder_code larder_finish_turn(larder_namespace* ns, const larder_keys* keys, larder_error* error) {
  return Answer(RunTouch(ns, keys, true), error);
}

larder_code larder_report(larder_namespace* ns, const larder_keys* keys, larder_error* error) {
  return Answer(RunReport(ns, keys), error);
}

larder_code larder_remove(larder_namespace* ns, const larder_keys* keys, uint64_t* removed,
                          larder_error* error) {
  return Answer(RunRemove(ns, keys, removed), error);
}

larder_code larder_clear(larder_namespace* ns, uint64_t deadline_us, uint64_t* removed, larder_error* error) {
  return Answer(RunClear(ns, deadline_us, removed), error);
}

}  // extern "C"
