#include "tests/unit/proto/vectors.h"

#include <algorithm>
#include <cctype>

#include "proto/checksum.h"
#include "tests/unit/proto/samples.h"

namespace larder::testing {
namespace {

// 32 bytes a line.
std::string HexFile(ByteView bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t line_bytes = std::min<size_t>(32, bytes.size());
    text += ToHex(bytes.first(line_bytes)) + "\n";
    bytes = bytes.subspan(line_bytes);
  }
  return text;
}

std::string FileName(std::string_view message) {
  std::string name = "message";
  for (char c : message) {
    if (std::isupper(static_cast<unsigned char>(c))) name.push_back('_');
    name.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return name + ".hex";
}

std::string Names() {
  std::string text;
  const Identity identity = SampleIdentity();
  text += "identity " + ToHex(identity.digest()) + "\n";
  text += "namespace acme salt " + ToHex(NamespaceOf(identity, "acme", "salt").bytes) + "\n";
  text += "namespace - - " + ToHex(NamespaceOf(identity, "", "").bytes) + "\n";
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 64; ++i) tokens.push_back(i * 2654435761u);
  for (const ChainHash& hash : ChainHashes(tokens, 16)) text += "chain " + ToHex(hash.bytes) + "\n";
  text += "link " + ToHex(NextLink(HashFrom(0), AsBytes("some bytes")).bytes) + "\n";
  text += "table " + ToHex(SampleTable().digest()) + "\n";
  return text;
}

// The order of some slots, and one checksum over all of them (u16 indices, slot after slot).
std::string Orders(std::string_view name, const NodeTable& table) {
  const Placement placement(table);
  std::string text = "table " + std::string(name) + "\n";
  for (const NodeRecord& node : table.nodes) {
    text += "node " + node.id + " weight " + std::to_string(node.weight) + "\n";
  }
  uint32_t crc = 0;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const auto order = placement.Order(static_cast<uint16_t>(slot));
    crc = Crc32c(crc, std::as_bytes(order));
    if (slot % 8191 != 0) continue;
    text += "slot " + std::to_string(slot);
    for (uint16_t index : order) text += " " + table.nodes[index].id;
    text += "\n";
  }
  return text + "crc32c " + std::to_string(crc) + "\n";
}

std::string PlacementFile() {
  std::string text;
  for (uint8_t first : std::initializer_list<uint8_t>{0, 1, 100, 255}) {
    text += "slotof " + ToHex(DigestFrom(first)) + " " + std::to_string(SlotOf(HashFrom(first))) + "\n";
  }
  for (std::string_view id : {"a", "n0000", "larder-0.larder.default", "10.0.0.1:7400"}) {
    for (uint16_t slot : std::initializer_list<uint16_t>{0, 1, 32768, 65535}) {
      text += "cost " + std::to_string(slot) + " " + std::string(id) + " " +
              std::to_string(RendezvousCost(slot, id)) + "\n";
    }
  }
  NodeTable weighted = TableOf(7);
  for (size_t i = 0; i < weighted.nodes.size(); ++i)
    weighted.nodes[i].weight = static_cast<uint32_t>(1 + i * i * 100);
  text += Orders("one", TableOf(1)) + Orders("three", TableOf(3)) + Orders("weighted", weighted);
  return text + Orders("many", TableOf(70, "larder-"));
}

}  // namespace

std::map<std::string, std::string> VectorsOfThisBuild() {
  std::map<std::string, std::string> files;
  files["identity.txt"] = SampleIdentity().CanonicalText();
  files["names.txt"] = Names();
  files["placement.txt"] = PlacementFile();
  Bytes bytes;
  EncodeHeader(PlainHeader(), &bytes);
  files["header_plain.hex"] = HexFile(bytes);
  bytes.clear();
  EncodeHeader(FullHeader(), &bytes);
  files["header_full.hex"] = HexFile(bytes);
  files["header_extended.hex"] = HexFile(ExtendedHeaderBytes());
  bytes.clear();
  EncodeTable(SampleTable(), &bytes);
  files["table.hex"] = HexFile(bytes);
  files["message_ping.hex"] =
      HexFile(Encode(Envelope{Verb::kPing, false, Priority::kInteractive, Code::kOk, 1000, 1}));
  GetReply part = Sample<GetReply>();
  part.blocks.push_back({Presence::kLater, {}});
  files["message_get_reply_part.hex"] = HexFile(Encode(EnvelopeOf<GetReply>(), part));
#define LARDER_ADD(Name) files[FileName(#Name)] = HexFile(Encode(EnvelopeOf<Name>(), Sample<Name>()));
  LARDER_MESSAGES(LARDER_ADD)
#undef LARDER_ADD
  return files;
}

}  // namespace larder::testing
