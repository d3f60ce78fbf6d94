// A client in the simulation: the production core and driver over the loopback transport, and a workload
// drawn from a seed that checks every byte, every deadline, and that nothing is written after an operation
// completed.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "client/driver.h"
#include "transport/loopback/loopback.h"

namespace larder::simulation {

// Chains of one namespace. The bytes of a block follow from its hash, so that any copy can be checked.
struct Universe {
  explicit Universe(uint64_t seed, size_t chains = 12, size_t blocks_max = 24);
  void Fill(const ChainHash& hash, std::span<std::byte> out) const;
  bool Equal(const ChainHash& hash, std::span<const std::byte> bytes) const;

  client::ClientNamespace name_space;
  std::vector<std::vector<ChainHash>> chains;  // they share prefixes
  size_t block_bytes = 0;
};

struct SimClientOptions {
  std::string name;     // of its host on the network: "c0"
  std::string host_id;  // the node that has it too is near
  std::vector<std::string> seeds;
  uint32_t replicas = 1;
  bool verify = true;
};

class SimClient final : public client::World {
 public:
  SimClient(transport::loopback::Network* network, const Universe* universe, const SimClientOptions& options,
            uint64_t seed);
  ~SimClient() override;

  // Begins one operation drawn from the seed, unless as many are under way as the bound allows.
  void Begin();
  void ReleasePins();
  bool idle() const { return operations_.empty(); }
  // What went wrong so far; empty when nothing.
  std::string Check(bool deep);
  ClientStats stats() const { return driver_->stats(); }
  uint64_t completed() const { return completed_; }
  uint64_t bytes_checked() const { return bytes_checked_; }

 private:
  struct Pending;
  struct Sink;
  using Quiet = std::pair<std::unique_ptr<Pending>, uint32_t>;  // and the CRC-32C of its memory

  // client::World
  uint64_t NowUs() override { return network_->now_us(); }
  transport::Transport* TransportFor(const std::string& name, std::string* error) override;
  void TimerAt(uint64_t us) override;

  void Open();
  void Submit(Result<std::unique_ptr<client::Operation>> made, std::unique_ptr<Pending> pending);
  void BeginPut(const std::vector<ChainHash>& chain);
  void BeginGet(const std::vector<ChainHash>& chain);
  void BeginOther(const std::vector<ChainHash>& chain, uint64_t dice);
  void OnDone(Completion&& completion);
  void CheckGet(const Pending& pending, const Completion& completion);
  void CheckPut(const Pending& pending, const Completion& completion);
  void CheckQuiet(const Quiet& quiet);
  void Fault(const std::string& what);

  transport::loopback::Network* const network_;
  const Universe* const universe_;
  const SimClientOptions options_;
  std::mt19937_64 random_;
  std::shared_ptr<SimClient*> self_;
  std::unique_ptr<transport::Transport> transport_;
  std::shared_ptr<Sink> sink_;
  std::unique_ptr<client::Driver> driver_;
  uint32_t namespace_ = 0;
  NamespaceHandle handle_;
  std::map<uint64_t, std::unique_ptr<Pending>> operations_;  // by user data
  // Memory of completed gets, kept for a while: it must not change any more.
  std::vector<Quiet> quiet_;
  std::vector<uint64_t> pins_;
  bool open_ = false;
  uint64_t next_ = 1;
  uint64_t completed_ = 0;
  uint64_t bytes_checked_ = 0;
  std::string fault_;
};

}  // namespace larder::simulation
