// One connection of the driver: its outbox and its transport's callbacks.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "client/driver.h"

namespace larder::client {

class LinkIo : public transport::Handler, public std::enable_shared_from_this<LinkIo> {
 public:
  LinkIo(Driver* driver, LinkId id) : driver_(driver), id_(id) {}

  // One thing to do on the connection. Order is kept.
  struct Out {
    enum class Kind : uint8_t { kConnect, kMessage, kPut, kCancel, kDivert, kClose } kind = Kind::kMessage;
    transport::OutMessage message;
    std::unique_ptr<PutJob> job;
    uint64_t id = 0;  // token or landing
    transport::Failure why = transport::Failure::kNone;
    Endpoint endpoint;
    transport::ConnectOptions connect;
  };
  void Add(Out&& out);
  // Empties the outbox. One thread at a time; others leave it to that one.
  void Flush();

  void OnOpen(transport::Connection& connection) override;
  bool Place(transport::Connection& connection, ByteView header, std::span<const uint64_t> segment_bytes,
             transport::Landing* landing) override;
  void OnBytes(transport::Connection& connection, uint64_t landing_id, uint32_t segment, uint64_t offset,
               ByteView bytes) override;
  void OnMessage(transport::Connection& connection, ByteView header, uint64_t landing_id,
                 bool landed) override;
  void OnSent(transport::Connection& connection, uint64_t token, transport::Failure failure) override;
  void OnDiverted(transport::Connection& connection, uint64_t landing_id) override;
  void OnClosed(transport::Connection& connection, const transport::Error& why) override;

 private:
  bool Carry(Out* out, transport::Connection* connection);  // false: the send queue is full, later
  void Connect(const Out& out);
  void RunPut(PutJob* job, transport::Connection* connection);
  void Answer(uint64_t token, transport::Failure failure);

  Driver* driver_;
  const LinkId id_;
  std::mutex mutex_;
  std::deque<Out> outbox_;
  std::shared_ptr<transport::Connection> connection_;
  bool flushing_ = false;
  bool again_ = false;  // somebody came while another was flushing
  // The connection's thread only.
  std::vector<std::pair<uint64_t, std::shared_ptr<Landing>>> landings_;
};

}  // namespace larder::client
