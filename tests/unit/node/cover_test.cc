#include "node/owner/cover.h"

#include <gtest/gtest.h>

#include <random>

namespace larder::node {
namespace {

// Each part of the ask is in exactly one source, and each source lies in its piece.
void ExpectExact(const Rectangle& ask, const std::vector<Patch>& pieces, const std::vector<Patch>& sources) {
  uint32_t parts = 0;
  for (const Patch& source : sources) {
    EXPECT_TRUE(source.rectangle.valid());
    EXPECT_TRUE(pieces[source.entry].rectangle.Contains(source.rectangle));
    EXPECT_TRUE(ask.Contains(source.rectangle));
    parts += source.rectangle.parts();
  }
  EXPECT_EQ(parts, ask.parts());
  for (uint16_t layer = ask.layer_begin; layer < ask.layer_end; ++layer) {
    for (uint16_t head = ask.head_begin; head < ask.head_end; ++head) {
      int holders = 0;
      for (const Patch& source : sources) holders += source.rectangle.Contains(layer, head) ? 1 : 0;
      EXPECT_EQ(holders, 1);
    }
  }
}

TEST(Cover, WhatFourRanksWroteIsFourSources) {
  std::vector<Patch> pieces;
  for (uint16_t rank = 0; rank < 4; ++rank) {
    pieces.push_back({rank, {0, 32, static_cast<uint16_t>(rank * 2), static_cast<uint16_t>(rank * 2 + 2)}});
  }
  uint64_t work = 1 << 20;
  std::vector<Patch> sources;
  ASSERT_TRUE(Cover({0, 32, 0, 8}, pieces, &work, &sources));
  EXPECT_EQ(sources.size(), 4u);
  ASSERT_TRUE(Cover({0, 32, 0, 4}, pieces, &work, &sources));
  EXPECT_EQ(sources.size(), 2u);
  ASSERT_TRUE(Cover({3, 5, 1, 3}, pieces, &work, &sources));
  ExpectExact({3, 5, 1, 3}, pieces, sources);
}

TEST(Cover, AHoleIsNoCover) {
  uint64_t work = 1 << 20;
  std::vector<Patch> sources;
  EXPECT_FALSE(
      Cover({0, 4, 0, 2}, std::vector<Patch>{{0, {0, 2, 0, 2}}, {1, {3, 4, 0, 2}}}, &work, &sources));
  EXPECT_TRUE(sources.empty());
  EXPECT_FALSE(Cover({0, 1, 0, 1}, {}, &work, &sources));
}

TEST(Cover, ItsWorkIsBounded) {
  std::vector<Patch> pieces, sources;
  for (uint16_t layer = 0; layer < 64; layer = static_cast<uint16_t>(layer + 2)) {
    for (uint16_t head = 0; head < 64; head = static_cast<uint16_t>(head + 2)) {
      pieces.push_back({0, {layer, static_cast<uint16_t>(layer + 1), head, static_cast<uint16_t>(head + 1)}});
    }
  }
  uint64_t work = 10'000;
  EXPECT_FALSE(Cover({0, 64, 0, 64}, pieces, &work, &sources));
  EXPECT_EQ(work, 0u);
  EXPECT_TRUE(sources.empty());
}

TEST(Cover, AgreesWithCountingPartsOnRandomPieces) {
  std::mt19937_64 random(17);
  const auto rectangle = [&random](uint16_t layers, uint16_t heads) {
    const auto lb = static_cast<uint16_t>(random() % layers), hb = static_cast<uint16_t>(random() % heads);
    return Rectangle{lb, static_cast<uint16_t>(lb + 1 + random() % (layers - lb)), hb,
                     static_cast<uint16_t>(hb + 1 + random() % (heads - hb))};
  };
  int covered = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Patch> pieces;
    for (uint32_t i = 0; i < random() % 8; ++i) pieces.push_back({i, rectangle(6, 4)});
    const Rectangle ask = rectangle(6, 4);
    bool expected = true;
    for (uint16_t l = ask.layer_begin; l < ask.layer_end; ++l) {
      for (uint16_t h = ask.head_begin; h < ask.head_end; ++h) {
        bool held = false;
        for (const Patch& piece : pieces) held |= piece.rectangle.Contains(l, h);
        expected &= held;
      }
    }
    uint64_t work = 1 << 20;
    std::vector<Patch> sources;
    ASSERT_EQ(Cover(ask, pieces, &work, &sources), expected) << "round " << round;
    if (expected) ExpectExact(ask, pieces, sources), ++covered;
  }
  EXPECT_GT(covered, 100);
}

}  // namespace
}  // namespace larder::node
