// A node in the simulation: the production Owner and ClientSessions over the loopback transport. Only what is
// threads, memfds and clocks in a real node is replaced here: the mailbox by a queue in virtual time, slabs
// by heap memory.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>

#include "node/owner/owner.h"
#include "node/session.h"
#include "tests/support/sim_disk.h"
#include "transport/loopback/loopback.h"

namespace larder::simulation {

class HeapSlabs final : public node::SlabSource {
 public:
  ~HeapSlabs() override;
  std::byte* Make(uint64_t bytes) override;
  void Retire(std::byte* base, uint64_t bytes) override;
  // Slabs given back since the last call; the owner hears of each through SlabGone.
  std::vector<std::byte*> TakeRetired();
  void Free(std::byte* base);
  uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::byte*, uint64_t> live_;
  std::vector<std::byte*> retired_;
  uint64_t bytes_ = 0;
};

struct SimNodeOptions {
  std::string name;  // host and address: "n0"
  NodeTable table;
  node::OwnerOptions owner;
  uint32_t requests_max = 64;
  testing::SimMedia* media = nullptr;  // its SSD, which outlives it; nullptr: it has none
  testing::SimFaults disk_faults;
  bool ssd_sync = false;
};

// One life of a node: destroyed by a crash, made anew by a restart, with what its SSD has kept.
class SimNode final : public node::OwnerPort, public node::Outbox, public transport::Acceptor {
 public:
  SimNode(transport::loopback::Network* network, const SimNodeOptions& options, uint64_t seed,
          uint64_t incarnation);
  ~SimNode() override;

  // After Network::Crash of its host: nothing of it runs any more; writes under way have moved some of their
  // bytes.
  void Die();
  // Disks are healthy from now on.
  void HealDisk();

  // What another node's courier does here, without a wire: an event of a session of its own, and what answers
  // it.
  std::vector<node::Action> HandleLocal(node::Event&& event);

  node::Owner& owner() { return *owner_; }
  const std::string& name() const { return options_.name; }
  uint64_t memory_bytes() const { return slabs_.bytes(); }
  size_t mailbox_peak() const { return mailbox_peak_; }
  size_t sessions() const { return peers_.size(); }
  std::string Check() const;

 private:
  struct Peer {
    std::shared_ptr<node::ClientSession> session;
    std::shared_ptr<transport::Connection> connection;
  };
  struct Item {
    node::SessionId session;
    node::Event event;
  };

  // node::OwnerPort, node::Outbox, transport::Acceptor
  bool Post(node::SessionId session, node::Event&& event) override;
  uint64_t NowUs() override { return network_->now_us(); }
  Bytes EncodedTable() override;
  void Deliver(node::SessionId session, node::Action&& action) override;
  std::shared_ptr<transport::Handler> OnAccept(
      const std::shared_ptr<transport::Connection>& connection) override;

  void WakeOwner();
  void RunOwner();
  void ArmTimer();
  void PollDisk();
  void CheckBlock(node::SessionId session, const node::Verify& verify);

  transport::loopback::Network* const network_;
  const SimNodeOptions options_;
  std::mt19937_64 random_;
  // What scheduled work holds on to: reset by Die, so that late timers find nobody.
  std::shared_ptr<SimNode*> self_;
  HeapSlabs slabs_;
  std::shared_ptr<node::SessionShared> shared_ = std::make_shared<node::SessionShared>();
  testing::SimDisk* disk_ = nullptr;  // the owner's
  std::unique_ptr<node::Owner> owner_;
  std::unique_ptr<transport::Transport> transport_;
  std::unordered_map<node::SessionId, Peer> peers_;
  std::deque<Item> mailbox_;
  std::vector<node::Action> local_;  // of the courier's event at hand
  size_t mailbox_peak_ = 0;
  bool owner_awake_ = false;
  uint64_t timer_us_ = UINT64_MAX;
  node::SessionId next_session_ = 1;
};

}  // namespace larder::simulation
