#include "tests/demo/content.h"

#include <cstring>

namespace larder::demo {

namespace {

uint64_t Mix(uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

struct Sequence {
  uint64_t start;
  uint64_t step;
};

Sequence SequenceOf(uint64_t seed, uint64_t block) {
  const uint64_t start = Mix(Mix(seed) ^ block);
  return {start, Mix(start) | 1};
}

}  // namespace

ChainHash HashOf(uint64_t seed, uint64_t block) {
  ChainHash hash;
  uint64_t word = Mix(seed ^ 0x6c61726465720000ull) ^ block;
  for (size_t at = 0; at < hash.bytes.size(); at += sizeof(word)) {
    word = Mix(word + at);
    std::memcpy(hash.bytes.data() + at, &word, sizeof(word));
  }
  return hash;
}

void Fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t block) {
  const Sequence sequence = SequenceOf(seed, block);
  auto* words = reinterpret_cast<uint64_t*>(data);
  uint64_t word = sequence.start;
  for (size_t i = 0; i < bytes / sizeof(word); ++i, word += sequence.step) words[i] = word;
}

uint64_t CountWrongBytes(const std::byte* data, size_t bytes, uint64_t seed, uint64_t block) {
  const Sequence sequence = SequenceOf(seed, block);
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  uint64_t word = sequence.start, different = 0;
  for (size_t i = 0; i < bytes / sizeof(word); ++i, word += sequence.step) different |= words[i] ^ word;
  if (different == 0) return 0;
  uint64_t wrong = 0;
  word = sequence.start;
  for (size_t i = 0; i < bytes / sizeof(word); ++i, word += sequence.step) {
    for (uint64_t bits = words[i] ^ word; bits != 0; bits >>= 8) wrong += (bits & 0xff) != 0;
  }
  return wrong;
}

}  // namespace larder::demo
