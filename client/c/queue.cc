// Completion queues and what is submitted to them.
#include "client/c/requests.h"

namespace larder::c {
namespace {

// The queue of this process: a child that reopens has an empty one of its own.
Result<CompletionQueue*> QueueOf(larder_queue* queue) {
  const Result<Client*> client = ClientOf(queue, "queue");
  if (!client.ok()) return client.status();
  return queue->queue.GetOrMake(
      [&] { return Result<std::unique_ptr<CompletionQueue>>(client.value()->MakeQueue()); });
}

Status Open(larder_client* client, larder_queue** queue) {
  if (queue == nullptr) return Invalid("queue is NULL");
  *queue = nullptr;
  const Result<Client*> used = ClientOf(client, "client");
  if (!used.ok()) return used.status();
  *queue = new larder_queue{client->state, PerProcess<CompletionQueue>(used.value()->MakeQueue())};
  return Status::Ok();
}

// Submit(client, completion queue, request of the C++ client) -> id.
template <typename Read, typename Submit>
Status SubmitTo(larder_queue* queue, larder_namespace* ns, larder_operation* operation, const Read& read,
                const Submit& submit) {
  const Result<CompletionQueue*> into = QueueOf(queue);
  if (!into.ok()) return into.status();
  const Result<Client*> client = ClientOf(ns, "ns");
  if (!client.ok()) return client.status();
  if (ns->state != queue->state) return Invalid("the queue and the namespace belong to different clients");
  LARDER_RETURN_IF_ERROR(read());
  const Result<OperationId> id = submit(client.value(), into.value());
  if (id.ok() && operation != nullptr) *operation = id.value();
  return id.status();
}

// A wait or a prefetch: `submit` is the client's SubmitWait or SubmitPrefetch.
template <typename Submit>
Status SubmitChain(larder_queue* queue, larder_namespace* ns, const larder_wait_request* request,
                   uint64_t user_data, larder_operation* operation, const Submit& submit) {
  WaitAsk ask;
  return SubmitTo(
      queue, ns, operation, [&] { return ReadWait(request, &ask); },
      [&](Client* client, CompletionQueue* into) {
        return (client->*submit)(into, user_data, ns->handle, ask.request, ask.options);
      });
}

Status Cancel(larder_client* client, larder_operation operation, uint32_t how) {
  const Result<Client*> used = ClientOf(client, "client");
  if (!used.ok()) return used.status();
  if (how > LARDER_CANCEL_ALL) return Invalid("how: LARDER_CANCEL_WAITING or LARDER_CANCEL_ALL");
  if (how == LARDER_CANCEL_ALL) {
    used.value()->Cancel(operation);
  } else {
    used.value()->CancelWaiting(operation);
  }
  return Status::Ok();
}

Status Describe(const larder_completion* completion, larder_completion_info* info) {
  if (completion == nullptr) return Invalid("completion is NULL");
  larder_completion_info out{};
  LARDER_RETURN_IF_ERROR(ReadSized(info, "larder_completion_info", &out));
  const Completion& done = completion->done;
  out.kind = static_cast<uint32_t>(done.kind);
  out.operation = done.id;
  out.user_data = done.user_data;
  out.leading = done.leading;
  out.code = static_cast<larder_code>(done.status.code());
  out.count = done.kind == CompletionKind::kMatch      ? done.match.estimate_us.size()
              : done.kind == CompletionKind::kGet      ? done.blocks.size()
              : done.kind == CompletionKind::kPrefetch ? static_cast<size_t>(done.count)
                                                       : done.puts.size();
  WriteSized(out, info);
  return Status::Ok();
}

Status CheckKind(const larder_completion* completion, CompletionKind kind) {
  if (completion == nullptr) return Invalid("completion is NULL");
  if (completion->done.kind != kind) return Invalid("the completion is of another kind: see its description");
  return Status::Ok();
}

}  // namespace
}  // namespace larder::c

using namespace larder::c;  // NOLINT: the C functions below are its interface
using larder::Client;
using larder::CompletionKind;
using larder::CompletionQueue;
using larder::Status;

