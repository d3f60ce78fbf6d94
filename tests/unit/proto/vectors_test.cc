// This build reads and writes exactly the bytes that version 1 promised.
#include "tests/unit/proto/vectors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::Sample;

const std::filesystem::path kFolder = std::filesystem::path(LARDER_VECTORS_FOLDER) / "v1";

std::string Contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

Bytes FromFile(const std::string& name) {
  Bytes bytes;
  std::ifstream file(kFolder / name);
  for (std::string line; std::getline(file, line);) {
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<std::byte>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  return bytes;
}

TEST(Vectors, ThisBuildWritesThem) {
  const auto built = testing::VectorsOfThisBuild();
  for (const auto& [name, contents] : built) EXPECT_EQ(Contents(kFolder / name), contents) << name;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    EXPECT_EQ(built.count(entry.path().filename().string()), 1u) << entry.path() << " is made by nothing";
  }
}

TEST(Vectors, ThisBuildReadsThem) {
  EXPECT_EQ(DecodeHeader(FromFile("header_plain.hex")).value(), testing::PlainHeader());
  EXPECT_EQ(DecodeHeader(FromFile("header_full.hex")).value(), testing::FullHeader());
  EXPECT_EQ(DecodeHeader(FromFile("header_extended.hex")).value(), testing::FullHeader());
  EXPECT_EQ(DecodeTable(FromFile("table.hex")).value(), testing::SampleTable());
  EXPECT_EQ(Identity::Parse(Contents(kFolder / "identity.txt")).value().fields(),
            testing::SampleIdentity().fields());
  GetReply reply;
  const Bytes get_reply = FromFile("message_get_reply.hex");
  ASSERT_TRUE(Decode(testing::RecordOf(get_reply), &reply).ok());
  EXPECT_EQ(reply, Sample<GetReply>());
  const Bytes get_reply_part = FromFile("message_get_reply_part.hex");
  ASSERT_TRUE(Decode(testing::RecordOf(get_reply_part), &reply).ok());
  EXPECT_TRUE(reply.owes());
  EXPECT_EQ(reply.blocks.back().presence, Presence::kLater);
  Reserve reserve;
  const Bytes reserve_bytes = FromFile("message_reserve.hex");
  ASSERT_TRUE(Decode(testing::RecordOf(reserve_bytes), &reserve).ok());
  EXPECT_EQ(reserve, Sample<Reserve>());
}

}  // namespace
}  // namespace larder
