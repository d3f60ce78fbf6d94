// Options from files and variables, identities from text: tables of good and bad input.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "client/config/client_config.h"
#include "client/config/identity_text.h"

namespace larder {
namespace {

class ClientConfig : public ::testing::Test {
 protected:
  ~ClientConfig() override { unlink(path_.c_str()); }
  Status Load(const std::string& file, const std::map<std::string, std::string>& variables = {}) {
    std::ofstream(path_) << file;
    return LoadClientOptions(
        path_,
        [&](const char* name) {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        &options_);
  }
  const std::string path_ = ::testing::TempDir() + "larder-client-config-" + std::to_string(getpid());
  ClientOptions options_;
};

TEST_F(ClientConfig, ReadsAFileAndLetsVariablesWin) {
  const Status loaded =
      Load(R"(
endpoints = ["a:1", "b:2"]
transport = "tcp"
io_threads = 3
bytes_in_flight_max = "64MiB"
deadline = "250ms"
)",
           {{"LARDER_TRANSPORT", "shm"}, {"LARDER_CLIENT_REPLICAS", "2"}, {"LARDER_TOKEN", ""}});
  ASSERT_TRUE(loaded.ok()) << loaded.ToString();
  EXPECT_EQ(options_.seeds, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(options_.transport, "shm");
  EXPECT_EQ(options_.replicas, 2u);
  EXPECT_EQ(options_.io_threads, 3);
  EXPECT_EQ(options_.bytes_in_flight_max, 64ull << 20);
  EXPECT_EQ(options_.default_deadline_us, 250'000u);
  EXPECT_EQ(options_.token, "");
}

TEST_F(ClientConfig, SaysWhereAndWhatIsWrong) {
  const struct {
    const char* file;
    const char* says;
  } kCases[] = {
      {"endpoint = \"a:1\"", ":1: a client has no setting \"endpoint\""},
      {"\n\nio_threads = \"many\"", ":3: io_threads: \"many\" is no whole number"},
      {"deadline = 5", "unit is missing"},
      {"deadline = [1]", "texts in quotes"},
      {"token = 1.5", "text in quotes"},
      {"io_threads = 99999999999", "too large"},
      {"endpoints = [", ":1: "},
  };
  for (const auto& each : kCases) {
    const Status loaded = Load(each.file);
    EXPECT_EQ(loaded.code(), Code::kInvalid) << each.file;
    EXPECT_NE(loaded.text().find(each.says), std::string::npos) << loaded.text();
  }
  const Status variable = Load("", {{"LARDER_CLIENT_SPIN", "fast"}});
  EXPECT_NE(variable.text().find("LARDER_CLIENT_SPIN"), std::string::npos) << variable.text();
}

TEST_F(ClientConfig, AVariableNamesTheFile) {
  std::ofstream(path_) << "endpoints = \"x:9\"";
  const Status loaded = LoadClientOptions(
      "",
      [&](const char* name) { return std::string(name) == "LARDER_CLIENT_CONFIG" ? path_.c_str() : nullptr; },
      &options_);
  ASSERT_TRUE(loaded.ok()) << loaded.ToString();
  EXPECT_EQ(options_.seeds, std::vector<std::string>{"x:9"});
}

TEST(IdentityText, AllFormsMeanTheSame) {
  Identity identity;
  ASSERT_TRUE(identity.Set("kind", "kv").ok());
  ASSERT_TRUE(identity.Set("model", "a model, 1").ok());
  ASSERT_TRUE(identity.Set("layers", "4").ok());
  const std::string json = "{\"layers\": 4, \"model\": \"a model, 1\", \"kind\": \"kv\"}";
  for (const std::string& text : {identity.CanonicalText(), json}) {
    const Result<Identity> read = IdentityFromText(text);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_EQ(read.value().CanonicalText(), identity.CanonicalText());
  }
  const Result<Identity> lines = IdentityFromText(" kind = kv\n\nlayers=4\n");
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines.value().CanonicalText(), IdentityFromText("layers=4,kind=kv").value().CanonicalText());
}

TEST(IdentityText, RefusesWhatIsNoIdentity) {
  for (const char* text : {"", "  ", "{", "{\"kind\": [1]}", "{\"kind\": 1.5}", "[1]", "kind", "Kind=kv",
                           "kind=kv\nkind=kv", R"({"kind": "kv", "kind": "kv"})", "{\"kind\": null}"}) {
    EXPECT_EQ(IdentityFromText(text).status().code(), Code::kInvalid) << text;
  }
  EXPECT_FALSE(IdentityFromText(std::string(1 << 20, 'a')).ok());
}

}  // namespace
}  // namespace larder
