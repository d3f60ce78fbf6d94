// Get: each hit becomes one segment a source piece, hard-pinned until the bytes are gone.
#include <algorithm>

#include "node/owner/owner_get_work.h"

namespace larder::node {

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
  if (MayAsk(asker) && !body.asks_near) {
    std::vector<BlockRef> wanted;
    for (const BlockRef& ref : body.blocks) NoteMissing(number, ref, &wanted);
    if (!wanted.empty() && SetAside(asker, number, wanted, Get(body))) return;
  }
  if (body.asks_near) {
    counts.near_asked += body.blocks.size();
  } else if (asker.move_bytes == 0) {
    ++counts.gets;
    counts.get_blocks += body.blocks.size();
  }
  GetWork work;
  work.number = number;
  work.near = body.asks_near;
  work.move_bytes = asker.move_bytes;
  work.reader = asker.session->writer;
  work.reply.blocks.reserve(body.blocks.size());
  work.header_bytes += body.blocks.size() * 8;
  std::vector<Patch> sources;
  for (const BlockRef& ref : body.blocks) {
    const uint32_t first = Find(number, ref.hash, ref.group);
    GetReply::Block& block = work.reply.blocks.emplace_back();
    if (rules.bypass) {
      block.presence = Presence::kBypassed;
      continue;
    }
    block.presence = Presence::kUncovered;
    if (CoverOf(first, ref.rectangle, &sources)) {
      if (asker.move_bytes != 0) WholePieces(&sources);
      // What is here by lease is its home's to give.
      // And what is here as this node's own may be from when it was home to it: removes went elsewhere since.
      const auto lent = [&](const Patch& source) { return index[source.entry].leased != 0; };
      const bool gives = work.near               ? std::ranges::all_of(sources, lent)
                         : asker.move_bytes != 0 ? std::ranges::none_of(sources, lent)
                                                 : true;
      if (gives) block.presence = AddPatches(sources, &work, &block);
    } else if (ssd != nullptr && !work.near &&
               CoverBoth(number, ref.hash, ref.group, first, ref.rectangle, &sources)) {
      // Some of it lies on SSD: all of it waits, and what was pinned here is pinned again there.
      for (const uint32_t entry : work.sending.entries) UnpinHard(entry);
      return OnColdGet(asker, number, body.blocks, false);
    }
    if (block.presence == Presence::kUncovered) {
      // Asked again: a piece whose header does not verify has just left.
      block.presence = work.near ? Presence::kNeverStored
                                 : WhyMissing(number, ref.hash, ref.group,
                                              index.Find(SpaceOf(number), ref.hash, ref.group));
    } else if (block.presence == Presence::kRam) {
      for (const Patch& patch : sources) {
        PinHard(patch.entry);
        work.sending.entries.push_back(patch.entry);
      }
      if (hot.on() && asker.move_bytes == 0) CountRead(number, ref, sources, body, &work);
    }
  }
  SendGet(asker, std::move(work));
}

// Every source that was added is pinned once in `work.sending`.
void Owner::State::SendGet(const Asker& asker, GetWork&& work, bool more) {
  const bool moves = work.move_bytes != 0;
  for (const GetReply::Block& block : work.reply.blocks) {
    if (IsHit(block.presence)) {
      ++(moves ? counts.given : counts.get_hits);
      counts.near_hits += work.near ? 1 : 0;
      counts.get_blocks += work.near ? 1 : 0;
    } else if (!moves && !work.near && block.presence != Presence::kLater) {
      ++counts.miss_by_reason[static_cast<uint8_t>(block.presence)];
    }
  }
  counts.get_parts += more ? 1 : 0;
  (moves ? counts.given_bytes : counts.get_bytes) += work.payload_bytes;
  Reply reply{moves ? EncodeMove(asker, work) : Encode(ReplyTo(asker.envelope), work.reply),
              std::move(work.segments), 0, asker.expire_us, more};
  if (reply.segments.size() > 0) {
    reply.token = ++last_id;
    work.sending.begun_us = now_us;
    asker.session->sendings.emplace(reply.token, std::move(work.sending));
  }
  outbox->Deliver(asker.id, std::move(reply));
}

// kRam when all patches are in the reply; kBusy: a bound of it was reached; kExpired; kPlaceLost; kUncovered:
// a header does not verify, its piece is gone.
Presence Owner::State::AddPatches(const std::vector<Patch>& patches, GetWork* work, GetReply::Block* block) {
  if (work->full) return Presence::kBusy;
  std::vector<BlockHeader> headers;
  headers.reserve(patches.size());
  for (const Patch& patch : patches) {
    // A get that waited for SSD may have waited too long.
    const bool lease_over =
        index[patch.entry].leased != 0 && leased.at(patch.entry).end_us <= lease_clock_us();
    if (lease_over || Expired(index[patch.entry].space.number, index.place(patch.entry).born_s)) {
      if (index[patch.entry].hidden == 0) Expire(patch.entry);
      return Presence::kExpired;
    }
    if (Old(patch.entry)) {
      if (index[patch.entry].hidden == 0) DropOld(patch.entry);
      return Presence::kPlaceLost;
    }
    Result<BlockHeader> header = HeaderOf(patch.entry);
    if (!header.ok() || header.value().parts.size() != index[patch.entry].rectangle.parts()) {
      if (index[patch.entry].hidden == 0) Leave(patch.entry, Presence::kCorrupt);
      return Presence::kUncovered;
    }
    if (DropIfBanned(patch.entry, header.value())) return Presence::kUncovered;
    headers.push_back(std::move(header).value());
  }
  const size_t segments_before = work->segments.counts.size();
  const size_t extents_before = work->segments.extents.size();
  const uint64_t payload_before = work->payload_bytes, header_before = work->header_bytes;
  for (size_t i = 0; i < headers.size(); ++i) {
    const uint32_t entry = patches[i].entry;
    if (work->Add(patches[i], index[entry].rectangle, headers[i], arena.Payload(PlaceOf(entry)),
                  index.place(entry).payload_bytes, block)) {
      continue;
    }
    work->full = true;
    work->segments.counts.resize(segments_before);
    work->segments.extents.resize(extents_before);
    work->payload_bytes = payload_before;
    work->header_bytes = header_before;
    block->sources.clear();
    return Presence::kBusy;
  }
  for (size_t i = 0; i < headers.size(); ++i) {
    const Entry& e = index[patches[i].entry];
    readers.Remember(FingerprintOf(e.space.number, e.hash, e.group), headers[i].writer, work->reader,
                     unix_ms);
  }
  return Presence::kRam;
}

