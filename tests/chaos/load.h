// The load of a chaos run: threads that get, put, match, wait, touch and remove blocks whose every byte
// follows from their number, and that look at every byte that comes back.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tests/chaos/tally.h"

namespace larder::chaos {

struct LoadOptions {
  std::vector<std::string> seeds;
  std::string name = "chaos";
  std::string transport = "auto";
  uint64_t seed = 1;     // of what is asked when
  uint64_t content = 1;  // of the blocks' bytes: the same for all clients of a run
  uint32_t replicas = 2;
  uint32_t workers = 3;
  uint32_t getters = 2;              // besides, that do nothing but get: other calls don't hold them up
  uint64_t blocks = 350;             // of each of the two namespaces
  uint64_t deadline_us = 1'000'000;  // calls have a fifth of it, it, or four times it
  bool verify = true;
};

class Load {
 public:
  static Result<std::unique_ptr<Load>> Open(const LoadOptions& options, Tally* tally);
  ~Load();

  void Begin();
  void End();
  // How long the call that is furthest beyond its deadline has been that; 0: none is.
  uint64_t OverdueUs() const;
  // Puts fresh blocks, gets them back and pings every node until all of it goes well or `budget_us` is over.
  // Empty when it went well.
  std::string Settle(uint64_t budget_us);
  const Client& client() const { return *client_; }

 private:
  class Worker;
  Load(const LoadOptions& options, Tally* tally);
  std::string SettleOnce();

  const LoadOptions options_;
  Tally* const tally_;
  std::unique_ptr<Client> client_;
  std::vector<NamespaceHandle> spaces_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stopping_ = false;
  uint64_t fresh_ = 0;  // blocks that Settle has used up
};

}  // namespace larder::chaos
