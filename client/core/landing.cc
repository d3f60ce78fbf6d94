#include "client/core/landing.h"

#include <algorithm>

#include "proto/checksum.h"

namespace larder::client {
namespace {

using transport::Extent;

// Walks the caller's extents as one range of bytes.
class ExtentWalk {
 public:
  explicit ExtentWalk(std::span<const Extent> extents) : extents_(extents) {
    starts_.reserve(extents.size());
    for (const Extent& extent : extents) {
      starts_.push_back(bytes_);
      bytes_ += extent.bytes;
    }
  }
  uint64_t bytes() const { return bytes_; }

  // Appends the memory of [offset, offset + bytes), merged with what is there where they touch.
  void Append(uint64_t offset, uint64_t bytes, std::vector<Extent>* out) const {
    if (bytes == 0) return;
    size_t at =
        static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin()) - 1;
    for (; bytes != 0; ++at) {
      const uint64_t skip = offset - starts_[at];
      const uint64_t take = std::min<uint64_t>(bytes, extents_[at].bytes - skip);
      if (take == 0) continue;
      std::byte* data = extents_[at].data + skip;
      if (!out->empty() && out->back().data + out->back().bytes == data) {
        out->back().bytes += take;
      } else {
        out->push_back({data, take});
      }
      offset += take;
      bytes -= take;
    }
  }

 private:
  std::span<const Extent> extents_;
  std::vector<uint64_t> starts_;
  uint64_t bytes_ = 0;
};

uint64_t BytesOf(const std::vector<PartRecord>& parts) {
  uint64_t bytes = 0;
  for (const PartRecord& part : parts) bytes += part.bytes;
  return bytes;
}

// Puts every source's part sizes at their places in the ask; refuses overlaps, gaps and what lies outside.
Status PartSizes(const GetReply::Block& block, const Rectangle& ask, std::vector<uint64_t>* offsets) {
  constexpr uint64_t kUnset = UINT64_MAX;
  std::vector<uint64_t> sizes(ask.parts(), kUnset);
  size_t covered = 0;
  for (const GetReply::Source& source : block.sources) {
    const Rectangle& got = source.rectangle;
    if (!got.valid() || !ask.Contains(got))
      return {Code::kCorrupt, "a source outside of the asked rectangle"};
    if (source.parts.size() != got.parts())
      return {Code::kCorrupt, "a source with the wrong number of parts"};
    for (uint16_t layer = got.layer_begin; layer < got.layer_end; ++layer) {
      for (uint16_t head = got.head_begin; head < got.head_end; ++head) {
        uint64_t& size = sizes[ask.PartIndex(layer, head)];
        if (size != kUnset) return {Code::kCorrupt, "overlapping sources"};
        size = source.parts[got.PartIndex(layer, head)].bytes;
        ++covered;
      }
    }
  }
  if (covered != sizes.size()) return {Code::kCorrupt, "sources that do not cover the asked rectangle"};
  offsets->resize(sizes.size() + 1);
  (*offsets)[0] = 0;
  for (size_t i = 0; i < sizes.size(); ++i) (*offsets)[i + 1] = (*offsets)[i] + sizes[i];
  return Status::Ok();
}

// Where one source's parts land, in its own order.
void PlaceSource(const GetReply::Source& source, const Rectangle& ask, const std::vector<uint64_t>& offsets,
                 const ExtentWalk& walk, transport::LandSegments* segments) {
  const Rectangle& got = source.rectangle;
  std::vector<Extent> extents;
  for (uint16_t layer = got.layer_begin; layer < got.layer_end; ++layer) {
    // The parts of a layer are neighbours in the ask too.
    const uint32_t first = ask.PartIndex(layer, got.head_begin);
    const uint32_t last = ask.PartIndex(layer, static_cast<uint16_t>(got.head_end - 1));
    walk.Append(offsets[first], offsets[last + 1] - offsets[first], &extents);
  }
  segments->Add(extents);
}

Status PlanBlock(const GetReply::Block& block, const LandingTarget& target,
                 std::span<const uint64_t> segment_bytes, transport::LandSegments* segments) {
  const ExtentWalk walk(target.extents);
  uint64_t bytes = 0;
  for (size_t i = 0; i < block.sources.size(); ++i) {
    const uint64_t source_bytes = BytesOf(block.sources[i].parts);
    if (source_bytes != segment_bytes[i]) return {Code::kCorrupt, "a segment that is not its parts' sum"};
    bytes += source_bytes;
  }
  if (bytes != walk.bytes())
    return Invalid("a block of " + std::to_string(bytes) + " bytes for memory of " +
                   std::to_string(walk.bytes()));
  if (block.sources.size() == 1 && block.sources[0].rectangle == target.rectangle &&
      block.sources[0].parts.size() == target.rectangle.parts()) {
    segments->Add(target.extents);  // the usual case needs no walk over the parts
    return Status::Ok();
  }
  std::vector<uint64_t> offsets;
  LARDER_RETURN_IF_ERROR(PartSizes(block, target.rectangle, &offsets));
  for (const GetReply::Source& source : block.sources) {
    PlaceSource(source, target.rectangle, offsets, walk, segments);
  }
  return Status::Ok();
}

}  // namespace

