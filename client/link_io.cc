#include "client/link_io.h"

#include <algorithm>
#include <utility>

#include "proto/checksum.h"

namespace larder::client {

using transport::Connection;
using transport::Failure;

namespace {

// One checksum a part, over the block's extents as one range of bytes.
std::vector<uint32_t> ChecksumParts(const PutJob::Block& block) {
  std::vector<uint32_t> checksums;
  size_t extent = 0, offset = 0;
  for (const PartRun& run : block.parts) {
    for (uint32_t part = 0; part < run.count; ++part) {
      uint32_t crc = 0;
      for (size_t left = run.bytes; left != 0;) {
        const transport::ConstExtent& from = block.extents[extent];
        const size_t take = std::min(left, from.bytes - offset);
        crc = Crc32c(crc, {from.data + offset, take});
        left -= take;
        offset += take;
        if (offset == from.bytes) {
          ++extent;
          offset = 0;
        }
      }
      checksums.push_back(crc);
    }
  }
  return checksums;
}

}  // namespace

void LinkIo::Add(Out&& out) {
  const std::lock_guard<std::mutex> lock(mutex_);
  outbox_.push_back(std::move(out));
}

void LinkIo::Flush() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (flushing_) {
    again_ = true;
    return;
  }
  flushing_ = true;
  while (!outbox_.empty()) {
    again_ = false;
    Out out = std::move(outbox_.front());
    outbox_.pop_front();
    const std::shared_ptr<Connection> connection = connection_;
    lock.unlock();
    const bool done = Carry(&out, connection.get());
    lock.lock();
    if (done) continue;
    outbox_.push_front(std::move(out));
    if (!again_) break;  // the next OnSent or OnMessage tries again
  }
  flushing_ = false;
}

// Without a connection (it never came about, or is gone) payloads are answered here and the rest is dropped.
bool LinkIo::Carry(Out* out, Connection* connection) {
  switch (out->kind) {
    case Out::Kind::kConnect:
      Connect(*out);
      return true;
    case Out::Kind::kMessage: {
      const uint64_t token = out->message.token;
      const Failure failure =
          connection == nullptr ? Failure::kPeerClosed : connection->Send(std::move(out->message));
      if (failure == Failure::kBusy) return false;
      if (failure != Failure::kNone && token != 0) Answer(token, failure);
      if (failure != Failure::kNone && connection != nullptr) connection->Close(failure);
      return true;
    }
    case Out::Kind::kPut:
      RunPut(out->job.get(), connection);
      return true;
    case Out::Kind::kCancel:
      if (connection != nullptr) connection->Cancel(out->id);
      return true;
    case Out::Kind::kDivert:
      if (connection != nullptr) connection->Divert(out->id);
      return true;
    case Out::Kind::kClose:
      if (connection != nullptr) connection->Close(out->why);
      return true;
  }
  return true;
}

void LinkIo::Connect(const Out& out) {
  std::string error;
  transport::Transport* transport = driver_->world_->TransportFor(out.endpoint.transport, &error);
  std::shared_ptr<Connection> connection;
  if (transport != nullptr)
    connection = transport->Connect(out.endpoint.address, shared_from_this(), out.connect);
  if (connection == nullptr) {
    const transport::Error why{Failure::kUnsupported, error.empty() ? "could not connect" : error};
    driver_->Enter([&](Core& core, uint64_t now_us) {
      driver_->links_.erase(id_);
      core.OnClosed(id_, why, now_us);
    });
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  connection_ = std::move(connection);
}

// Checksums a group of blocks and sends it while it is in cache, group by group, then the Commit.
void LinkIo::RunPut(PutJob* job, Connection* connection) {
  larder::Commit commit;
  commit.blocks.reserve(job->blocks.size());
  Failure failure = connection == nullptr ? Failure::kPeerClosed : Failure::kNone;
  uint32_t at = 0;
  for (const PutJob::Group& group : job->groups) {
    if (failure == Failure::kNone && job->stop->load(std::memory_order_relaxed))
      failure = Failure::kCancelled;
    if (failure != Failure::kNone) {
      Answer(group.token, failure);
      continue;
    }
    larder::Data data;
    transport::OutMessage message;
    for (; at < group.end_block; ++at) {
      const PutJob::Block& block = job->blocks[at];
      data.tickets.push_back(block.ticket);
      message.segments.Add(block.extents);
      commit.blocks.push_back({block.ticket, ChecksumParts(block)});
    }
    message.header = Encode(job->data, data);
    message.token = group.token;
    message.expire_us = job->expire_us;
    failure = connection->Send(std::move(message));
    if (failure == Failure::kNone) continue;
    Answer(group.token, failure);
    connection->Close(failure);
  }
  if (failure != Failure::kNone) return;
  transport::OutMessage message;
  message.header = Encode(job->commit, commit);
  failure = connection->Send(std::move(message));
  if (failure != Failure::kNone) connection->Close(failure);
}

// A payload that the transport never had.
void LinkIo::Answer(uint64_t token, Failure failure) {
  driver_->Enter([&](Core& core, uint64_t now_us) { core.OnSent(token, failure, now_us); });
}

void LinkIo::OnOpen(Connection&) {
  driver_->Enter([&](Core& core, uint64_t now_us) { core.OnOpen(id_, now_us); });
}

bool LinkIo::Place(Connection&, ByteView header, std::span<const uint64_t> segment_bytes,
                   transport::Landing* landing) {
  bool placed = false;
  std::shared_ptr<Landing> check;
  driver_->Enter([&](Core& core, uint64_t now_us) {
    placed = core.Place(id_, header, segment_bytes, landing, &check, now_us);
  });
  if (placed) landings_.emplace_back(landing->id, std::move(check));
  return placed;
}

void LinkIo::OnBytes(Connection&, uint64_t landing_id, uint32_t segment, uint64_t offset, ByteView bytes) {
  for (const auto& [id, landing] : landings_) {
    if (id == landing_id) return landing->OnBytes(segment, offset, bytes);
  }
}

void LinkIo::OnMessage(Connection&, ByteView header, uint64_t landing_id, bool landed) {
  driver_->Enter(
      [&](Core& core, uint64_t now_us) { core.OnMessage(id_, header, landing_id, landed, now_us); });
  std::erase_if(landings_, [&](const auto& entry) { return entry.first == landing_id; });
  Flush();
}

void LinkIo::OnSent(Connection&, uint64_t token, Failure failure) {
  driver_->Enter([&](Core& core, uint64_t now_us) { core.OnSent(token, failure, now_us); });
  Flush();
}

void LinkIo::OnDiverted(Connection&, uint64_t landing_id) {
  driver_->Enter([&](Core& core, uint64_t now_us) { core.OnDiverted(id_, landing_id, now_us); });
  std::erase_if(landings_, [&](const auto& entry) { return entry.first == landing_id; });
}

void LinkIo::OnClosed(Connection&, const transport::Error& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_ = nullptr;
  }
  driver_->Enter([&](Core& core, uint64_t now_us) {
    driver_->links_.erase(id_);
    core.OnClosed(id_, why, now_us);
  });
  Flush();  // answers the payloads that never left the outbox
  landings_.clear();
}

}  // namespace larder::client
