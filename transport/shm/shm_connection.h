// A connection over a Unix stream socket. Frames go through the socket, payload never does: it stays in
// memory that the receiver maps and copies from, and is the receiver's until it acknowledges.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transport/shm/bounce_buffer.h"
#include "transport/shm/mapping.h"
#include "transport/shm/region_table.h"
#include "transport/socket/stream_connection.h"

namespace larder::transport {

struct ShmShared : StreamShared {
  using StreamShared::StreamShared;
  RegionTable regions;
  MappingCache mappings;
};

class ShmConnection : public StreamConnection {
 public:
  ShmConnection(std::shared_ptr<ShmShared> shared, Loop* loop, std::string peer);
  ~ShmConnection() override;

  // Any thread: tell the peer to unmap a region that it was shown.
  void AskToUnmap(const std::shared_ptr<SharedRegion>& region);

 protected:
  void ReadTurn() override;
  void WriteTurn() override;
  bool WantsTurn() const override { return copying_ || !inbox_.empty(); }
  void OnFrame(const FrameHeader& frame, ByteView body) override;
  bool IsShm() const override { return true; }
  void DropBegun(Failure why) override;
  uint64_t NextTimerUs() const override;
  void OnTimers(uint64_t now_us) override;

 private:
  static constexpr uint64_t kBounceId = 0;  // regions count from 1

  // Sending (shm_send.cc). A message is begun (current_), its kData frames are in the socket's queue (wire_)
  // or with the peer (in_flight_), then it waits for the acknowledgement of its last one (awaiting_).
  struct Data {
    uint64_t number = 0;
    std::vector<uint32_t> slots;  // of the bounce buffer, free after the acknowledgement
    size_t slot_used_bytes = BounceBuffer::kSlotBytes;  // of the last slot
    std::vector<Descriptor> list;
  };
  struct Awaiting {
    uint64_t number = 0;    // of its last kData; 0: it has none
    uint64_t wire_end = 0;  // its frames end here in the stream
    uint64_t token = 0;     // 0: OnSent was given
    uint64_t expire_us = 0;
  };
  struct PassedFd {
    uint64_t at = 0;  // with this byte of the stream
    int fd = -1;
    std::shared_ptr<SharedRegion> keep;
  };
  bool ControlWaits() const;
  void EmitControl();
  void BeginNext(OutFrame next, uint64_t now_us);
  bool EmitData(size_t* copied_bytes);
  size_t Describe(ConstExtent from, Data* data, size_t* copied_bytes);
  size_t Bounce(ConstExtent from, Data* data, size_t* copied_bytes);
  std::shared_ptr<SharedRegion> FindShown(const std::byte* data);
  void AppendFrame(const FrameHeader& frame, const void* body, size_t body_bytes);
  void EndCurrent();
  void FlushWire();
  void SettleAwaiting();
  void Rescan(uint64_t now_us);
  void OnAck(uint64_t number);
  void OnUnmapped(uint64_t id);
  size_t wire_left() const { return wire_.size() - wire_sent_; }

  std::vector<std::byte> wire_;  // encoded frames; wire_sent_ bytes of it are in the socket
  size_t wire_sent_ = 0;
  uint64_t wire_base_ = 0;  // position in the stream of wire_'s first byte
  std::deque<PassedFd> passing_;
  bool has_current_ = false;
  OutFrame current_;
  uint64_t data_number_ = 0, acked_number_ = 0;
  std::deque<Data> in_flight_;
  std::deque<Awaiting> awaiting_;
  uint64_t expire_us_ = kNever;  // no later than the first expiry in awaiting_ and current_
  bool overdue_ = false;         // something begun has expired: the peer must move or be closed
  BounceBuffer bounce_;
  std::shared_ptr<SharedRegion> last_region_;
  struct Shown {
    std::shared_ptr<SharedRegion> region;
    bool unmapping = false;  // the peer was asked to
  };
  std::unordered_map<uint64_t, Shown> shown_;
  std::vector<uint64_t> to_unmap_;

  // Receiving (shm_receive.cc).
  struct Inbound {
    FrameHeader frame;
    std::vector<std::byte> body;
  };
  bool ReceiveFrames();
  void KeepFds(msghdr* message);
  void OnRegion(const FrameHeader& frame);
  void Handle(const FrameHeader& frame, ByteView body);
  void BeginData(const FrameHeader& frame, ByteView body);
  void CopyTurn(size_t budget_bytes);
  size_t CopyStep(size_t budget_bytes);
  void EndData();
  pid_t PeerPid() const;

  std::deque<int> fds_;  // received, not yet claimed by their kRegion
  std::unordered_map<uint64_t, std::shared_ptr<const Mapping>> maps_;
  uint64_t mapped_bytes_ = 0;
  std::deque<Inbound> inbox_;
  size_t inbox_bytes_ = 0;
  bool copying_ = false;
  struct Copy {
    const std::byte* from = nullptr;  // in a mapping that stays until a later kUnmap
    uint64_t bytes = 0;
  };
  std::vector<Copy> sources_;  // of the kData being copied
  size_t source_ = 0;
  uint64_t source_done_ = 0;
  uint64_t received_number_ = 0;
  uint64_t ack_wanted_ = 0, ack_sent_ = 0;
  std::vector<uint64_t> unmapped_;  // to be told

  ShmShared& shm_;
};

}  // namespace larder::transport
