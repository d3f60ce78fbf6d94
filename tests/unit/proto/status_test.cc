#include "proto/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "proto/bytes.h"

namespace larder {
namespace {

TEST(Status, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (uint8_t code = 0; code <= static_cast<uint8_t>(Code::kInternal); ++code) {
    names.insert(CodeName(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), 12u);
  EXPECT_EQ(names.count("unknown"), 0u);
  EXPECT_EQ(CodeName(static_cast<Code>(200)), "unknown");
}

TEST(Status, SaysCodeAndText) {
  EXPECT_TRUE(Status::Ok().ok());
  EXPECT_EQ(Status::Ok().ToString(), "ok");
  EXPECT_EQ(Invalid("chain too long").ToString(), "invalid: chain too long");
  EXPECT_EQ(Status(Code::kTimedOut, "").ToString(), "timed-out");
}

Status PassOn(Status status) {
  LARDER_RETURN_IF_ERROR(status);
  return Invalid("went on");
}

TEST(Status, ReturnIfErrorReturnsOnlyErrors) {
  EXPECT_EQ(PassOn(Status(Code::kBusy, "x")).code(), Code::kBusy);
  EXPECT_EQ(PassOn(Status::Ok()).text(), "went on");
}

TEST(Result, HoldsAValueOrWhyThereIsNone) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*std::move(good).value(), 3);
  const Result<std::unique_ptr<int>> bad(Invalid("no"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().text(), "no");
}

TEST(Bytes, ReaderGivesBackWhatWriterWrote) {
  Bytes bytes;
  Writer writer(&bytes);
  writer.U8(1);
  writer.U16(0x0203);
  writer.U32(0x04050607);
  writer.U64(0x08090a0b0c0d0e0f);
  writer.Text("text");
  ASSERT_EQ(writer.size(), 1u + 2 + 4 + 8 + 4 + 4);
  EXPECT_EQ(bytes[1], std::byte{3});  // little-endian
  Reader reader(bytes);
  EXPECT_EQ(reader.U8(), 1u);
  EXPECT_EQ(reader.U16(), 0x0203u);
  EXPECT_EQ(reader.U32(), 0x04050607u);
  EXPECT_EQ(reader.U64(), 0x08090a0b0c0d0e0fu);
  EXPECT_EQ(reader.Text(4), "text");
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.left(), 0u);
}

TEST(Bytes, ReaderStaysFailedAndGivesZeros) {
  const Bytes bytes(3, std::byte{0xff});
  Reader reader(bytes);
  EXPECT_EQ(reader.U32(), 0u);
  EXPECT_EQ(reader.U8(), 0u);  // though a byte is there
  EXPECT_TRUE(reader.View(1).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(Bytes, TextOverItsLimitFails) {
  Bytes bytes;
  Writer(&bytes).Text("12345");
  EXPECT_EQ(Reader(bytes).Text(5), "12345");
  Reader reader(bytes);
  EXPECT_EQ(reader.Text(4), "");
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace larder
