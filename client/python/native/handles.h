// The handles of larder.h as Python holds them.
#pragma once

#include <atomic>
#include <unordered_map>

#include "client/python/native/binding.h"

namespace larder::python {

// What an operation that was submitted needs until its completion is polled.
struct Pending {
  uint32_t kind = 0;
  size_t count = 0, groups = 0;
  nb::object token;
  std::shared_ptr<Extents> memory;
};

// A client, shared by everything that was made from it. It is closed by close(), else with the last of them.
class ClientHandle {
 public:
  explicit ClientHandle(larder_client* raw);
  ~ClientHandle() { Close(); }  // with the GIL held, like all the rest
  // Cancels what is under way, waits for calls of other threads to return.
  void Close();
  bool closed() const { return raw_ == nullptr; }

  // A call of larder.h without the GIL. `call` gets the client; its error is raised.
  template <typename Work>
  void Call(const Work& call) {
    larder_error error{};
    larder_code code = LARDER_OK;
    Enter();
    {
      const nb::gil_scoped_release released;
      code = call(raw_, &error);
    }
    calls_.fetch_sub(1, std::memory_order_release);
    if (code != LARDER_OK) Raise(code, error.text);
  }
  // Memory of operations whose queue is gone: theirs until the client is closed.
  void Keep(Pending&& pending) { kept_.push_back(std::move(pending)); }

 private:
  void Enter();

  larder_client* raw_;
  const int owner_;  // process id: a child must not wait for threads that it has not
  std::atomic<int> calls_{0};
  std::vector<Pending> kept_;
};

struct NamespaceHandle {
  std::shared_ptr<ClientHandle> client;
  larder_namespace* raw = nullptr;
  larder_namespace_info info{};
  NamespaceHandle() = default;
  NamespaceHandle(const NamespaceHandle&) = delete;
  NamespaceHandle& operator=(const NamespaceHandle&) = delete;
  ~NamespaceHandle() { larder_namespace_close(raw); }
};

struct BufferHandle {
  larder_buffer* raw = nullptr;
  BufferHandle() = default;
  BufferHandle(const BufferHandle&) = delete;
  BufferHandle& operator=(const BufferHandle&) = delete;
  ~BufferHandle() { larder_buffer_free(raw); }
};

class QueueHandle {
 public:
  explicit QueueHandle(std::shared_ptr<ClientHandle> client);
  QueueHandle(const QueueHandle&) = delete;
  QueueHandle& operator=(const QueueHandle&) = delete;
  ~QueueHandle();
  larder_queue* raw() const { return raw_; }
  const std::shared_ptr<ClientHandle>& client() const { return client_; }
  size_t pending() const { return pending_.size(); }

  // Submit(user_data, operation, error) -> code; `pending` is kept until its completion is polled.
  template <typename Work>
  larder_operation Submit(Pending&& pending, const Work& submit) {
    const uint64_t user_data = ++last_;
    pending_.emplace(user_data, std::move(pending));
    larder_operation operation = 0;
    larder_error error{};
    larder_code code = LARDER_OK;
    {
      const nb::gil_scoped_release released;
      code = submit(user_data, &operation, &error);
    }
    if (code != LARDER_OK) {
      pending_.erase(user_data);
      Raise(code, error.text);
    }
    return operation;
  }
  nb::list Poll(size_t max, uint64_t timeout_us);
  int Visit(visitproc visit, void* arg) const;  // for the garbage collector

 private:
  std::shared_ptr<ClientHandle> client_;
  larder_queue* raw_ = nullptr;
  uint64_t last_ = 0;
  std::unordered_map<uint64_t, Pending> pending_;
};

struct CompletionHandle {
  nb::object token;
  larder_operation operation = 0;
  larder_code code = LARDER_OK;
  nb::object result;  // MatchResult, GetResult, PutResult, or an int of a wait
};

}  // namespace larder::python
