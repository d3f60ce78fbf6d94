// The client behind the public interface: blocking calls, queues, buffers and the world for the driver.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "client/buffer.h"
#include "client/completion_queue.h"
#include "client/driver.h"
#include "client/timer.h"

namespace larder::client {

class Shell : public Client, private World {
 public:
  explicit Shell(const ClientOptions& options);
  ~Shell() override;

  // Waits for the first node table.
  Status Begin(uint64_t deadline_us);

  Result<NamespaceHandle> OpenNamespace(const Identity& identity, std::string_view tenant,
                                        std::string_view salt) override;
  MatchResult Match(const NamespaceHandle& ns, const MatchRequest& request,
                    const CallOptions& options) override;
  std::vector<BlockResult> Get(const NamespaceHandle& ns, std::span<const GetItem> items,
                               const CallOptions& options) override;
  std::vector<PutResult> Put(const NamespaceHandle& ns, std::span<const PutItem> items,
                             const CallOptions& options) override;
  uint32_t Wait(const NamespaceHandle& ns, const WaitRequest& request, const CallOptions& options) override;
  Result<uint64_t> Prefetch(const NamespaceHandle& ns, const WaitRequest& request,
                            const CallOptions& options) override;
  void Touch(const NamespaceHandle& ns, const TouchRequest& request) override;
  void Release(uint64_t pin) override;
  Status Report(const NamespaceHandle& ns, const ReportRequest& request) override;
  Result<uint32_t> Remove(const NamespaceHandle& ns, std::span<const ChainHash> hashes,
                          std::span<const uint16_t> groups, const CallOptions& options) override;
  Result<uint64_t> Clear(const NamespaceHandle& ns, const CallOptions& options) override;
  std::unique_ptr<CompletionQueue> MakeQueue() override;
  Result<OperationId> SubmitMatch(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                  const MatchRequest& request, const CallOptions& options) override;
  Result<OperationId> SubmitGet(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                std::span<const GetItem> items, const CallOptions& options) override;
  Result<OperationId> SubmitPut(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                std::span<const PutItem> items, const CallOptions& options) override;
  Result<OperationId> SubmitWait(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                 const WaitRequest& request, const CallOptions& options) override;
  Result<OperationId> SubmitPrefetch(CompletionQueue* queue, uint64_t user_data, const NamespaceHandle& ns,
                                     const WaitRequest& request, const CallOptions& options) override;
  void Cancel(OperationId id) override;
  void CancelWaiting(OperationId id) override;
  Result<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes) override;
  Status RegisterMemory(void* data, size_t bytes) override;
  Status UnregisterMemory(void* data) override;
  Result<uint64_t> Ping(const std::string& node_id, const CallOptions& options) override;
  NodeTable table() const override { return driver_.table(); }
  std::vector<PeerInfo> peers() const override { return driver_.peers(); }
  ClientStats stats() const override { return driver_.stats(); }

 private:
  uint64_t NowUs() override { return transport::NowUs(); }
  transport::Transport* TransportFor(const std::string& name, std::string* error) override {
    return transports_->Get(name, error);
  }
  void TimerAt(uint64_t us) override { timer_.Set(us); }

  // Completes `operation` into `sink`.
  Result<OperationId> Submit(Result<std::unique_ptr<Operation>> operation,
                             std::shared_ptr<CompletionSink> sink, uint64_t user_data,
                             const CallOptions& options);
  // The same, and waits. A Status: it was not begun.
  Result<Completion> Run(Result<std::unique_ptr<Operation>> operation, const CallOptions& options);
  void HoldBuffers(Operation* operation);

  const ClientOptions options_;
  std::shared_ptr<Transports> transports_;
  Driver driver_;
  Timer timer_;
  std::mutex buffers_mutex_;
  std::map<const std::byte*, std::weak_ptr<RegionHold>> buffers_;  // by base
};

}  // namespace larder::client
