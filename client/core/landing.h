// One get reply on its way into the caller's memory: checked before it lands (PlanLanding) and while it lands
// (Landing::OnBytes). Nothing here trusts the node.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/message.h"
#include "transport/transport.h"

namespace larder::client {

// A block that was asked for: its rectangle and the caller's memory for the packed payload.
struct LandingTarget {
  Rectangle rectangle;
  std::span<const transport::Extent> extents;
};

// Checksums of a landing, part by part while the bytes are in cache. OnBytes is called by the connection's
// thread alone, without any lock; everything else by whoever knows that no OnBytes can come any more.
class Landing {
 public:
  // `reply` must have passed PlanLanding.
  Landing(const GetReply& reply, bool verify);

  void OnBytes(uint32_t segment, uint64_t offset, ByteView bytes);

  size_t blocks() const { return blocks_.size(); }
  bool whole(size_t block) const;  // every byte is there
  bool good(size_t block) const;   // whole, and every part verifies
  const GetReply::Block& reply(size_t block) const { return reply_.blocks[block]; }
  const std::vector<GetReply::Places>& places() const { return reply_.places; }
  bool owes() const { return reply_.owes(); }
  // Grows with every step; tells a slow transfer from a dead one. Any thread.
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }

 private:
  struct Segment {
    uint32_t block = 0;
    const std::vector<PartRecord>* parts = nullptr;
    uint64_t bytes = 0;
    uint64_t landed = 0;
    size_t part = 0;  // where the running checksum is
    uint32_t part_landed = 0;
    uint32_t crc = 0;
    bool bad = false;
    bool lost = false;
  };
  struct Block {
    uint32_t first_segment = 0, end_segment = 0;
  };

  void Verify(Segment* segment, ByteView bytes);

  GetReply reply_;
  bool verify_;
  std::vector<Segment> segments_;
  std::vector<Block> blocks_;
  std::atomic<uint64_t> steps_{0};
};

// Checks a reply against what was asked: as many blocks, sources inside the ask, disjoint and covering, sizes
// that add up to the caller's extents and to the announced segments. Fills where each segment lands: its
// parts at their offsets in the asked rectangle. Not ok: the reply must be refused whole.
Status PlanLanding(const GetReply& reply, std::span<const LandingTarget> targets,
                   std::span<const uint64_t> segment_bytes, transport::LandSegments* segments);

}  // namespace larder::client
