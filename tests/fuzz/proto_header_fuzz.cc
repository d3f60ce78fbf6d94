// A block header from a disk or a peer. The checksum would hide all else, so the input runs twice: as it is,
// and with size and checksum made right.
#include "proto/block_header.h"
#include "proto/checksum.h"

namespace larder {
namespace {

void Try(ByteView bytes) {
  const Result<BlockHeader> header = DecodeHeader(bytes);
  if (!header.ok()) return;
  Bytes again;
  EncodeHeader(header.value(), &again);  // aborts when a limit is passed
  const Result<BlockHeader> same = DecodeHeader(again);
  LARDER_CHECK(same.ok() && same.value() == header.value());
}

void TrySealed(ByteView input) {
  Bytes bytes(input.begin(), input.end());
  bytes.resize((bytes.size() + 7) / 8 * 8);
  if (bytes.size() < 16) return;
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(bytes.data() + 8, &size, 4);
  const uint32_t crc = Crc32c(0, ByteView(bytes).first(bytes.size() - 4));
  std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
  Try(bytes);
}

}  // namespace
}  // namespace larder

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const larder::ByteView bytes = std::as_bytes(std::span(data, size));
  larder::Try(bytes);
  larder::TrySealed(bytes);
  return 0;
}
