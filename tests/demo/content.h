// What a block of the demo holds. Everything follows from the block's number, so that who pulls a block can
// tell each of its bytes without having seen it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/block_key.h"

namespace larder::demo {

// The chain hash of block `block`: in a trace equal numbers mean equal whole prefixes.
ChainHash HashOf(uint64_t seed, uint64_t block);

// Words of an arithmetic sequence whose start and step follow from the block: no two blocks, and no two
// places in one, hold the same word, and it is made at memory speed. `data` is 8-byte aligned, `bytes` a
// multiple of 8.
void Fill(std::byte* data, size_t bytes, uint64_t seed, uint64_t block);
uint64_t CountWrongBytes(const std::byte* data, size_t bytes, uint64_t seed, uint64_t block);

}  // namespace larder::demo
