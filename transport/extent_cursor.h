// Walks the extents of a payload, segment by segment, as its bytes move.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace larder::transport {

// Bytes of each segment, or false: counts and extents don't belong together, or a sum overflows.
template <typename E>
bool SegmentBytes(const SegmentList<E>& list, std::vector<uint64_t>* bytes, uint64_t* total) {
  size_t next = 0;
  *total = 0;
  bytes->clear();
  bytes->reserve(list.counts.size());
  for (const uint32_t count : list.counts) {
    if (count > list.extents.size() - next) return false;
    uint64_t segment = 0;
    for (uint32_t i = 0; i < count; i++, next++) {
      if (__builtin_add_overflow(segment, list.extents[next].bytes, &segment)) return false;
    }
    if (__builtin_add_overflow(*total, segment, total)) return false;
    bytes->push_back(segment);
  }
  return next == list.extents.size();
}

// The list must outlive the cursor and pass SegmentBytes.
template <typename E>
class ExtentCursor {
 public:
  ExtentCursor() = default;
  explicit ExtentCursor(const SegmentList<E>* list) : list_(list) { SkipEmpty(); }

  bool done() const { return list_ == nullptr || extent_ == list_->extents.size(); }
  // What is contiguous from here. Only if not done.
  E Here() const {
    const E& extent = list_->extents[extent_];
    return {extent.data + extent_offset_, extent.bytes - extent_offset_};
  }
  uint32_t segment() const { return segment_; }
  uint64_t segment_offset() const { return segment_offset_; }

  // At most the rest of this extent.
  void Advance(size_t bytes) {
    extent_offset_ += bytes;
    segment_offset_ += bytes;
    if (extent_offset_ == list_->extents[extent_].bytes) NextExtent();
  }

 private:
  void NextExtent() {
    extent_++;
    extent_offset_ = 0;
    extent_of_segment_++;
    SkipEmpty();
  }
  // Moves to the next extent with bytes in it, over empty extents and segments.
  void SkipEmpty() {
    while (!done()) {
      while (extent_of_segment_ == list_->counts[segment_]) {
        segment_++;
        extent_of_segment_ = 0;
        segment_offset_ = 0;
      }
      if (list_->extents[extent_].bytes != 0) return;
      extent_++;
      extent_of_segment_++;
    }
  }

  const SegmentList<E>* list_ = nullptr;
  size_t extent_ = 0;
  size_t extent_offset_ = 0;
  uint32_t segment_ = 0;
  uint32_t extent_of_segment_ = 0;
  uint64_t segment_offset_ = 0;
};

}  // namespace larder::transport
