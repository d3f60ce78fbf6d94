// What a node is made of, for node.cc and node_cluster.cc alone.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "node/background.h"
#include "node/node.h"
#include "node/owner/homecoming.h"
#include "node/owner_thread.h"
#include "node/slab_memory.h"

namespace larder::node {

inline const Status kStopped{Code::kUnavailable, "the node has stopped"};

struct Node::Impl final : OwnerPort, transport::Acceptor {
  explicit Impl(const NodeOptions& node_options) : options(node_options) {}
  ~Impl() override {
    Stop();
    transports.clear();  // they let go of the slabs' registrations before the slabs go
  }

  Status Start();
  // Changes the rules on the owner's thread, then keeps them.
  Status ChangeRules(const std::function<Result<Quarantine>(const Owner&)>& change);
  Result<std::unique_ptr<ssd::SsdTier>> OpenSsd();
  Status AddTransport(const char* name, const std::string& address, std::string* bound);
  void FollowMoves(const NodeTable& before, const NodeTable& after);
  void RestorePlaces();
  void KeepPlaces(const PlaceTimes& places);
  void RestoreClears();
  void KeepClears();
  void Stop();

  // OwnerPort
  bool Post(SessionId session, Event&& event) override { return owner->Post(session, std::move(event)); }
  uint64_t NowUs() override { return transport::NowUs(); }
  Bytes EncodedTable() override {
    Bytes bytes;
    const std::lock_guard lock(table_mutex);
    EncodeTable(table, &bytes);
    return bytes;
  }
  // Acceptor
  std::shared_ptr<transport::Handler> OnAccept(
      const std::shared_ptr<transport::Connection>& connection) override;

  void SlabGone(std::byte* base) {
    owner->CallLater([this, base](Owner& state) {
      slabs->Unmap(base);
      state.SlabGone(base);
    });
  }

  NodeOptions options;  // node_id may come from an SSD directory
  std::vector<std::string> remarks;
  NodeRecord record;
  uint64_t started_us = 0;
  mutable std::mutex table_mutex;
  NodeTable table;
  std::mutex
      follow_mutex;  // one change of the table or of this node's places at a time; guards the next block
  bool was_without = false;  // the cluster was without this node, until the next table
  uint64_t moved_us = 0;
  MovedSlots moved;
  std::atomic<bool> brings_home{false};
  mutable std::mutex told_mutex;  // guards the next block
  Status places_kept, clears_kept;
  HandOverProgress hand_over;
  RepairProgress repair;
  KvEventStats kv_events;
  std::atomic<bool> ready{false};
  std::atomic<bool> draining{false};
  std::atomic<uint64_t> next_session{1};
  std::atomic<uint64_t> connections_refused{0};
  std::atomic<uint32_t> event_streams{0};
  std::shared_ptr<SessionShared> shared = std::make_shared<SessionShared>();

  // In the order in which they are made; Stop ends them as they depend on each other.
  mutable std::mutex stop_mutex;
  std::mutex rules_mutex;  // one change of the quarantine at a time, so that the file is the last one's
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::unique_ptr<Background> background;
  std::unique_ptr<SlabMemory> slabs;
  std::unique_ptr<OwnerThread> owner;
  std::atomic<OwnerThread*> disk_listener{nullptr};  // disks begin to load before there is an owner
  std::atomic<bool> stopped{false};
};

}  // namespace larder::node
