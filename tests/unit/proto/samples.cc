#include "tests/unit/proto/samples.h"

#include "proto/checksum.h"

namespace larder::testing {

Digest DigestFrom(uint8_t first) {
  Digest digest;
  for (std::byte& byte : digest) byte = std::byte{first++};
  return digest;
}

ChainHash HashFrom(uint8_t first) {
  return {DigestFrom(first)};
}

Identity SampleIdentity() {
  constexpr std::pair<std::string_view, std::string_view> kFields[] = {
      {"kind", "kv"},           {"model", "Llama 3 70B (ünïcode, 100%)"},
      {"attention", "gqa"},     {"weights_digest", "sha256:00ff"},
      {"kv_dtype", "fp8_e4m3"}, {"kv_heads", "8"},
      {"head_dim", "128"},      {"layers", "80"},
      {"block_tokens", "16"},   {"hash", "sha256_cbor"},
      {"rope", "a=1\nb=2"},
  };
  Identity identity;
  for (const auto& [name, value] : kFields) LARDER_CHECK(identity.Set(name, value).ok());
  return identity;
}

BlockHeader PlainHeader() {
  BlockHeader header;
  header.name_space = {DigestFrom(0)};
  header.hash = HashFrom(32);
  header.clear_epoch = 1;
  header.created_ms = 1'700'000'000'123;
  header.parts = {{65536, 0xdeadbeef}};
  return header;
}

BlockHeader FullHeader() {
  BlockHeader header = PlainHeader();
  header.codec = 7;
  header.flags = 0x8001;
  header.group = 3;
  header.rectangle = {10, 12, 1, 4};
  header.clear_epoch = 0x01020304;
  header.writer = DigestFrom(64);
  header.parts = {{4096, 1}, {4096, 2}, {4096, 3}, {2048, 4}, {0, 5}, {1, 0xffffffff}};
  for (char c : std::string_view("scales")) header.codec_data.push_back(static_cast<std::byte>(c));
  header.constituents = {HashFrom(100), HashFrom(101), HashFrom(102)};
  return header;
}

void SealHeader(Bytes* header) {
  LARDER_CHECK(header->size() >= 16);
  const auto bytes = static_cast<uint32_t>(header->size());
  std::memcpy(header->data() + 8, &bytes, sizeof bytes);
  const uint32_t crc = Crc32c(0, ByteView(*header).first(header->size() - 4));
  std::memcpy(header->data() + header->size() - 4, &crc, sizeof crc);
}

Bytes ExtendedHeaderBytes() {
  Bytes bytes;
  EncodeHeader(FullHeader(), &bytes);
  bytes.resize(144 + 6 * 8 + 4 + 6 + 4 + 3 * 32);  // up to where extensions begin
  Writer writer(&bytes);
  writer.U16(1);
  writer.Text("an extension that came later");
  writer.U16(0xffff);
  writer.Text("");
  bytes.resize((bytes.size() + 4 + 7) / 8 * 8);
  SealHeader(&bytes);
  return bytes;
}

NodeTable SampleTable() {
  NodeTable table;
  table.epoch = 42;
  NodeRecord a;
  a.id = "larder-0.larder.default";
  a.incarnation = 0x1122334455667788;
  a.data_address = "10.0.0.1:7400";
  a.control_address = "10.0.0.1:7401";
  a.http_address = "10.0.0.1:7402";
  a.host_id = "3f1c2f3e-0000-4000-8000-000000000001";
  a.shm_path = "/run/larder/n0.sock";
  a.ucx_address = "10.0.0.1:7410";
  a.weight = 3;
  a.zone = "rack-1";
  a.build = "0.1.0+abc";
  NodeRecord b = a;
  b.id = "[::1]:7400";
  b.data_address = b.id;
  b.shm_path.clear();
  b.weight = kWeightMax;
  b.state = NodeState::kDraining;
  NodeRecord c;
  c.id = "n3";
  c.data_address = "n3:1";
  c.state = NodeState::kAway;
  c.wire_max = 9;
  table.nodes = {a, b, c};
  table.Normalize();
  return table;
}

NodeTable TableOf(uint32_t nodes, std::string_view prefix) {
  NodeTable table;
  table.epoch = 1;
  for (uint32_t i = 0; i < nodes; ++i) {
    NodeRecord node;
    node.id = std::string(prefix) + std::to_string(10000 + i).substr(1);
    node.data_address = "127.0.0.1:" + std::to_string(10000 + i);
    table.nodes.push_back(node);
  }
  table.Normalize();
  return table;
}

void SealTable(Bytes* table) {
  LARDER_CHECK(table->size() >= 4);
  const uint32_t crc = Crc32c(0, ByteView(*table).first(table->size() - 4));
  std::memcpy(table->data() + table->size() - 4, &crc, sizeof crc);
}

ByteView RecordOf(const Bytes& message) {
  Envelope envelope;
  ByteView record;
  LARDER_CHECK(DecodeEnvelope(message, &envelope, &record).ok());
  return record;
}

}  // namespace larder::testing
