// A connection over a plain TCP socket. Payload follows its message in the stream and is received straight
// into the extents that Place gave.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "transport/socket/stream_connection.h"

namespace larder::transport {

class TcpConnection : public StreamConnection {
 public:
  using StreamConnection::StreamConnection;

 protected:
  void ReadTurn() override;
  void WriteTurn() override;
  void OnFrame(const FrameHeader& frame, ByteView body) override { BeginMessage(frame, body); }
  size_t TakePayload(ByteView bytes) override;
  bool IsShm() const override { return false; }
  void OnSocket(int fd) override;
  void OnOpen() override;
  void DropBegun(Failure why) override;
  uint64_t NextTimerUs() const override;
  void OnTimers(uint64_t now_us) override;

 private:
  // A system call's result: bytes moved; 0: nothing now (or the connection fails).
  size_t ReceiveHeaders();
  size_t ReceivePayload(size_t step_bytes, bool* drained);
  size_t DiscardPayload(size_t step_bytes, bool* drained);
  size_t Received(ssize_t result);
  void LandInOrder(size_t bytes);
  void KeepTogether(size_t bytes, uint64_t message_bytes, bool sent);
  void Refill(size_t step_bytes);
  bool WriteStep(size_t step_bytes);
  void Advance(size_t bytes);

  std::deque<OutFrame> active_;  // begun: the first ones are in the socket already, up to sent_bytes
  size_t active_bytes_ = 0;      // of active_, not yet in the socket
  bool within_host_ = false;
  size_t moved_bytes_ = 0;  // since the last KeepTogether that looked
};

}  // namespace larder::transport
