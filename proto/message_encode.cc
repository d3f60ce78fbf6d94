#include "proto/message_wire.h"

namespace larder {
namespace {

using wire::Packed;

constexpr size_t kEnvelopeBytes = 24;
constexpr size_t kBlockRefBytes = 42;

// A header under construction: the envelope is there, the record's length is filled in at the end.
class Encoder : public Writer {
 public:
  Encoder(const Envelope& envelope, size_t record_bytes_guess) : Writer(&out_) {
    out_.reserve(kEnvelopeBytes + 4 + record_bytes_guess);
    U8(static_cast<uint8_t>(static_cast<uint8_t>(envelope.verb) | (envelope.reply ? kReplyBit : 0)));
    U8(static_cast<uint8_t>(envelope.priority));
    U16(static_cast<uint16_t>(envelope.code));
    U32(envelope.deadline_us);
    U64(envelope.request_id);
    U32(kWireVersionMax);
    U32(0);
    U32(0);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  void Flag(bool flag) { U8(flag ? 1 : 0); }
  void Count(size_t count) { U32(static_cast<uint32_t>(count)); }
  void Blob(ByteView bytes) {
    Count(bytes.size());
    View(bytes);
  }
  template <Packed T>
  void Items(const std::vector<T>& items) {
    Raw(items.data(), items.size() * sizeof(T));
  }
  template <Packed T>
  void Array(const std::vector<T>& items) {
    Count(items.size());
    Items(items);
  }
  void Rect(const Rectangle& rectangle) { Raw(&rectangle, sizeof rectangle); }
  void Block(const BlockRef& ref) {
    View(ref.hash.bytes);
    U16(ref.group);
    Rect(ref.rectangle);
  }
  void Blocks(const std::vector<BlockRef>& blocks) {
    Count(blocks.size());
    for (const BlockRef& ref : blocks) Block(ref);
  }
  template <typename Body>
  void Hashes(const Body& body) {
    Flag(body.hashes_in_payload);
    Count(body.hashes.empty() && body.hashes_in_payload ? body.hash_count : body.hashes.size());
    if (!body.hashes_in_payload) Items(body.hashes);
  }
  Bytes Finish() {
    const auto record_bytes = static_cast<uint32_t>(out_.size() - kEnvelopeBytes - 4);
    std::memcpy(out_.data() + kEnvelopeBytes, &record_bytes, sizeof record_bytes);
    return std::move(out_);
  }

 private:
  Bytes out_;
};

template <typename Body>
size_t HashBytes(const Body& body) {
  return body.hashes_in_payload ? 0 : body.hashes.size() * sizeof(ChainHash);
}

}  // namespace

Bytes Encode(const Envelope& envelope) {
  return Encoder(envelope, 0).Finish();
}

Bytes Encode(const Envelope& envelope, const Hello& body) {
  Encoder out(envelope, 512);
  out.U16(body.version_min);
  out.U16(body.version_max);
  out.U64(body.features);
  out.U8(static_cast<uint8_t>(body.lane));
  out.Text(body.token);
  out.Text(body.client_name);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const HelloReply& body) {
  Encoder out(envelope, 256 + body.table.size());
  out.U16(body.version);
  out.U64(body.features);
  out.Text(body.node_id);
  out.U64(body.incarnation);
  out.U32(body.requests_max);
  out.U64(body.batch_bytes_max);
  out.Blob(body.table);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Open& body) {
  Encoder out(envelope, 64 + body.identity.size() + body.tenant.size());
  out.Text(body.identity);
  out.Text(body.tenant);
  out.View(body.salt_digest);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const OpenReply& body) {
  Encoder out(envelope, 64);
  out.U32(body.number);
  out.View(body.name_space.bytes);
  out.U32(body.clear_epoch);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const TablePush& body) {
  Encoder out(envelope, 4 + body.table.size());
  out.Blob(body.table);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Match& body) {
  Encoder out(envelope, 64 + HashBytes(body));
  out.U32(body.number);
  out.Rect(body.rectangle);
  out.Array(body.groups);
  out.U32(body.pin_us);
  out.Hashes(body);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const MatchReply& body) {
  Encoder out(envelope, 32 + body.presence.size() + 8 * body.estimates.size());
  out.U64(body.pin_handle);
  out.U64(body.pinned_bytes);
  out.Array(body.presence);
  out.Array(body.estimates);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Get& body) {
  Encoder out(envelope, 32 + kBlockRefBytes * body.blocks.size());
  out.U32(body.number);
  out.U64(body.pin_handle);
  out.Blocks(body.blocks);
  if (body.asks_near || !body.near.empty()) {
    out.U8(body.asks_near ? 1 : 0);
    out.Text(body.near);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const GetReply& body) {
  size_t bytes = 8 + 12 * body.places.size();
  for (const GetReply::Block& block : body.blocks) {
    bytes += 5;
    for (const GetReply::Source& source : block.sources) bytes += 52 + 8 * source.parts.size();
  }
  Encoder out(envelope, bytes);
  out.Count(body.blocks.size());
  for (const GetReply::Block& block : body.blocks) {
    out.U8(static_cast<uint8_t>(block.presence));
    out.Count(block.sources.size());
    for (const GetReply::Source& source : block.sources) {
      out.Rect(source.rectangle);
      out.View(source.writer);
      out.U64(source.created_ms);
      out.Array(source.parts);
    }
  }
  if (!body.places.empty()) {
    out.Count(body.places.size());
    for (const GetReply::Places& places : body.places) {
      out.U32(places.block);
      out.U64(places.mask);
    }
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Move& body) {
  Encoder out(envelope, 32 + kBlockRefBytes * body.blocks.size());
  out.U32(body.number);
  out.U64(body.payload_bytes_max);
  out.Blocks(body.blocks);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const MoveReply& body) {
  size_t bytes = 8;
  for (const MoveReply::Block& block : body.blocks) {
    bytes += 5;
    for (const MoveReply::Piece& piece : block.pieces) bytes += 8 + piece.header.size();
  }
  Encoder out(envelope, bytes);
  out.Count(body.blocks.size());
  for (const MoveReply::Block& block : body.blocks) {
    out.U8(static_cast<uint8_t>(block.presence));
    out.Count(block.pieces.size());
    for (const MoveReply::Piece& piece : block.pieces) {
      out.Blob(piece.header);
      out.U32(piece.depth);
    }
  }
  out.Flag(body.empty);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Reserve& body) {
  Encoder out(envelope, 32 + 96 * body.blocks.size());
  out.U32(body.number);
  out.Count(body.blocks.size());
  for (const Reserve::Block& block : body.blocks) {
    out.Block(block.ref);
    out.U16(block.codec);
    out.Array(block.parts);
    out.Blob(block.codec_data);
    out.Array(block.constituents);
    out.U32(block.depth);
  }
  if (body.since_us != 0 || body.lease_us != 0) {
    out.U64(body.since_us);
    out.U64(body.lease_us);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Lease& body) {
  Encoder out(envelope, 32 + kBlockRefBytes * body.blocks.size());
  out.U32(body.number);
  out.U64(body.since_us);
  out.U64(body.lease_us);
  out.Blocks(body.blocks);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const LeaseReply& body) {
  Encoder out(envelope, 16 + 5 * body.blocks.size());
  out.U64(body.now_us);
  out.Count(body.blocks.size());
  for (const LeaseReply::Block& block : body.blocks) {
    out.U8(static_cast<uint8_t>(block.state));
    out.U32(block.reads);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const ReserveReply& body) {
  Encoder out(envelope, 4 + 9 * body.blocks.size());
  out.Count(body.blocks.size());
  for (const ReserveReply::Block& block : body.blocks) {
    out.U8(static_cast<uint8_t>(block.state));
    out.U64(block.ticket);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Data& body) {
  Encoder out(envelope, 4 + 8 * body.tickets.size());
  out.Array(body.tickets);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Commit& body) {
  size_t bytes = 4;
  for (const Commit::Block& block : body.blocks) bytes += 12 + 4 * block.crc32c.size();
  Encoder out(envelope, bytes);
  out.Count(body.blocks.size());
  for (const Commit::Block& block : body.blocks) {
    out.U64(block.ticket);
    out.Array(block.crc32c);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const CommitReply& body) {
  Encoder out(envelope, 4 + body.states.size());
  out.Array(body.states);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Wait& body) {
  Encoder out(envelope, 64 + HashBytes(body));
  out.U32(body.number);
  out.Rect(body.rectangle);
  out.Array(body.groups);
  out.U32(body.leading);
  out.Hashes(body);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const WaitReply& body) {
  Encoder out(envelope, 4);
  out.U32(body.leading);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Prefetch& body) {
  Encoder out(envelope, 64 + HashBytes(body));
  out.U32(body.number);
  out.Rect(body.rectangle);
  out.Array(body.groups);
  out.Hashes(body);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const PrefetchReply& body) {
  Encoder out(envelope, 4);
  out.U32(body.blocks);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Touch& body) {
  Encoder out(envelope, 100 + 4 * body.depths.size() + HashBytes(body));
  out.U32(body.number);
  out.U64(body.pin_handle);
  out.U64(body.root);
  out.U32(body.usable_length);
  out.Array(body.groups);
  out.Array(body.depths);
  out.Hashes(body);
  const bool hint = body.retention != Retention::kNone || body.finishes;
  if (body.chain_length != 0 || hint) out.U32(body.chain_length);
  if (hint) {
    out.U8(static_cast<uint8_t>(body.retention));
    out.U8(body.finishes ? 1 : 0);
  }
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Report& body) {
  Encoder out(envelope, 8 + kBlockRefBytes * body.blocks.size());
  out.U32(body.number);
  out.Blocks(body.blocks);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const ReportReply& body) {
  Encoder out(envelope, 4 + body.dropped.size());
  out.Array(body.dropped);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Remove& body) {
  Encoder out(envelope, 48 + body.hashes.size() * sizeof(ChainHash));
  out.U32(body.number);
  out.Array(body.groups);
  out.Array(body.hashes);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const RemoveReply& body) {
  Encoder out(envelope, 4);
  out.U32(body.removed);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Clear& body) {
  Encoder out(envelope, 12);
  out.U32(body.number);
  if (body.stamp_ms != 0) out.U64(body.stamp_ms);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const ClearReply& body) {
  Encoder out(envelope, 12);
  out.U32(body.clear_epoch);
  out.U64(body.removed);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const Cancel& body) {
  Encoder out(envelope, 8);
  out.U64(body.request_id);
  return out.Finish();
}

Bytes Encode(const Envelope& envelope, const ErrorText& body) {
  Encoder out(envelope, 4 + kErrorTextBytesMax);
  out.Text(std::string_view(body.text).substr(0, kErrorTextBytesMax));
  return out.Finish();
}

}  // namespace larder