Status PlanLanding(const GetReply& reply, std::span<const LandingTarget> targets,
                   std::span<const uint64_t> segment_bytes, transport::LandSegments* segments) {
  if (reply.blocks.size() != targets.size()) return {Code::kCorrupt, "a reply with another number of blocks"};
  size_t segment = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const GetReply::Block& block = reply.blocks[i];
    if (IsHit(block.presence) != !block.sources.empty())
      return {Code::kCorrupt, "sources and presence disagree"};
    if (block.sources.size() > segment_bytes.size() - segment) return {Code::kCorrupt, "too few segments"};
    if (block.sources.empty()) continue;
    LARDER_RETURN_IF_ERROR(
        PlanBlock(block, targets[i], segment_bytes.subspan(segment, block.sources.size()), segments));
    segment += block.sources.size();
  }
  if (segment != segment_bytes.size()) return {Code::kCorrupt, "more segments than sources"};
  return Status::Ok();
}

Landing::Landing(const GetReply& reply, bool verify) : reply_(reply), verify_(verify) {
  blocks_.reserve(reply_.blocks.size());
  for (size_t i = 0; i < reply_.blocks.size(); ++i) {
    Block block{static_cast<uint32_t>(segments_.size()), 0};
    for (const GetReply::Source& source : reply_.blocks[i].sources) {
      segments_.push_back({static_cast<uint32_t>(i), &source.parts, BytesOf(source.parts)});
    }
    block.end_segment = static_cast<uint32_t>(segments_.size());
    blocks_.push_back(block);
  }
}

void Landing::OnBytes(uint32_t segment, uint64_t offset, ByteView bytes) {
  steps_.fetch_add(1, std::memory_order_relaxed);
  if (segment >= segments_.size()) return;
  Segment& at = segments_[segment];
  // Out of order: the segment stays incomplete and is never a hit.
  if (offset != at.landed || bytes.size() > at.bytes - at.landed) at.bad = at.lost = true;
  if (at.lost) return;
  at.landed += bytes.size();
  if (verify_ && !at.bad) Verify(&at, bytes);
}

void Landing::Verify(Segment* segment, ByteView bytes) {
  while (!bytes.empty()) {
    const PartRecord& part = (*segment->parts)[segment->part];
    const size_t take = std::min<size_t>(bytes.size(), part.bytes - segment->part_landed);
    segment->crc = Crc32c(segment->crc, bytes.first(take));
    segment->part_landed += static_cast<uint32_t>(take);
    bytes = bytes.subspan(take);
    if (segment->part_landed == part.bytes) {
      if (segment->crc != part.crc32c) segment->bad = true;
      segment->crc = 0;
      segment->part_landed = 0;
      ++segment->part;
    }
  }
}

bool Landing::whole(size_t block) const {
  if (!IsHit(reply_.blocks[block].presence)) return false;
  for (uint32_t i = blocks_[block].first_segment; i < blocks_[block].end_segment; ++i) {
    if (segments_[i].landed != segments_[i].bytes) return false;
  }
  return true;
}

bool Landing::good(size_t block) const {
  if (!whole(block)) return false;
  for (uint32_t i = blocks_[block].first_segment; i < blocks_[block].end_segment; ++i) {
    if (segments_[i].bad) return false;
  }
  return true;
}

}  // namespace larder::client
