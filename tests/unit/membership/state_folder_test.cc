#include "node/membership/state_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace larder::node {
namespace {

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/larder-state-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    path = std::string(name) + "/deep/er";
    root = name;
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  std::string path, root;
};

NodeTable TableOf(uint64_t epoch) {
  NodeTable table;
  table.epoch = epoch;
  NodeRecord record;
  record.id = "a";
  record.data_address = "127.0.0.1:7400";
  table.nodes = {record};
  return table;
}

TEST_F(Folder, AnIdIsMadeOnceAndKept) {
  std::string id;
  {
    Result<StateFolder> folder = StateFolder::Open(path);
    ASSERT_TRUE(folder.ok()) << folder.status().text();
    Result<std::string> made = folder->NodeId("", "fresh");
    ASSERT_TRUE(made.ok());
    id = made.value();
    EXPECT_EQ(id, "fresh");
  }
  Result<StateFolder> again = StateFolder::Open(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->NodeId("", "another").value(), id);
  EXPECT_EQ(again->NodeId(id, "another").value(), id);
  const Result<std::string> other = again->NodeId("other", "another");
  EXPECT_EQ(other.status().code(), Code::kInvalid);
  EXPECT_NE(other.status().text().find("belongs to the node " + id), std::string::npos)
      << other.status().text();
}

TEST_F(Folder, TheLastTableIsThereAgainADamagedOneIsNot) {
  Result<StateFolder> folder = StateFolder::Open(path);
  ASSERT_TRUE(folder.ok());
  EXPECT_FALSE(folder->Table().has_value());
  ASSERT_TRUE(folder->Keep(TableOf(3)).ok());
  ASSERT_TRUE(folder->Keep(TableOf(4)).ok());
  ASSERT_TRUE(folder->Table().has_value());
  EXPECT_EQ(*folder->Table(), TableOf(4));
  const std::string file = path + "/table";
  const auto bytes = std::filesystem::file_size(file);
  for (uintmax_t cut = 0; cut < bytes; cut += 7) {
    ASSERT_TRUE(folder->Keep(TableOf(4)).ok());
    std::filesystem::resize_file(file, cut);
    EXPECT_FALSE(folder->Table().has_value()) << cut;
  }
  ASSERT_TRUE(folder->Keep(TableOf(4)).ok());
  std::fstream flip(file, std::ios::in | std::ios::out | std::ios::binary);
  flip.seekp(9);
  flip.put('\x55');
  flip.close();
  EXPECT_FALSE(folder->Table().has_value());
}

TEST_F(Folder, TwoProcessesDoNotShareIt) {
  Result<StateFolder> folder = StateFolder::Open(path);
  ASSERT_TRUE(folder.ok());
  const Result<StateFolder> second = StateFolder::Open(path);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().text().find("another process uses"), std::string::npos);
}

TEST_F(Folder, AFolderThatCannotBeMadeIsSaid) {
  std::ofstream(root + "/file") << "x";
  const Result<StateFolder> folder = StateFolder::Open(root + "/file/below");
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace larder::node
