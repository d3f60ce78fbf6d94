// An array that grows by chunks: elements never move, growing never copies, so no insert pauses the owner.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace larder::node {

template <typename T>
class Chunked {
 public:
  static constexpr uint32_t kChunkBits = 12;
  static constexpr uint32_t kChunk = 1u << kChunkBits;

  T& operator[](uint32_t i) { return chunks_[i >> kChunkBits][i & (kChunk - 1)]; }
  const T& operator[](uint32_t i) const { return chunks_[i >> kChunkBits][i & (kChunk - 1)]; }
  // Makes elements below `count` usable.
  void Reserve(uint32_t count) {
    while (capacity() < count) chunks_.push_back(std::make_unique<T[]>(kChunk));
  }
  uint64_t capacity() const { return uint64_t{chunks_.size()} << kChunkBits; }
  uint64_t bytes() const { return capacity() * sizeof(T) + chunks_.capacity() * sizeof(chunks_[0]); }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace larder::node
