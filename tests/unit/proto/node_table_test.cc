#include <gtest/gtest.h>

#include <functional>

#include "proto/placement.h"
#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::SampleTable;
using testing::SealTable;
using testing::TableOf;

Bytes Encoded(const NodeTable& table) {
  Bytes bytes;
  EncodeTable(table, &bytes);
  return bytes;
}

TEST(NodeTable, RoundTrip) {
  for (const NodeTable& table : {NodeTable(), SampleTable(), TableOf(100)}) {
    const Result<NodeTable> decoded = DecodeTable(Encoded(table));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(decoded.value(), table);
  }
}

TEST(NodeTable, LargestFitsAMessage) {
  NodeTable table = TableOf(kNodesMax, "larder-node-with-a-longish-name-");
  for (NodeRecord& node : table.nodes) {
    node.control_address = node.http_address = node.ucx_address = node.data_address;
    node.host_id = "3f1c2f3e-0000-4000-8000-000000000001";
    node.shm_path = "/run/larder/some/longish/path/shm.sock";
    node.zone = "europe-west-1b-rack-17";
    node.build = "0.1.0+0123456789abcdef";
  }
  const Bytes bytes = Encoded(table);
  EXPECT_LE(bytes.size(), kTableBytesMax);
  ASSERT_TRUE(DecodeTable(bytes).ok());
  table.nodes.push_back(table.nodes.back());
  table.nodes.back().id = "z";
  EXPECT_FALSE(DecodeTable(Encoded(table)).ok());  // one too many
}

TEST(NodeTable, NormalizeSortsAndKeepsTheNewerOfTwo) {
  NodeTable table = TableOf(3);
  NodeRecord newer = table.nodes[1];
  newer.incarnation = 5;
  newer.zone = "new";
  table.nodes.insert(table.nodes.begin(), newer);
  std::swap(table.nodes[1], table.nodes[3]);
  table.Normalize();
  ASSERT_EQ(table.nodes.size(), 3u);
  EXPECT_EQ(table.nodes[0].id, "n0000");
  EXPECT_EQ(table.nodes[1].zone, "new");
  EXPECT_EQ(table.nodes[2].id, "n0002");
}

// It covered every field but the incarnation, so nodes with one static list never agreed: each knows sockets,
// ports and build of itself alone.
TEST(NodeTable, DigestCoversWhatPlacesBlocksAndNothingElse) {
  const NodeTable table = SampleTable();
  const std::function<void(NodeTable*)> kPlaces[] = {
      [](NodeTable* t) { t->epoch = 1; },
      [](NodeTable* t) { t->algorithm = 2; },
      [](NodeTable* t) { t->nodes.pop_back(); },
      [](NodeTable* t) { t->nodes[0].id = "other"; },
      [](NodeTable* t) { t->nodes[0].data_address = "h:1"; },
      [](NodeTable* t) { t->nodes[0].weight = 17; },
      [](NodeTable* t) { t->nodes[0].state = NodeState::kJoining; },
  };
  const std::function<void(NodeTable*)> kOther[] = {
      [](NodeTable* t) { t->nodes[0].incarnation = 99; },
      [](NodeTable* t) { t->nodes[0].control_address = "h:1"; },
      [](NodeTable* t) { t->nodes[0].http_address = "h:1"; },
      [](NodeTable* t) { t->nodes[0].host_id = "x"; },
      [](NodeTable* t) { t->nodes[0].shm_path = "x"; },
      [](NodeTable* t) { t->nodes[0].ucx_address = "x"; },
      [](NodeTable* t) { t->nodes[0].zone = "x"; },
      [](NodeTable* t) { t->nodes[0].wire_max = 3; },
      [](NodeTable* t) { t->nodes[0].build = "x"; },
  };
  for (const auto& change : kPlaces) {
    NodeTable changed = table;
    change(&changed);
    EXPECT_NE(changed.digest(), table.digest()) << &change - kPlaces;
  }
  for (const auto& change : kOther) {
    NodeTable changed = table;
    change(&changed);
    EXPECT_EQ(changed.digest(), table.digest()) << &change - kOther;
    EXPECT_FALSE(changed == table) << &change - kOther;
  }
}

TEST(NodeTable, EachFlippedBitAndTruncationIsRejected) {
  const Bytes good = Encoded(SampleTable());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Bytes bytes = good;
    bytes[bit / 8] ^= std::byte(1 << bit % 8);
    ASSERT_FALSE(DecodeTable(bytes).ok()) << bit;
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    ASSERT_FALSE(DecodeTable(ByteView(good).first(bytes)).ok()) << bytes;
    Bytes cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes));
    if (bytes < 4) continue;
    SealTable(&cut);
    ASSERT_FALSE(DecodeTable(cut).ok()) << bytes;
  }
}

