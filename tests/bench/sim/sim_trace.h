// A trace of the Mooncake format, made ready to be played many times: block names are small numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/block_key.h"
#include "proto/status.h"

namespace larder::sim {

struct SimRequest {
  uint64_t now_us = 0;
  uint64_t begin = 0, end = 0;  // of its blocks in SimTrace::blocks, root first
};

struct SimTrace {
  std::string name;              // the file's, without folder and ending
  std::vector<uint32_t> blocks;  // of all requests, one after the other; numbers from 0 on without gaps
  std::vector<SimRequest> requests;
  uint32_t distinct = 0;
  std::vector<uint8_t> partial;  // [block] 1: partly filled; the next turn has another one in its place

  std::span<const uint32_t> BlocksOf(const SimRequest& request) const {
    return std::span(blocks).subspan(request.begin, request.end - request.begin);
  }
};

// kInvalid names the file and line.
Result<SimTrace> ReadSimTrace(const std::string& path);

// Appends a request; block names may be any numbers. For tests and readers.
class SimTraceBuilder {
 public:
  explicit SimTraceBuilder(std::string name);
  void Add(uint64_t now_us, std::span<const uint64_t> blocks, bool partial_end = false);
  SimTrace Take() { return std::move(trace_); }

 private:
  SimTrace trace_;
  std::vector<std::pair<uint64_t, uint32_t>> table_;  // open addressing: name + 1, number
};

// What the block is called in the data plane, and by policies.
ChainHash HashOfBlock(uint32_t block);
uint64_t KeyOfBlock(uint32_t block);

}  // namespace larder::sim
