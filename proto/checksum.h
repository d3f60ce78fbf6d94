// CRC-32C (Castagnoli, RFC 3720 B.4) over bytes that are still in cache.
//
// ISA-L does the work (PCLMULQDQ / AVX-512 chosen at run time): 55-66 GB/s on cached data. Check in
// steps of 64 KiB to 1 MiB right after bytes were received or copied, never in a second cold pass.
#pragma once

#include <cstdint>

#include "proto/bytes.h"

namespace larder {

// The CRC of the concatenation of what `crc` covers and `bytes`; start with 0. Thread-safe, pure.
// Crc32c(0, "123456789") == 0xE3069283.
uint32_t Crc32c(uint32_t crc, ByteView bytes);

// memcpy and the CRC of what was written, in steps of 64 KiB (the copy is checked, not the source:
// a source that changes meanwhile does not get a good checksum for bytes that are not there).
uint32_t CopyAndCrc32c(uint32_t crc, std::byte* to, ByteView from);

}  // namespace larder
