#include <gtest/gtest.h>

#include "proto/block_header.h"
#include "proto/block_key.h"
#include "tests/unit/proto/samples.h"

namespace larder {
namespace {

using testing::SampleIdentity;

Identity Of(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
  Identity identity;
  for (const auto& [name, value] : fields) EXPECT_TRUE(identity.Set(name, value).ok()) << name;
  return identity;
}

TEST(Identity, CanonicalTextIsSortedAndEncoded) {
  const Identity identity =
      Of({{"rope", "x y"}, {"kind", "kv"}, {"model", "a/b:c.d_e+f-g=100%\n\xff"}, {"lora", ""}});
  EXPECT_EQ(identity.CanonicalText(), "kind=kv\nmodel=a/b:c.d_e+f-g%3D100%25%0A%FF\nrope=x%20y\n");
  EXPECT_EQ(Identity().CanonicalText(), "");
}

TEST(Identity, OrderOfSettingDoesNotMatter) {
  EXPECT_EQ(Of({{"b", "2"}, {"a", "1"}}).digest(), Of({{"a", "0"}, {"a", "1"}, {"b", "2"}}).digest());
  EXPECT_NE(Of({{"a", "1"}}).digest(), Of({{"a", "2"}}).digest());
  EXPECT_NE(Of({{"a", "1"}}).digest(), Of({{"a", "1"}, {"b", "1"}}).digest());
}

TEST(Identity, AnEmptyValueRemovesTheField) {
  Identity identity = Of({{"kind", "kv"}, {"lora", "x"}});
  ASSERT_TRUE(identity.Set("lora", "").ok());
  EXPECT_EQ(identity.fields().size(), 1u);
  EXPECT_EQ(identity.Get("lora"), "");
  EXPECT_EQ(identity.Get("kind"), "kv");
}

TEST(Identity, SetRefusesBadNamesAndLongValues) {
  Identity identity;
  for (std::string_view name : {"", "Kind", "1a", "_a", "a-b", "a b", "a=b", "\xc3\xa9"}) {
    EXPECT_EQ(identity.Set(name, "x").code(), Code::kInvalid) << name;
  }
  EXPECT_TRUE(identity.Set("a" + std::string(63, '_'), "x").ok());
  EXPECT_FALSE(identity.Set("a" + std::string(64, '_'), "x").ok());
  EXPECT_TRUE(identity.Set("long", std::string(1024, 'x')).ok());
  EXPECT_FALSE(identity.Set("long", std::string(1025, 'x')).ok());
  EXPECT_EQ(identity.Get("long").size(), 1024u);  // a refused Set changes nothing
}

TEST(Identity, TextNeverPassesItsLimit) {
  Identity identity;
  int set = 0;
  while (identity.Set("f" + std::to_string(set), std::string(1024, '%')).ok()) ++set;
  EXPECT_EQ(set, 5);  // 5 x 3 KiB
  EXPECT_LE(identity.CanonicalText().size(), kIdentityBytesMax);
  EXPECT_EQ(identity.fields().count("f5"), 0u);
  ASSERT_TRUE(identity.Set("f0", "old").ok());
  ASSERT_TRUE(identity.Set("f5", std::string(1024, '%')).ok());
  EXPECT_FALSE(identity.Set("f0", std::string(1024, '%')).ok());
  EXPECT_EQ(identity.Get("f0"), "old");
}

TEST(Identity, ParseGivesBackWhatCanonicalTextWrote) {
  const std::string text = SampleIdentity().CanonicalText();
  const Result<Identity> parsed = Identity::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(parsed.value().fields(), SampleIdentity().fields());
  EXPECT_TRUE(Identity::Parse("").ok());
}

TEST(Identity, ParseRefusesWhatIsNotCanonical) {
  const std::string long_line = "a=" + std::string(1025, 'x') + "\n";
  std::string long_text;
  for (int i = 0; i < 20; ++i)
    long_text += std::string(1, char('a' + i)) + "=" + std::string(1000, 'x') + "\n";
  for (std::string_view text :
       {std::string_view("a=1"),        std::string_view("a\n"),       std::string_view("=1\n"),
        std::string_view("\n"),
        std::string_view("b=1\na=1\n"),  // order
        std::string_view("a=1\na=1\n"),  // twice
        std::string_view("a=1\na=2\n"),  //
        std::string_view("a=\n"),        // empty
        std::string_view("A=1\n"),       // name
        std::string_view("a=%41\n"),     // needless escape
        std::string_view("a=%0a\n"),     // lower case
        std::string_view("a=%\n"),      std::string_view("a=%0\n"),    std::string_view("a=%G0\n"),
        std::string_view("a=%+1\n"),    std::string_view("a=%-1\n"),   std::string_view("a=x y\n"),
        std::string_view("a=1\r\n"),    std::string_view("a=1\n\n"),   std::string_view(" a=1\n"),
        std::string_view("a=1\nb"),     std::string_view("a=\0\n", 4), std::string_view(long_line),
        std::string_view(long_text)}) {
    const Result<Identity> parsed = Identity::Parse(text);
    EXPECT_FALSE(parsed.ok()) << text.substr(0, 40);
    EXPECT_EQ(parsed.status().code(), Code::kInvalid);
  }
}

TEST(Identity, ValidateKnowsKindsNumbersAndHashes) {
  EXPECT_TRUE(SampleIdentity().Validate().ok());
  EXPECT_TRUE(Of({{"kind", "opaque"}}).Validate().ok());
  EXPECT_TRUE(Of({{"kind", "kv"}, {"something_new", "x"}}).Validate().ok());
  EXPECT_FALSE(Identity().Validate().ok());
  EXPECT_FALSE(Of({{"kind", "files"}}).Validate().ok());
  for (std::string_view name : {"kv_heads", "head_dim", "layers", "block_tokens", "head_groups"}) {
    EXPECT_TRUE(Of({{"kind", "kv"}, {name, "16"}}).Validate().ok()) << name;
    for (std::string_view bad : {"0", "-1", "+1", "01", "1.5", "x", "0x10", "99999999999", " 1", "1 "}) {
      EXPECT_FALSE(Of({{"kind", "kv"}, {name, bad}}).Validate().ok()) << name << "=" << bad;
    }
  }
  EXPECT_TRUE(Of({{"kind", "kv"}, {"draft_layers", "0"}, {"weights_epoch", "4294967295"}}).Validate().ok());
}

TEST(Identity, WeakHashesAreRefusedUnlessAllowed) {
  for (std::string_view hash : {"sha256", "sha256_cbor", "blake3", "larder"}) {
    EXPECT_TRUE(Of({{"kind", "kv"}, {"hash", hash}}).Validate().ok()) << hash;
  }
  for (std::string_view hash : {"sha256_64bit", "builtin", "xxhash", "md5", "SHA256", "hash"}) {
    EXPECT_FALSE(Of({{"kind", "kv"}, {"hash", hash}}).Validate().ok()) << hash;
    EXPECT_TRUE(Of({{"kind", "kv"}, {"hash", hash}}).Validate(true).ok()) << hash;
  }
}

TEST(Identity, GridFollowsLayersAndHeads) {
  const auto grid = [](const Identity& identity) {
    const Result<Grid> result = GridOf(identity);
    return result.ok() ? result.value() : Grid{0, 0};
  };
  EXPECT_EQ(grid(SampleIdentity()), (Grid{80, 8}));
  EXPECT_EQ(grid(Of({{"kind", "opaque"}, {"layers", "7"}})), (Grid{1, 1}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}})), (Grid{1, 1}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "40"}, {"kv_heads", "40"}})), (Grid{40, 8}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "40"}, {"kv_heads", "6"}})), (Grid{40, 2}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "60"}, {"kv_heads", "128"}, {"attention", "mla"}})),
            (Grid{60, 1}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "8"}, {"kv_heads", "8"}, {"head_groups", "4"}})),
            (Grid{8, 4}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "61"}, {"draft_layers", "1"}})), (Grid{62, 1}));
  EXPECT_EQ(grid(Of({{"kind", "kv"}, {"layers", "4096"}})), (Grid{4096, 1}));
  EXPECT_FALSE(GridOf(Of({{"kind", "kv"}, {"layers", "4096"}, {"draft_layers", "1"}})).ok());
  EXPECT_FALSE(GridOf(Of({{"kind", "kv"}, {"layers", "513"}, {"head_groups", "8"}})).ok());
  EXPECT_FALSE(GridOf(Of({{"kind", "kv"}, {"layers", "many"}})).ok());
  EXPECT_FALSE(GridOf(Identity()).ok());
}

}  // namespace
}  // namespace larder
