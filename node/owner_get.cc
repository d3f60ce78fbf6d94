// Get: each hit becomes one segment a source piece, hard-pinned until the bytes are gone.
#include <algorithm>

#include "node/owner_state.h"

namespace larder::node {

struct Owner::State::GetWork {
  GetReply reply;
  transport::SendSegments segments;
  Sending sending;
  uint64_t payload_bytes = 0;
  uint64_t header_bytes = kReplyHeaderSlack;
  bool full = false;  // a bound of one reply was reached: the rest is answered busy
  std::vector<Patch> sources;
};

namespace {

// What `rectangle` of a packed piece is in memory: runs of parts that follow one another.
std::vector<transport::ConstExtent> ExtentsOf(const std::byte* payload, const Rectangle& piece,
                                              const std::vector<PartRecord>& parts,
                                              const Rectangle& rectangle) {
  std::vector<uint64_t> offsets(parts.size() + 1, 0);
  for (size_t i = 0; i < parts.size(); ++i) offsets[i + 1] = offsets[i] + parts[i].bytes;
  std::vector<transport::ConstExtent> extents;
  for (uint16_t layer = rectangle.layer_begin; layer < rectangle.layer_end; ++layer) {
    const uint32_t first = piece.PartIndex(layer, rectangle.head_begin);
    const uint32_t end = first + (rectangle.head_end - rectangle.head_begin);
    const std::byte* data = payload + offsets[first];
    const uint64_t bytes = offsets[end] - offsets[first];
    if (!extents.empty() && extents.back().data + extents.back().bytes == data) {
      extents.back().bytes += bytes;
    } else {
      extents.push_back({data, bytes});
    }
  }
  return extents;
}

uint64_t EncodedBytes(const Rectangle& rectangle) {
  return 64 + uint64_t{rectangle.parts()} * 8;  // rectangle, writer, time, count; then {bytes, crc} a part
}

}  // namespace

void Owner::State::OnGet(Asker& asker, const Get& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr) return;
  if (body.blocks.empty() || body.blocks.size() > kBlocksMax) {
    return Refuse(asker, Code::kInvalid,
                  "a get names 1 to " + std::to_string(kBlocksMax) + " blocks; split the batch");
  }
  for (const BlockRef& ref : body.blocks) {
    if (!CheckRectangle(asker, *record, ref.rectangle)) return;
  }
  ++counts.gets;
  counts.get_blocks += body.blocks.size();
  GetWork work;
  work.reply.blocks.reserve(body.blocks.size());
  work.header_bytes += body.blocks.size() * 8;
  for (const BlockRef& ref : body.blocks) {
    const uint32_t first = index.Find(SpaceOf(number), ref.hash, ref.group);
    work.reply.blocks.emplace_back();
    Presence presence = GetBlock(first, ref, &work);
    if (presence == Presence::kUncovered) {
      // Asked again: a piece whose header does not verify has just left.
      presence = WhyMissing(number, ref.hash, ref.group, index.Find(SpaceOf(number), ref.hash, ref.group));
    }
    work.reply.blocks.back().presence = presence;
    if (IsHit(presence)) {
      ++counts.get_hits;
    } else {
      ++counts.miss_by_reason[static_cast<uint8_t>(presence)];
    }
  }
  counts.get_bytes += work.payload_bytes;
  Reply reply{Encode(ReplyTo(asker.envelope), work.reply), std::move(work.segments), 0, asker.expire_us};
  if (reply.segments.size() > 0) {
    reply.token = ++last_id;
    work.sending.begun_us = now_us;
    asker.session->sendings.emplace(reply.token, std::move(work.sending));
  }
  outbox->Deliver(asker.id, std::move(reply));
}

// kRam with sources, kBusy, or kUncovered for anything that WhyMissing should explain.
Presence Owner::State::GetBlock(uint32_t first, const BlockRef& ref, GetWork* work) {
  if (!CoverOf(first, ref.rectangle, &work->sources)) return Presence::kUncovered;
  if (work->full) return Presence::kBusy;
  std::vector<BlockHeader> headers;
  headers.reserve(work->sources.size());
  for (const Patch& patch : work->sources) {
    Result<BlockHeader> header = HeaderOf(patch.entry);
    if (!header.ok() || header.value().parts.size() != index[patch.entry].rectangle.parts()) {
      Leave(patch.entry, Presence::kCorrupt);
      return Presence::kUncovered;
    }
    headers.push_back(std::move(header).value());
  }
  GetReply::Block& block = work->reply.blocks.back();
  const size_t segments_before = work->segments.counts.size();
  const size_t extents_before = work->segments.extents.size();
  const uint64_t payload_before = work->payload_bytes, header_before = work->header_bytes;
  for (size_t i = 0; i < headers.size(); ++i) {
    if (AddSource(work->sources[i], headers[i], work, &block)) continue;
    work->full = true;
    work->segments.counts.resize(segments_before);
    work->segments.extents.resize(extents_before);
    work->payload_bytes = payload_before;
    work->header_bytes = header_before;
    block.sources.clear();
    return Presence::kBusy;
  }
  for (const Patch& patch : work->sources) {
    PinHard(patch.entry);
    work->sending.entries.push_back(patch.entry);
  }
  return Presence::kRam;
}

// False when the reply would pass a bound.
bool Owner::State::AddSource(const Patch& patch, const BlockHeader& header, GetWork* work,
                             GetReply::Block* block) {
  static const transport::Limits limits;
  const Entry& e = index[patch.entry];
  GetReply::Source source;
  source.rectangle = patch.rectangle;
  source.writer = header.writer;
  source.created_ms = header.created_ms;
  const std::byte* payload = arena.Payload(PlaceOf(patch.entry));
  uint64_t bytes = index.place(patch.entry).payload_bytes;
  std::vector<transport::ConstExtent> extents;
  if (patch.rectangle == e.rectangle) {
    source.parts = header.parts;
    extents.push_back({payload, bytes});
  } else {
    extents = ExtentsOf(payload, e.rectangle, header.parts, patch.rectangle);
    bytes = 0;
    for (const transport::ConstExtent& extent : extents) bytes += extent.bytes;
    for (uint16_t layer = patch.rectangle.layer_begin; layer < patch.rectangle.layer_end; ++layer) {
      const auto from = header.parts.begin() + e.rectangle.PartIndex(layer, patch.rectangle.head_begin);
      source.parts.insert(source.parts.end(), from,
                          from + (patch.rectangle.head_end - patch.rectangle.head_begin));
    }
  }
  work->payload_bytes += bytes;
  work->header_bytes += EncodedBytes(patch.rectangle);
  if (work->payload_bytes > kBatchBytesMax || work->header_bytes > kMessageBytesMax ||
      work->segments.size() + 1 > limits.segments_max ||
      work->segments.extents.size() + extents.size() > kExtentsMax) {
    return false;
  }
  work->segments.Add(std::span<const transport::ConstExtent>(extents));
  block->sources.push_back(std::move(source));
  return true;
}

}  // namespace larder::node
