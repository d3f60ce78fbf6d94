// Which pieces answer for a rectangle.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/block_key.h"

namespace larder::node {

struct Patch {
  uint32_t entry = 0;
  Rectangle rectangle;
};

// Fills `sources` with disjoint rectangles, each inside the piece it names, that together are `ask`. False:
// the pieces don't cover it (or only in more than 4,096 patches). Larger pieces are taken first, so that what
// TP=4 wrote is answered with four sources whatever smaller pieces lie beside them. Scattered pieces can make
// this long: each rectangle looked at takes one from `work_left`, and with none left the answer is false.
bool Cover(const Rectangle& ask, std::span<const Patch> pieces, uint64_t* work_left,
           std::vector<Patch>* sources);

}  // namespace larder::node
