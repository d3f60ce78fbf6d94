// Decoders of the session's, the reader's and the namespace's verbs; writers' are in message_decode_put.cc.
#include "proto/message_wire.h"

namespace larder {
namespace wire {

bool Decoder::Flag() {
  const uint8_t value = U8();
  Check(value <= 1, "a flag is neither 0 nor 1");
  return value == 1;
}

std::string Decoder::Text(size_t bytes_max, const char* what) {
  const ByteView view = reader_.View(Count(bytes_max, 1, what));
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}

Bytes Decoder::Blob(size_t bytes_max, const char* what) {
  const ByteView view = reader_.View(Count(bytes_max, 1, what));
  return Bytes(view.begin(), view.end());
}

Digest Decoder::Sha() {
  Digest digest;
  reader_.Raw(digest.data(), digest.size());
  return digest;
}

uint32_t Decoder::Count(size_t count_max, size_t item_bytes, const char* what) {
  const uint32_t count = U32();
  Check(count <= count_max, what);
  if (count > reader_.left() / item_bytes) reader_.Fail();
  return ok() ? count : 0;
}

Rectangle Decoder::Rect() {
  Rectangle rectangle;
  rectangle.layer_begin = U16();
  rectangle.layer_end = U16();
  rectangle.head_begin = U16();
  rectangle.head_end = U16();
  Check(rectangle.valid() && rectangle.parts() <= kPartsMax, "a rectangle is empty or passes 4096 parts");
  return rectangle;
}

BlockRef Decoder::Block() {
  BlockRef ref;
  ref.hash.bytes = Sha();
  ref.group = U16();
  ref.rectangle = Rect();
  return ref;
}

void Decoder::Groups(size_t count_min, std::vector<uint16_t>* out) {
  Array(kGroupsMax, out, "more than 16 groups");
  Check(out->size() >= count_min, "no group");
}

void Decoder::Check(bool good, const char* problem) {
  // A short record reads as zeros; what those zeros violate is not the problem.
  if (!good && ok()) problem_ = problem;
}

Status Decoder::Finish() const {
  if (problem_ != nullptr) return Invalid(std::string(message_) + ": " + problem_);
  if (!reader_.ok()) return Invalid(std::string(message_) + ": the record is short");
  return Status::Ok();
}

}  // namespace wire

using wire::Decoder;

namespace {
constexpr size_t kBlockRefBytesOnWire = 42;

void DecodeBlocks(Decoder* in, std::vector<BlockRef>* blocks) {
  blocks->resize(in->Count(kBlocksMax, kBlockRefBytesOnWire, "more than 1024 blocks"));
  for (BlockRef& ref : *blocks) ref = in->Block();
}
}  // namespace

Status Decode(ByteView record, Hello* body) {
  Decoder in("hello", record);
  *body = {};
  body->version_min = in.U16();
  body->version_max = in.U16();
  in.Check(body->version_min <= body->version_max, "the version range is empty");
  body->features = in.U64();
  body->lane = in.Choice(Priority::kBatch, "unknown lane");
  body->token = in.Text(kTokenBytesMax, "the token is longer than 256 bytes");
  body->client_name = in.Text(kClientNameBytesMax, "the client's name is longer than 128 bytes");
  return in.Finish();
}

Status Decode(ByteView record, HelloReply* body) {
  Decoder in("hello reply", record);
  *body = {};
  body->version = in.U16();
  body->features = in.U64();
  body->node_id = in.Text(kNodeIdBytesMax, "the node id is longer than 128 bytes");
  body->incarnation = in.U64();
  body->requests_max = in.U32();
  body->batch_bytes_max = in.U64();
  body->table = in.Blob(kTableBytesMax, "the node table passes its limit");
  return in.Finish();
}

Status Decode(ByteView record, Open* body) {
  Decoder in("open", record);
  *body = {};
  body->identity = in.Text(kIdentityBytesMax, "the identity is longer than 16384 bytes");
  body->tenant = in.Text(kTenantBytesMax, "the tenant's name is longer than 128 bytes");
  body->salt_digest = in.Sha();
  return in.Finish();
}

Status Decode(ByteView record, OpenReply* body) {
  Decoder in("open reply", record);
  *body = {};
  body->number = in.U32();
  body->name_space.bytes = in.Sha();
  body->clear_epoch = in.U32();
  return in.Finish();
}

Status Decode(ByteView record, TablePush* body) {
  Decoder in("table push", record);
  *body = {};
  body->table = in.Blob(kTableBytesMax, "the node table passes its limit");
  return in.Finish();
}

Status Decode(ByteView record, Match* body) {
  Decoder in("match", record);
  *body = {};
  body->number = in.U32();
  body->rectangle = in.Rect();
  in.Groups(1, &body->groups);
  body->pin_us = in.U32();
  in.Check(body->pin_us <= kPinUsMax, "the pin is longer than 600 s");
  in.Hashes(body);
  return in.Finish();
}

Status Decode(ByteView record, MatchReply* body) {
  Decoder in("match reply", record);
  *body = {};
  body->pin_handle = in.U64();
  body->pinned_bytes = in.U64();
  in.Array(size_t{kHashesMax} * kGroupsMax, &body->presence, "more answers than keys and groups");
  in.Array(kHashesMax, &body->estimates, "more estimates than keys");
  uint64_t keys = 0;
  for (const MatchReply::Estimate& estimate : body->estimates) keys += estimate.count;
  in.Check(keys <= kHashesMax, "estimates for more keys than a request has");
  return in.Finish();
}

Status Decode(ByteView record, Get* body) {
  Decoder in("get", record);
  *body = {};
  body->number = in.U32();
  body->pin_handle = in.U64();
  DecodeBlocks(&in, &body->blocks);
  if (in.More()) {
    body->asks_near = in.Flag();
    body->near = in.Text(kNodeIdBytesMax, "the near node's id is longer than 128 bytes");
  }
  return in.Finish();
}

Status Decode(ByteView record, GetReply* body) {
  Decoder in("get reply", record);
  *body = {};
  body->blocks.resize(in.Count(kBlocksMax, 5, "more than 1024 blocks"));
  uint64_t payload_bytes = 0;
  for (GetReply::Block& block : body->blocks) {
    block.presence = static_cast<Presence>(in.U8());
    block.sources.resize(in.Count(kPiecesPerKeyMax, 52, "more than 1024 sources of a block"));
    in.Check(IsHit(block.presence) != block.sources.empty(), "a hit without source, or a source without hit");
    for (GetReply::Source& source : block.sources) {
      source.rectangle = in.Rect();
      source.writer = in.Sha();
      source.created_ms = in.U64();
      in.Array(kPartsMax, &source.parts, "more than 4096 parts");
      in.Check(source.parts.size() == source.rectangle.parts(), "parts and rectangle differ");
      for (const PartRecord& part : source.parts) payload_bytes += part.bytes;
    }
    in.Check(payload_bytes <= kBatchBytesMax, "the payload passes 1 GiB");
    if (!in.ok()) break;
  }
  if (in.More()) {
    body->places.resize(in.Count(body->blocks.size(), 12, "places of more blocks than there are"));
    for (GetReply::Places& places : body->places) {
      places.block = in.U32();
      places.mask = in.U64();
      in.Check(places.block < body->blocks.size(), "places of a block that is not there");
    }
  }
  return in.Finish();
}

Status Decode(ByteView record, Move* body) {
  Decoder in("move", record);
  *body = {};
  body->number = in.U32();
  body->payload_bytes_max = in.U64();
  DecodeBlocks(&in, &body->blocks);
  return in.Finish();
}

Status Decode(ByteView record, MoveReply* body) {
  Decoder in("move reply", record);
  *body = {};
  body->blocks.resize(in.Count(kBlocksMax, 5, "more than 1024 blocks"));
  for (MoveReply::Block& block : body->blocks) {
    block.presence = static_cast<Presence>(in.U8());
    block.pieces.resize(in.Count(kPiecesPerKeyMax, 8, "more than 1024 pieces of a block"));
    in.Check(IsHit(block.presence) != block.pieces.empty(), "a hit without piece, or a piece without hit");
    for (MoveReply::Piece& piece : block.pieces) {
      piece.header = in.Blob(kBlockHeaderBytesMax, "a block's header is longer than 256 KiB");
      piece.depth = in.U32();
      if (!in.ok()) break;
    }
    if (!in.ok()) break;
  }
  body->empty = in.Flag();
  return in.Finish();
}

Status Decode(ByteView record, Lease* body) {
  Decoder in("lease", record);
  *body = {};
  body->number = in.U32();
  body->since_us = in.U64();
  body->lease_us = in.U64();
  DecodeBlocks(&in, &body->blocks);
  return in.Finish();
}

Status Decode(ByteView record, LeaseReply* body) {
  Decoder in("lease reply", record);
  *body = {};
  body->now_us = in.U64();
  body->blocks.resize(in.Count(kBlocksMax, 5, "more than 1024 blocks"));
  for (LeaseReply::Block& block : body->blocks) {
    block.state = in.Choice(LeaseState::kOwn, "an unknown lease state");
    block.reads = in.U32();
  }
  return in.Finish();
}

Status Decode(ByteView record, Wait* body) {
  Decoder in("wait", record);
  *body = {};
  body->number = in.U32();
  body->rectangle = in.Rect();
  in.Groups(1, &body->groups);
  body->leading = in.U32();
  in.Hashes(body);
  in.Check(body->leading <= body->hash_count, "more leading keys than keys");
  return in.Finish();
}

Status Decode(ByteView record, WaitReply* body) {
  Decoder in("wait reply", record);
  *body = {};
  body->leading = in.U32();
  in.Check(body->leading <= kHashesMax, "more leading keys than a request has");
  return in.Finish();
}

Status Decode(ByteView record, Prefetch* body) {
  Decoder in("prefetch", record);
  *body = {};
  body->number = in.U32();
  body->rectangle = in.Rect();
  in.Groups(1, &body->groups);
  in.Hashes(body);
  in.Check(body->hash_count * body->groups.size() <= kBlocksMax, "more than 1024 blocks");
  return in.Finish();
}

Status Decode(ByteView record, PrefetchReply* body) {
  Decoder in("prefetch reply", record);
  *body = {};
  body->blocks = in.U32();
  in.Check(body->blocks <= kBlocksMax, "more blocks than a request has");
  return in.Finish();
}

Status Decode(ByteView record, Touch* body) {
  Decoder in("touch", record);
  *body = {};
  body->number = in.U32();
  body->pin_handle = in.U64();
  body->root = in.U64();
  body->usable_length = in.U32();
  in.Groups(0, &body->groups);
  in.Array(kHashesMax, &body->depths, "more than 65536 depths");
  in.Hashes(body);
  in.Check(body->depths.size() == body->hash_count, "not one depth a hash");
  in.Check(body->hash_count == 0 || !body->groups.empty(), "hashes without a group");
  for (size_t i = 1; i < body->depths.size(); ++i) {
    in.Check(body->depths[i - 1] < body->depths[i], "depths do not ascend");
  }
  if (in.More()) body->chain_length = in.U32();  // older peers don't send it
  if (in.More()) {
    const uint8_t retention = in.U8();
    body->retention = retention < kRetentions ? static_cast<Retention>(retention) : Retention::kNone;
    body->finishes = in.U8() == 1;
  }
  return in.Finish();
}

Status Decode(ByteView record, Report* body) {
  Decoder in("report", record);
  *body = {};
  body->number = in.U32();
  DecodeBlocks(&in, &body->blocks);
  return in.Finish();
}

Status Decode(ByteView record, ReportReply* body) {
  Decoder in("report reply", record);
  *body = {};
  in.Array(kBlocksMax, &body->dropped, "more than 1024 blocks");
  for (uint8_t dropped : body->dropped) in.Check(dropped <= 1, "a flag is neither 0 nor 1");
  return in.Finish();
}

Status Decode(ByteView record, Remove* body) {
  Decoder in("remove", record);
  *body = {};
  body->number = in.U32();
  in.Groups(1, &body->groups);
  in.Array(kHashesMax / 4, &body->hashes, "more than 16384 hashes");
  return in.Finish();
}

Status Decode(ByteView record, RemoveReply* body) {
  Decoder in("remove reply", record);
  *body = {};
  body->removed = in.U32();
  return in.Finish();
}

Status Decode(ByteView record, Clear* body) {
  Decoder in("clear", record);
  *body = {};
  body->number = in.U32();
  if (in.More()) body->stamp_ms = in.U64();  // older peers don't send it
  return in.Finish();
}

Status Decode(ByteView record, ClearReply* body) {
  Decoder in("clear reply", record);
  *body = {};
  body->clear_epoch = in.U32();
  body->removed = in.U64();
  return in.Finish();
}

Status Decode(ByteView record, Cancel* body) {
  Decoder in("cancel", record);
  *body = {};
  body->request_id = in.U64();
  return in.Finish();
}

Status Decode(ByteView record, ErrorText* body) {
  Decoder in("error text", record);
  *body = {};
  body->text = in.Text(kErrorTextBytesMax, "longer than 1024 bytes");
  return in.Finish();
}

}  // namespace larder
