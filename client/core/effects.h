// What the core of the client asks of the world around it. The core decides; whoever drives it (Driver over
// real transports, or over loopback in virtual time) carries out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/core/landing.h"
#include "proto/placement.h"
#include "transport/transport.h"

namespace larder::client {

using LinkId = uint64_t;  // a connection, never used twice; 0: none

struct Endpoint {
  std::string transport;  // "tcp", "shm", "ucx"
  std::string address;
  bool operator==(const Endpoint&) const = default;
};

// The node table with its placement, computed once a version and shared.
struct Routing {
  explicit Routing(NodeTable with) : table(std::move(with)), placement(table) {}
  NodeTable table;
  Placement placement;
};

// The second half of a put: bytes and checksums of blocks that got tickets. Every token in `groups` is
// answered by exactly one OnSent, whether its group was sent, refused or skipped; the sources are read until
// then.
struct PutJob {
  struct Block {
    uint64_t ticket = 0;
    std::vector<transport::ConstExtent> extents;
    std::vector<PartRun> parts;  // add up to the extents
  };
  struct Group {  // one Data message
    uint64_t token = 0;
    uint32_t end_block = 0;  // blocks from the previous group's end up to here
  };
  Envelope data;
  Envelope commit;
  uint64_t expire_us = 0;  // as of transport::OutMessage
  std::vector<Block> blocks;
  std::vector<Group> groups;
  std::shared_ptr<std::atomic<bool>> stop;  // set: skip what has not been sent
};

// Where a completion goes. Push comes with the driver's lock held and must be short; Wake follows without it,
// maybe after other pushes.
class CompletionSink {
 public:
  virtual ~CompletionSink() = default;
  virtual void Push(Completion&& completion) = 0;
  virtual void Wake() {}
};

// Called from inside the core: implementations take notes and act later, in order for each link.
class Effects {
 public:
  virtual ~Effects() = default;
  virtual void Connect(LinkId link, const Endpoint& endpoint, Priority lane, int loop,
                       uint64_t timeout_us) = 0;
  virtual void Send(LinkId link, transport::OutMessage&& message) = 0;
  virtual void SendPut(LinkId link, PutJob&& job) = 0;
  virtual void CancelSend(LinkId link, uint64_t token) = 0;
  virtual void Divert(LinkId link, uint64_t landing_id) = 0;
  virtual void Close(LinkId link, transport::Failure why) = 0;
  // Computing a placement takes milliseconds: done without the lock, answered by Core::OnRouting.
  virtual void BuildRouting(NodeTable&& table) = 0;
  virtual void Complete(std::shared_ptr<CompletionSink> sink, Completion&& completion) = 0;
};

}  // namespace larder::client