extern "C" {

larder_code larder_queue_open(larder_client* client, larder_queue** queue, larder_error* error) {
  return Answer(Open(client, queue), error);
}

int larder_queue_event_fd(larder_queue* queue) {
  const larder::Result<CompletionQueue*> mine = QueueOf(queue);
  return mine.ok() ? mine.value()->event_fd() : -1;
}

void larder_queue_close(larder_queue* queue) {
  delete queue;
}

larder_code larder_submit_match(larder_queue* queue, larder_namespace* ns,
                                const larder_match_request* request, uint64_t user_data,
                                larder_operation* operation, larder_error* error) {
  MatchAsk ask;
  return Answer(SubmitTo(
                    queue, ns, operation, [&] { return ReadMatch(request, &ask); },
                    [&](Client* client, CompletionQueue* into) {
                      return client->SubmitMatch(into, user_data, ns->handle, ask.request, ask.options);
                    }),
                error);
}

larder_code larder_submit_wait(larder_queue* queue, larder_namespace* ns, const larder_wait_request* request,
                               uint64_t user_data, larder_operation* operation, larder_error* error) {
  return Answer(SubmitChain(queue, ns, request, user_data, operation, &Client::SubmitWait), error);
}

larder_code larder_submit_prefetch(larder_queue* queue, larder_namespace* ns,
                                   const larder_wait_request* request, uint64_t user_data,
                                   larder_operation* operation, larder_error* error) {
  return Answer(SubmitChain(queue, ns, request, user_data, operation, &Client::SubmitPrefetch), error);
}

larder_code larder_submit_get(larder_queue* queue, larder_namespace* ns, const larder_get_request* request,
                              uint64_t user_data, larder_operation* operation, larder_error* error) {
  GetAsk ask;
  return Answer(SubmitTo(
                    queue, ns, operation, [&] { return ReadGet(request, &ask); },
                    [&](Client* client, CompletionQueue* into) {
                      return client->SubmitGet(into, user_data, ns->handle, ask.items, ask.options);
                    }),
                error);
}

larder_code larder_submit_put(larder_queue* queue, larder_namespace* ns, const larder_put_request* request,
                              uint64_t user_data, larder_operation* operation, larder_error* error) {
  PutAsk ask;
  return Answer(SubmitTo(
                    queue, ns, operation, [&] { return ReadPut(request, &ask); },
                    [&](Client* client, CompletionQueue* into) {
                      return client->SubmitPut(into, user_data, ns->handle, ask.items, ask.options);
                    }),
                error);
}

larder_code larder_cancel(larder_client* client, larder_operation operation, uint32_t how,
                          larder_error* error) {
  return Answer(Cancel(client, operation, how), error);
}

size_t larder_queue_poll(larder_queue* queue, uint64_t timeout_us, larder_completion** completions,
                         size_t max) {
  const larder::Result<CompletionQueue*> mine = QueueOf(queue);
  if (!mine.ok() || completions == nullptr || max == 0) return 0;
  size_t count = 0;
  for (larder::Completion& done : mine.value()->Poll(max, timeout_us)) {
    completions[count++] = new larder_completion{std::move(done)};
  }
  return count;
}

larder_code larder_completion_describe(const larder_completion* completion, larder_completion_info* info,
                                       larder_error* error) {
  return Answer(Describe(completion, info), error);
}

larder_code larder_completion_match(const larder_completion* completion, larder_match_result* result,
                                    larder_error* error) {
  const Status kind = CheckKind(completion, CompletionKind::kMatch);
  return Answer(kind.ok() ? WriteMatch(completion->done.match, result) : kind, error);
}

larder_code larder_completion_get(const larder_completion* completion, larder_get_result* result,
                                  larder_error* error) {
  const Status kind = CheckKind(completion, CompletionKind::kGet);
  return Answer(kind.ok() ? WriteGet(completion->done.blocks, result) : kind, error);
}

larder_code larder_completion_put(const larder_completion* completion, larder_put_result* result,
                                  larder_error* error) {
  const Status kind = CheckKind(completion, CompletionKind::kPut);
  return Answer(kind.ok() ? WritePut(completion->done.puts, result) : kind, error);
}

void larder_completion_free(larder_completion* completion) {
  delete completion;
}

}  // extern "C"
