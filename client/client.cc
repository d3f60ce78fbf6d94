#include <algorithm>
#include <chrono>

#include "client/shell.h"

namespace larder::client {

Result<OperationId> Shell::Submit(Result<std::unique_ptr<Operation>> made,
                                  std::shared_ptr<CompletionSink> sink, uint64_t user_data,
                                  const CallOptions& options) {
  if (!made.ok()) return made.status();
  std::unique_ptr<Operation> operation = std::move(made).value();
  operation->sink = std::move(sink);
  operation->user_data = user_data;
  operation->priority = options.priority == Priority::kBatch ? Priority::kBatch : Priority::kInteractive;
  const uint64_t wanted_us = options.deadline_us == 0 ? options_.default_deadline_us : options.deadline_us;
  operation->deadline_us = transport::NowUs() + std::min<uint64_t>(wanted_us, uint64_t{1} << 50);
  HoldBuffers(operation.get());
  return driver_.Submit(std::move(operation));
}

Result<Completion> Shell::Run(Result<std::unique_ptr<Operation>> operation, const CallOptions& options) {
  auto waiter = std::make_shared<Waiter>();
  const Result<OperationId> id = Submit(std::move(operation), waiter, 0, options);
  if (!id.ok()) return id.status();
  return waiter->Wait();
}

// Transfer memory lives as long as the operations on it.
void Shell::HoldBuffers(Operation* operation) {
  const std::lock_guard<std::mutex> lock(buffers_mutex_);
  if (buffers_.empty()) return;
  const RegionMemory* last = nullptr;
  const auto hold = [&](const void* data) {
    if (last != nullptr && last->Contains(data)) return;
    auto after = buffers_.upper_bound(static_cast<const std::byte*>(data));
    if (after == buffers_.begin()) return;
    std::shared_ptr<RegionHold> buffer = std::prev(after)->second.lock();
    if (buffer == nullptr || !buffer->memory().Contains(data)) return;
    last = &buffer->memory();
    operation->holds.push_back(std::move(buffer));
  };
  if (operation->kind == Kind::kGet) {
    for (const transport::Extent& extent : static_cast<GetOperation*>(operation)->extents) hold(extent.data);
  } else if (operation->kind == Kind::kPut) {
    for (const transport::ConstExtent& extent : static_cast<PutOperation*>(operation)->extents)
      hold(extent.data);
  }
}

MatchResult Shell::Match(const NamespaceHandle& ns, const MatchRequest& request, const CallOptions& options) {
  Result<Completion> done = Run(MakeMatch(ns, request), options);
  if (done.ok()) return std::move(done->match);
  MatchResult result;
  result.status = done.status();
  return result;
}

std::vector<BlockResult> Shell::Get(const NamespaceHandle& ns, std::span<const GetItem> items,
                                    const CallOptions& options) {
  Result<Completion> done = Run(MakeGet(ns, items), options);
  if (done.ok()) return std::move(done->blocks);
  BlockResult refused;
  refused.outcome = Outcome::kRefused;
  refused.reason = done.status().code() == Code::kBusy ? Presence::kBusy : Presence::kRefused;
  return std::vector<BlockResult>(items.size(), refused);
}

std::vector<PutResult> Shell::Put(const NamespaceHandle& ns, std::span<const PutItem> items,
                                  const CallOptions& options) {
  Result<Completion> done = Run(MakePut(ns, items), options);
  if (done.ok()) return std::move(done->puts);
  PutResult refused;
  refused.state = done.status().code() == Code::kInvalid ? PutState::kInvalid : PutState::kBusy;
  refused.why = done.status();
  return std::vector<PutResult>(items.size(), refused);
}

uint32_t Shell::Wait(const NamespaceHandle& ns, const WaitRequest& request, const CallOptions& options) {
  const Result<Completion> done = Run(MakeWait(ns, request), options);
  return done.ok() ? done.value().leading : 0;
}

Result<uint64_t> Shell::Prefetch(const NamespaceHandle& ns, const WaitRequest& request,
                                 const CallOptions& options) {
  const Result<Completion> done = Run(MakePrefetch(ns, request), options);
  if (!done.ok()) return done.status();
  if (!done.value().status.ok()) return done.value().status;
  return done.value().count;
}

void Shell::Touch(const NamespaceHandle& ns, const TouchRequest& request) {
  if (ns.valid() && !request.groups.empty() && request.groups.size() <= kGroupsMax)
    driver_.Touch(ns.index, request);
}

void Shell::Release(uint64_t pin) {
  driver_.Release(pin);
}

Status Shell::Report(const NamespaceHandle& ns, const ReportRequest& request) {
  Result<std::vector<BlockRef>> blocks = BlocksOf(ns, request);
  if (!blocks.ok()) return blocks.status();
  driver_.Report(ns.index, blocks.value());
  return Status::Ok();
}

Result<uint32_t> Shell::Remove(const NamespaceHandle& ns, std::span<const ChainHash> hashes,
                               std::span<const uint16_t> groups, const CallOptions& options) {
  const Result<Completion> done = Run(MakeRemove(ns, hashes, groups), options);
  if (!done.ok()) return done.status();
  if (!done.value().status.ok()) return done.value().status;
  return static_cast<uint32_t>(done.value().count);
}

Result<uint64_t> Shell::Clear(const NamespaceHandle& ns, const CallOptions& options) {
  if (!ns.valid()) return Invalid("the namespace handle is empty: use the one that OpenNamespace returned");
  auto operation = std::make_unique<ClearOperation>();
  operation->name_space = ns.index;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  operation->stamp_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  const Result<Completion> done = Run(std::unique_ptr<Operation>(std::move(operation)), options);
  if (!done.ok()) return done.status();
  if (!done.value().status.ok()) return done.value().status;
  return done.value().count;
}

Result<uint64_t> Shell::Ping(const std::string& node_id, const CallOptions& options) {
  auto operation = std::make_unique<PingOperation>();
  operation->node_id = node_id;
  const Result<Completion> done = Run(std::unique_ptr<Operation>(std::move(operation)), options);
  if (!done.ok()) return done.status();
  if (!done.value().status.ok()) return done.value().status;
  return done.value().count;
}

std::unique_ptr<CompletionQueue> Shell::MakeQueue() {
  return std::make_unique<Queue>();
}

Result<OperationId> Shell::SubmitMatch(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                       const MatchRequest& request, const CallOptions& options) {
  return Submit(MakeMatch(ns, request), static_cast<Queue*>(queue)->state(), user_data, options);
}

Result<OperationId> Shell::SubmitGet(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                     std::span<const GetItem> items, const CallOptions& options) {
  return Submit(MakeGet(ns, items), static_cast<Queue*>(queue)->state(), user_data, options);
}

Result<OperationId> Shell::SubmitPut(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                     std::span<const PutItem> items, const CallOptions& options) {
  return Submit(MakePut(ns, items), static_cast<Queue*>(queue)->state(), user_data, options);
}

Result<OperationId> Shell::SubmitWait(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                      const WaitRequest& request, const CallOptions& options) {
  return Submit(MakeWait(ns, request), static_cast<Queue*>(queue)->state(), user_data, options);
}

Result<OperationId> Shell::SubmitPrefetch(CompletionQueue* queue, uint64_t user_data,
                                          const NamespaceHandle& ns, const WaitRequest& request,
                                          const CallOptions& options) {
  return Submit(MakePrefetch(ns, request), static_cast<Queue*>(queue)->state(), user_data, options);
}

void Shell::Cancel(OperationId id) {
  driver_.Cancel(id);
}

void Shell::CancelWaiting(OperationId id) {
  driver_.CancelWaiting(id);
}

Result<std::unique_ptr<Buffer>> Shell::AllocateBuffer(size_t bytes) {
  std::string error;
  std::shared_ptr<RegionMemory> memory = RegionMemory::Make(bytes, &error);
  if (memory == nullptr) return Status(bytes == 0 ? Code::kInvalid : Code::kFull, error);
  const Status added = transports_->Add(memory);
  if (!added.ok()) return added;
  auto hold = std::make_shared<RegionHold>(transports_, memory);
  const std::lock_guard<std::mutex> lock(buffers_mutex_);
  std::erase_if(buffers_, [](const auto& entry) { return entry.second.expired(); });
  buffers_[memory->region().base] = hold;
  return std::unique_ptr<Buffer>(std::make_unique<RegionBuffer>(std::move(hold)));
}

Status Shell::RegisterMemory(void* data, size_t bytes) {
  if (data == nullptr || bytes == 0)
    return Invalid("memory to register has an address and at least one byte");
  return transports_->Add(RegionMemory::Wrap(static_cast<std::byte*>(data), bytes));
}

Status Shell::UnregisterMemory(void* data) {
  return transports_->RemoveForeign(static_cast<const std::byte*>(data));
}

}  // namespace larder::client
