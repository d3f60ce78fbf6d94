// What the handles of larder.h stand for, and how they survive a fork.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "client/c/larder.h"
#include "client/c/sized.h"
#include "client/client.h"

namespace larder::c {

// A code of this interface alone, carried by Status like the others.
inline constexpr Code kForked = static_cast<Code>(LARDER_FORKED);
inline constexpr uint32_t kExtentsMax = 65536;  // of one block

// Fills the caller's error, unless all is well or it wants none.
larder_code Answer(const Status& status, larder_error* error);

// Something with threads and connections belongs to the process that made it. A child of fork inherits its
// memory, whose locks may be held by threads that are not there any more, so a child touches nothing of it
// but this box: it is left as it is, also by the destructor. Every member function is safe in a child, and
// from any thread.
template <typename T>
class PerProcess {
 public:
  explicit PerProcess(std::unique_ptr<T> value) : box_(new Box{getpid(), std::move(value)}) {}
  ~PerProcess() {
    Box* box = box_.load(std::memory_order_acquire);
    if (box->owner == getpid()) delete box;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  // nullptr: another process's.
  T* Get() const {
    const Box* box = box_.load(std::memory_order_acquire);
    return box->owner == getpid() ? box->value.get() : nullptr;
  }
  // Of this process; `make` runs in one thread of a child while others wait. A Status when it fails.
  template <typename Make>
  Result<T*> GetOrMake(const Make& make) {
    const pid_t self = getpid();
    for (;;) {
      const Box* box = box_.load(std::memory_order_acquire);
      if (box->owner == self) [[likely]]
        return box->value.get();
      pid_t maker = making_.load(std::memory_order_acquire);
      if (maker == self) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (making_.compare_exchange_strong(maker, self, std::memory_order_acq_rel)) {
        Result<std::unique_ptr<T>> made = make();
        if (made.ok()) box_.store(new Box{self, std::move(made).value()}, std::memory_order_release);
        making_.store(0, std::memory_order_release);
        if (!made.ok()) return made.status();
      }
    }
  }

 private:
  struct Box {
    const pid_t owner;
    std::unique_ptr<T> value;
  };
  std::atomic<Box*> box_;
  std::atomic<pid_t> making_{0};
};

// A namespace as it was opened: a child opens it again under the same index. Lock-free, since a child reads
// it.
struct OpenedNamespace {
  NamespaceHandle handle;
  Identity identity;
  std::string tenant, salt;
  OpenedNamespace* next = nullptr;
};

struct ClientHold {
  std::unique_ptr<Client> client;
};

class ClientState {
 public:
  ClientState(const ClientOptions& options, uint64_t open_deadline_us, bool reopen,
              std::unique_ptr<Client> client)
      : options_(options),
        open_deadline_us_(open_deadline_us),
        reopen_(reopen),
        client_(std::make_unique<ClientHold>(ClientHold{std::move(client)})) {}
  ~ClientState();

  // The client of this process.
  Result<Client*> Use();
  void Close();
  bool reopens() const { return reopen_; }
  void Remember(std::unique_ptr<OpenedNamespace> opened);

 private:
  Result<std::unique_ptr<ClientHold>> Reopen() const;

  const ClientOptions options_;
  const uint64_t open_deadline_us_;
  const bool reopen_;
  std::atomic<bool> closed_{false};
  PerProcess<ClientHold> client_;
  std::atomic<OpenedNamespace*> namespaces_{nullptr};
};

}  // namespace larder::c

struct larder_client {
  std::shared_ptr<larder::c::ClientState> state;
};

struct larder_namespace {
  std::shared_ptr<larder::c::ClientState> state;
  larder::NamespaceHandle handle;
};

struct larder_queue {
  std::shared_ptr<larder::c::ClientState> state;
  larder::c::PerProcess<larder::CompletionQueue> queue;
};

struct larder_completion {
  larder::Completion done;
};

struct larder_buffer {
  larder::c::PerProcess<larder::Buffer> buffer;
  void* data = nullptr;
  size_t bytes = 0;
};
