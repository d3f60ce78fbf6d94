// Zeroed memory for tables that grow: huge pages where it is large, since lookups are random and each would
// miss the TLB; touched page by page as it fills, so that making it pauses nobody.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace larder::node {

struct FreeMemory {
  uint64_t bytes = 0;
  void operator()(std::byte* memory) const;
};
using Memory = std::unique_ptr<std::byte[], FreeMemory>;

// Zeroed, by the page, from the kernel and not from malloc: what aligning to huge pages leaves over goes back
// at once, and what is freed does not stay with the process.
Memory MakeMemory(uint64_t bytes, bool huge_pages);

// An array that grows by chunks: elements never move, growing never copies. Elements start as zero bytes.
template <typename T>
class Chunked {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  static constexpr uint32_t kChunkBits = 16;
  static constexpr uint32_t kChunk = 1u << kChunkBits;

  T& operator[](uint32_t i) { return Chunk(i)[i & (kChunk - 1)]; }
  const T& operator[](uint32_t i) const { return Chunk(i)[i & (kChunk - 1)]; }
  // Makes elements below `count` usable.
  void Reserve(uint32_t count) {
    // The first chunk has small pages: a small node touches little of it.
    while (capacity() < count) chunks_.push_back(MakeMemory(uint64_t{kChunk} * sizeof(T), !chunks_.empty()));
  }
  uint64_t capacity() const { return uint64_t{chunks_.size()} << kChunkBits; }

 private:
  T* Chunk(uint32_t i) const { return reinterpret_cast<T*>(chunks_[i >> kChunkBits].get()); }
  std::vector<Memory> chunks_;
};

}  // namespace larder::node
