// Heads of records that are read past the disk: what verifies is told, anything else is nothing.
#include "node/ssd/head_reader.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "node/ssd/directory.h"
#include "node/ssd/record.h"

namespace larder::node::ssd {
namespace {

constexpr uint32_t kSegment = 3;
constexpr uint32_t kPage = 2;

// A segment with one record whose block has two constituents.
class HeadReader : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/larder-head-test-XXXXXX";
    folder_ = mkdtemp(name);
    header_.hash.bytes[0] = std::byte{7};
    header_.constituents = {ChainHash{}, header_.hash};
    header_.parts = {{100, 1}};
    record_ = {.segment = kSegment, .page = kPage, .sequence = 9, .hash = header_.hash};
    record_.payload_bytes = 100;
    Bytes encoded;
    EncodeHeader(header_, &encoded);
    encoded.resize((encoded.size() + 63) / 64 * 64);
    record_.header_bytes = static_cast<uint32_t>(encoded.size());
    content_.resize(kPage * kPageBytes + kPreambleBytes);
    EncodePreamble({9, record_.header_bytes, 100, 0}, content_.data() + kPage * kPageBytes);
    content_.insert(content_.end(), encoded.begin(), encoded.end());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write() const {
    std::ofstream(SegmentPath(folder_, kSegment), std::ios::binary)
        .write(reinterpret_cast<const char*>(content_.data()), static_cast<std::streamsize>(content_.size()));
  }

  std::string folder_;
  BlockHeader header_;
  IndexRecord record_;
  Bytes content_;
};

TEST_F(HeadReader, TellsTheHeader) {
  EXPECT_FALSE(ReadHead(folder_, record_));  // no such file
  Write();
  const std::optional<BlockHeader> head = ReadHead(folder_, record_);
  ASSERT_TRUE(head);
  EXPECT_EQ(head->constituents, header_.constituents);
}

TEST_F(HeadReader, AnotherRecordIsNone) {
  Write();
  for (const int field : {0, 1, 2, 3}) {
    IndexRecord other = record_;
    if (field == 0) other.sequence = 10;  // the segment's earlier life
    if (field == 1) other.hash.bytes[0] = std::byte{8};
    if (field == 2) other.group = 1;
    if (field == 3) other.page = 0;
    EXPECT_FALSE(ReadHead(folder_, other)) << field;
  }
}

TEST_F(HeadReader, DamageIsNone) {
  content_[content_.size() - 70] ^= std::byte{1};
  Write();
  EXPECT_FALSE(ReadHead(folder_, record_));
  content_[content_.size() - 70] ^= std::byte{1};
  content_.resize(content_.size() - 64);  // torn
  Write();
  EXPECT_FALSE(ReadHead(folder_, record_));
}

}  // namespace
}  // namespace larder::node::ssd
