// Decoders of the writers' verbs: Reserve, Data, Commit.
#include "proto/message_wire.h"

namespace larder {

using wire::Decoder;

namespace {

// A block of a Reserve: reference, codec, three counts and the depth.
constexpr size_t kReserveBlockBytes = 42 + 2 + 3 * 4 + 4;

void DecodeReserveBlock(Decoder* in, Reserve::Block* block) {
  block->ref = in->Block();
  block->codec = in->U16();
  in->Array(kPartsMax, &block->parts, "more than 4096 runs of parts");
  block->codec_data = in->Blob(kCodecBytesMax, "more than 65536 bytes of codec data");
  in->Array(kConstituentsMax, &block->constituents, "more than 256 constituents");
  block->depth = in->U32();
  uint64_t parts = 0;
  uint64_t bytes = 0;
  for (const PartRun& run : block->parts) {
    parts += run.count;
    bytes += uint64_t{run.count} * run.bytes;
    in->Check(run.count > 0 && parts <= kPartsMax && bytes <= kPieceBytesMax,
              "a piece passes 4096 parts or 512 MiB, or has an empty run");
    if (!in->ok()) return;  // so that the sums can't wrap
  }
  in->Check(parts == block->ref.rectangle.parts(), "parts and rectangle differ");
}

}  // namespace

Status Decode(ByteView record, Reserve* body) {
  Decoder in("reserve", record);
  *body = {};
  body->number = in.U32();
  body->blocks.resize(in.Count(kBlocksMax, kReserveBlockBytes, "more than 1024 blocks"));
  for (Reserve::Block& block : body->blocks) {
    DecodeReserveBlock(&in, &block);
    if (!in.ok()) break;
  }
  if (in.More()) {
    body->since_us = in.U64();
    body->lease_us = in.U64();
  }
  return in.Finish();
}

Status Decode(ByteView record, ReserveReply* body) {
  Decoder in("reserve reply", record);
  *body = {};
  body->blocks.resize(in.Count(kBlocksMax, 9, "more than 1024 blocks"));
  for (ReserveReply::Block& block : body->blocks) {
    block.state = in.Choice(PutState::kOverQuota, "unknown state");
    block.ticket = in.U64();
  }
  return in.Finish();
}

Status Decode(ByteView record, Data* body) {
  Decoder in("data", record);
  *body = {};
  in.Array(kBlocksMax, &body->tickets, "more than 1024 tickets");
  return in.Finish();
}

Status Decode(ByteView record, Commit* body) {
  Decoder in("commit", record);
  *body = {};
  body->blocks.resize(in.Count(kBlocksMax, 12, "more than 1024 blocks"));
  for (Commit::Block& block : body->blocks) {
    block.ticket = in.U64();
    in.Array(kPartsMax, &block.crc32c, "more than 4096 parts");
  }
  return in.Finish();
}

Status Decode(ByteView record, CommitReply* body) {
  Decoder in("commit reply", record);
  *body = {};
  in.Array(kBlocksMax, &body->states, "more than 1024 blocks");
  for (PutState state : body->states) in.Check(state <= PutState::kOverQuota, "unknown state");
  return in.Finish();
}

}  // namespace larder
