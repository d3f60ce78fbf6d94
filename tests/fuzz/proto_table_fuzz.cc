// A node table from a peer or a disk, as it is and with its checksum made right; and a static list's entry.
#include "proto/checksum.h"
#include "proto/placement.h"

namespace larder {
namespace {

void Try(ByteView bytes) {
  const Result<NodeTable> table = DecodeTable(bytes);
  if (!table.ok()) return;
  Bytes again;
  EncodeTable(table.value(), &again);
  const Result<NodeTable> same = DecodeTable(again);
  LARDER_CHECK(same.ok() && same.value() == table.value());
  NodeTable normal = table.value();
  normal.Normalize();
  LARDER_CHECK(normal == table.value());
}

void TryEntry(std::string_view text) {
  const Result<NodeRecord> node = ParseNodeEntry(text);
  if (!node.ok()) return;
  NodeTable table;
  table.nodes.push_back(node.value());
  Bytes bytes;
  EncodeTable(table, &bytes);
  LARDER_CHECK(DecodeTable(bytes).ok());
}

}  // namespace
}  // namespace larder

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const larder::ByteView bytes = std::as_bytes(std::span(data, size));
  larder::Try(bytes);
  if (size >= 4) {
    larder::Bytes sealed(bytes.begin(), bytes.end());
    const uint32_t crc = larder::Crc32c(0, bytes.first(size - 4));
    std::memcpy(sealed.data() + size - 4, &crc, 4);
    larder::Try(sealed);
  }
  larder::TryEntry({reinterpret_cast<const char*>(data), size});
  return 0;
}
