#include <gtest/gtest.h>

#include "client/client.h"

namespace larder {
namespace {

struct Case {
  const char* name;
  std::vector<const char*> groups;  // one string a group, one character a block: x there, . not
  std::vector<uint32_t> windows;
  uint32_t usable;
};

// By definition, slowly.
uint32_t Reference(const Case& test) {
  const size_t keys = std::string_view(test.groups[0]).size();
  for (size_t length = keys; length > 0; --length) {
    bool all = true;
    for (size_t group = 0; group < test.groups.size(); ++group) {
      const size_t window = test.windows[group] == 0 ? length : std::min<size_t>(test.windows[group], length);
      for (size_t key = length - window; key < length; ++key) all &= test.groups[group][key] == 'x';
    }
    if (all) return static_cast<uint32_t>(length);
  }
  return 0;
}

TEST(UsableLength, IsTheLongestPrefixThatEveryGroupCanUse) {
  const Case cases[] = {
      {"nothing asked", {""}, {0}, 0},
      {"all there", {"xxxx"}, {0}, 4},
      {"none there", {"...."}, {0}, 0},
      {"hole ends a full group", {"xx.x"}, {0}, 2},
      {"first missing", {".xxx"}, {0}, 0},
      {"window needs only its end", {"...xx"}, {2}, 5},
      {"window larger than the prefix", {"xx..."}, {3}, 2},
      {"window of one", {"..x.."}, {1}, 3},
      {"window run too short", {"x.x.x"}, {2}, 1},
      {"full and window", {"xxxxx", "...xx"}, {0, 2}, 5},
      {"window caps a full group", {"xxxxx", "..xx."}, {0, 2}, 4},
      {"full caps a window", {"xxx..", "xxxxx"}, {0, 2}, 3},
      {"nothing in common", {"xx...", "...xx"}, {0, 2}, 0},
      {"two windows", {".xx.xx", "xxx.xx"}, {2, 1}, 6},
      {"two windows, one short", {".xx.x.", "xxx.xx"}, {2, 1}, 3},
  };
  for (const Case& test : cases) {
    const size_t keys = std::string_view(test.groups[0]).size();
    std::vector<Presence> presence;
    for (size_t key = 0; key < keys; ++key) {
      for (const char* group : test.groups) {
        presence.push_back(group[key] == 'x' ? Presence::kRam : Presence::kNeverStored);
      }
    }
    std::vector<GroupSpec> groups;
    for (const uint32_t window : test.windows)
      groups.push_back({static_cast<uint16_t>(groups.size()), window});
    EXPECT_EQ(UsableLength(presence, keys, groups), test.usable) << test.name;
    EXPECT_EQ(Reference(test), test.usable) << test.name;
  }
}

TEST(UsableLength, CountsSsdAsThereAndWritingAsNot) {
  const std::vector<GroupSpec> one = {{}};
  const Presence presence[] = {Presence::kRam, Presence::kSsd, Presence::kWriting};
  EXPECT_EQ(UsableLength(presence, 3, one), 2u);
}

TEST(UsableLength, AgreesWithTheDefinitionOnRandomChains) {
  uint64_t state = 7;
  const auto next = [&] { return (state = state * 6364136223846793005ull + 1442695040888963407ull) >> 33; };
  for (int round = 0; round < 2000; ++round) {
    const size_t keys = 1 + next() % 12, groups = 1 + next() % 3;
    std::vector<std::string> rows(groups, std::string(keys, '.'));
    Case test{"random", {}, {}, 0};
    std::vector<GroupSpec> specs;
    std::vector<Presence> presence(keys * groups, Presence::kEvicted);
    for (size_t group = 0; group < groups; ++group) {
      for (size_t key = 0; key < keys; ++key) {
        if (next() % 4 == 0) continue;
        rows[group][key] = 'x';
        presence[key * groups + group] = Presence::kRam;
      }
      test.windows.push_back(static_cast<uint32_t>(next() % 4));
      specs.push_back({static_cast<uint16_t>(group), test.windows.back()});
    }
    for (const std::string& row : rows) test.groups.push_back(row.c_str());
    ASSERT_EQ(UsableLength(presence, keys, specs), Reference(test)) << "round " << round;
  }
}

}  // namespace
}  // namespace larder