// False when the reply would pass a bound.
bool Owner::State::GetWork::Add(const Patch& patch, const Rectangle& piece, const BlockHeader& header,
                                const std::byte* payload, uint64_t piece_bytes, GetReply::Block* block) {
  static const transport::Limits limits;
  GetReply::Source source;
  source.rectangle = patch.rectangle;
  source.writer = header.writer;
  source.created_ms = header.created_ms;
  uint64_t bytes = piece_bytes;
  std::vector<transport::ConstExtent> extents;
  if (patch.rectangle == piece) {
    source.parts = header.parts;
    extents.push_back({payload, bytes});
  } else {
    extents = ExtentsOf(payload, piece, header.parts, patch.rectangle);
    bytes = 0;
    for (const transport::ConstExtent& extent : extents) bytes += extent.bytes;
    for (uint16_t layer = patch.rectangle.layer_begin; layer < patch.rectangle.layer_end; ++layer) {
      const auto from = header.parts.begin() + piece.PartIndex(layer, patch.rectangle.head_begin);
      source.parts.insert(source.parts.end(), from,
                          from + (patch.rectangle.head_end - patch.rectangle.head_begin));
    }
  }
  payload_bytes += bytes;
  const bool moves = move_bytes != 0;
  header_bytes += moves
                      ? 16 + HeaderBytes(piece.parts(), header.codec_data.size(), header.constituents.size())
                      : EncodedBytes(patch.rectangle);
  const uint64_t payload_bytes_max = moves && segments.size() != 0 ? move_bytes : kBatchBytesMax;
  if (payload_bytes > payload_bytes_max || header_bytes > kMessageBytesMax ||
      segments.size() + 1 > limits.segments_max || segments.extents.size() + extents.size() > kExtentsMax) {
    return false;
  }
  segments.Add(std::span<const transport::ConstExtent>(extents));
  block->sources.push_back(std::move(source));
  return true;
}

// What another node brings home is what is here, whole; it has asked for what it needs of it.
void Owner::State::OnMove(Asker& asker, const Move& body) {
  uint32_t number = 0;
  const NamespaceRecord* record = NamespaceFor(asker, body.number, &number);
  if (record == nullptr) return;
  if (record->ttl_ms != 0) {  // like hand-over: the receiver would date it anew
    MoveReply reply;
    reply.blocks.resize(body.blocks.size());
    for (MoveReply::Block& block : reply.blocks) block.presence = Presence::kNeverStored;
    reply.empty = true;
    return Answer(asker, reply);
  }
  asker.move_bytes = std::clamp<uint64_t>(body.payload_bytes_max, 1, kBatchBytesMax);
  OnGet(asker, Get{.number = body.number, .blocks = body.blocks});
}

void Owner::State::WholePieces(std::vector<Patch>* sources) const {
  std::vector<Patch> pieces;
  for (const Patch& source : *sources) {
    const bool there = std::any_of(pieces.begin(), pieces.end(),
                                   [&](const Patch& piece) { return piece.entry == source.entry; });
    if (there) continue;
    const bool cold = (source.entry & kSsdBit) != 0;
    pieces.push_back(
        {source.entry, cold ? ssd->entry(source.entry & ~kSsdBit).rectangle : index[source.entry].rectangle});
  }
  *sources = std::move(pieces);
}

// The headers verify: AddPatches has just looked.
Bytes Owner::State::EncodeMove(const Asker& asker, const GetWork& work) const {
  MoveReply reply;
  size_t at = 0;
  for (const GetReply::Block& block : work.reply.blocks) {
    MoveReply::Block& out = reply.blocks.emplace_back();
    out.presence = block.presence;
    for (size_t i = 0; i < block.sources.size(); ++i) {
      const uint32_t entry = work.sending.entries.at(at++);
      MoveReply::Piece& piece = out.pieces.emplace_back();
      EncodeHeader(HeaderOf(entry).value(), &piece.header);
      // What was read from SSD for this get alone is in no policy.
      piece.depth = index[entry].hidden == 0 ? DepthOf(entry) : 0;
    }
  }
  const bool nothing = name_spaces[work.number].blocks == 0;
  const bool nothing_on_ssd = ssd == nullptr || (ssd->stats().loaded && ssd->stats().pieces == 0);
  reply.empty = nothing && nothing_on_ssd;
  return Encode(ReplyTo(asker.envelope), reply);
}

}  // namespace larder::node
