// KV events byte for byte: the golden bytes are what msgspec makes of vLLM 0.32's own classes (map), and of
// the same fields as array_like structs (array).
#include "node/events/kv_event_format.h"

#include <gtest/gtest.h>

namespace larder::node {
namespace {

std::string HexOf(const std::string& bytes) {
  return ToHex({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

std::vector<KvEvent> OneOfEach() {
  const std::vector<uint64_t> hashes = {0x0123456789abcdef, 0xfedcba9876543210, 7};
  return {{KvEvent::Kind::kStored, Presence::kRam, 0, 16, hashes},
          {KvEvent::Kind::kRemoved, Presence::kSsd, 300, 0, {hashes[0]}},
          {KvEvent::Kind::kCleared, Presence::kRam, 0, 0, {}}};
}

constexpr double kSeconds = 1764528000.123;

TEST(KvEventFormat, MapsAreThoseOfVllm) {
  EXPECT_EQ(
      HexOf(EncodeKvEvents(kSeconds, OneOfEach(), KvEventForm::kMap)),
      "93cb41da4b23e007df3b9389a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657393cf0123456789abcd"
      "efcffedcba987654321007b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f69647390aa626c6f636b5f73697a"
      "6510a76c6f72615f6964c0a66d656469756da3435055a96c6f72615f6e616d65c0a967726f75705f6964780084a474797065ac"
      "426c6f636b52656d6f766564ac626c6f636b5f68617368657391cf0123456789abcdefa66d656469756da753544f52414745a9"
      "67726f75705f696478cd012c81a474797065b0416c6c426c6f636b73436c656172656400");
}

TEST(KvEventFormat, ArraysAreThoseOfEarlierVllm) {
  EXPECT_EQ(
      HexOf(EncodeKvEvents(kSeconds, OneOfEach(), KvEventForm::kArray)),
      "93cb41da4b23e007df3b939aab426c6f636b53746f72656493cf0123456789abcdefcffedcba987654321007c09010c0a34350"
      "55c0c00094ac426c6f636b52656d6f76656491cf0123456789abcdefa753544f52414745cd012c91b0416c6c426c6f636b7343"
      "6c656172656400");
}

TEST(KvEventFormat, AHashIsItsLastEightBytes) {
  ChainHash hash;
  for (size_t i = 0; i < 32; ++i) hash.bytes[i] = static_cast<std::byte>(i + 0xe0);
  EXPECT_EQ(PublishedHash(hash), 0xf8f9fafbfcfdfeffu);
}

TEST(KvEventFormat, TopicsAreFilledIn) {
  Identity identity;
  ASSERT_TRUE(identity.Set("kind", "kv").ok());
  ASSERT_TRUE(identity.Set("cache_prefix", "org/Llama-8B").ok());
  TopicNames names{"n1", "chat", {}};
  names.name_space.bytes[0] = std::byte{0xab};
  const auto filled = [&](std::string_view topic) {
    EXPECT_TRUE(CheckTopic(topic).ok()) << topic;
    return TopicOf(topic, names, identity);
  };
  EXPECT_EQ(filled(""), "");
  EXPECT_EQ(filled("kv"), "kv");
  EXPECT_EQ(filled("kv@{node}@{cache_prefix}"), "kv@n1@org/Llama-8B");
  EXPECT_EQ(filled("{tenant}{model}!"), "chat!");
  EXPECT_EQ(filled("{namespace}"), "ab" + std::string(62, '0'));
}

TEST(KvEventFormat, TopicsThatMakeNoSenseAreRefused) {
  for (const char* topic : {"{", "}", "kv{node", "kv}node{", "{{node}}", "{}", "{Node}", "{no de}", "{1}"}) {
    EXPECT_FALSE(CheckTopic(topic).ok()) << topic;
  }
}

}  // namespace
}  // namespace larder::node