TEST(NodeTable, NewerVersionOrAlgorithmIsUnsupported) {
  for (size_t at : {size_t{4}, size_t{6}}) {
    Bytes bytes = Encoded(SampleTable());
    bytes[at] = std::byte{2};
    SealTable(&bytes);
    EXPECT_EQ(DecodeTable(bytes).status().code(), Code::kUnsupported) << at;
  }
}

TEST(NodeTable, NewerFieldsOfARecordAreIgnored) {
  NodeTable table = TableOf(1);
  Bytes bytes = Encoded(table);
  bytes.insert(bytes.end() - 4, 3, std::byte{9});
  uint32_t record_bytes = 0;
  std::memcpy(&record_bytes, bytes.data() + 20, 4);
  record_bytes += 3;
  std::memcpy(bytes.data() + 20, &record_bytes, 4);
  SealTable(&bytes);
  const Result<NodeTable> decoded = DecodeTable(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded.value(), table);
}

TEST(NodeTable, NonsenseIsRejected) {
  const std::function<void(NodeTable*)> kChanges[] = {
      [](NodeTable* t) { t->nodes[0].id = ""; },
      [](NodeTable* t) { t->nodes[2].id = "with space"; },
      [](NodeTable* t) { t->nodes[2].id = std::string(129, 'z'); },
      [](NodeTable* t) { t->nodes[2].id = t->nodes[1].id; },
      [](NodeTable* t) { std::swap(t->nodes[0], t->nodes[1]); },
      [](NodeTable* t) { t->nodes[0].weight = 0; },
      [](NodeTable* t) { t->nodes[0].weight = kWeightMax + 1; },
      [](NodeTable* t) { t->nodes[0].state = NodeState{4}; },
      [](NodeTable* t) { t->nodes[0].wire_min = 0; },
      [](NodeTable* t) { t->nodes[0].wire_min = 2; },
      [](NodeTable* t) { t->nodes[0].data_address = std::string(257, 'x'); },
      [](NodeTable* t) { t->nodes[0].build = std::string(257, 'x'); },
  };
  for (size_t i = 0; i < std::size(kChanges); ++i) {
    NodeTable table = TableOf(3);
    kChanges[i](&table);
    EXPECT_EQ(DecodeTable(Encoded(table)).status().code(), Code::kInvalid) << i;
  }
  Bytes trailing = Encoded(TableOf(3));
  trailing.push_back(std::byte{0});
  SealTable(&trailing);
  EXPECT_FALSE(DecodeTable(trailing).ok());
}

TEST(NodeEntry, Good) {
  struct Case {
    std::string_view text, id, address;
    uint32_t weight;
  };
  for (const Case& c : {Case{"10.0.0.1:7400", "10.0.0.1:7400", "10.0.0.1:7400", 1},
                        Case{"n1@10.0.0.1:7400", "n1", "10.0.0.1:7400", 1},
                        Case{"n1@host.example:7400*3", "n1", "host.example:7400", 3},
                        Case{"[::1]:7400", "[::1]:7400", "[::1]:7400", 1},
                        Case{"n-2@[fe80::1]:1*65536", "n-2", "[fe80::1]:1", 65536},
                        Case{"a@b@host:65535", "a@b", "host:65535", 1}}) {
    const Result<NodeRecord> node = ParseNodeEntry(c.text);
    ASSERT_TRUE(node.ok()) << c.text << ": " << node.status().ToString();
    EXPECT_EQ(node.value().id, c.id);
    EXPECT_EQ(node.value().data_address, c.address);
    EXPECT_EQ(node.value().weight, c.weight);
  }
}

TEST(NodeEntry, Bad) {
  const std::string long_id = std::string(129, 'x') + "@h:1";
  for (std::string_view text : std::initializer_list<std::string_view>{"",
                                                                       "host",
                                                                       "host:",
                                                                       ":7400",
                                                                       "host:0",
                                                                       "host:65536",
                                                                       "host:x",
                                                                       "host:-1",
                                                                       "host:7400*",
                                                                       "host:7400*0",
                                                                       "host:7400*65537",
                                                                       "host:7400*1.5",
                                                                       "host:7400*x",
                                                                       "@host:7400",
                                                                       "n 1@host:7400",
                                                                       "n1@",
                                                                       "n1@host",
                                                                       "::1:7400",
                                                                       "[::1]",
                                                                       "[::1:7400",
                                                                       "a,b:7400",
                                                                       "ho st:7400",
                                                                       "host:7400 ",
                                                                       "n1@host:7400*2*3",
                                                                       long_id}) {
    const Result<NodeRecord> node = ParseNodeEntry(text);
    EXPECT_FALSE(node.ok()) << text;
    EXPECT_EQ(node.status().code(), Code::kInvalid);
  }
}

}  // namespace
}  // namespace larder
