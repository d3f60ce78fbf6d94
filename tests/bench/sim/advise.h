// How much RAM and SSD is worth having: hit rates over a grid of sizes, for operators.
#pragma once

#include <string>
#include <vector>

#include "tests/bench/sim/cluster.h"

namespace larder::sim {

struct Advice {
  std::string trace;
  uint64_t distinct = 0, references = 0;
  double ideal_percent = 0;                    // of a cache without bounds
  std::vector<double> ram_percent;             // columns, in percent of the distinct blocks
  std::vector<double> ssd_percent;             // rows; 0: no SSD
  std::vector<std::vector<PlayResult>> cells;  // [row][column]
};

// Plays the default policy at every size of the grid.
Advice Advise(const SimTrace& trace);
// For people, 100 columns wide at most. Sizes are blocks too, so that a block's bytes make them bytes.
std::string AdviceTable(const Advice& advice);
// One line for each SSD size over RAM, as an SVG picture.
std::string AdviceSvg(const Advice& advice);

}  // namespace larder::sim
