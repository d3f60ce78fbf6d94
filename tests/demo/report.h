// What the demo counts, and how it shows it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace larder::demo {

struct Totals {
  uint64_t requests = 0;    // done by both
  uint64_t prefilled = 0;   // done by prefill
  uint64_t blocks = 0;      // that the prefilled requests refer to
  uint64_t hit_blocks = 0;  // of them: in the longest resident prefix before the request's puts
  uint64_t ideal_hit_blocks = 0;
  uint64_t blocks_put = 0, bytes_put = 0;
  uint64_t blocks_pulled = 0, bytes_pulled = 0;
  uint64_t wrong_bytes = 0;
  std::map<std::string, uint64_t> hit_tiers;     // of hit_blocks
  std::map<std::string, uint64_t> pulled_tiers;  // of blocks_pulled
  std::map<std::string, uint64_t> missed;        // pulls, by reason
  std::map<std::string, uint64_t> not_stored;    // puts, by state
  std::map<std::string, uint64_t> peers;         // nodes that decode is connected to, by transport
  std::vector<double> match_us;                  // a request
  std::vector<double> pull_us;                   // a batch of pulls
  std::vector<double> wait_us;                   // a request
  double put_seconds = 0;
  double seconds = 0;
  bool interrupted = false;
  std::string failure;

  double hit_rate() const { return blocks == 0 ? 0 : double(hit_blocks) / double(blocks); }
  double ideal_hit_rate() const { return blocks == 0 ? 0 : double(ideal_hit_blocks) / double(blocks); }
};

// What a node that was killed and started again still had.
struct Recovery {
  std::string node;                      // empty: nobody asked for one
  uint64_t held_ram = 0, held_ssd = 0;   // blocks there before
  uint64_t back = 0, bytes_back = 0;     // pulled and verified afterwards
  std::map<std::string, uint64_t> lost;  // the others of them, by reason
  uint64_t wrong_bytes = 0;
  double seconds = 0;  // from the kill until the first hit
  std::string failure;
};

// Memory of all nodes, from the metrics at their HTTP addresses.
struct NodeMemory {
  size_t nodes = 0;
  double capacity_bytes = 0, slab_bytes = 0, payload_bytes = 0;
  double ssd_bytes = 0, ssd_capacity_bytes = 0;  // of records that can be read; 0: no SSD
  // Of the memory that the nodes took for blocks.
  double payload_share() const { return slab_bytes > 0 ? payload_bytes / slab_bytes : 0; }
};
NodeMemory MemoryOf(const std::vector<std::string>& http_addresses);

std::string ProgressLine(const Totals& totals, size_t requests_in_all, double seconds);
void PrintTable(Totals* totals, const NodeMemory& memory);
void PrintRecovery(const Recovery& recovery);
// One object. False when `path` can't be written; "-" is standard output.
bool WriteJson(Totals* totals, const NodeMemory& memory, const Recovery& recovery, const std::string& path);

}  // namespace larder::demo
