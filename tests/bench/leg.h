// Legs: what the bench can measure, in groups that share a node and a limit.
//
// A group is set up once (a node process, its resident blocks, the raw server), then its legs and the limits
// they are compared with take turns, repetition after repetition, so that both see the same machine. A leg's
// ratio is the median over the repetitions of (leg / its limit in the same repetition).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/bench/measure.h"

namespace larder::bench {

inline constexpr uint32_t kBatchBlocks = 16;  // of every get and put, also over raw sockets

struct Options {
  double seconds = 0.5;  // of one measurement
  int repeat = 5;
  uint64_t working_set_bytes = 1ull << 30;  // resident blocks of a node, and what the limits walk over
  uint64_t match_keys = 1'000'000;
  std::string node_program;  // path of larder-node
  std::string own_program;   // path of this program
  bool quiet = false;        // no progress lines
};

struct LegSpec {
  std::string name;  // "get/tcp/1MiB/noverify"
  std::string unit;  // "GB/s", "us", "bytes", "%"
  // Name of the limit, empty: none. What follows a slash tells limits of one name apart.
  std::string reference;
  bool canonical = false;  // part of a run without arguments
  bool once = false;       // a count, not a timing: one repetition is enough
};

// A group that is set up.
class Stage {
 public:
  virtual ~Stage() = default;
  virtual Sample Measure(const LegSpec& leg, double seconds) = 0;
  virtual Sample MeasureReference(const std::string& reference, double seconds) = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual std::vector<LegSpec> legs() const = 0;
  // nullptr with a sentence in `error` when this machine or build can't.
  virtual std::unique_ptr<Stage> SetUp(const Options& options, std::string* error) const = 0;
};

struct LegResult {
  LegSpec leg;
  Sample median;         // each field's median over the repetitions
  Sample reference;      // likewise
  double ratio = 0;      // 0: no reference
  double cpu_ratio = 0;  // CPU seconds a GiB against the reference's; 0: unknown
  double spread = 0;     // (largest - smallest) / median of the values
};

// Asks RunGroup to stop after the measurement under way; safe in a signal handler.
void AskToStop();
bool StopAsked();

// Runs the legs of `group` that `wanted` names.
std::vector<LegResult> RunGroup(const Group& group, const std::vector<LegSpec>& wanted,
                                const Options& options);

std::string SizeName(uint64_t bytes);  // "64KiB", "1MiB"

// The groups, by file.
std::vector<std::unique_ptr<Group>> ReferenceGroups();  // reference_group.cc
std::vector<std::unique_ptr<Group>> BlockGroups();      // block_group.cc: gets and puts
std::vector<std::unique_ptr<Group>> MatchGroups();      // match_group.cc
std::vector<std::unique_ptr<Group>> FleetGroups();      // fleet_group.cc: a match over many homes
std::vector<std::unique_ptr<Group>> SsdGroups();        // ssd_group.cc
std::vector<std::unique_ptr<Group>> TiersGroups();      // tiers_group.cc
std::vector<std::unique_ptr<Group>> RecoverGroups();    // recover_group.cc
std::vector<std::unique_ptr<Group>> SpaceGroups();      // space_group.cc: metadata, payload share

// What `load` does: gets from the node at `address` as fast as it can, until it is ended.
int RunLoad(const std::string& address);
// What `fleet` does: nodes in one process for FleetGroups, until it is ended.
int RunFleet();

}  // namespace larder::bench
