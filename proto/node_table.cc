#include <algorithm>
#include <charconv>

#include "proto/checksum.h"
#include "proto/placement.h"

namespace larder {
namespace {

constexpr uint32_t kTableMagic = 0x31544e4c;  // "LNT1"
constexpr uint16_t kTableVersion = 1;
constexpr uint16_t kAlgorithm = 1;
constexpr size_t kAddressBytesMax = 256;
constexpr size_t kTableCrcBytes = 4;

Status Bad(std::string_view what) {
  return Invalid("node table: " + std::string(what));
}

bool IsNodeId(std::string_view id) {
  if (id.empty() || id.size() > kNodeIdBytesMax) return false;
  constexpr std::string_view kPunctuation = "._:@/-[]";
  return std::ranges::all_of(id, [=](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kPunctuation.find(c) != std::string_view::npos;
  });
}

bool IsGood(const NodeRecord& node) {
  return IsNodeId(node.id) && node.weight >= 1 && node.weight <= kWeightMax &&
         node.state <= NodeState::kAway && node.wire_min >= 1 && node.wire_min <= node.wire_max;
}

void EncodeNode(const NodeRecord& node, Bytes* out) {
  Writer writer(out);
  const size_t length_at = writer.size();
  writer.U32(0);
  writer.Text(node.id);
  writer.U64(node.incarnation);
  writer.Text(node.data_address);
  writer.Text(node.control_address);
  writer.Text(node.http_address);
  writer.Text(node.host_id);
  writer.Text(node.shm_path);
  writer.Text(node.ucx_address);
  writer.U32(node.weight);
  writer.Text(node.zone);
  writer.U8(static_cast<uint8_t>(node.state));
  writer.U16(node.wire_min);
  writer.U16(node.wire_max);
  writer.Text(node.build);
  const auto record_bytes = static_cast<uint32_t>(writer.size() - length_at - 4);
  std::memcpy(out->data() + length_at, &record_bytes, sizeof record_bytes);
}

bool DecodeNode(ByteView record, NodeRecord* node) {
  Reader reader(record);
  node->id = reader.Text(kNodeIdBytesMax);
  node->incarnation = reader.U64();
  node->data_address = reader.Text(kAddressBytesMax);
  node->control_address = reader.Text(kAddressBytesMax);
  node->http_address = reader.Text(kAddressBytesMax);
  node->host_id = reader.Text(kAddressBytesMax);
  node->shm_path = reader.Text(kAddressBytesMax);
  node->ucx_address = reader.Text(kAddressBytesMax);
  node->weight = reader.U32();
  node->zone = reader.Text(kAddressBytesMax);
  node->state = NodeState{reader.U8()};
  node->wire_min = reader.U16();
  node->wire_max = reader.U16();
  node->build = reader.Text(kAddressBytesMax);
  return reader.ok() && IsGood(*node);
}

template <typename Number>
bool ParseNumber(std::string_view text, Number* number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return !text.empty() && error == std::errc() && stop == text.data() + text.size();
}

// "host:port" or "[v6]:port", port 1..65535.
bool IsAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.size() > kAddressBytesMax) return false;
  uint16_t port = 0;
  if (!ParseNumber(address.substr(colon + 1), &port) || port == 0) return false;
  std::string_view host = address.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  return std::ranges::all_of(host, [=](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || (bracketed && (c == ':' || c == '%'));
  });
}

}  // namespace

void NodeTable::Normalize() {
  std::ranges::sort(nodes, [](const NodeRecord& a, const NodeRecord& b) {
    return a.id != b.id ? a.id < b.id : a.incarnation > b.incarnation;
  });
  const auto doubles = std::unique(nodes.begin(), nodes.end(),
                                   [](const NodeRecord& a, const NodeRecord& b) { return a.id == b.id; });
  nodes.erase(doubles, nodes.end());
}

Digest NodeTable::digest() const {
  Bytes bytes;
  Writer writer(&bytes);
  writer.View(AsBytes("larder table 1\n"));
  writer.U64(epoch);
  writer.U16(algorithm);
  writer.U32(static_cast<uint32_t>(nodes.size()));
  for (const NodeRecord& node : nodes) {
    writer.Text(node.id);
    writer.Text(node.data_address);
    writer.U32(node.weight);
    writer.U8(static_cast<uint8_t>(node.state));
  }
  return Sha256(bytes);
}

void EncodeTable(const NodeTable& table, Bytes* out) {
  const size_t begin = out->size();
  Writer writer(out);
  writer.U32(kTableMagic);
  writer.U16(kTableVersion);
  writer.U16(table.algorithm);
  writer.U64(table.epoch);
  writer.U32(static_cast<uint32_t>(table.nodes.size()));
  for (const NodeRecord& node : table.nodes) EncodeNode(node, out);
  writer.U32(Crc32c(0, ByteView(*out).subspan(begin)));
}

Result<NodeTable> DecodeTable(ByteView bytes) {
  if (bytes.size() > kTableBytesMax) return Bad("too long");
  if (bytes.size() < kTableCrcBytes) return Bad("too short");
  const ByteView body = bytes.first(bytes.size() - kTableCrcBytes);
  Reader reader(body);
  if (reader.U32() != kTableMagic) return Bad("no magic");
  if (Crc32c(0, body) != Reader(bytes.subspan(body.size())).U32()) {
    return Status(Code::kCorrupt, "node table: bad checksum");
  }
  const uint16_t version = reader.U16();
  NodeTable table;
  table.algorithm = reader.U16();
  table.epoch = reader.U64();
  const uint32_t count = reader.U32();
  if (!reader.ok()) return Bad("too short");
  if (version != kTableVersion || table.algorithm != kAlgorithm) {
    return Status(Code::kUnsupported, "node table: version " + std::to_string(version) + ", algorithm " +
                                          std::to_string(table.algorithm) + "; this build knows 1 and 1");
  }
  if (count > kNodesMax || count > reader.left() / 4) return Bad("too many nodes");
  table.nodes.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const ByteView record = reader.View(reader.U32());
    if (!reader.ok() || !DecodeNode(record, &table.nodes[i])) return Bad("a record makes no sense");
    if (i > 0 && table.nodes[i - 1].id >= table.nodes[i].id) return Bad("ids are not sorted and unique");
  }
  if (reader.left() != 0) return Bad("bytes after the last record");
  return table;
}

Result<NodeRecord> ParseNodeEntry(std::string_view text) {
  const std::string entry(text.substr(0, 2 * kAddressBytesMax));
  NodeRecord node;
  const size_t star = text.rfind('*');
  if (star != std::string_view::npos) {
    if (!ParseNumber(text.substr(star + 1), &node.weight) || node.weight < 1 || node.weight > kWeightMax) {
      return Invalid("node '" + entry + "': the weight is a number from 1 to " + std::to_string(kWeightMax));
    }
    text = text.substr(0, star);
  }
  const size_t at = text.rfind('@');
  const std::string_view address = at == std::string_view::npos ? text : text.substr(at + 1);
  if (!IsAddress(address)) {
    return Invalid("node '" + entry + "': write id@host:port*weight, for example n1@10.0.0.1:7400*2");
  }
  node.data_address = address;
  node.id = at == std::string_view::npos ? address : text.substr(0, at);
  if (!IsNodeId(node.id)) {
    return Invalid("node '" + entry + "': an id has 1 to 128 characters of [A-Za-z0-9._:@/-]");
  }
  return node;
}

}  // namespace larder
